"""A process that dies at any operation, one after the other: at work, in housekeeping, and while it recovers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from halfmoon.testing.faulty_files import FaultyFileSystem, ProcessDied
from tests.core.crash_world import World
from tests.core.relay_bench import lose_derived

AFTER = {"kill": FaultyFileSystem.kill, "power_loss": FaultyFileSystem.power_loss}


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


@pytest.mark.parametrize("after", AFTER)
def test_dying_at_any_operation_loses_nothing_that_was_acknowledged(after: str) -> None:
    count = operations()
    assert count > 400
    for operation in range(1, count + 1):
        world = played_upto(operation, seed=operation)
        world.reopen(AFTER[after](world.fs))


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


@pytest.mark.parametrize("lose", [lose_nothing, lose_checkpoint, lose_derived])
@pytest.mark.parametrize("first", AFTER)
@pytest.mark.parametrize("second", AFTER)
def test_dying_at_any_operation_of_a_recovery(
    lose: Callable[[FaultyFileSystem], None], first: str, second: str
) -> None:
    died_at = operations() - 1
    for operation in range(1, 200):
        world = played_upto(died_at, seed=operation)
        world.fs = AFTER[first](world.fs)
        lose(world.fs)
        world.fs.operations = 0
        world.fs.crash_at = operation
        try:
            world.open()
        except ProcessDied:
            pass
        else:
            break  # this recovery takes fewer operations
        world.reopen(AFTER[second](world.fs))
    assert operation > 5


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
