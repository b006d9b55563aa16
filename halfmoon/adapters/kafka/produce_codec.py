"""The bytes of Produce, versions 3-13: requests in, responses out.

Which field came in which version:

    5 log start offset · 8 errors of single records, message · 9 compact, tagged fields · 10 current leader,
    node endpoints (tagged) · 13 topic ids (KIP-516)

Requests of very many batches are read, and answered, in slices, so that others have their turn in between.

Schemas: ProduceRequest.json, ProduceResponse.json. The records of a request stay views into the receive buffer.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from halfmoon.adapters.kafka.current_leader import CurrentLeader, endpoint_tags, leader_tags
from halfmoon.adapters.kafka.errors import MalformedRequest
from halfmoon.kafka_wire import primitives as wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from halfmoon.core.append_types import Produced
    from halfmoon.core.steps import Slices

FLEXIBLE: Final = 9
NAMES_LEADERS: Final = 10
BY_TOPIC_ID: Final = 13

FEW: Final = 200
"""Topics and batches of a request that is handled in one turn."""
SLICE = 1_000
"""Of those that are read or written in one go: less than a millisecond."""

_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_SINGLE: Final = struct.Struct(">hhiih")
"""Before version 9, of a request for one topic: length of the transactional id, acks, timeout, count of topics, length
of the topic's name."""
_SINGLE_PART: Final = struct.Struct(">iii")
"""Count of partitions, index of the one, size of its records."""
_SINGLE_V9: Final = struct.Struct(">BhiBB")
"""From version 9 on: the same as `_SINGLE`; numbers of less than 128 are one byte."""
_SINGLE_PART_V9: Final = struct.Struct(">Bi")
"""Count of partitions, index of the one."""
_SINGLE_BYTES: Final = _SINGLE.size
_SINGLE_PART_BYTES: Final = _SINGLE_PART.size
_SINGLE_V9_BYTES: Final = _SINGLE_V9.size
_SINGLE_PART_V9_BYTES: Final = _SINGLE_PART_V9.size
_PART: Final = struct.Struct(">ii")
"""Partition index and the size of its records, before version 9."""
_STORED_V3: Final = struct.Struct(">ihqq")
"""Index, error code, base offset, log append time."""
_STORED_V5: Final = struct.Struct(">ihqqq")
"""From version 5 on: the log start offset too."""
_NO_ERRORS_V8: Final = b"\x00\x00\x00\x00\xff\xff"
"""No record errors, null message."""
_NO_ERRORS_V9: Final = b"\x01\x00\x00"
"""The same, compact, and no tagged fields."""
_ONE: Final[tuple[bytes, ...]] = (b"\x00\x00\x00\x01", b"\x02")
"""An array of one element, before version 9 and from then on."""
_NO_THROTTLING: Final[tuple[bytes, ...]] = (b"\x00\x00\x00\x00", b"\x00\x00\x00\x00\x00")
"""Before version 9, and from then on with no tagged fields."""

Batches = list[tuple[int, memoryview | None]]
"""Partition index and its records."""


class ProduceBody:
    """A parsed request."""

    __slots__ = ("acks", "topics", "transactional_id")

    def __init__(self, transactional_id: str | None, acks: int, topics: list[tuple[str | bytes, Batches]]) -> None:
        """A topic is known by its name, or from version 13 on by its id (16 bytes)."""
        self.transactional_id = transactional_id
        self.acks = acks
        self.topics = topics


class Stored:
    """What became of one partition's batch."""

    __slots__ = ("append_time_ms", "base_offset", "error_code", "index", "leader", "message", "records", "start_offset")

    def __init__(
        self,
        index: int,
        error_code: int,
        base_offset: int,
        append_time_ms: int,
        start_offset: int,
        message: str | None,
        records: Sequence[int] = (),
    ) -> None:
        """`error_code` 0: appended. `records`: places in the batch of those that alone are at fault (KIP-467): its
        clients may send the others again."""
        self.index = index
        self.error_code = error_code
        self.base_offset = base_offset
        self.append_time_ms = append_time_ms
        self.start_offset = start_offset
        self.message = message
        self.records = records
        self.leader: CurrentLeader | None = None
        """Of one that another node leads."""

    def take(self, produced: Produced) -> None:
        """It was appended."""
        self.base_offset = produced.base_offset
        self.append_time_ms = produced.append_ms
        self.start_offset = produced.start_offset


Results = list[tuple[str | bytes, list[Stored]]]


class ManyBatchesError(Exception):
    """A request has more than FEW."""


def parse(body: memoryview, version: int, most: int = wire.MAX_ELEMENTS) -> ProduceBody:
    """Read a request's body; the records stay views into it. Raises MalformedRequest; with `most` FEW also
    ManyBatchesError."""
    try:
        single = _parse_single(body, version)
        return _parse(body, version, most) if single is None else single
    except wire.TRUNCATED:
        raise MalformedRequest("the request ends before its last field") from None


