"""What is left of a broker that died, as often as it is wanted: to bring it to its death takes longer than to look at
what a start then finds, and there is more than one way to go on."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any, TypeVar

from halfmoon.testing.faulty_files import FaultyFileSystem

AFTER = {"kill": FaultyFileSystem.kill, "power_loss": FaultyFileSystem.power_loss}

WorldT = TypeVar("WorldT", bound=Any)


def left_of(fs: FaultyFileSystem, after: str) -> FaultyFileSystem:
    """The disk that the next process finds. `fs` stays as it was, its dice included."""
    kept = fs.kill()
    kept.dice = copy.copy(fs.dice)
    return AFTER[after](kept)


def after_death(world: WorldT, after: str) -> WorldT:
    """A copy of a world whose process is dead, with the disk that the next one finds."""
    alone = {id(world.fs): left_of(world.fs, after), id(getattr(world, "broker", None)): None}
    return copy.deepcopy(world, alone)


@contextlib.contextmanager
def told(**what: object) -> Iterator[None]:
    """Have whatever is raised say which of many cases it was."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in: {what}")
        raise
