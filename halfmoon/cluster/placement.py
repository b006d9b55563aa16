"""Which shard a partition, a group or a transactional id lies in.

A name's *slot* is made as Kafka makes the partition of `__consumer_offsets` that a group belongs to (Utils.abs of
Java's String.hashCode, modulo their number), so that it is the same in every language and for ever. Partitions of a
topic follow each other from shard to shard, beginning anywhere: so each topic is spread as evenly as can be, over
shards and over those that own them. Where a partition was placed is written down; this is only asked when it is made.
"""

from __future__ import annotations

from halfmoon.hooks.java_hash import string_hash

SLOTS = 256
"""Coordinator slots. A shard owns those whose number modulo the number of shards is its own."""
SHARDS = 16
"""Of a new data directory."""
MOST_SHARDS = SLOTS


def slot_of(name: str) -> int:
    """Of a group or a transactional id: [0, SLOTS)."""
    return (string_hash(name) & 0x7FFF_FFFF) % SLOTS


def coordinator_of(name: str, shards: int) -> int:
    """The shard that coordinates a group or a transactional id."""
    return slot_of(name) % shards


def place(topic_id: bytes, first: int, count: int, shards: int) -> bytes:
    """The shards of the partitions [first, first + count) of a topic, a byte each."""
    begin = int.from_bytes(topic_id[:8]) + first
    return bytes([(begin + index) % shards for index in range(count)])


def owner_of(shard: int, workers: int) -> int:
    """The worker that owns a shard. Neighbours have different owners."""
    return shard % workers
