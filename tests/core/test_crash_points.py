"""A process that dies at any operation, one after the other: at work, in housekeeping, and while it recovers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from itertools import product

import pytest

from halfmoon.testing.faulty_files import FaultyFileSystem, ProcessDied
from tests.core.crash_world import World
from tests.core.deaths import AFTER, after_death, told
from tests.core.relay_bench import lose_derived

pytestmark = pytest.mark.timeout(300)


def operations() -> int:
    world = World(0)
    world.play()
    return world.fs.operations


def played_upto(operation: int, seed: int, flush: str = "sync") -> World:
    world = World(seed, flush)
    world.fs.crash_at = operation
    with contextlib.suppress(ProcessDied):
        world.play()
    return world


def test_dying_at_any_operation_loses_nothing_that_was_acknowledged() -> None:
    count = operations()
    assert count > 400
    for operation in range(1, count + 1):
        world = played_upto(operation, seed=operation)
        for after in AFTER:
            with told(operation=operation, after=after):
                died = after_death(world, after)
                died.reopen(died.fs)


def test_dying_at_any_operation_with_interval_flushes() -> None:
    for operation in range(1, operations() + 1, 3):
        world = played_upto(operation, seed=operation, flush="interval")
        world.reopen(world.fs.kill())


def lose_checkpoint(fs: FaultyFileSystem) -> None:
    for path in ("checkpoint", "clean"):
        if path in fs.names:
            fs.remove(path)
    fs.sync_directory("")


def lose_nothing(fs: FaultyFileSystem) -> None:
    pass


def test_dying_at_any_operation_of_a_recovery() -> None:
    """After either death, with or without the files that a start goes by; the recovery dies either death too."""
    died_at = operations() - 1
    left = set(product(AFTER, (lose_nothing, lose_checkpoint, lose_derived)))
    for operation in range(1, 200):
        world = played_upto(died_at, seed=operation)
        for first, lose in sorted(left, key=repr):
            with told(operation=operation, first=first, lose=lose):
                if not die_recovering(world, first, lose, operation):
                    assert operation > 5
                    left.remove((first, lose))  # this recovery takes fewer operations
        if not left:
            return
    pytest.fail("a recovery that takes 200 operations")


def die_recovering(world: World, first: str, lose: Callable[[FaultyFileSystem], None], operation: int) -> bool:
    """Whether it did."""
    died = after_death(world, first)
    lose(died.fs)
    died.fs.operations = 0
    died.fs.crash_at = operation
    try:
        died.open()
    except ProcessDied:
        for second in AFTER:
            with told(second=second):
                again = after_death(died, second)
                again.reopen(again.fs)
        return True
    return False


def test_dying_again_and_again() -> None:
    """Every recovery dies a little later than the one before it; generations are never given out twice."""
    count = operations()
    for seed in range(60):
        world = played_upto(count - seed % 40, seed)
        for operation in range(1, 40, 1 + seed % 7):
            world.fs = AFTER["power_loss" if seed % 3 else "kill"](world.fs)
            world.fs.crash_at = operation
            with contextlib.suppress(ProcessDied):
                world.open()
                break
        world.reopen(AFTER["power_loss"](world.fs))
