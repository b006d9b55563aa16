"""`python -m tests.fuzz --seconds 600`: the same cases as in the tests, for as long as you like.

`--seed` makes a run again; a failure names its case. `--from N` begins at case N. `--rocketmq` attacks the ports of
RocketMQ's clients, and not Kafka's.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.fuzz.campaign import SETTINGS, STRICT, Campaign
from tests.fuzz.canary import Canary
from tests.fuzz.process import BrokerProcess, MemoryWatch
from tests.fuzz.remoting import RemoteCanary
from tests.fuzz.remoting_campaign import LISTENERS, RemotingCampaign

REPORT_S = 10.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--from", dest="first", type=int, default=0, metavar="N")
    parser.add_argument("--strict", action="store_true", help="with log.validate: records, flush: sync, small segments")
    parser.add_argument("--rocketmq", action="store_true")
    options = parser.parse_args()
    settings = (STRICT if options.strict else SETTINGS) | (LISTENERS if options.rocketmq else {})
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder, BrokerProcess(Path(folder), **settings) as broker:
        canaries = [Canary(broker.address, broker.cpu_s)]
        if options.rocketmq:
            canaries.append(RemoteCanary(broker.rocketmq, broker.names, broker.cpu_s))
        for canary in canaries:
            canary.start()
        with MemoryWatch(broker) as memory, ExitStack() as stack:
            campaign: Campaign | RemotingCampaign
            if options.rocketmq:
                campaign = stack.enter_context(RemotingCampaign(broker, canaries, memory, options.seed))
            else:
                campaign = Campaign(broker, canaries[0], memory, options.seed)
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
                        f"canary rounds={min(canary.rounds for canary in canaries)} "
                        f"worst={max(canary.worst_s for canary in canaries) * 1000:.0f} ms",
                        flush=True,
                    )
                if now >= end:
                    break
        for canary in canaries:
            canary.stop()
        assert broker.stop() == 0, "no clean end"
        broker_lines = len(broker.lines)
    print(f"ok: {broker_lines} log lines", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
