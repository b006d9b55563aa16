"""What is still to be written into Kafka's internal topics, as the log says it.

A change of a group, an offset or a transactional id leaves the *key* of the record here that is to be written; what it
says is looked up when it is written (`service`). The batch that is written and InternalWritten, which takes the keys
out, are one frame group. So what is unwritten is a function of the log: a crash loses nothing and writes nothing twice.

Before a topic is there nothing is kept for it; all that is known then becomes unwritten when it is made. The section
stands before those of groups and transactions, since it must see what a record takes away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, Protocol

import msgspec

from halfmoon.core.catalog.section import CatalogSection
from halfmoon.core.catalog.topics import Topic
from halfmoon.schema import control
from halfmoon.schema.control import CLASSIC, CONSUMER, OFFSET, TRANSACTION, InternalKey
from halfmoon.services.groups.state import GroupsState
from halfmoon.services.transactions.state import TransactionsState

OFFSETS_TOPIC, TRANSACTIONS_TOPIC = "__consumer_offsets", "__transaction_state"

_keys = msgspec.msgpack.Decoder(list[InternalKey])


class Names(Protocol):
    """What the section asks the catalog."""

    def topic(self, name: str) -> Topic | None: ...

    def name_of(self, number: int) -> str: ...

    def is_topic(self, number: int) -> bool: ...


class InternalTopicsState(CatalogSection):
    slots: ClassVar = ("unwritten",)
    records: ClassVar = (
        control.TopicCreated,
        control.OffsetsCommitted,
        control.OffsetsDeleted,
        control.GroupSaved,
        control.ConsumerGroupSaved,
        control.GroupDeleted,
        control.TransactionalIdInitialized,
        control.TransactionGrown,
        control.TransactionPrepared,
        control.TransactionOffsetsEnded,
        control.TransactionEnded,
        control.TransactionalIdsExpired,
        control.RemoteOffsetsEnded,
        control.InternalWritten,
    )

    def __init__(self, catalog: Names, groups: GroupsState, transactions: TransactionsState) -> None:
        self._catalog = catalog
        self._groups = groups
        self._transactions = transactions
        self.unwritten: dict[InternalKey, None] = {}
        """In the order in which they changed first."""
        self.on_unwritten: Callable[[], None] = lambda: None
        """Called when there is something to write."""

    def keeps(self, name: str) -> bool:
        """Whether the internal topic of that name is there."""
        topic = self._catalog.topic(name)
        return topic is not None and topic.internal

    def apply(self, record: control.Record) -> None:
        if isinstance(record, control.InternalWritten):
            for key in record.keys:
                self.unwritten.pop(key, None)
        elif isinstance(record, control.TopicCreated):
            if record.internal:
                self._add(self._known(record.name))
        elif isinstance(record, _OF_TRANSACTIONS):
            if self.keeps(TRANSACTIONS_TOPIC):
                self._add(self._of_transactions(record))
            if isinstance(record, control.TransactionEnded) and record.committed and self.keeps(OFFSETS_TOPIC):
                pending = self._transactions.pending.get(record.name, {})
                self._add(self._offset(group, place) for group, places in pending.items() for place in places)
        elif isinstance(record, control.TransactionOffsetsEnded):
            if record.committed and self.keeps(OFFSETS_TOPIC):
                places = self._transactions.pending.get(record.name, {}).get(record.group, {})
                self._add(self._offset(record.group, place) for place in places)
        elif isinstance(record, control.RemoteOffsetsEnded):
            known = self._transactions.remote_of(record.producer_id, record.group)
            if record.committed and known is not None and self.keeps(OFFSETS_TOPIC):
                self._add(self._offset(record.group, place) for place in known.offsets)
        elif self.keeps(OFFSETS_TOPIC):
            self._add(self._of_groups(record))

    def _add(self, keys: Iterable[InternalKey]) -> None:
        had = len(self.unwritten)
        self.unwritten.update(dict.fromkeys(keys))
        if len(self.unwritten) > had:
            self.on_unwritten()

    def _offset(self, group: str, place: tuple[int, int]) -> InternalKey:
        return InternalKey(OFFSET, group, self._catalog.name_of(place[0]), place[1])

    def _known(self, topic: str) -> Iterable[InternalKey]:
        """All that belongs into a topic that has just been made."""
        if topic == TRANSACTIONS_TOPIC:
            yield from (InternalKey(TRANSACTION, name) for name in self._transactions.by_name)
        if topic == OFFSETS_TOPIC:
            yield from (InternalKey(CLASSIC, name) for name in self._groups.groups)
            yield from (InternalKey(CONSUMER, name) for name in self._groups.consumer_groups)
            for group, offsets in self._groups.offsets.items():
                yield from (self._offset(group, place) for place in offsets)

    @staticmethod
    def _of_transactions(record: control.Record) -> Iterable[InternalKey]:
        names = record.names if isinstance(record, control.TransactionalIdsExpired) else [record.name]  # type: ignore[attr-defined]
        return (InternalKey(TRANSACTION, name) for name in names)

    def _of_groups(self, record: control.Record) -> Iterable[InternalKey]:
        if isinstance(record, control.OffsetsCommitted):
            yield from (self._offset(record.group, (n, p)) for n, p, _ in record.entries if self._catalog.is_topic(n))
        elif isinstance(record, control.OffsetsDeleted):
            yield from (self._offset(record.group, place) for place in record.entries)
        elif isinstance(record, control.GroupSaved):
            yield InternalKey(CLASSIC, record.record.group)
            if record.record.group in self._groups.consumer_groups:
                yield InternalKey(CONSUMER, record.record.group)
        elif isinstance(record, control.ConsumerGroupSaved):
            yield InternalKey(CONSUMER, record.change.group)
            if record.change.group in self._groups.groups:
                yield InternalKey(CLASSIC, record.change.group)
        elif isinstance(record, control.GroupDeleted):
            if record.group in self._groups.groups:
                yield InternalKey(CLASSIC, record.group)
            if record.group in self._groups.consumer_groups:
                yield InternalKey(CONSUMER, record.group)
            yield from (self._offset(record.group, place) for place in self._groups.offsets.get(record.group, ()))

    def topic_deleted(self, number: int, partitions: int) -> None:
        """Its committed offsets go with it; the catalog still knows its name."""
        if self.keeps(OFFSETS_TOPIC):
            for group, offsets in self._groups.offsets.items():
                self._add(self._offset(group, place) for place in offsets if place[0] == number)

    def save(self, slot: str) -> object:
        return list(self.unwritten)

    def restore(self, slot: str, saved: msgspec.Raw) -> None:
        self.unwritten = dict.fromkeys(_keys.decode(saved))


_OF_TRANSACTIONS = (
    control.TransactionalIdInitialized,
    control.TransactionGrown,
    control.TransactionPrepared,
    control.TransactionEnded,
    control.TransactionalIdsExpired,
)
