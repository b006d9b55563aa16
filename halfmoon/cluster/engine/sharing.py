"""Which shards a node takes, and which it gives away: pure decisions over what the database says.

Shards of either durability are shared evenly by themselves. All nodes decide over the same rows and at about the same
time; where two want one shard, its epoch lets one of them have it. A node that does not reach the object store is taken
for one that is drained, as long as another one does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import cycle
from typing import NamedTuple

from halfmoon.cluster.engine.database import Node
from halfmoon.cluster.engine.pieces import Durability, Head


class Move(NamedTuple):
    head: Head
    to: int
    """The incarnation of a node."""


def to_take(heads: Sequence[Head], nodes: Sequence[Node], me: int) -> list[Head]:
    """Shards whose owners are dead, as many as make this node no fuller than the others would be."""
    nodes = _as_useful(nodes)
    alive = {node.incarnation for node in nodes if node.alive and not node.draining}
    if me not in alive:
        return []
    found: list[Head] = []
    for durability in Durability:
        of_it = [head for head in heads if head.durability is durability]
        living = {node.incarnation for node in nodes if node.alive}
        free = [head for head in of_it if head.owner not in living]
        loads = {one: sum(head.owner == one for head in of_it) for one in alive}
        # As if one after the other went to the least loaded node; each node takes those that would come to it.
        for head in free:
            least = min(sorted(loads), key=lambda one: loads[one])
            loads[least] += 1
            if least == me:
                found.append(head)
    return found


def in_turn(nodes: Sequence[Node], me: int) -> Iterator[int]:
    """The living nodes but this one, again and again; none where there is none."""
    nodes = _as_useful(nodes)
    others = [node.incarnation for node in nodes if node.alive and not node.draining and node.incarnation != me]
    return cycle(others)


def to_give(heads: Sequence[Head], nodes: Sequence[Node], me: int, kept: Collection[int] = ()) -> Move | None:
    """A shard of this node that another one is to have: one that somebody wants there, all of them where this node is
    drained, else one where it has two more than another. `kept`: not these."""
    nodes = _as_useful(nodes)
    mine = next((node for node in nodes if node.incarnation == me), None)
    others = [node.incarnation for node in nodes if node.alive and not node.draining and node.incarnation != me]
    if mine is None or not others:
        return None
    numbers = {node.number: node.incarnation for node in nodes if node.incarnation in others}
    for head in heads:
        if head.owner == me and head.wanted in numbers and head.shard not in kept:
            return Move(head, numbers[head.wanted])
    for durability in Durability:
        of_it = [head for head in heads if head.durability is durability]
        own = [head for head in of_it if head.owner == me]
        loads = {one: sum(head.owner == one for head in of_it) for one in others}
        least = min(sorted(loads), key=lambda one: loads[one])
        free = [head for head in own if head.shard not in kept]
        if free and (mine.draining or len(own) >= loads[least] + 2):
            return Move(free[-1], least)
    return None


def _as_useful(nodes: Sequence[Node]) -> Sequence[Node]:
    if not any(node.alive and not node.draining and node.stores for node in nodes):
        return nodes
    return [node._replace(draining=node.draining or not node.stores) for node in nodes]
