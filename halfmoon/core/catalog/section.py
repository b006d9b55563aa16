"""What one feature keeps in the catalog: pure data, made up of control records.

A section is always there, even where the feature is off: else a start without the feature would lose what the log says.
It gets each record of its types, in the log's order, at run time and in recovery alike, and is part of every snapshot.
Outside plugins define no records: what they keep is derived from the log, and is theirs to store.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Protocol

import msgspec

from halfmoon.core.catalog.topics import Partition
from halfmoon.schema.control import Record, TransactionEnded
from halfmoon.schema.provenance import Provenance


class CatalogSection:
    """Base of all sections. What a section does not override costs nothing."""

    slots: ClassVar[tuple[str, ...]] = ()
    """The fields of schema.snapshot.Snapshot (or of AdministrationState) that it fills."""
    records: ClassVar[tuple[type[Record], ...]] = ()
    """The types of record that change it."""

    def apply(self, record: Record) -> None:
        """Make a record true. Applying it again changes nothing."""

    def topic_deleted(self, number: int, partitions: int) -> None:
        """A topic with so many partitions is gone; its number is never given out again."""

    def proved(self, proof: Provenance) -> None:
        """A batch was appended, or found in the log, that says where it comes from."""

    def size(self) -> int:
        """How much `prepare` may have to encode: elements of a microsecond or two."""
        return 0

    def save(self, slot: str) -> object:
        """What stands in a snapshot. Falsy where there is nothing to remember."""
        raise NotImplementedError

    def prepare(self) -> Iterator[None]:
        """Encode what `save` will give, in slices of some milliseconds, if the section keeps that until it changes."""
        return iter(())

    def restore(self, slot: str, saved: msgspec.Raw) -> None:
        """Become what a snapshot says, in place of what was there. Raises msgspec.DecodeError."""
        raise NotImplementedError


class Places(Protocol):
    """The partitions that exist, by number: what a section may ask the catalog."""

    def partition(self, number: int, index: int) -> Partition | None: ...

    def is_topic(self, number: int) -> bool: ...

    def partition_count(self, number: int) -> int:
        """How many a topic has; 0 where there is none."""
        ...


class EndsOfTransactions(Protocol):
    """What is known of producers' transactions, for who puts together what corruption has left of an end."""

    def lost_end(self, producer_id: int, epoch: int, now_ms: int, *, committed: bool) -> TransactionEnded | None:
        """The record that stood behind such markers, where a transaction of this producer is ongoing."""
        ...

    def markers_of(self, record: TransactionEnded) -> tuple[int, int, list[tuple[int, int]]] | None:
        """Producer id and epoch of the markers that such a record stands behind, and the places they are in."""
        ...
