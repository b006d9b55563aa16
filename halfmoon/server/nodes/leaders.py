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
        if taken.epoch > epoch:
            # It refuses until it has opened the shard, and clients ask it again soon. If it is gone before, who had the
            # shard until then is no leader either: clients were told of a later epoch.
            is_named = taken.node_id in self._nodes.living or self._went(taken.node_id, time.monotonic() - TAKEOVER_S)
            return taken if is_named else Leader(-1, taken.epoch)
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
        given = {taken.node_id for taken, owner in zip(self._taken, self.owners, strict=True) if taken.node_id != owner}
        named.update(node for node in given if self._went(node, after_s))
        return self._nodes.gone(after_s, named)

    def _went(self, node: int, after_s: float) -> bool:
        since_s = self._nodes.gone_since_s(node)
        return since_s is not None and since_s > after_s
