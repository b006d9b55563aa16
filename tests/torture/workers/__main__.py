"""kill −9 of workers: clients' histories against what is stored, for a seed or many.

    python -m tests.torture.workers --seed 17             one
    python -m tests.torture.workers --seeds 100           so many, from new seeds; --first N: from this one on

A run takes 60 to 90 seconds. What each came to is a line of JSON in a file (--results). The folder of a run that failed
stays, with the data directory, the broker's log and what each client noted. Exit 1 where one has failed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.torture import seeds
from tests.torture.workers.run import Outcome, Run

SECONDS = 45.0


def main() -> int:
    _, failed = seeds.play("tests.torture.workers", __doc__, SECONDS, _run, told)
    return failed


def _run(seed: int, seconds: float, folder: Path, rocketmq: bool) -> Outcome:
    return Run(seed, seconds, folder, rocketmq=rocketmq).play()


def told(outcome: Outcome) -> str:
    """One line, and one for each thing that is wrong."""
    faults = ", ".join(f"{count} {kind}" for kind, count in outcome.faults.items())
    done = sum(
        count for what, count in outcome.operations.items()
        if what.partition(".")[2] not in ("sent", "begun", "got", "given", "decides", "nacks", "delayed")
    )  # fmt: skip
    lines = [
        f"seed {outcome.seed}: {'FAILED' if outcome.violations else 'passed'} in {outcome.seconds:.0f} s, "
        f"flush {outcome.flush}{', RocketMQ' * outcome.rocketmq}; {faults}; "
        f"{outcome.in_flight} kills with requests in flight; {done} operations; "
        f"longest wait {max(outcome.killed_ms, default=0):.0f} ms at killed workers, "
        f"{max(outcome.others_ms, default=0):.0f} ms at others"
    ]
    return "\n".join([*lines, *(f"  {each}" for each in outcome.violations)])


if __name__ == "__main__":
    sys.exit(main())
