"""The bytes of a ShareFetch response, versions 1 and 2, which have the same fields: ShareFetchResponse.json.

The records are slices of the mapped log, which are listed between the other bytes and never copied here, as those of
Fetch.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct

from halfmoon.adapters.kafka.current_leader import CurrentLeader
from halfmoon.kafka_wire import primitives as wire
from halfmoon.services.share.share_partition import Acquired

Buffer = bytes | bytearray | memoryview

_HEAD = struct.Struct(">ih")
"""Throttle time, error code."""
_INT32 = struct.Struct(">i")
_ERROR = struct.Struct(">h")
_START = struct.Struct(">ih")
"""Partition, error code."""
_LEADER = struct.Struct(">iiB")
"""Leader, its epoch, no tagged fields: all zero unless another node leads the partition."""
_ACQUIRED = struct.Struct(">qqhB")


class SharedPart(Struct):
    """One partition of a response; an acknowledgement's code and message beside those of the fetch."""

    index: int
    error_code: int = 0
    message: str | None = None
    acknowledge_code: int = 0
    acknowledge_message: str | None = None
    slices: Sequence[Buffer] = ()
    size: int = 0
    acquired: Sequence[Acquired] = ()
    leader: CurrentLeader | None = None
    """The other node that leads it, where it was asked for in vain."""


def encode(
    topics: dict[bytes, list[SharedPart]], lock_ms: int, error_code: int = 0, message: str | None = None
) -> list[Buffer]:
    """The body, as buffers to be sent one after the other. `topics` by id."""
    out: list[Buffer] = []
    head = bytearray(_HEAD.pack(0, error_code))
    head += _text(message)
    head += _INT32.pack(lock_ms)
    head += wire.encode_array_size(len(topics), True)
    leaders: list[CurrentLeader] = []
    for topic_id, parts in topics.items():
        head += topic_id
        head += wire.encode_array_size(len(parts), True)
        for part in parts:
            head += _START.pack(part.index, part.error_code)
            head += _text(part.message)
            head += _ERROR.pack(part.acknowledge_code)
            head += _text(part.acknowledge_message)
            if part.leader is None:
                head += _LEADER.pack(0, 0, 0)
            else:
                head += _LEADER.pack(part.leader.node.node_id, part.leader.epoch, 0)
                leaders.append(part.leader)
            head += wire.encode_array_size(part.size, True)
            if part.size:
                out.append(head)
                out.extend(part.slices)
                head = bytearray()
            head += wire.encode_array_size(len(part.acquired), True)
            for first, end, deliveries in part.acquired:
                head += _ACQUIRED.pack(first, end - 1, deliveries, 0)
            head += b"\x00"
        head += b"\x00"
    head += _endpoints(leaders) if leaders else b"\x01"
    head += b"\x00"
    out.append(head)
    return out


def _endpoints(leaders: Sequence[CurrentLeader]) -> bytes:
    nodes = {leader.node.node_id: leader.node.kafka for leader in leaders}
    found = [wire.encode_array_size(len(nodes), True)]
    for node_id, (host, port) in nodes.items():
        found += [_INT32.pack(node_id), wire.encode_string(host, True), _INT32.pack(port), b"\x00\x00"]
    return b"".join(found)


def _text(text: str | None) -> bytes:
    return b"\x00" if text is None else wire.encode_string(text, True)
