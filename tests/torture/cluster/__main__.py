"""Faults of nodes, of the database and of the store: clients' histories against what is stored, for a seed or many.

    python -m tests.torture.cluster --seed 17             one
    python -m tests.torture.cluster --seeds 100           so many, from new seeds; --first N: from this one on

A run takes 60 to 90 seconds. What each came to is a line of JSON in a file (--results). The folder of a run that failed
stays, with the nodes' logs, the objects and what each client noted. Exit 1 where one has failed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.torture import seeds
from tests.torture.cluster.run import Outcome, Run

SECONDS = 30.0


def main() -> int:
    outcomes, failed = seeds.play("tests.torture.cluster", __doc__, SECONDS, _run, told)
    fenced = fencing_was_met(outcomes)
    if not fenced:
        print("nodes were paused until others had their shards, and no commit was refused: fencing was not tested")
    return failed or not fenced


def _run(seed: int, seconds: float, folder: Path, rocketmq: bool) -> Outcome:
    return Run(seed, seconds, folder, rocketmq=rocketmq).play()


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
