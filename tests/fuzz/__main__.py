"""`python -m tests.fuzz --seconds 600`: the same cases as in the tests, for as long as you like.

`--seed` makes a run again; a failure names its case. `--from N` begins at case N.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.campaign import SETTINGS, STRICT, Campaign
from tests.fuzz.canary import Canary
from tests.fuzz.process import BrokerProcess, MemoryWatch

REPORT_S = 10.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--from", dest="first", type=int, default=0, metavar="N")
    parser.add_argument("--strict", action="store_true", help="with log.validate: records, flush: sync, small segments")
    options = parser.parse_args()
    settings = STRICT if options.strict else SETTINGS
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder, BrokerProcess(Path(folder), **settings) as broker:
        canary = Canary(broker.address)
        canary.start()
        with MemoryWatch(broker) as memory:
            campaign = Campaign(broker, canary, memory, options.seed)
            end = time.monotonic() + options.seconds
            report = time.monotonic() + REPORT_S
            for number in itertools.count(options.first):
                campaign.case(number)
                now = time.monotonic()
                if now >= report or now >= end:
                    report = now + REPORT_S
                    outcomes = " ".join(f"{name}={count}" for name, count in sorted(campaign.outcomes.items()))
                    print(
                        f"case {number} {outcomes} grown={memory.grown_bytes >> 20} MiB "
                        f"canary rounds={canary.rounds} worst={canary.worst_s * 1000:.0f} ms",
                        flush=True,
                    )
                if now >= end:
                    break
        canary.stop()
        assert broker.stop() == 0, "no clean end"
        broker_lines = len(broker.lines)
    print(f"ok: {broker_lines} log lines", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
