"""Which shard a partition, a group or a transactional id lies in.

A name's *slot* is made as Kafka makes the partition of `__consumer_offsets` that a group belongs to (Utils.abs of
Java's String.hashCode, modulo their number), so that it is the same in every language and for ever. Partitions of a
topic follow each other from shard to shard, beginning anywhere: so each topic is spread as evenly as can be, over
shards and over those that own them. Where a partition was placed is written down; this is only asked when it is made.

Two kinds of topics lie where they are needed. What a group retries lies in the group's own shard: what it has committed
says what is done. An *aligned* topic has a partition in each shard, its partition i in shard i: each shard writes what
belongs to its own messages, in one frame with them. A group's dead letters begin in the group's shard instead, where
it gives up what it has retried: so a topic of one partition, as somebody may have made it, need not grow for that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from halfmoon.errors import StartError
from halfmoon.hooks.java_hash import string_hash
from halfmoon.schema.group_topics import CHECK_PREFIX, DEAD_LETTER_PREFIX, giving_up_group, retrying_group

_ALIGNED = ("__consumer_offsets", "__transaction_state", "TRANS_CHECK_MAX_TIME_TOPIC")
_ALIGNED_PREFIXES = (DEAD_LETTER_PREFIX, CHECK_PREFIX, "halfmoon.")

_SMALLEST = -(1 << 31)
"""Of Java's int: it has no absolute value."""
SLOTS = 256
"""Coordinator slots. A shard owns those whose number modulo the number of shards is its own."""
SHARDS = 16
"""Of a new data directory."""
MOST_SHARDS = SLOTS


class Layout(NamedTuple):
    """The shards that processes share. Each has a durability; of workers all are fast."""

    shards: int
    """How many there are."""
    fast: int
    """The first so many. Groups and transactions are coordinated there: an answer to them is to come soon."""

    @classmethod
    def of_workers(cls, shards: int) -> Layout:
        return cls(shards, shards)

    @classmethod
    def of_cluster(cls, fast: int, objects: int) -> Layout:
        """With so many shards of each durability. Raises StartError."""
        if not 1 <= fast <= fast + objects <= MOST_SHARDS:
            raise StartError(
                f"{fast} fast shards and {objects} of objects; from 1 fast one to {MOST_SHARDS} together are possible"
            )
        return cls(fast + objects, fast)

    def coordinator_of(self, name: str) -> int:
        return coordinator_of(name, self.fast)

    def is_fast(self, shard: int) -> bool:
        return shard < self.fast

    def fast_one(self, shards: Iterable[int]) -> int | None:
        """The first of these shards that is fast."""
        return next(filter(self.is_fast, shards), None)

    def group_of(self, *, fast: bool) -> range:
        """The shards of one durability."""
        return range(self.fast) if fast else range(self.fast, self.shards)


def slot_of(name: str) -> int:
    """Of a group or a transactional id: [0, SLOTS)."""
    code = string_hash(name)
    return 0 if code == _SMALLEST else abs(code) % SLOTS


def coordinator_of(name: str, shards: int) -> int:
    """The shard that coordinates a group or a transactional id."""
    return slot_of(name) % shards


def place(topic_id: bytes, first: int, count: int, among: range) -> bytes:
    """The shards of the partitions [first, first + count) of a topic, a byte each."""
    begin = int.from_bytes(topic_id[:8]) + first
    return bytes([among[(begin + index) % len(among)] for index in range(count)])


def id_beginning_in(shard: int, random_bytes: bytes, layout: Layout) -> bytes:
    """A topic id, made of 16 random bytes: what `place` places by it among the shards of this one's durability begins
    in this one."""
    among = layout.group_of(fast=layout.is_fast(shard))
    high = int.from_bytes(random_bytes[:8])
    high += among.index(shard) - high % len(among)
    return (high if high < 1 << 64 else high - len(among)).to_bytes(8) + random_bytes[8:]


def is_aligned(name: str) -> bool:
    """Whether a topic of this name has a partition in each shard."""
    return name in _ALIGNED or name.startswith(_ALIGNED_PREFIXES)


def place_named(name: str, topic_id: bytes, first: int, count: int, layout: Layout, *, fast: bool = True) -> bytes:
    """As `place`, of a topic of this name. `fast`: of its durability."""
    group = retrying_group(name)
    if group is not None:
        return bytes([layout.coordinator_of(group)]) * count
    if is_aligned(name):
        group = giving_up_group(name)
        first += 0 if group is None else layout.coordinator_of(group)
        return bytes([index % layout.shards for index in range(first, first + count)])
    # Where there are no shards of its durability, as with workers, the others do as well.
    return place(topic_id, first, count, layout.group_of(fast=fast) or layout.group_of(fast=not fast))


def owner_of(shard: int, workers: int) -> int:
    """The worker that owns a shard. Neighbours have different owners."""
    return shard % workers
