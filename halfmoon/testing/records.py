"""A topic's records, read and written for a test, over the administrators' sockets: no client library, no password."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from halfmoon.core.records.batch_header import CONTROL, HEADER_BYTES, LENGTH_END, TRANSACTIONAL, parse_header
from halfmoon.core.records.batches import build_batch, iter_records
from halfmoon.kafka_wire.messages import REQUESTS
from halfmoon.testing.error_names import FIRST, KAFKA
from halfmoon.testing.record import Record

if TYPE_CHECKING:
    from halfmoon.testing.admin_socket import AdminSocket

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
EARLIEST: Final = -2
COMMITTED: Final = 1
ABORT: Final = b"\0\0"
"""How the type of a transaction's marker begins, in its key behind a version."""
FETCH_BYTES: Final = 8 << 20
WAIT_S: Final = 0.01
PATIENCE_S: Final = 10.0
"""So long a partition may have no leader."""
NO_LEADER: Final = frozenset((3, 5, 6, 7, 74, 75, 100))
"""Codes that pass: a topic that is just made, a shard that moves."""

T = TypeVar("T")


class _NoLeaderError(Exception):
    pass


class Records:
    def __init__(self, sockets: Sequence[AdminSocket]) -> None:
        """`sockets`: of all processes, by node id from 1 on; or of the only one."""
        self._sockets = sockets

    def read(
        self, topic: str, partition: int | None, *, committed: bool, at_least: int, timeout_s: float
    ) -> list[Record]:
        """Raises LookupError, TimeoutError."""
        until_s = time.monotonic() + timeout_s
        while True:
            try:
                found = self._patiently(lambda: list(self._all(topic, partition, committed=committed)))
            except LookupError:
                if not at_least or time.monotonic() > until_s:
                    raise
                found = []
            if len(found) >= at_least:
                return found
            if time.monotonic() > until_s:
                raise TimeoutError(
                    f"{topic} has {len(found)} records after {timeout_s:g} s, not {at_least}: {found[-20:]}"
                )
            time.sleep(WAIT_S)

    def write(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None,
        headers: Mapping[str, bytes | str | None],
        partition: int | None,
        timestamp_ms: int,
    ) -> Record:
        """Raises RuntimeError."""
        named = tuple((name, _bytes(content)) for name, content in headers.items())
        batch = build_batch([(_bytes(key), _bytes(value), timestamp_ms, named)])

        def produce() -> Record:
            found = self._topic(topic, makes=True)
            index = partition
            if index is None:
                index = 0 if key is None else (murmur2(_bytes(key) or b"") & 0x7FFFFFFF) % len(found.partitions)
            request = REQUESTS[PRODUCE]
            part = request.PartitionProduceData(index=index, records=batch)
            data = request.TopicProduceData(name=topic, topic_id=found.topic_id, partition_data=[part])
            answer = self._leader(found, index).ask(PRODUCE, acks=-1, timeout_ms=10_000, topic_data=[data])
            told = answer.responses[0].partition_responses[0]
            _check(told.error_code, told.error_message)
            return Record(topic, index, told.base_offset, timestamp_ms, _bytes(key), _bytes(value), named)

        return self._patiently(produce)

    def _all(self, topic: str, partition: int | None, *, committed: bool) -> Iterator[Record]:
        found = self._topic(topic, makes=False)
        indexes = sorted(each.partition_index for each in found.partitions)
        if partition is not None and partition not in indexes:
            raise LookupError(f"{topic} has no partition {partition}")
        for index in indexes if partition is None else [partition]:
            yield from self._partition(found, index, committed=committed)

    def _topic(self, name: str, *, makes: bool) -> Any:
        """Raises LookupError."""
        asked = REQUESTS[METADATA].MetadataRequestTopic(name=name)
        answer = self._sockets[0].ask(METADATA, topics=[asked], allow_auto_topic_creation=makes)
        (found,) = answer.topics
        if found.error_code == 3 and not makes:
            raise LookupError(f"there is no topic {name!r}")
        _check(found.error_code, f"topic {name!r}")
        return found

    def _leader(self, topic: Any, partition: int) -> AdminSocket:
        for each in topic.partitions:
            if each.partition_index == partition:
                if each.leader_id < 0:
                    raise _NoLeaderError
                return self._sockets[0] if len(self._sockets) == 1 else self._sockets[each.leader_id - 1]
        raise LookupError(f"{topic.name} has no partition {partition}")

    def _partition(self, topic: Any, index: int, *, committed: bool) -> Iterator[Record]:
        leader = self._leader(topic, index)
        request = REQUESTS[LIST_OFFSETS]
        asked = request.ListOffsetsPartition(partition_index=index, timestamp=EARLIEST)
        answer = leader.ask(
            LIST_OFFSETS, topics=[request.ListOffsetsTopic(name=topic.name, partitions=[asked])], timeout_ms=10_000
        )
        (first,) = answer.topics[0].partitions
        _check(first.error_code)
        offset, reading = first.offset, _Reading(topic.name, index)
        while True:
            part = self._fetch(leader, topic, index, offset, committed=committed)
            batches = list(_split(part.records or b""))
            if not batches:
                return
            yield from reading.records(batches, offset, part.aborted_transactions or () if committed else ())
            header = parse_header(batches[-1])
            offset = header.base_offset + header.last_offset_delta + 1

    def _fetch(self, leader: AdminSocket, topic: Any, index: int, offset: int, *, committed: bool) -> Any:
        request = REQUESTS[FETCH]
        part = request.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
        asked = request.FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=[part])
        answer = leader.ask(
            FETCH, max_wait_ms=0, min_bytes=0, max_bytes=FETCH_BYTES, isolation_level=COMMITTED if committed else 0,
            topics=[asked],
        )  # fmt: skip
        _check(answer.error_code)
        found = answer.responses[0].partitions[0]
        _check(found.error_code)
        return found

    def _patiently(self, work: Callable[[], T]) -> T:
        until_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                return work()
            except (_NoLeaderError, ConnectionError, FileNotFoundError):
                if time.monotonic() > until_s:
                    raise RuntimeError("a partition has no leader") from None
            time.sleep(WAIT_S)