def parse_in_slices(body: memoryview, version: int) -> Slices[ProduceBody]:
    """The same with pauses, which `body` must outlive. Raises MalformedRequest."""
    flexible = version >= FLEXIBLE
    try:
        transactional_id, acks, topic_count, pos = _parse_head(body, flexible)
        topics: list[tuple[str | bytes, Batches]] = []
        elements = topic_count
        left = SLICE
        for _ in range(topic_count):
            if elements > wire.MAX_ELEMENTS:
                raise wire.too_many_elements()
            key, pos = _parse_key(body, pos, version)
            count, pos = wire.array_size(body, pos, flexible)
            elements += count
            if elements > wire.MAX_ELEMENTS:
                raise wire.too_many_elements()
            batches: Batches = []
            while len(batches) < count:
                some, pos = _parse_parts(body, pos, flexible, min(SLICE, count - len(batches)))
                batches += some
                left -= len(some)
                if left <= 0:
                    yield None
                    left = SLICE
            if flexible:
                pos = wire.skip_tags(body, pos)
            topics.append((key, batches))
            left -= 1
        if flexible and body[pos]:
            wire.skip_tags(body, pos)
    except wire.TRUNCATED:
        raise MalformedRequest("the request ends before its last field") from None
    return ProduceBody(transactional_id, acks, topics)


def _parse_single(body: memoryview, version: int) -> ProduceBody | None:
    """A request with one batch and nothing unusual, as those who send them one by one do; of any other None. It knows
    some lengths beforehand, so it takes a quarter less time."""
    limit = len(body)
    if limit < _SINGLE_BYTES + _SINGLE_PART_BYTES:
        return None
    if version < FLEXIBLE:
        id_size, acks, _, topics, size = _SINGLE.unpack_from(body)
        name_at = _SINGLE_BYTES
        at = name_at + size
        if id_size != -1 or topics != 1 or size < 0 or at + _SINGLE_PART_BYTES > limit:
            return None
        partitions, index, records = _SINGLE_PART.unpack_from(body, at)
        begin = at + _SINGLE_PART_BYTES
        end = begin + records
        if partitions != 1 or records < 0 or end != limit:
            return None
    else:
        null_id, acks, _, topics, size = _SINGLE_V9.unpack_from(body)
        name_at = _SINGLE_V9_BYTES
        at = name_at + size - 1
        if version >= BY_TOPIC_ID:
            name_at -= 1  # an id has no length
            at = name_at + wire.UUID_SIZE
        elif not 0 < size < 0x80:
            return None
        if null_id or topics != 2 or at + _SINGLE_PART_V9_BYTES >= limit:
            return None
        partitions, index = _SINGLE_PART_V9.unpack_from(body, at)
        records, begin = wire.uvarint(body, at + _SINGLE_PART_V9_BYTES)
        end = begin + records - 1
        if partitions != 2 or records == 0 or end + 3 != limit or body[end] or body[end + 1] or body[end + 2]:
            return None  # the three say that there are no tagged fields
    key: str | bytes
    key = bytes(body[name_at:at]) if version >= BY_TOPIC_ID else wire.text(body, name_at, at - name_at)[0]
    return ProduceBody(None, acks, [(key, [(index, body[begin:end])])])


def _parse_head(body: memoryview, flexible: bool) -> tuple[str | None, int, int, int]:
    """Transactional id, acks, count of topics; and where those begin."""
    transactional_id: str | None
    if flexible and body[0] == 0:
        transactional_id, pos = None, 1
    else:
        transactional_id, pos = wire.nullable_string(body, 0, flexible)
    acks, _timeout_ms = _ACKS_TIMEOUT.unpack_from(body, pos)
    topic_count, pos = wire.array_size(body, pos + 6, flexible)
    return transactional_id, acks, topic_count, pos


def _too_many(most: int) -> Exception:
    return ManyBatchesError() if most == FEW else wire.too_many_elements()


def _parse_key(body: memoryview, pos: int, version: int) -> tuple[str | bytes, int]:
    """A topic's name, or its id."""
    if version < BY_TOPIC_ID:
        return wire.string(body, pos, version >= FLEXIBLE)
    raw, pos = wire.take(body, pos, wire.UUID_SIZE)
    return bytes(raw), pos


