"""Which node has which shard, and whom clients are told as its leader (decision 0176)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from halfmoon.core.catalog.owners import Leader, OtherNode

if TYPE_CHECKING:
    from halfmoon.server.nodes.known_nodes import KnownNodes

TAKEOVER_S: Final = 10.0
"""So long clients are told of a node that is gone as the leader of what it had and nobody has taken yet, and as a
broker; Kafka tells of one until its session is over (broker.session.timeout.ms, 9 s). One that dies is followed within
5 s (docs/cluster.md); with this, also where machines are slow."""


class Leaders:
    def __init__(self, shards: int, nodes: KnownNodes) -> None:
        self._nodes = nodes
        self.owners = [-1] * shards
        """By shard, as the shared catalog says; −1: nobody knows."""
        self._last_owners = [-1] * shards
        self._owners_before = [-1] * shards
        self._taken = [Leader(-1, -1)] * shards
        self._without_s = dict.fromkeys(range(shards), time.monotonic())
        """Shard that no living node has, as far as is known → since when."""

    def owned(self, shard: int, node: int) -> None:
        """This node has it open now; −1: nobody knows who has."""
        if node >= 0 and node != self._last_owners[shard]:
            self._owners_before[shard], self._last_owners[shard] = self._last_owners[shard], node
        self.owners[shard] = node
        self.look_at(shard)

    def look_at(self, shard: int) -> None:
        """Its owner has changed, or has come or gone."""
        if self.owners[shard] in self._nodes.living:
            self._without_s.pop(shard, None)
        else:
            self._without_s.setdefault(shard, time.monotonic())

    def taken(self, shard: int, epoch: int, node: int) -> None:
        """The database says that this node owns the shard since this epoch; it may not have opened it yet."""
        if epoch > self._taken[shard].epoch:
            self._taken[shard] = Leader(node, epoch)

    def told(self, shard: int, epoch: int) -> Leader | None:
        """See Place.told_leader."""
        taken = self._taken[shard]
        if taken.epoch > epoch and taken.node_id in self._nodes.living:
            return taken  # it refuses until it has opened the shard, and clients ask it again soon
        since_s = self._without_s.get(shard)
        if since_s is None:
            return None
        if time.monotonic() < since_s + TAKEOVER_S:
            # The last one may have come a moment ago, and not be known here yet.
            for ago, node in enumerate((self._last_owners[shard], self._owners_before[shard])):
                if self._nodes.knows(node):
                    return Leader(node, epoch - ago)
        return Leader(-1, epoch)

    def just_gone(self) -> Sequence[OtherNode]:
        """One that left in good order only if it is named as a leader yet."""
        after_s = time.monotonic() - TAKEOVER_S
        named = {self._last_owners[shard] for shard, since_s in self._without_s.items() if since_s > after_s}
        return self._nodes.gone(after_s, named)
