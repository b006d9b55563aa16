"""The bytes of Produce, versions 3-13: requests in, responses out.

Which field came in which version:

    5 log start offset · 8 errors of single records, message · 9 compact, tagged fields · 13 topic ids (KIP-516)

Schemas: ProduceRequest.json, ProduceResponse.json. The records of a request stay views into the receive buffer.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from msgspec import Struct

from halfmoon.adapters.kafka.errors import MalformedRequest
from halfmoon.kafka_wire import primitives as wire

FLEXIBLE = 9
BY_TOPIC_ID = 13

_ACKS_TIMEOUT = struct.Struct(">hi")
_PART = struct.Struct(">ii")
"""Partition index and the size of its records, before version 9."""
_STORED_V3 = struct.Struct(">ihqq")
"""Index, error code, base offset, log append time."""
_STORED_V5 = struct.Struct(">ihqqq")
"""From version 5 on: the log start offset too."""
_NO_ERRORS_V8 = b"\x00\x00\x00\x00\xff\xff"
"""No record errors, null message."""
_NO_ERRORS_V9 = b"\x01\x00\x00"
"""The same, compact, and no tagged fields."""

Batches = list[tuple[int, memoryview | None]]
"""Partition index and its records."""


class ProduceBody(NamedTuple):
    """A parsed request. A topic is known by its name, or from version 13 on by its id (16 bytes)."""

    transactional_id: str | None
    acks: int
    topics: list[tuple[str | bytes, Batches]]


class Stored(Struct):
    """What became of one partition's batch. `error_code` 0: appended."""

    index: int
    error_code: int
    base_offset: int
    append_time_ms: int
    start_offset: int
    message: str | None


Results = list[tuple[str | bytes, list[Stored]]]


def parse(body: memoryview, version: int) -> ProduceBody:
    """Read a request's body; the records stay views into it. Raises MalformedRequest."""
    try:
        return _parse(body, version)
    except wire.TRUNCATED:
        raise MalformedRequest("the request ends before its last field") from None


def _parse(body: memoryview, version: int) -> ProduceBody:
    flexible = version >= FLEXIBLE
    transactional_id: str | None
    if flexible and body[0] == 0:
        transactional_id, pos = None, 1
    else:
        transactional_id, pos = wire.nullable_string(body, 0, flexible)
    acks, _timeout_ms = _ACKS_TIMEOUT.unpack_from(body, pos)
    topic_count, pos = wire.array_size(body, pos + 6, flexible)
    topics: list[tuple[str | bytes, Batches]] = []
    elements = topic_count
    for _ in range(topic_count):
        if elements > wire.MAX_ELEMENTS:
            raise wire.too_many_elements()
        key: str | bytes
        if version >= BY_TOPIC_ID:
            raw, pos = wire.take(body, pos, wire.UUID_SIZE)
            key = bytes(raw)
        else:
            key, pos = wire.string(body, pos, flexible)
        batches, pos = _parse_batches(body, pos, flexible)
        elements += len(batches)
        topics.append((key, batches))
    if flexible and body[pos]:
        wire.skip_tags(body, pos)
    return ProduceBody(transactional_id, acks, topics)


def _parse_batches(body: memoryview, pos: int, flexible: bool) -> tuple[Batches, int]:
    """One topic's partitions, and its tagged fields. Calls are avoided where a byte of 0 says that nothing is there."""
    count, pos = wire.array_size(body, pos, flexible)
    if count > wire.MAX_ELEMENTS:
        raise wire.too_many_elements()
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
    if flexible:
        pos = pos + 1 if body[pos] == 0 else wire.skip_tags(body, pos)
    return batches, pos


def encode(results: Results, version: int) -> bytes:
    """The response's body.

    The tagged fields of version 10 (current leader, node endpoints) are for errors that a single node does not have.
    """
    flexible = version >= FLEXIBLE
    out = [wire.encode_array_size(len(results), flexible)]
    for key, stored in results:
        out.append(wire.encode_string(key, flexible) if isinstance(key, str) else key)
        out.append(wire.encode_array_size(len(stored), flexible))
        for part in stored:
            message = part.message
            if version < 5:
                out.append(_STORED_V3.pack(part.index, part.error_code, part.base_offset, part.append_time_ms))
                continue
            out.append(
                _STORED_V5.pack(part.index, part.error_code, part.base_offset, part.append_time_ms, part.start_offset)
            )
            if flexible:
                out.append(_NO_ERRORS_V9 if message is None else b"\x01" + wire.encode_string(message, True) + b"\x00")
            elif version >= 8:
                out.append(_NO_ERRORS_V8 if message is None else b"\0\0\0\0" + wire.encode_string(message, False))
        if flexible:
            out.append(b"\x00")
    # No throttling.
    out.append(b"\x00\x00\x00\x00\x00" if flexible else b"\x00\x00\x00\x00")
    return b"".join(out)
