"""Rescheduling waiting messages at somebody's word: they are appended again, to be due at another time.

The frame in which they wait from now on names the old ones as its sources, which completes those: one frame, so a crash
leaves each message waiting once. As where messages are moved out of old segments (reclaim.py); only the time is
another, and the queue may be: a new time is a time of the wall clock, where the plugin has a queue for those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from halfmoon.core.records.batch_header import CODEC_MASK
from halfmoon.core.records.batches import batch_body, parse_header
from halfmoon.services.common.gathering import Outgoing

if TYPE_CHECKING:
    from halfmoon.core.append import Appender
    from halfmoon.core.catalog.catalog import Catalog
    from halfmoon.core.catalog.topics import Partition
    from halfmoon.core.records.record_codec import Record
    from halfmoon.schema.provenance import Origin
    from halfmoon.services.waiting.cancels import Cancels
    from halfmoon.services.waiting.types import PutInterceptor

Moved = tuple[int, int, "Record"]
"""Offset of a waiting message, its new due time (Unix ms), its record."""


class Rules(NamedTuple):
    """Of the messages of one internal topic."""

    queue: tuple[str, int] | None
    """Topic and partition of those that are due at a time of the wall clock; None: they stay in their queue."""
    most_ms: int | None
    """They are due in so long at most."""


NO_RULES = Rules(None, None)


class Rescheduling:
    def __init__(
        self,
        catalog: Catalog,
        appender: Appender,
        cancels: Cancels,
        partition_of: Callable[[str, int], Partition],
    ) -> None:
        """`partition_of`: of an internal topic in which messages wait; it is made if need be."""
        self._catalog = catalog
        self._appender = appender
        self._cancels = cancels
        self._partition_of = partition_of
        self.rules: Mapping[str, Rules] = {}
        """By internal topic."""
        self.rescheduled = 0
        """Messages."""

    def most_ms(self, topic: str) -> int | None:
        return self.rules.get(topic, NO_RULES).most_ms

    def append(self, source: Partition, origin: Origin, batch: memoryview, moved: Sequence[Moved]) -> int:
        """Have these messages of a batch, which wait in `source` to go to `origin`, be due at other times; those that
        do not wait any more are left out. How many were rescheduled. At once: nothing else happens in between. Raises
        BrokerError; some may be rescheduled then."""
        header = parse_header(batch)
        topic = self._catalog.by_number.get(origin.topic_number)
        if topic is not None and self._cancels.any_open_for(topic.number):
            # What is appended again would seem to have come after the cancel.
            self._cancels.complete_among(topic, source, header.base_offset, batch)
        queue = self.rules.get(source.topic.name, NO_RULES).queue
        target = source if queue is None else self._partition_of(*queue)
        body = bytes(batch_body(batch))
        count = 0
        out: Outgoing | None = None
        due_ms = 0
        for offset, at_ms, record in moved:
            if source.pending is None or offset not in source.pending:
                continue
            if out is not None and (out.is_full or at_ms != due_ms):
                self._append(out, origin, due_ms)
                out = None
            if out is None:
                out, due_ms = Outgoing(target, header.attributes & CODEC_MASK), at_ms
            out.take(source, offset, body, record)
            count += 1
        if out is not None:
            self._append(out, origin, due_ms)
        return count

    def _append(self, out: Outgoing, origin: Origin, due_ms: int) -> None:
        count = out.count
        self._appender.append_relayed(out.target, out.batch(), sources=out.sources(), origin=origin, due_ms=due_ms)
        self.rescheduled += count


def rules_of(interceptors: Sequence[PutInterceptor]) -> dict[str, Rules]:
    """Of the internal topics of these."""
    found: dict[str, Rules] = {}
    for each in interceptors:
        rules = Rules(next(iter(each.clock_queues), None), each.max_delay_ms)
        found.update(dict.fromkeys(each.scheduled_topics, rules))
    return found
