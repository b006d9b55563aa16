"""The other shards, as the transactions of one shard see them: what is asked of whom.

A transactional id is coordinated by one shard. A partition of its transaction, or a group whose offsets it commits, may
lie in another: that shard asks the coordinator to let the transaction `Join` it, and is told by the coordinator how the
transaction has come to its `End`.

Both can be asked again without harm. A position of the coordinator's log tells which came first: one that lets a
partition join is larger than that of each end before, and not larger than that of the end of the same transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from msgspec import Struct

from halfmoon.errors import BrokerError

NOWHERE = -1
"""In place of a shard: the partition is no more."""
NOT_YET = -2
"""In place of a shard: it is not known yet where the partition lies."""


class Join(Struct, frozen=True):
    """Are these partitions and groups part of the transaction that a producer has under a transactional id?"""

    name: str
    producer_id: int
    epoch: int
    adds: bool
    """They become part of it where they are not (KIP-890)."""
    places: list[tuple[int, int, bool]]
    """Topic number, partition, and whether the producer's first batch may be on its way there: else what it has sent
    before is missing, and the partition is not added."""
    groups: list[str]


class Joined(Struct, frozen=True):
    position: int
    """Of the coordinator's log: durable up to here before this is told."""
    refused: list[tuple[int, str]]
    """Of the places, and then the groups, the numbers of those that are no part of it, and the fault of each."""


class End(Struct, frozen=True):
    """It is decided how a transaction ends: write the markers in these partitions, and commit or drop the offsets of
    these groups."""

    shard: int
    """The coordinator, …"""
    generation: int
    """… its generation, …"""
    position: int
    """… and a position of its log behind the decision."""
    producer_id: int
    epoch: int
    """The producer's in this transaction."""
    marker_epoch: int
    committed: bool
    places: list[tuple[int, int]]
    """Topic number, partition."""
    groups: list[str]


class Doubt(Struct, frozen=True):
    """Something was open of a transaction when the shard was opened that it lies in: is it still?"""

    producer_id: int
    epoch: int
    topic: int
    """Number; of a group −1."""
    index: int
    group: str
    """"": a partition."""


class Outcome(Enum):
    """Of a doubt, as the coordinator knows it."""

    OPEN = 0
    """The coordinator is going to say how it ends."""
    COMMITTED = 1
    ABORTED = 2
    """Or nothing is known of it any more."""


class OtherShards(Protocol):
    """Whoever answers later calls back in the loop, or before it returns. NOT_LEADER_OR_FOLLOWER: the shard cannot be
    reached now, and nobody knows whether it has heard what was asked."""

    number: int
    """Of the shard that asks."""

    def coordinator_of(self, name: str) -> int:
        """The shard that coordinates a transactional id, or a group."""
        ...

    def shard_of(self, number: int, index: int) -> int:
        """The shard that a partition lies in, or NOWHERE, or NOT_YET."""
        ...

    def epoch_of(self, shard: int) -> int:
        """The generation that a shard is known to be in; −1 where nobody knows."""
        ...

    def join(self, shard: int, asked: Join, told: Callable[[Joined | BrokerError], None]) -> None:
        """Ask a coordinator."""
        ...

    def doubt(self, shard: int, asked: list[Doubt], told: Callable[[list[Outcome] | BrokerError], None]) -> None:
        """Ask a coordinator; an outcome for each."""
        ...

    def end(self, shard: int, asked: End, told: Callable[[BrokerError | None], None]) -> None:
        """Have a shard end its part of a transaction; told None once that is durable."""
        ...
