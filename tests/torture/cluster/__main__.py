"""Faults of nodes, of the database and of the store: clients' histories against what is stored, for a seed or many.

    python -m tests.torture.cluster --seed 17             one
    python -m tests.torture.cluster --seeds 100           so many, from new seeds; --first N: from this one on

A run takes 60 to 90 seconds. What each came to is a line of JSON in a file (--results). The folder of a run that failed
stays, with the nodes' logs, the objects and what each client noted. Exit 1 where one has failed.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.torture.cluster.run import Outcome, Run

RESULTS = Path("out/torture-cluster.jsonl")
SECONDS = 30.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture.cluster", description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, help="play this one")
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--first", type=int, help="the first of them; else by chance")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long faults happen in each")
    parser.add_argument("--results", type=Path, default=RESULTS, help="a line of JSON for each is added to this file")
    parser.add_argument(
        "--rocketmq",
        action=argparse.BooleanOptionalAction,
        help="RocketMQ's clients too; by default with each third seed",
    )
    parser.add_argument("--keep", action="store_true", help="keep the folder of each run")
    parser.add_argument("--stop", action="store_true", help="end with the first that fails")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended on the way
    first = random.randrange(1 << 32) if given.first is None else given.first
    seeds = [given.seed] if given.seed is not None else range(first, first + given.seeds)
    begun_s = time.monotonic()
    failed = []
    outcomes = []
    for seed in seeds:
        folder = Path(tempfile.mkdtemp(prefix=f"halfmoon-torture-{seed}-"))
        rocketmq = seed % 3 == 0 if given.rocketmq is None else given.rocketmq
        outcome = Run(seed, given.seconds, folder, rocketmq=rocketmq).play()
        given.results.parent.mkdir(parents=True, exist_ok=True)
        with given.results.open("ab") as results:
            results.write(msgspec.json.encode(outcome) + b"\n")
        print(told(outcome), flush=True)
        outcomes.append(outcome)
        if outcome.violations:
            failed.append(seed)
            print(f"  {folder}\n  replay: .venv/bin/python -m tests.torture.cluster --seed {seed}", flush=True)
        elif not given.keep:
            shutil.rmtree(folder, ignore_errors=True)
        if failed and given.stop:
            break
    print(f"torture of clusters: {len(seeds)} seeds, {len(failed)} failed, {(time.monotonic() - begun_s) / 60:.1f} min")
    fenced = fencing_was_met(outcomes)
    if not fenced:
        print("nodes were paused until others had their shards, and no commit was refused: fencing was not tested")
    return bool(failed) or not fenced


def fencing_was_met(outcomes: Sequence[Outcome]) -> bool:
    """Whether a node that was paused for longer than its lease has tried to commit, if any was."""
    paused = any(each.faults.get("wake") for each in outcomes)
    return not paused or any(each.logged["refused commits"] for each in outcomes)


def told(outcome: Outcome) -> str:
    """One line, and one for each thing that is wrong."""
    faults = ", ".join(f"{count} {kind}" for kind, count in outcome.faults.items())
    done = sum(count for what, count in outcome.operations.items() if what.partition(".")[2] in ENDS)
    logged = ", ".join(f"{count} {what}" for what, count in outcome.logged.items())
    line = (
        f"seed {outcome.seed}: {'FAILED' if outcome.violations else 'passed'} in {outcome.seconds:.0f} s"
        f"{', RocketMQ' * outcome.rocketmq}; {faults}; "
        f"{outcome.in_flight} with records on their way; {done} operations; {logged}"
    )
    return "\n".join([line, *(f"  {each}" for each in outcome.violations)])


ENDS = ("acked", "committed", "aborted", "piped", "accepted", "decided", "nacked")
"""Of what clients did."""


if __name__ == "__main__":
    sys.exit(main())
