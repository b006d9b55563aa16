"""Runs of a scenario, a seed each: the command line of `tests.torture.workers` and of `tests.torture.cluster`."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec


class Outcome(Protocol):
    """A Struct."""

    seed: int
    violations: list[str]


O = TypeVar("O", bound=Outcome)  # noqa: E741


def play(
    program: str,
    about: str | None,
    seconds: float,
    run: Callable[[int, float, Path, bool], O],
    told: Callable[[O], str],
) -> tuple[list[O], bool]:
    """`program`: what stands before `.__main__`. `about`: its docstring. `seconds`: of faults, if the command line says
    nothing else. `run`: seed, seconds, an empty folder, whether with RocketMQ's clients. Returns what all came to, and
    whether one has failed."""
    kind = program.rpartition(".")[2]
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=(about or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, help="play this one")
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--first", type=int, help="the first of them; else by chance")
    parser.add_argument("--seconds", type=float, default=seconds, help="how long faults happen in each")
    parser.add_argument(
        "--results", type=Path, default=Path(f"out/torture-{kind}.jsonl"),
        help="a line of JSON for each is added to this file",
    )  # fmt: skip
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
    outcomes: list[O] = []
    failed = 0
    for seed in seeds:
        folder = Path(tempfile.mkdtemp(prefix=f"halfmoon-torture-{seed}-"))
        rocketmq = seed % 3 == 0 if given.rocketmq is None else given.rocketmq
        outcome = run(seed, given.seconds, folder, rocketmq)
        given.results.parent.mkdir(parents=True, exist_ok=True)
        with given.results.open("ab") as results:
            results.write(msgspec.json.encode(outcome) + b"\n")
        print(told(outcome), flush=True)
        outcomes.append(outcome)
        if outcome.violations:
            failed += 1
            print(f"  {folder}\n  replay: .venv/bin/python -m {program} --seed {seed}", flush=True)
        elif not given.keep:
            shutil.rmtree(folder, ignore_errors=True)
        if failed and given.stop:
            break
    print(f"torture, {kind}: {len(outcomes)} seeds, {failed} failed, {(time.monotonic() - begun_s) / 60:.1f} min")
    return outcomes, bool(failed)
