"""Finding messages: by a key, or by their place (B05).

What is asked for is worked out in steps (core/steps.py). What became of a message: history.py.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace

from halfmoon.config.topic_configs import TopicRules
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Partition, RemotePartition, Topic
from halfmoon.core.partition_reader import PartitionReader
from halfmoon.core.records import record_codec
from halfmoon.core.records.batch_header import TIMESTAMP_TYPE
from halfmoon.core.records.batches import batch_body, parse_header
from halfmoon.core.records.record_codec import Record
from halfmoon.core.steps import Steps
from halfmoon.core.storage.frame import Kind
from halfmoon.core.storage.frame_reading import WholeFrame
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.provenance import Origin
from halfmoon.services.keyindex.history import History, Place
from halfmoon.services.keyindex.key_file import LAST_MS
from halfmoon.services.keyindex.keys import keys_of
from halfmoon.services.keyindex.questions import (
    Describes,
    Find,
    Found,
    Results,
    Sees,
    Show,
    Shown,
    Trace,
    Traced,
    all_of_it,
    everything,
)
from halfmoon.services.keyindex.service import KeyIndex
from halfmoon.services.keyindex.stretch import key_hash

MOST_FOUND = 10_000
"""Messages that one question is answered with."""
MOST_BYTES = 8 << 20
"""Keys, values and headers of all of them together."""


class Messages:
    """The questions. Ask in the loop; what they need of the broker is looked up between their steps."""

    def __init__(self, key_index: KeyIndex, catalog: Catalog, reader: PartitionReader) -> None:
        self._key_index = key_index
        self._catalog = catalog
        self._reader = reader
        self._history = History(key_index, catalog, reader)

    def ask(
        self, question: Find | Show, describes: Describes = everything, *, reads: bool = True, sees: Sees = all_of_it
    ) -> Steps[Results | Shown]:
        """`reads`: whether who asks may see what is in messages of the topic. `sees`: as of `find`. Raises
        BrokerError."""
        topic = self._catalog.by_name.get(question.topic)
        if topic is None:
            raise BrokerError(Fault.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{question.topic}'")
        if isinstance(question, Find):
            if not question.key or question.most < 1:
                raise BrokerError(Fault.INVALID_REQUEST, "a key and a count of at least 1 are required")
            times = {"from_ms": question.from_ms, "to_ms": question.to_ms}
            return (
                yield from self.find(topic, question.key, most=question.most, ended=question.ended, sees=sees, **times)
            )
        if not 0 <= question.partition < len(topic.partitions):
            raise BrokerError(
                Fault.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{topic.name}' has no partition {question.partition}"
            )
        return (yield from self.show(topic.partitions[question.partition], question.offset, describes, reads=reads))

    def find(
        self,
        topic: Topic,
        key: bytes,
        *,
        from_ms: int = 0,
        to_ms: int = LAST_MS,
        most: int = 100,
        ended: bool = False,
        sees: Sees = all_of_it,
    ) -> Steps[Results]:
        """The messages of a topic, or on their way to it, that have this key and were stored between the two times
        (Unix ms, inclusive). With `ended` also what has waited for a time and is done with, as long as it is in the
        log. What who asks does not see is as if it were not there; `sees` is asked in the loop."""
        behind = self._key_index.behind_bytes
        search = self._key_index.find([key_hash(topic.number, key)], from_ms, to_ms)
        frames = self._reader.frames()
        most = min(most, MOST_FOUND)

        def look() -> Iterator[tuple[Found, int]]:
            """With the bytes of each."""
            for position in search():
                whole = frames.read(position)
                if whole is None or not self._concerns(whole, topic) or not from_ms <= whole.frame.store_ms <= to_ms:
                    continue
                try:
                    records = list(_records_with(whole, key, topic.rules))
                except BrokerError:  # nobody has looked into this batch yet, and it is none
                    continue
                for record in reversed(records):
                    message = self._message(whole, record)
                    if message is not None and (ended or not message.ended):
                        yield message, record.end - record.start

        looked = look()
        found: list[Found] = []
        size = 0
        is_last = False
        while not is_last:
            # One more than there is room for says that there are more.
            some, is_last = yield partial(_first, looked, most - len(found) + 1, MOST_BYTES - size)
            for message, nbytes in some:
                if not sees(message):
                    continue
                size += nbytes
                if len(found) == most or (found and size > MOST_BYTES):
                    return Results(tuple(found), True, behind)
                found.append(message)
        return Results(tuple(found), False, behind)

    def _concerns(self, whole: WholeFrame, topic: Topic) -> bool:
        target = whole.target
        number = whole.frame.topic_number if target is None else target.topic_number
        return whole.frame.kind == Kind.BATCH and number == topic.number

    def _message(self, whole: WholeFrame, record: Record) -> Found | None:
        """As it stands there now; None where it has expired, or its producer's transaction is open or was aborted.
        Called in a thread: it only looks."""
        frame = whole.frame
        partition = self._catalog.partition(frame.topic_number, frame.partition)
        offset = frame.base_offset + record.offset_delta
        header = parse_header(whole.payload)
        if partition is None or not partition.shows(header, offset, frame.position):
            return None
        if whole.target is not None and self._lies_elsewhere(whole.target):
            return None  # it waits there; the frame is in the files of both shards
        pending, target = partition.pending, whole.target
        ended = pending is not None and offset not in pending
        return Found(
            partition.topic.name, partition.index, offset, record.timestamp,
            1 if header.attributes & TIMESTAMP_TYPE else 0, frame.store_ms,
            record.key, record.value, tuple((_readable(name), content) for name, content in record.headers),
            None if target is None else self._name(target.topic_number, target.partition),
            -1 if ended or pending is None else frame.due_ms, ended,
        )  # fmt: skip

    def _lies_elsewhere(self, place: Origin) -> bool:
        return isinstance(self._catalog.known_partition(place.topic_number, place.partition), RemotePartition)

    def _name(self, topic_number: int, partition: int) -> str:
        return f"{self._catalog.name_of(topic_number)}-{partition}"

    def show(
        self, partition: Partition, offset: int, describes: Describes = everything, *, reads: bool = True
    ) -> Steps[Shown]:
        """One message, by its place. Raises BrokerError(OFFSET_OUT_OF_RANGE) where there is none."""
        place = Place(partition.topic.number, partition.index, offset)
        found = yield from self._history.standing(place)
        message = None if found is None else self._message(found.whole, found.record)
        if message is None:
            raise BrokerError(Fault.OFFSET_OUT_OF_RANGE, f"there is no message at offset {offset} of {partition!r}")
        if not reads:
            message = replace(message, key=None, value=None, headers=(), hidden=True)
        return Shown(message, (yield from self._history.of(place, describes)))

    def trace(self, question: Trace, describes: Describes) -> Steps[Traced]:
        """As far as this log knows."""
        topics, shard = self._catalog.by_name, self._catalog.shard
        places = [Place(topics[name].number, *where) for name, *where in question.places if name in topics]
        events, seen = yield from self._history.trace(places, describes)
        known = ((self._catalog.by_number.get(place.topic_number), place) for place in seen)
        return Traced(
            events,
            tuple(
                (topic.name, place.partition, place.offset)
                for topic, place in known
                if topic is not None and (shard is None or not shard.owns(topic.number))
            ),
        )


def _first(
    looked: Iterator[tuple[Found, int]], most: int, most_bytes: int
) -> tuple[list[tuple[Found, int]], bool]:  # fmt: skip
    """The next ones, until they are more than so many bytes, and whether there are no others. Called in a thread."""
    taken: list[tuple[Found, int]] = []
    for message, nbytes in looked:
        taken.append((message, nbytes))
        most_bytes -= nbytes
        if len(taken) == most or most_bytes < 0:
            return taken, False
    return taken, True


def _readable(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _records_with(whole: WholeFrame, key: bytes, rules: TopicRules) -> Iterator[Record]:
    """The records of a batch that have this key; only those are read that hold its bytes."""
    header = parse_header(whole.payload)
    body = bytes(batch_body(whole.payload))
    append_time = header.max_timestamp if header.attributes & TIMESTAMP_TYPE else None
    bounds = record_codec.walk(body, header.record_count)
    at = body.find(key)
    while at >= 0:
        index = bisect_right(bounds, at) - 1
        record = record_codec.read_one(body, bounds[index], index, header.base_timestamp, append_time)
        if key in keys_of(record, own_key=rules.key_index, headers=rules.headers_enabled):
            yield record
        at = body.find(key, bounds[index + 1])
