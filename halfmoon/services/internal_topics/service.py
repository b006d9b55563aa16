"""Kafka's internal topics, for programs that read them: `__consumer_offsets` and `__transaction_state`.

Groups, offsets and transactions are control records of the log here, and need no topic. Burrow, KMinion and others read
Kafka's all the same. So the names are reserved; the first request for a topic makes it (`offering`), and from then on
what Kafka would write there is written: 50 partitions, compacted, read-only for clients, in Kafka's formats
(`records`). Before, a commit costs nothing. They are topics like others otherwise, so their offsets never change.

A relay task (core/relay.py) writes, behind the answers to clients: the last state of what has changed since, as a
reader of a compacted topic expects it.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from itertools import islice

from msgspec.structs import replace

from halfmoon.core.append import Appender
from halfmoon.core.append_types import Piece
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.clock import Clock
from halfmoon.core.features import Feature, TopicPolicy
from halfmoon.core.records.batches import build_batch, parse_header
from halfmoon.core.relay import Load, Relays
from halfmoon.schema.control import CLASSIC, CONSUMER, OFFSET, InternalKey, InternalWritten
from halfmoon.services.common.reserved_names import make_way
from halfmoon.services.groups.state import GroupsState
from halfmoon.services.internal_topics import records
from halfmoon.services.internal_topics.state import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, InternalTopicsState
from halfmoon.services.transactions.state import TransactionsState

AT_ONCE = 200
"""Records in one frame group at most, …"""
AT_ONCE_BYTES = 256 << 10
"""… and bytes; one record may be larger."""

Row = tuple[bytes, bytes | None, int]
"""Key, value, time (Unix ms)."""


class InternalTopics:
    """Writes the topics."""

    def __init__(
        self,
        state: InternalTopicsState,
        groups: GroupsState,
        transactions: TransactionsState,
        catalog: Catalog,
        appender: Appender,
        relays: Relays,
        clock: Clock,
        logger: logging.Logger,
    ) -> None:
        self._state = state
        self._groups = groups
        self._transactions = transactions
        self._catalog = catalog
        self._appender = appender
        self._relays = relays
        self._clock = clock
        self._logger = logger

    def __str__(self) -> str:
        return "writer of Kafka's internal topics"

    def feature(self) -> Feature:
        policy = TopicPolicy(reserves=(OFFSETS_TOPIC, TRANSACTIONS_TOPIC).__contains__)
        return Feature(
            "internal_topics", restore=self._restore, start=self._start, topics=policy,
        )  # fmt: skip

    def _restore(self) -> None:
        make_way((OFFSETS_TOPIC, TRANSACTIONS_TOPIC), self._catalog, self._appender, self._logger)

    def _start(self) -> None:
        self._relays.add(self, self)
        self._state.on_unwritten = lambda: self._relays.wake(self)

    # -- writing -----------------------------------------------------------------------------------------------------

    def run(self) -> Generator[Load | None, object, None]:
        unwritten = self._state.unwritten
        while unwritten:
            keys: list[InternalKey] = []
            rows: dict[tuple[str, int], list[Row]] = {}
            size = 0
            now_ms = self._clock.wall_ms()
            for key in islice(unwritten, AT_ONCE):
                place, row = self._row(key, now_ms)
                grown = size + len(row[0]) + len(row[1] or b"")
                if keys and grown > AT_ONCE_BYTES:
                    break
                keys.append(key)
                rows.setdefault(place, []).append(row)
                size = grown
            self._appender.append_group(
                [self._piece(*place, found) for place, found in rows.items()], now_ms, last=InternalWritten(keys)
            )
            yield None

    def _piece(self, name: str, index: int, rows: list[Row]) -> Piece:
        topic = self._catalog.topic(name)
        assert topic is not None, "internal topics are never deleted"
        batch = memoryview(bytearray(build_batch([(*row, ()) for row in rows])))
        return Piece(topic.partitions[index], batch, parse_header(batch))

    def _row(self, key: InternalKey, now_ms: int) -> tuple[tuple[str, int], Row]:
        """Where its record goes, and what that says now."""
        made = self._offset if key.kind == OFFSET else self._group if key.kind in (CLASSIC, CONSUMER) else self._id
        name = OFFSETS_TOPIC if key.kind in (OFFSET, CLASSIC, CONSUMER) else TRANSACTIONS_TOPIC
        return (name, records.partition_for(key.name, self._partitions(name))), made(key, now_ms)

    def _partitions(self, name: str) -> int:
        topic = self._catalog.topic(name)
        return records.PARTITIONS if topic is None else len(topic.partitions)

    def _offset(self, key: InternalKey, now_ms: int) -> Row:
        topic = self._catalog.topic(key.topic)
        place = (-1 if topic is None else topic.number, key.partition)
        committed = self._groups.offsets.get(key.name, {}).get(place)
        written = records.offset_key(key.name, key.topic, key.partition)
        if committed is None:
            return written, None, now_ms
        return written, records.offset_value(committed), committed.commit_ms

    def _group(self, key: InternalKey, now_ms: int) -> Row:
        if key.kind == CONSUMER:
            group = self._groups.consumer_groups.get(key.name)
            written = records.consumer_group_key(key.name)
            return (written, None if group is None else records.consumer_group_value(group.epoch), now_ms)
        record, saved_ms = self._groups.groups.get(key.name, (None, now_ms))
        if record is None:
            return records.group_key(key.name), None, now_ms
        value = records.group_value(record, saved_ms)
        if len(value) > self._largest():  # nobody could fetch it
            value = records.group_value(replace(record, members=()), saved_ms)
        return records.group_key(key.name), value, saved_ms

    def _largest(self) -> int:
        topic = self._catalog.topic(OFFSETS_TOPIC)
        return AT_ONCE_BYTES if topic is None else max(AT_ONCE_BYTES, topic.rules.max_message_bytes // 2)

    def _id(self, key: InternalKey, now_ms: int) -> Row:
        entry = self._transactions.by_name.get(key.name)
        written = records.transaction_key(key.name)
        if entry is None:
            return written, None, now_ms
        partitions: dict[str, list[int]] = {}
        for number, index in entry.partitions:
            partitions.setdefault(self._catalog.name_of(number), []).append(index)
        for group in entry.groups:
            index = records.partition_for(group, self._partitions(OFFSETS_TOPIC))
            partitions.setdefault(OFFSETS_TOPIC, []).append(index)
        value = records.transaction_value(
            entry.identity, entry.timeout_ms, entry.state, partitions.items(), entry.update_ms, entry.start_ms
        )
        return written, value, entry.update_ms
