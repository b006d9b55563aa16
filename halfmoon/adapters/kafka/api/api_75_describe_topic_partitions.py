"""DescribeTopicPartitions (75): topics with their partitions, page by page (KIP-966).

No topics = all that are not internal. Topics come sorted by name; the answer stops after `response_partition_limit`
partitions (2,000 at most) with a cursor, which the client sends back for the next page. The admin client of Java, and
so Spark, asks for every topic it reads, so the partitions are encoded by hand, as for Metadata.

Rules: DescribeTopicPartitionsRequestHandler, KRaftMetadataCache.getTopicMetadataForDescribeTopicResponse. There is no
error code of its own: what is wrong with the cursor is told as the error of every topic asked for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from struct import pack
from typing import Any

from halfmoon.adapters.kafka.duplicates import sorted_in_slices
from halfmoon.adapters.kafka.errors import NONE, code
from halfmoon.adapters.kafka.metadata_bytes import ZERO_ID, leader_error, replica_bytes
from halfmoon.adapters.kafka.operations import NOT_ASKED, TOPIC_BITS, TOPIC_OPERATIONS, allowed, bits
from halfmoon.adapters.kafka.protocol import Slices, decode_request_slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.core.catalog.owners import Leader
from halfmoon.core.topic_names import is_legal
from halfmoon.errors import Fault
from halfmoon.kafka_wire.primitives import encode_array_size, encode_string

KEY = 75
MAX_PARTITIONS = 2000
"""Kafka's max.request.partition.size.limit."""


def handle(ctx: Context, body: memoryview) -> Slices[bytes]:
    request = yield from decode_request_slices(KEY, ctx.api_version, body)
    asked = {topic.name for topic in request.topics}
    cursor = request.cursor
    start = "" if cursor is None else cursor.topic_name
    if cursor is not None and (cursor.partition_index < 0 or (asked and start not in asked)):
        return _response([_topic(name, code(Fault.INVALID_REQUEST)) for name in sorted(asked)], None)
    remaining = max(min(MAX_PARTITIONS, request.response_partition_limit), 1)
    topics: list[bytes] = []
    for name in (yield from sorted_in_slices(asked, start)) if asked else _names(ctx, start):
        yield
        if not asked and (not _is_shown(ctx, name) or not ctx.allows("describe", "topic", name)):
            continue
        if remaining == 0:
            return _response(topics, (name, 0))
        if asked and ctx.rights is not None and not ctx.demands(("describe", "topic", name)):
            topics.append(_topic(name, code(Fault.TOPIC_AUTHORIZATION_FAILED)))
            continue
        topic = ctx.core.catalog.topic(name)
        if topic is None:
            fault = Fault.UNKNOWN_TOPIC_OR_PARTITION if is_legal(name) else Fault.INVALID_TOPIC_EXCEPTION
            topics.append(_topic(name, code(fault)))
            continue
        first = cursor.partition_index if cursor is not None and name == start else 0
        count = len(topic.partitions)
        stop = max(first, min(count, first + remaining))
        topics.append(_described(ctx, topic, first, stop))
        if stop < count:
            return _response(topics, (name, stop))
        remaining -= stop - first
    return _response(topics, None)


def _names(ctx: Context, start: str) -> list[str]:
    """Of all topics, from there on."""
    names = ctx.core.catalog.names()
    return names[bisect_left(names, start) :]


def _is_shown(ctx: Context, name: str) -> bool:
    topic = ctx.core.catalog.topic(name)
    return topic is not None and not topic.hidden


def _described(ctx: Context, topic: Any, first: int, stop: int) -> bytes:
    leaders = ctx.core.owners.leaders_of(topic)
    if leaders is None:
        partitions = _partitions(first, stop, ctx.core.node_id, ctx.core.generation)
    else:
        partitions = _partitions_of(first, leaders[first:stop])
    operations = TOPIC_BITS
    if ctx.rights is not None:
        operations = bits(allowed(ctx, "topic", topic.name, TOPIC_OPERATIONS))
    return _topic(topic.name, NONE, topic.id, topic.internal, partitions, operations)


def _topic(
    name: str,
    error_code: int,
    topic_id: bytes = ZERO_ID,
    internal: bool = False,
    partitions: bytes = encode_array_size(0, True),
    operations: int = NOT_ASKED,
) -> bytes:
    return b"".join(
        (
            pack(">h", error_code),
            encode_string(name, True),
            topic_id,
            b"\1" if internal else b"\0",
            partitions,
            pack(">i", operations),
            b"\0",
        )
    )


@lru_cache(maxsize=64)
def _partitions(first: int, stop: int, node_id: int, leader_epoch: int) -> bytes:
    """The partitions from `first` up to, without, `stop`, with the array's length in front.

    error i16 | index i32 | leader i32 | leader epoch i32 | replicas | isr | eligible | last known eligible | offline
    | tags
    """
    rest = _behind_index(node_id, leader_epoch)
    return encode_array_size(stop - first, True) + b"".join(
        [b"\0\0" + pack(">i", index) + rest for index in range(first, stop)]
    )


def _partitions_of(first: int, leaders: Sequence[Leader]) -> bytes:
    """As `_partitions`, led by these."""
    rows = [
        leader_error(leader) + pack(">i", index) + _behind_index(*leader) for index, leader in enumerate(leaders, first)
    ]
    return encode_array_size(len(rows), True) + b"".join(rows)


def _behind_index(leader: int, leader_epoch: int, others: tuple[int, ...] = ()) -> bytes:
    nodes = replica_bytes(leader, others, True)
    return pack(">ii", leader, leader_epoch) + nodes * 2 + encode_array_size(0, True) * 3 + b"\0"


def _response(topics: list[bytes], cursor: tuple[str, int] | None) -> bytes:
    """Throttle time, topics, the next page's cursor (a nullable struct: -1, or 1 and its fields), tags."""
    after = b"\xff" if cursor is None else b"\1" + encode_string(cursor[0], True) + pack(">i", cursor[1]) + b"\0"
    return b"".join([pack(">i", 0), encode_array_size(len(topics), True), *topics, after, b"\0"])
