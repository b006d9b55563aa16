"""What is used of others: of the service of messages that wait, and of who asks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from halfmoon.core.catalog.topics import Partition
from halfmoon.core.records.record_codec import Record
from halfmoon.schema.provenance import Origin

Moved = tuple[int, int, Record]
"""Offset of a waiting message, its new due time (Unix ms), its record."""


class WaitingMessages(Protocol):
    """As of services/waiting/service.py."""

    @property
    def claimed_topics(self) -> Collection[str]: ...
    @property
    def decided_topics(self) -> Collection[str]: ...
    @property
    def is_gathering(self) -> bool: ...
    @property
    def rescheduled(self) -> int: ...
    def complete(self, places: Iterable[tuple[int, int, int]]) -> None: ...
    def reschedule(self, source: Partition, origin: Origin, batch: memoryview, moved: Sequence[Moved]) -> int: ...
    def most_ms(self, topic: str) -> int | None: ...


class Rights(Protocol):
    """Of who asks, as to the messages that go to a topic, which may be the retry topic of a group."""

    def describes(self, topic: str, group: str | None) -> bool:
        """Whether they are told of."""
        ...

    def reads(self, topic: str, group: str | None) -> bool:
        """Whether their keys and headers are."""
        ...

    def cancels(self, topic: str, group: str | None) -> bool: ...
    def reschedules(self, topic: str, group: str | None) -> bool: ...
