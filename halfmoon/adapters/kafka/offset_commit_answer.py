"""The answer to OffsetCommit, written by hand.

As kafka-python's OffsetCommitResponse, in 2 µs instead of 10, of the 45 that a small commit takes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from uuid import UUID

from msgspec import Struct, field

from halfmoon.adapters.kafka.errors import NONE
from halfmoon.kafka_wire import primitives as wire
from halfmoon.kafka_wire.slices import Slices

WITH_THROTTLE_TIME = 3
FLEXIBLE = 8
BY_ID = 10
"""From this version on topics are given by id, and only so."""

_PARTITION = struct.Struct(">ih")
"""Index, error code."""
_FLEXIBLE_PARTITION = struct.Struct(">ihx")
"""The same, and no tagged fields."""
_PIECE = 1_000
"""Partitions, or what is as long to write."""
_NO_ID = bytes(wire.UUID_SIZE)


class PartitionResult(Struct):
    index: int
    error_code: int = NONE


class TopicResult(Struct):
    name: str
    topic_id: UUID | None
    partitions: list[PartitionResult] = field(default_factory=list)


class OffsetCommitAnswer(Struct):
    topics: list[TopicResult]
    throttle_time_ms: int = 0

    def encode(self, version: int) -> bytes:
        return b"".join(self._pieces(version))

    def encode_slices(self, version: int) -> Slices[list[bytes]]:
        """The same in slices and pieces."""
        pieces = []
        for piece in self._pieces(version):
            pieces.append(piece)
            yield
        return pieces

    def _pieces(self, version: int) -> Iterator[bytes]:
        flexible = version >= FLEXIBLE
        pack = (_FLEXIBLE_PARTITION if flexible else _PARTITION).pack
        out = [wire.INT32.pack(self.throttle_time_ms)] if version >= WITH_THROTTLE_TIME else []
        out.append(wire.encode_array_size(len(self.topics), flexible))
        for topic in self.topics:
            if version >= BY_ID:
                out.append(_NO_ID if topic.topic_id is None else topic.topic_id.bytes)
            else:
                out.append(wire.encode_string(topic.name, flexible))
            parts = topic.partitions
            out.append(wire.encode_array_size(len(parts), flexible))
            for first in range(0, len(parts), _PIECE):
                out += [pack(part.index, part.error_code) for part in parts[first : first + _PIECE]]
                if len(out) >= _PIECE:
                    yield b"".join(out)
                    out = []
            if flexible:
                out.append(b"\0")
        if flexible:
            out.append(b"\0")
        yield b"".join(out)
