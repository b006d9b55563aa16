"""When the records expire that a share partition reads: looked up at once, or in the thread that reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from halfmoon.core.catalog.topics import Partition
from halfmoon.services.common.lifetimes import Looked
from halfmoon.services.share.reading import Buffer, Found, Loading


class Lifetimes(Protocol):
    """Says which records have expired (services/expiry)."""

    def now_ms(self) -> int: ...
    def known(self, partition: Partition, batch: Buffer) -> Looked | None:
        """When the records of a batch expire; None where it takes long to find out."""
        ...

    def look(self, partition: Partition, batch: Buffer) -> Callable[[], Looked]:
        """A function that finds out, in any thread; what it returns is for `keep`."""
        ...

    def keep(self, looked: Sequence[Looked]) -> None: ...
    def dead_letters(self, topic: str) -> bool:
        """Whether expired messages of the topic of this name are dead-lettered."""
        ...

    def count(self, where: str, messages: int, *, dead_lettered: bool = False) -> None: ...


def with_ends(lifetimes: Lifetimes, partition: Partition, read: Found | Loading) -> Found | Loading:
    """What was read, and when its records expire. Where that takes long, it is for a thread, too."""
    if isinstance(read, Loading):
        return Loading(_looking(lifetimes, partition, read.found, read.load), read.found, read.size)
    known = [lifetimes.known(partition, piece) for piece in read.slices]
    read.ends = [each for each in known if each is not None]
    if len(read.ends) == len(known):
        return read
    slices = read.slices
    return Loading(_looking(lifetimes, partition, read, lambda: slices), read, read.size)


def _looking(
    lifetimes: Lifetimes, partition: Partition, found: Found, load: Callable[[], Sequence[Buffer]]
) -> Callable[[], Sequence[Buffer]]:
    def looking() -> Sequence[Buffer]:
        slices = load()
        found.ends = [lifetimes.look(partition, piece)() for piece in slices]
        return slices

    return looking