class _Reading:
    """Of one partition: what a consumer leaves out is left out."""

    def __init__(self, topic: str, partition: int) -> None:
        self._topic = topic
        self._partition = partition
        self._aborted: set[int] = set()
        """Producers whose transactions here are known to be aborted."""

    def records(self, batches: Sequence[bytes], offset: int, aborted: Sequence[Any]) -> Iterator[Record]:
        """From this offset on. `aborted`: transactions that begin before the end of the batches."""
        waiting = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        for batch in batches:
            header = parse_header(batch)
            while waiting and waiting[-1].first_offset <= header.base_offset + header.last_offset_delta:
                self._aborted.add(waiting.pop().producer_id)
            if header.attributes & CONTROL:
                key = next(iter(iter_records(batch))).key or b""
                if key[2:4] == ABORT:
                    self._aborted.discard(header.producer_id)
                continue
            if header.attributes & TRANSACTIONAL and header.producer_id in self._aborted:
                continue
            for each in iter_records(batch):
                found = header.base_offset + each.offset_delta
                if found >= offset:
                    yield Record(
                        self._topic, self._partition, found, each.timestamp, each.key, each.value, tuple(each.headers)
                    )


def _split(records: bytes) -> Iterator[bytes]:
    """The whole batches of an answer, whose last one may be cut off."""
    at = 0
    while at + HEADER_BYTES <= len(records):
        end = at + LENGTH_END + parse_header(records[at:]).batch_length
        if end > len(records):
            return
        yield records[at:end]
        at = end


def _check(code: int, said: str | None = None) -> None:
    """Raises RuntimeError, and _NoLeaderError where it may pass."""
    if code in NO_LEADER:
        raise _NoLeaderError
    if code:
        raise RuntimeError(f"the broker refuses it: {KAFKA[code - FIRST]}{f': {said}' if said else ''}")


def _bytes(content: bytes | str | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


def murmur2(data: bytes) -> int:
    """The hash of a key by which Java's producers choose a partition (org.apache.kafka.common.utils.Utils.murmur2)."""
    factor, mask = 0x5BD1E995, 0xFFFFFFFF
    found = 0x9747B28C ^ len(data)
    end = len(data) & ~3
    for at in range(0, end, 4):
        word = int.from_bytes(data[at : at + 4], "little") * factor & mask
        word = (word ^ word >> 24) * factor & mask
        found = found * factor & mask ^ word
    if len(data) > end:
        found = (found ^ int.from_bytes(data[end:], "little")) * factor & mask
    found = (found ^ found >> 13) * factor & mask
    return found ^ found >> 15
