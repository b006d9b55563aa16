"""The bytes of Fetch, versions 4-18: requests in, responses out.

Kept apart from the handler because most of it is which field came in which version:

    5 log start offset · 7 sessions, top-level error · 9 leader epoch · 11 rack, preferred replica
    12 compact, tagged fields, last fetched epoch · 13 topic ids · 15 replica state (tagged)
    16 current leader, node endpoints (tagged) · 17, 18 tagged fields

Schemas: FetchRequest.json, FetchResponse.json. The records of a response are slices of the mapped log; they are listed
between the other bytes and never copied here.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from halfmoon.adapters.kafka.current_leader import CurrentLeader, endpoint_tags, leader_tags
from halfmoon.adapters.kafka.errors import MalformedRequest
from halfmoon.core.transactions.aborted import Aborted
from halfmoon.kafka_wire import primitives as wire

if TYPE_CHECKING:
    from halfmoon.core.steps import Slices

KNOWS_RACKS: Final = 11
FLEXIBLE: Final = 12
BY_TOPIC_ID: Final = 13
NAMES_LEADERS: Final = 16

SLICE = 1_000
"""Partitions that are read or written in one go by whoever gives others their turn: a millisecond."""

Buffer = bytes | bytearray | memoryview


class Wanted(Struct):
    """One partition of a request; -1 stands for an epoch that the client does not know."""

    index: int
    leader_epoch: int
    offset: int
    last_epoch: int
    max_bytes: int


class FetchBody(Struct):
    """A parsed request. A topic is known by its name, or from version 13 on by its id (16 bytes).

    `forgotten` is read and dropped: there are no sessions to forget from.
    """

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    read_committed: bool
    session_id: int
    session_epoch: int
    topics: list[tuple[str | bytes, list[Wanted]]]
    rack: str = ""
    """Where the consumer says that it is (`client.rack`)."""


class Fetched(Struct):
    """One partition of a response. `diverging`: (epoch, end offset) where the reader's log and ours part (KIP-595)."""

    index: int
    error_code: int = 0
    high_watermark: int = -1
    stable_offset: int = -1
    start_offset: int = -1
    records: Sequence[Buffer] = ()
    size: int = 0
    aborted: Sequence[Aborted] = ()
    diverging: tuple[int, int] | None = None
    leader: CurrentLeader | None = None
    """Of one that another node leads."""
    preferred: int = -1
    """The node that the reader had better ask (KIP-392)."""


_HEAD_V4: Final = struct.Struct(">iiiib")
"""Replica id, max wait, min bytes, max bytes, isolation level."""
_HEAD_V15: Final = struct.Struct(">iiib")
"""The replica id became a tagged field."""
_SESSION: Final = struct.Struct(">ii")

_WANTED_V4: Final = struct.Struct(">iqi")
"""Partition, fetch offset, max bytes."""
_WANTED_V5: Final = struct.Struct(">iqqi")
"""Partition, fetch offset, log start offset (of followers), max bytes."""
_WANTED_V9: Final = struct.Struct(">iiqqi")
"""Partition, leader epoch, fetch offset, log start offset, max bytes."""
_WANTED_V12: Final = struct.Struct(">iiqiqi")
"""Partition, leader epoch, fetch offset, last fetched epoch, log start offset, max bytes."""


def parse(body: memoryview, version: int) -> FetchBody:
    """Read a request's body; nothing of it is kept. Raises MalformedRequest."""
    try:
        return _parse(body, version)
    except wire.TRUNCATED:
        raise MalformedRequest("the request ends before its last field") from None


def parse_in_slices(body: memoryview, version: int) -> Slices[FetchBody]:
    """The same with pauses, which `body` must outlive. Raises MalformedRequest."""
    try:
        request, pos = _parse_head(body, version)
        flexible = version >= FLEXIBLE
        count, pos = wire.array_size(body, pos, flexible)
        elements, left = count, SLICE
        for _ in range(count):
            key, pos = _parse_key(body, pos, version)
            partitions: list[Wanted] = []
            partition_count, pos = wire.array_size(body, pos, flexible)
            elements += partition_count
            if elements > wire.MAX_ELEMENTS:
                raise wire.too_many_elements()
            for _ in range(partition_count):
                wanted, pos = _parse_wanted(body, pos, version)
                partitions.append(wanted)
                left -= 1
                if left <= 0:
                    yield None
                    left = SLICE
            if flexible:
                pos = wire.skip_tags(body, pos)
            request.topics.append((key, partitions))
            left -= 1
        _parse_tail(request, body, pos, version)
    except wire.TRUNCATED:
        raise MalformedRequest("the request ends before its last field") from None
    return request


