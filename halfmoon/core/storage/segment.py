"""What every storage engine has: the log's segments, and commits (core/storage/storage.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from msgspec import Struct

from halfmoon.core.storage.files import File, Mapping


class Segment(Struct):
    """One file: the log positions [start, end)."""

    start: int
    size: int
    file: File
    mapping: Mapping

    @property
    def end(self) -> int:
        return self.start + self.size

    @property
    def view(self) -> memoryview:
        return self.mapping.view


class Removed(NamedTuple):
    """What became of a retired file: whether it is unmapped, and itself if it may be used again."""

    released: bool
    recycled: File | None


class Sync(Protocol):
    """One commit for everybody who waits. It is begun in the loop, or run in a thread, where it touches nothing of the
    log's state."""

    target: int
    """Known for certain once it has ended: what is written while it waits for its turn may come along."""

    @property
    def is_plain(self) -> bool:
        """Whether it is one quick call to a disk, which may be made in the loop's thread."""
        ...

    def begin(self, done: Callable[[OSError | None], None]) -> bool:
        """In the loop: have it done, without a thread. `done` is called in the loop, with what `run` would have raised.
        False: it cannot; `run` it."""
        ...

    def run(self) -> None:
        """Raises OSError; LeaseLostError where this node may not write any more."""
        ...
