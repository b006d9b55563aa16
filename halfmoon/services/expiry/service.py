"""Message TTL: which records have expired, and what becomes of them (docs/ttl.md).

Nothing is removed from the log when a message expires, and a plain Fetch returns it unchanged. Who hands out messages
one by one asks here: views, share groups, RocketMQ's pulls, and what delivers delayed messages and redeliveries. Each
of them passes over an expired record, or dead-letters it where its topic says so.

A batch without the header, in a topic without a TTL, costs a search for the header's name and no work per record.
Share groups do not decompress batches otherwise, so what was found in one is remembered.

Time is the wall clock. The expiry of a message is a time, and readers compare it with the clock when they hand out.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from halfmoon.core.features import Feature
from halfmoon.core.records.batch_header import CONTROL, parse_header
from halfmoon.core.records.batches import batch_body, is_plain
from halfmoon.errors import BrokerError
from halfmoon.schema.lifetimes import ACTION, DEAD_LETTER, TTL
from halfmoon.services.common.lifetimes import FOREVER, SEARCH, End, Looked, ends_of, expires_ms
from halfmoon.services.expiry import metrics

if TYPE_CHECKING:
    from halfmoon.core.catalog.topics import Partition, Topic
    from halfmoon.core.records.batch_header import BatchHeader
    from halfmoon.core.records.record_codec import Record

    Buffer = memoryview | bytes

THREAD_BYTES: Final = 32 << 10
"""Compressed batches of this size and more are opened in a thread."""
LARGE_BYTES: Final = 256 << 10
"""So are all of this size that may have something that expires: each record is looked at."""
MOST_KNOWN: Final = 50_000
"""Batches and ends that are remembered: some 10 MB."""
_KEY_BYTES: Final = 21
"""Of a batch: base offset, length, leader epoch, version and CRC."""

Key = tuple[int, int, bytes]
_NOTHING: Final = Looked((-1, FOREVER, b""))


class Clock(Protocol):
    def wall_ms(self) -> int: ...


class Expiry:
    """Of one broker, or of one shard."""

    def __init__(self, topics: Callable[[str], Topic | None], clock: Clock) -> None:
        """`topics(name)`: the topic of that name, if there is one."""
        self._topics = topics
        self._clock = clock
        self.counts: Counter[tuple[str, str]] = Counter()
        """(where, outcome) → messages."""
        self._known: OrderedDict[Key, Looked] = OrderedDict()
        self._known_ends = 0

    def feature(self) -> Feature:
        return Feature("expiry", families=metrics.FAMILIES, read_metrics=partial(metrics.read, self.counts))

    # -- what holds ----------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return self._clock.wall_ms()

    def ttl_ms(self, topic: Topic) -> int:
        """Of all records of a topic; FOREVER where it has none."""
        said = topic.rules.of_features.get(TTL)
        return FOREVER if said is None else int(said)

    def dead_letters(self, topic: str) -> bool:
        """Whether expired messages of the topic of this name are dead-lettered."""
        found = self._topics(topic)
        return found is not None and found.rules.of_features.get(ACTION) == DEAD_LETTER

    def count(self, where: str, messages: int, *, dead_lettered: bool = False) -> None:
        """Some have been passed over, or dead-lettered."""
        if messages:
            self.counts[where, "dead_lettered" if dead_lettered else "dropped"] += messages

    # -- one batch -----------------------------------------------------------------------------------------------------

    def ends(self, topic: Topic, body: bytes, header: BatchHeader) -> Sequence[End]:
        """When the records of a batch of the topic expire; its body is decompressed. Raises
        BrokerError(INVALID_RECORD)."""
        return ends_of(body, header, topic.name, self.ttl_ms(topic), by_header=topic.rules.headers_enabled)

    def over(self, topic: Topic, body: bytes) -> Callable[[Record], bool] | None:
        """For one who reads the records of such a batch: whether one has expired by now. None: none of them can."""
        ttl_ms = self.ttl_ms(topic)
        if ttl_ms < 0 and not (topic.rules.headers_enabled and SEARCH.finds(body)):
            return None
        now_ms, by_header = self.now_ms(), topic.rules.headers_enabled

        def is_over(record: Record) -> bool:
            end_ms = expires_ms(record.headers if by_header else (), record.timestamp, ttl_ms)
            return end_ms is not None and end_ms <= now_ms

        return is_over

    # -- batches as they are in the log --------------------------------------------------------------------------------

    def known(self, partition: Partition, batch: Buffer) -> Looked | None:
        """When the records of a batch expire; None where it takes long to find out (`look`). A batch that nobody can
        read has none."""
        topic = partition.topic
        ttl_ms = self.ttl_ms(topic)
        if ttl_ms < 0 and not topic.rules.headers_enabled:
            return _NOTHING
        key = partition.queue_number, ttl_ms, bytes(batch[:_KEY_BYTES])
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
            return found
        plain, size = is_plain(memoryview(batch)), len(batch)
        if plain and ttl_ms < 0 and not SEARCH.finds(batch):
            return _NOTHING
        if size >= LARGE_BYTES or (size >= THREAD_BYTES and not plain):
            return None
        looked = self.look(partition, batch)()
        self.keep([looked])
        return looked

    def look(self, partition: Partition, batch: Buffer) -> Callable[[], Looked]:
        """A function that finds out, in any thread; what it returns is for `keep`."""
        topic = partition.topic
        ttl_ms = self.ttl_ms(topic)
        key = partition.queue_number, ttl_ms, bytes(batch[:_KEY_BYTES])
        return partial(_look, key, batch, topic.name, ttl_ms, topic.rules.headers_enabled)

    def keep(self, looked: Sequence[Looked]) -> None:
        """Remember it."""
        for each in looked:
            if each.key not in self._known:
                self._known[each.key] = each
                self._known_ends += len(each.ends)
        while len(self._known) > 1 and len(self._known) + self._known_ends > MOST_KNOWN:
            _, old = self._known.popitem(last=False)
            self._known_ends -= len(old.ends)


def _look(key: Key, batch: Buffer, topic: str, ttl_ms: int, by_header: bool) -> Looked:
    header = parse_header(batch)
    if header.attributes & CONTROL:
        return Looked(key)
    try:
        ends = ends_of(bytes(batch_body(batch)), header, topic, ttl_ms, by_header=by_header)
    except BrokerError:
        return Looked(key)
    return Looked(key, ends, min(each.expires_ms for each in ends)) if ends else Looked(key)