def _parse(body: memoryview, version: int) -> FetchBody:
    request, pos = _parse_head(body, version)
    request.topics, pos = _parse_topics(body, pos, version)
    _parse_tail(request, body, pos, version)
    return request


def _parse_head(body: memoryview, version: int) -> tuple[FetchBody, int]:
    """What stands before the topics."""
    if version >= 15:
        max_wait_ms, min_bytes, max_bytes, isolation = _HEAD_V15.unpack_from(body)
        pos = 13
    else:
        _, max_wait_ms, min_bytes, max_bytes, isolation = _HEAD_V4.unpack_from(body)
        pos = 17
    session_id, session_epoch = 0, -1
    if version >= 7:
        session_id, session_epoch = _SESSION.unpack_from(body, pos)
        pos += 8
    return FetchBody(max_wait_ms, min_bytes, max_bytes, isolation == 1, session_id, session_epoch, []), pos


def _parse_tail(request: FetchBody, body: memoryview, pos: int, version: int) -> None:
    """What stands behind the topics."""
    if version >= 7:
        pos = _skip_forgotten(body, pos, version)
    if version >= KNOWS_RACKS:
        request.rack, pos = wire.string(body, pos, version >= FLEXIBLE)
    if version >= FLEXIBLE and body[pos]:
        wire.skip_tags(body, pos)


def _parse_key(body: memoryview, pos: int, version: int) -> tuple[str | bytes, int]:
    """A topic's name, or its id."""
    if version < BY_TOPIC_ID:
        return wire.string(body, pos, version >= FLEXIBLE)
    raw, pos = wire.take(body, pos, wire.UUID_SIZE)
    return bytes(raw), pos


def _parse_topics(body: memoryview, pos: int, version: int) -> tuple[list[tuple[str | bytes, list[Wanted]]], int]:
    flexible = version >= FLEXIBLE
    topics = []
    count, pos = wire.array_size(body, pos, flexible)
    elements = count
    for _ in range(count):
        key, pos = _parse_key(body, pos, version)
        partitions = []
        partition_count, pos = wire.array_size(body, pos, flexible)
        elements += partition_count
        if elements > wire.MAX_ELEMENTS:
            raise wire.too_many_elements()
        for _ in range(partition_count):
            wanted, pos = _parse_wanted(body, pos, version)
            partitions.append(wanted)
        if flexible:
            pos = pos + 1 if body[pos] == 0 else wire.skip_tags(body, pos)
        topics.append((key, partitions))
    return topics, pos


def _parse_wanted(body: memoryview, pos: int, version: int) -> tuple[Wanted, int]:
    if version >= FLEXIBLE:
        index, leader_epoch, offset, last_epoch, _, max_bytes = _WANTED_V12.unpack_from(body, pos)
        pos += 32
        pos = pos + 1 if body[pos] == 0 else wire.skip_tags(body, pos)
        return Wanted(index, leader_epoch, offset, last_epoch, max_bytes), pos
    if version >= 9:
        index, leader_epoch, offset, _, max_bytes = _WANTED_V9.unpack_from(body, pos)
        return Wanted(index, leader_epoch, offset, -1, max_bytes), pos + 28
    if version >= 5:
        index, offset, _, max_bytes = _WANTED_V5.unpack_from(body, pos)
        return Wanted(index, -1, offset, -1, max_bytes), pos + 24
    index, offset, max_bytes = _WANTED_V4.unpack_from(body, pos)
    return Wanted(index, -1, offset, -1, max_bytes), pos + 16


def _skip_forgotten(body: memoryview, pos: int, version: int) -> int:
    """The forgotten topics of a session, and their partitions."""
    flexible = version >= FLEXIBLE
    count, pos = wire.array_size(body, pos, flexible)
    if count > wire.MAX_ELEMENTS:
        raise wire.too_many_elements()
    for _ in range(count):
        _, pos = _parse_key(body, pos, version)
        partition_count, pos = wire.array_size(body, pos, flexible)
        _, pos = wire.take(body, pos, 4 * max(partition_count, 0))
        if flexible:
            pos = wire.skip_tags(body, pos)
    return pos


