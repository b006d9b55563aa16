"""Logs that share topics: what each remembers of that, and the numbers that it gives out itself.

Topics that clients make are in the catalog of all shards, which numbers them. What a shard makes for itself, for
messages that wait or are sent back, has to be there at once: so it has numbers of its own, which no other shard gives
out. A topic's number has 31 bits, a partition's broker-wide number 23.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

SHARED_CATALOG = "catalog.sqlite"
"""The file that makes a data directory one of shards."""
OWN_TOPICS = 1 << 30
"""The numbers of topics that shards make begin here, …"""
OWN_TOPIC_BITS = 22
"""… each shard's so many bits apart."""
OWN_QUEUES = 1 << 22
"""The broker-wide numbers of their partitions. They name something only together with the shard."""
OWN_PRODUCERS_BITS = 40
"""Producer ids of a shard: its number stands above so many bits."""


class ShardState(msgspec.Struct, array_like=True):
    """What a shard knows of itself."""

    number: int
    next_topic: int
    """Of those that it makes."""
    next_queue: int
    catalog_version: int = 0
    """Of the shared catalog: it was told all up to there."""
    own: list[int] = []
    """Topics that it has of the process whose log it was, and that are not shared. Their numbers are low."""
    linked_upto: int = 0
    """Files that begin below this log position are other shards', too."""

    def copy(self) -> ShardState:
        return ShardState(
            self.number, self.next_topic, self.next_queue, self.catalog_version, list(self.own), self.linked_upto
        )

    def owns(self, number: int) -> bool:
        """Whether it has a topic for itself, and does not share it."""
        return number >= OWN_TOPICS or number in self.own


def new_shard(number: int, own: Sequence[int] = (), linked_upto: int = 0) -> ShardState:
    """`own`, `linked_upto`: of one that was imported."""
    first = OWN_TOPICS | number << OWN_TOPIC_BITS
    return ShardState(number, first, OWN_QUEUES, own=list(own), linked_upto=linked_upto)