def _parse(body: memoryview, version: int, most: int) -> ProduceBody:
    flexible = version >= FLEXIBLE
    transactional_id, acks, topic_count, pos = _parse_head(body, flexible)
    topics: list[tuple[str | bytes, Batches]] = []
    elements = topic_count
    for _ in range(topic_count):
        if elements > most:
            raise _too_many(most)
        key, pos = _parse_key(body, pos, version)
        batches, pos = _parse_batches(body, pos, flexible, most)
        elements += len(batches)
        topics.append((key, batches))
    if flexible and body[pos]:
        wire.skip_tags(body, pos)
    return ProduceBody(transactional_id, acks, topics)


def _parse_batches(body: memoryview, pos: int, flexible: bool, most: int) -> tuple[Batches, int]:
    """One topic's partitions, and its tagged fields."""
    count, pos = wire.array_size(body, pos, flexible)
    if count > most:
        raise _too_many(most)
    batches, pos = _parse_parts(body, pos, flexible, count)
    if flexible:
        pos = pos + 1 if body[pos] == 0 else wire.skip_tags(body, pos)
    return batches, pos


def _parse_parts(body: memoryview, pos: int, flexible: bool, count: int) -> tuple[Batches, int]:
    """So many partitions. Calls are avoided where a byte of 0 says that nothing is there."""
    batches: Batches = []
    limit = len(body)
    for _ in range(count):
        if flexible:
            (index,) = wire.INT32.unpack_from(body, pos)
            size, pos = wire.uvarint(body, pos + 4)
            size -= 1
        else:
            index, size = _PART.unpack_from(body, pos)
            pos += 8
        if size == -1:
            batches.append((index, None))
        else:
            end = pos + size
            if size < 0 or end > limit:
                raise MalformedRequest(f"{size} bytes of records in a request that has {limit - pos} left")
            batches.append((index, body[pos:end]))
            pos = end
        if flexible:
            pos = pos + 1 if body[pos] == 0 else wire.skip_tags(body, pos)
    return batches, pos


def encode(results: Results, version: int) -> bytes:
    """The response's body."""
    flexible = version >= FLEXIBLE
    out = [_array_size(len(results), flexible)]
    leaders: list[CurrentLeader] = []
    for key, stored in results:
        out.append(wire.encode_string(key, flexible) if isinstance(key, str) else key)
        out.append(_array_size(len(stored), flexible))
        _encode_parts(out, stored, version, leaders)
        if flexible:
            out.append(b"\x00")
    out.append(_NO_THROTTLING[flexible] if not leaders else _NO_THROTTLING[False] + endpoint_tags(leaders))
    return b"".join(out)


def _array_size(count: int, flexible: bool) -> bytes:
    return _ONE[flexible] if count == 1 else wire.encode_array_size(count, flexible)


def encode_in_slices(results: Results, version: int) -> Slices[bytes]:
    """The same with pauses."""
    flexible = version >= FLEXIBLE
    out = [wire.encode_array_size(len(results), flexible)]
    leaders: list[CurrentLeader] = []
    left = SLICE
    for key, stored in results:
        out.append(wire.encode_string(key, flexible) if isinstance(key, str) else key)
        out.append(wire.encode_array_size(len(stored), flexible))
        for first in range(0, len(stored), SLICE):
            some = stored[first : first + SLICE]
            _encode_parts(out, some, version, leaders)
            left -= len(some)
            if left <= 0:
                yield None
                left = SLICE
        if flexible:
            out.append(b"\x00")
    out.append(_NO_THROTTLING[flexible] if not leaders else _NO_THROTTLING[False] + endpoint_tags(leaders))
    return b"".join(out)


def _encode_parts(out: list[bytes], stored: list[Stored], version: int, leaders: list[CurrentLeader]) -> None:
    """`leaders`: gets those that are named."""
    flexible = version >= FLEXIBLE
    for part in stored:
        message = part.message
        if version < 5:
            out.append(_STORED_V3.pack(part.index, part.error_code, part.base_offset, part.append_time_ms))
            continue
        out.append(
            _STORED_V5.pack(part.index, part.error_code, part.base_offset, part.append_time_ms, part.start_offset)
        )
        if flexible:
            if message is None:
                out.append(_NO_ERRORS_V9)
            else:
                tags = b"\x00"
                if part.leader is not None and version >= NAMES_LEADERS:
                    leaders.append(part.leader)
                    tags = leader_tags(part.leader, 0)
                out.append(_encode_records(part.records, True) + wire.encode_string(message, True) + tags)
        elif version >= 8:
            if message is None:
                out.append(_NO_ERRORS_V8)
            else:
                out.append(_encode_records(part.records, False) + wire.encode_string(message, False))


def _encode_records(records: Sequence[int], flexible: bool) -> bytes:
    """Places of single records, each with no message of its own."""
    none = b"\x00\x00" if flexible else b"\xff\xff"
    return wire.encode_array_size(len(records), flexible) + b"".join(wire.INT32.pack(place) + none for place in records)