_FETCHED_V4: Final = struct.Struct(">ihqq")
"""Partition, error code, high watermark, last stable offset."""
_FETCHED_V5: Final = struct.Struct(">ihqqq")
"""From version 5 on: the log start offset too."""
_TOP_V7: Final = struct.Struct(">ihi")
"""Throttle time, error code, session id: there is no session, so 0."""
_ABORTED: Final = struct.Struct(">qq")
"""Producer id, offset of its first batch."""
_DIVERGING: Final = struct.Struct(">BBBiqB")
"""One tagged field, tag 0, 13 bytes: epoch, end offset, no tagged fields within."""


def encode(
    topics: list[tuple[str | bytes, list[Fetched]]], version: int, read_committed: bool, error_code: int = 0
) -> list[Buffer]:
    """The response's body, as buffers to be sent one after the other."""
    flexible = version >= FLEXIBLE
    out: list[Buffer] = []
    head = _encode_top(len(topics), version, error_code)
    before_records = _before_records(version, () if read_committed else None)
    leaders: list[CurrentLeader] = []
    for key, partitions in topics:
        head += wire.encode_string(key, flexible) if isinstance(key, str) else key
        head += wire.encode_array_size(len(partitions), flexible)
        head = _encode_partitions(out, head, partitions, version, before_records, leaders)
        if flexible:
            head += b"\x00"
    if flexible:
        head += endpoint_tags(leaders)
    if head:
        out.append(head)
    return out


def encode_in_slices(
    topics: list[tuple[str | bytes, list[Fetched]]], version: int, read_committed: bool
) -> Slices[list[Buffer]]:
    """The same with pauses."""
    flexible = version >= FLEXIBLE
    out: list[Buffer] = []
    head = _encode_top(len(topics), version, 0)
    before_records = _before_records(version, () if read_committed else None)
    leaders: list[CurrentLeader] = []
    left = SLICE
    for key, partitions in topics:
        head += wire.encode_string(key, flexible) if isinstance(key, str) else key
        head += wire.encode_array_size(len(partitions), flexible)
        for first in range(0, len(partitions), SLICE):
            some = partitions[first : first + SLICE]
            head = _encode_partitions(out, head, some, version, before_records, leaders)
            left -= len(some)
            if left <= 0:
                yield None
                left = SLICE
        if flexible:
            head += b"\x00"
        left -= 1
    if flexible:
        head += endpoint_tags(leaders)
    if head:
        out.append(head)
    return out


def _encode_top(topics: int, version: int, error_code: int) -> bytearray:
    head = bytearray(_TOP_V7.pack(0, error_code, 0) if version >= 7 else b"\x00\x00\x00\x00")
    head += wire.encode_array_size(topics, version >= FLEXIBLE)
    return head


def _encode_partitions(
    out: list[Buffer],
    head: bytearray,
    partitions: Sequence[Fetched],
    version: int,
    before_records: bytes,
    leaders: list[CurrentLeader],
) -> bytearray:
    """Writes to the end of `head`, and puts it into `out` where records follow; returns the one that is open then.
    `leaders`: gets those that are named."""
    flexible = version >= FLEXIBLE
    for part in partitions:
        if version >= 5:
            head += _FETCHED_V5.pack(
                part.index, part.error_code, part.high_watermark, part.stable_offset, part.start_offset
            )
        else:
            head += _FETCHED_V4.pack(part.index, part.error_code, part.high_watermark, part.stable_offset)
        if part.aborted:
            head += _before_records(version, part.aborted)
        elif part.preferred >= 0 and version >= KNOWS_RACKS:
            head += before_records[:-4] + part.preferred.to_bytes(4)
        else:
            head += before_records
        head += wire.encode_array_size(part.size, flexible)
        if part.size:
            out.append(head)
            out.extend(part.records)
            head = bytearray()
        if part.diverging is not None and flexible:
            head += _DIVERGING.pack(1, 0, 13, *part.diverging, 0)
        elif part.leader is not None and version >= NAMES_LEADERS:
            leaders.append(part.leader)
            head += leader_tags(part.leader, 1)
        elif flexible:
            head += b"\x00"
    return head


def _before_records(version: int, aborted: Sequence[Aborted] | None) -> bytes:
    """The aborted transactions (null for readers of all records: as Kafka); no preferred replica."""
    flexible = version >= FLEXIBLE
    listed = wire.encode_array_size(-1 if aborted is None else len(aborted), flexible)
    for each in aborted or ():
        listed += _ABORTED.pack(each.producer_id, each.first_offset)
        if flexible:
            listed += b"\x00"
    return listed + b"\xff\xff\xff\xff" if version >= KNOWS_RACKS else listed
