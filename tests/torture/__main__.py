"""Torture: whole scenarios from seeds, against a model.

    python -m tests.torture --seed 17            one, with all that happens in it
    python -m tests.torture --seeds 1000         so many, from new seeds; --first N: from this one on
    python -m tests.torture --seconds 45         as many as that holds

The same seed makes the same history on any machine. What fails is played again with fewer strokes of fate, for as long
as it still fails, and the last line of it says how to see it. Exit 1 where one has failed.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable

from tests.torture.world import STEPS, World


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, help="play this one, and print what happens")
    parser.add_argument("--seeds", type=int, help="how many")
    parser.add_argument("--first", type=int, help="the first of them; else by chance")
    parser.add_argument("--seconds", type=float, help="begin no other one after so long")
    parser.add_argument("--steps", type=int, default=STEPS, help="strokes of fate in each")
    parser.add_argument("--only", default="", help="actors that take part, with commas; else they are drawn")
    parser.add_argument("--stop", action="store_true", help="end with the first that fails")
    given = parser.parse_args()
    if given.seed is not None:
        world = play(given.seed, given.steps, given.only, verbose=True)
        print(_told(world, 0))
        return bool(world.violations)
    first = random.randrange(1 << 32) if given.first is None else given.first
    seeds = itertools.count(first) if given.seeds is None else range(first, first + given.seeds)
    return _play_many(seeds, given)


def _play_many(seeds: Iterable[int], given: argparse.Namespace) -> int:
    begun_s = time.perf_counter()
    counts: Counter[str] = Counter()
    failed, played, virtual_s, requests = [], 0, 0.0, 0
    for seed in seeds:
        if given.seconds is not None and played and time.perf_counter() - begun_s > given.seconds:
            break
        world = play(seed, given.steps, given.only)
        played += 1
        counts += world.model.counts
        virtual_s += world.lasted_s
        requests += world.requests
        if world.violations:
            failed.append(seed)
            print(f"FAILED seed {seed}: {world.violations[0]}")
            _shorten(seed, given)
            if given.stop:
                break
        gc.collect()
    took_s = time.perf_counter() - begun_s
    faults = sum(count for what, count in counts.items() if what.startswith("fate: "))
    print(
        f"torture: {played} seeds, {len(failed)} failed; {requests} requests, {counts['acknowledged']} records, "
        f"{counts['starts']} starts, {faults} faults; {virtual_s:.0f} s of virtual time in {took_s:.0f} s"
    )
    for what, count in sorted(counts.items()):
        print(f"  {count:8} {what}")
    for seed in failed:
        print(f"failed: .venv/bin/python -m tests.torture --seed {seed}")
    return bool(failed)


def play(seed: int, steps: int, only: str = "", *, verbose: bool = False) -> World:
    world = World(seed, steps=steps, only=only, verbose=verbose)
    world.run()
    return world


def _shorten(seed: int, given: argparse.Namespace) -> None:
    """Find fewer strokes of fate that are enough. What came before is the same."""
    low, high = 0, given.steps
    while low < high:
        middle = (low + high) // 2
        if play(seed, middle, given.only).violations:
            high = middle
        else:
            low = middle + 1
    only = f" --only {given.only}" if given.only else ""
    print(f"  {_told(play(seed, high, given.only), 6)}")
    print(f"  replay: .venv/bin/python -m tests.torture --seed {seed} --steps {high}{only}", flush=True)


def _told(world: World, lines: int) -> str:
    last = "".join(f"\n    {line[:200]}" for line in world.history[-lines:]) if lines else ""
    actors = ", ".join(world.actors)
    return (
        f"seed {world.seed}: {actors}; flush: {world.flush}; {world.requests} requests, history {world.digest:08x}, "
        f"{len(world.violations)} violations{last}"
    )


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets of texts is part of a history.
        os.execve(
            sys.executable, [sys.executable, "-m", "tests.torture", *sys.argv[1:]], os.environ | {"PYTHONHASHSEED": "0"}
        )
    sys.exit(main())
