"""The parts of a Metadata response, encoded by hand and remembered.

Every client asks for metadata at start, then every few minutes, and again after each error; a topic of 1,000 partitions
costs milliseconds in the general encoder. A topic's bytes depend on few things (the arguments below), so they are
made once per version and joined per request. The functions are pure, so remembering their results needs no
invalidation: a grown topic or a new leader epoch is another argument. Memory is bounded by the number of entries, and
topics with many partitions are not kept whole: their partitions' bytes are shared by all topics that have as many.

    topic:     error i16 | name | id 16 bytes (10+) | internal i8 (1+) | partitions | operations i32 (8+) | tags (9+)
    partition: error i16 | index i32 | leader i32 | leader epoch i32 (7+) | replicas | isr | offline (5+) | tags (9+)

From version 9 on, lengths are compact and structs end with tagged fields (KIP-482).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import pack

from halfmoon.adapters.kafka.errors import LEADER_NOT_AVAILABLE
from halfmoon.adapters.kafka.operations import NOT_ASKED
from halfmoon.core.catalog.owners import Leader
from halfmoon.kafka_wire.primitives import encode_array_size, encode_string

ZERO_ID = bytes(16)

FLEXIBLE = 9
"""The first version with compact lengths and tagged fields."""

_LAST_LAYOUT = 10
"""The last version that changed how a topic without error is written; later ones share the remembered bytes."""

_KEPT_WHOLE = 16
"""Topics with up to so many partitions are remembered as one piece (about 700 bytes at most)."""


@lru_cache(maxsize=32)
def _partitions(version: int, count: int, node_id: int, leader_epoch: int) -> bytes:
    """The partitions 0 to count - 1, all led by this node, with the array's length in front."""
    middle = _behind_index(version, node_id, leader_epoch)
    return encode_array_size(count, version >= FLEXIBLE) + b"".join(
        [b"\0\0" + pack(">i", index) + middle for index in range(count)]
    )


def _behind_index(version: int, leader: int, leader_epoch: int, others: tuple[int, ...] = ()) -> bytes:
    """What stands behind a partition's index. `others`: further replicas."""
    nodes = replica_bytes(leader, others, version >= FLEXIBLE)
    tail = nodes * 2
    if version >= 5:
        tail += encode_array_size(0, version >= FLEXIBLE)
    if version >= FLEXIBLE:
        tail += b"\0"
    return pack(">i", leader) + (pack(">i", leader_epoch) if version >= 7 else b"") + tail


def replica_bytes(leader: int, others: tuple[int, ...], flexible: bool) -> bytes:
    """An array of node ids; nobody is told where nobody leads."""
    nodes = (leader, *others) if leader >= 0 else ()
    return encode_array_size(len(nodes), flexible) + pack(f">{len(nodes)}i", *nodes)


def leader_error(leader: Leader) -> bytes:
    """A partition's error code: whoever asks is to ask again where nobody leads it now."""
    return b"\0\0" if leader.node_id >= 0 else _NO_LEADER


_NO_LEADER = pack(">h", LEADER_NOT_AVAILABLE)


def _partitions_of(version: int, leaders: Sequence[Leader]) -> bytes:
    """As `_partitions`, led by these."""
    rows = [
        leader_error(leader) + pack(">i", index) + _behind_index(version, *leader)
        for index, leader in enumerate(leaders)
    ]
    return encode_array_size(len(rows), version >= FLEXIBLE) + b"".join(rows)


def _topic(
    version: int,
    name: str | None,
    topic_id: bytes,
    internal: bool,
    count: int,
    node_id: int,
    leader_epoch: int,
    operations: int,
    error_code: int = 0,
    leaders: Sequence[Leader] | None = None,
) -> bytes:
    parts = [pack(">h", error_code), encode_string(name, version >= FLEXIBLE)]
    if version >= 10:
        parts.append(topic_id)
    if version >= 1:
        parts.append(b"\1" if internal else b"\0")
    if leaders is None:
        parts.append(_partitions(version, count, node_id, leader_epoch))
    else:
        parts.append(_partitions_of(version, leaders))
    if version >= 8:
        parts.append(pack(">i", operations))
    if version >= FLEXIBLE:
        parts.append(b"\0")
    return b"".join(parts)


_remembered_topic = lru_cache(maxsize=8192)(_topic)


def topic_bytes(
    version: int,
    name: str,
    topic_id: bytes,
    internal: bool,
    count: int,
    node_id: int,
    leader_epoch: int,
    operations: int = NOT_ASKED,
    leaders: Sequence[Leader] | None = None,
) -> bytes:
    """One topic of `count` partitions, without error. `leaders`: of each; None: this node leads them all."""
    layout = min(version, _LAST_LAYOUT)
    if leaders is not None:
        return _topic(layout, name, topic_id, internal, count, node_id, leader_epoch, operations, leaders=leaders)
    make = _remembered_topic if count <= _KEPT_WHOLE else _topic
    return make(layout, name, topic_id, internal, count, node_id, leader_epoch, operations)


def error_bytes(version: int, error_code: int, name: str | None, topic_id: bytes = ZERO_ID) -> bytes:
    """One topic that could not be described. A name that a version cannot leave out is sent as the empty string."""
    if name is None and version < 12:
        name = ""
    return _topic(version, name, topic_id, False, 0, -1, -1, NOT_ASKED, error_code)


def head_bytes(
    version: int,
    node_id: int,
    host: str,
    port: int,
    cluster_id: str,
    others: Sequence[tuple[int, str, int, str | None]] = (),
    rack: str | None = None,
) -> bytes:
    """What stands before the topics: throttle time, this node, which is the controller too, and the `others` as
    brokers (id, host, port, rack), the cluster."""
    parts = [pack(">i", 0)] if version >= 3 else []
    parts.append(encode_array_size(1 + len(others), version >= FLEXIBLE))
    for each_id, each_host, each_port, each_rack in ((node_id, host, port, rack), *others):
        parts += [pack(">i", each_id), encode_string(each_host, version >= FLEXIBLE), pack(">i", each_port)]
        if version >= 1:
            parts.append(encode_string(each_rack, version >= FLEXIBLE))
        if version >= FLEXIBLE:
            parts.append(b"\0")
    if version >= 2:
        parts.append(encode_string(cluster_id, version >= FLEXIBLE))
    if version >= 1:
        parts.append(pack(">i", node_id))
    return b"".join(parts)


def tail_bytes(version: int, operations: int = NOT_ASKED) -> bytes:
    """What stands behind the topics: the cluster's authorized operations (8 to 10), the error code (13+), tags."""
    parts = [pack(">i", operations)] if 8 <= version <= 10 else []
    if version >= 13:
        parts.append(b"\0\0")
    if version >= FLEXIBLE:
        parts.append(b"\0")
    return b"".join(parts)
