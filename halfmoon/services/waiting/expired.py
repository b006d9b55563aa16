"""Waiting messages that have expired when they are due: they are not delivered (docs/ttl.md).

The TTL of a delayed message counts from when it is due: before, nobody could have consumed it. So it has expired if
it would be delivered so much later, as by a broker that was away. A redelivery has a time in its header EXPIRES, since
its TTL began when it could be consumed first.

An expired message is completed, or becomes a dead letter whose provenance completes it: either is one frame.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from halfmoon.core.records.batch_header import OWN_TIMES
from halfmoon.core.records.batches import batch_body, build_batch, parse_header
from halfmoon.core.records.record_codec import Headers, Record
from halfmoon.schema import control
from halfmoon.schema.group_topics import dead_letter_topic, retrying_group
from halfmoon.schema.lifetimes import CARRIED, EXPIRED
from halfmoon.schema.provenance import SourceRun
from halfmoon.services.common.lifetimes import FOREVER, SEARCH, acting_topic, expires_ms
from halfmoon.services.waiting.delivering import UNDELIVERABLE
from halfmoon.services.waiting.messages import still_waiting

if TYPE_CHECKING:
    from halfmoon.core.append import Appender
    from halfmoon.core.catalog.topics import Partition, Topic
    from halfmoon.core.topic_administration import TopicAdministration

AT_ONCE = 500
"""Dead letters in one batch."""


class Lifetimes(Protocol):
    """Says what becomes of expired messages (services/expiry)."""

    def now_ms(self) -> int: ...
    def ttl_ms(self, topic: Topic) -> int: ...
    def dead_letters(self, topic: str) -> bool: ...
    def count(self, where: str, messages: int, *, dead_lettered: bool = False) -> None: ...


class Expired:
    def __init__(self, appender: Appender, administration: TopicAdministration) -> None:
        self._appender = appender
        self._administration = administration
        self.lifetimes: Lifetimes | None = None
        """None where nothing expires."""

    def complete_among(
        self, target: Partition, source: Partition, base: int, batch: memoryview, due_upto_ms: int
    ) -> None:
        """Complete those messages of a batch at offset `base` of `source`, which is to go to `target`, that have
        expired. Due is what is due up to `due_upto_ms`, by the clock of the queue. Raises BrokerError."""
        lifetimes = self.lifetimes
        if lifetimes is None:
            return
        ttl_ms = lifetimes.ttl_ms(target.topic)
        by_header = target.topic.rules.headers_enabled and SEARCH.finds(batch_body(batch))
        if ttl_ms == FOREVER and not by_header:
            return
        expired = self._expired(lifetimes, ttl_ms, source, base, batch, due_upto_ms)
        dropped: list[tuple[int, int, int]] = []
        letters: list[tuple[int, Record]] = []
        for offset, record in expired:
            if lifetimes.dead_letters(acting_topic(target.topic.name, record.headers)):
                letters.append((offset, record))
            else:
                dropped.append((source.topic.number, source.index, offset))
        where = "delay" if retrying_group(target.topic.name) is None else "retry"
        if dropped:
            self._appender.append_control(control.Settled(dropped))
            lifetimes.count(where, len(dropped))
        for at in range(0, len(letters), AT_ONCE):
            part = letters[at : at + AT_ONCE]
            self._dead_letter(lifetimes.now_ms(), target, source, part)
            lifetimes.count(where, len(part), dead_lettered=True)

    def _expired(
        self, lifetimes: Lifetimes, ttl_ms: int, source: Partition, base: int, batch: memoryview, due_upto_ms: int
    ) -> Iterator[tuple[int, Record]]:
        own_times = parse_header(batch).attributes & OWN_TIMES
        frame_due_ms = 0 if own_times else _due_ms(source, base)
        now_ms = lifetimes.now_ms()
        for offset, record in still_waiting(source, base, batch):
            due_ms = record.timestamp if own_times else frame_due_ms
            late_ms = due_upto_ms - due_ms
            if own_times and late_ms < 0:
                continue
            end_ms = expires_ms(record.headers, now_ms - max(late_ms, 0), ttl_ms)
            if end_ms is not None and end_ms <= now_ms:
                yield offset, record

    def _dead_letter(
        self, now_ms: int, target: Partition, source: Partition, letters: Sequence[tuple[int, Record]]
    ) -> None:
        group = retrying_group(target.topic.name)
        to = self._administration.first_partition(UNDELIVERABLE if group is None else dead_letter_topic(group))
        why: Headers = (("halfmoon.reason", EXPIRED.encode()),)
        if group is None:
            why = (
                *why,
                ("halfmoon.original-topic", target.topic.name.encode()),
                ("halfmoon.original-partition", str(target.index).encode()),
            )
        made = build_batch(
            (record.key, record.value, now_ms, (*(each for each in record.headers if each[0] not in CARRIED), *why))
            for _, record in letters
        )
        runs = [SourceRun(source.topic.number, source.index, offset, 1) for offset, _ in letters]
        self._appender.append_relayed(to, bytearray(made), sources=runs)


def _due_ms(source: Partition, base: int) -> int:
    """When the frame at this offset is due, as it was written."""
    run = next(run for run in source.queue.runs_from(base) if run.end_offset > base)
    return run.columns.max_ms[run.row_for(base)]
