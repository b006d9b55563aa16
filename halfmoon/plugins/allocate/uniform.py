"""Uniform: equal shares over all topics together, and as few moves as that allows.

The aim is that of Kafka's server-side assignor of that name (org.apache.kafka.coordinator.group.assignor
.UniformAssignor), the rule is our own:

1. A member keeps what it owns of the topics that it reads.
2. Free queues go one by one to the member that has least, those first that fewest members read.
3. While a member has two queues more than another that reads one of its topics, it gives one of those away.

Where all members read the same topics, shares differ by one at most and no other assignment like that moves less.
Otherwise no single move could make them more equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import groupby

from halfmoon.plugin import (
    AnyAllocator,
    Assignment,
    PluginContext,
    Queue,
    hookimpl,
    readers,
    sorted_members,
    sorted_queues,
)

api_version = 1


class _Uniform:
    """The function, with the marks that it weighs all topics, and wants to be told who owns what."""

    wants_all_topics = True
    wants_previous = True

    def __call__(
        self, members: Sequence[str], queues: Sequence[Queue], previous: Mapping[str, Sequence[Queue]] | None = None, /
    ) -> Assignment:
        """Every queue of a topic that anybody reads has one owner. A queue claimed twice counts for who sorts first."""
        ordered = sorted_members(members)
        if not ordered:
            return {}
        kinds = _kinds(ordered, queues)
        owned = _still_owned(kinds, [set((previous or {}).get(member, ())) for member in ordered])
        load = [0] * len(ordered)
        for kind in owned:
            for reader, theirs in kind.items():
                load[reader] += len(theirs)
        for (_, all_queues), kind in sorted(zip(kinds, owned, strict=True), key=lambda each: len(each[0][0])):
            taken = {queue for theirs in kind.values() for queue in theirs}
            _deal([queue for queue in all_queues if queue not in taken], kind, load)
        while any(_level(kind, load) for kind in owned):
            pass
        shares: list[list[Queue]] = [[] for _ in ordered]
        for kind in owned:
            for reader, theirs in kind.items():
                shares[reader] += theirs
        return {member: sorted_queues(share) for member, share in zip(ordered, shares, strict=True)}


_Kind = tuple[tuple[int, ...], list[Queue]]
"""Queues that the same members read: those members, as indexes in order, and the queues."""


def _kinds(members: Sequence[str], queues: Sequence[Queue]) -> list[_Kind]:
    readers_of = readers(members)
    kinds: dict[tuple[int, ...], list[Queue]] = {}
    for topic, theirs in groupby(sorted_queues(queues), lambda queue: queue.topic):
        kinds.setdefault(tuple(readers_of(topic)), []).extend(theirs)
    return [(those, theirs) for those, theirs in kinds.items() if those]


def _still_owned(kinds: Sequence[_Kind], previous: Sequence[set[Queue]]) -> list[dict[int, list[Queue]]]:
    """Of each kind: reader → what it has already, in order."""
    owned = []
    for those, queues in kinds:
        kind: dict[int, list[Queue]] = {reader: [] for reader in those}
        owners: dict[Queue, int] = {}
        for reader in reversed(those):
            owners.update(dict.fromkeys(previous[reader], reader))
        for queue in queues:
            if queue in owners:
                kind[owners[queue]].append(queue)
        owned.append(kind)
    return owned


def _deal(free: Sequence[Queue], kind: dict[int, list[Queue]], load: list[int]) -> None:
    """Each queue goes to the reader who has least of all topics together."""
    poorest = [(load[reader], reader) for reader in kind]
    heapify(poorest)
    for queue in free:
        count, reader = heappop(poorest)
        kind[reader].append(queue)
        load[reader] = count + 1
        heappush(poorest, (count + 1, reader))


def _level(kind: dict[int, list[Queue]], load: list[int]) -> bool:
    """Move queues of one kind from who has most to who has least, as long as it helps. Whether anything moved."""
    richest = [(-load[reader], -reader) for reader, theirs in kind.items() if theirs]
    poorest = [(load[reader], reader) for reader in kind]
    heapify(richest)
    heapify(poorest)
    moved = False
    while richest:
        giver, taker = -richest[0][1], poorest[0][1]
        if load[giver] != -richest[0][0] or not kind[giver]:
            heappop(richest)
        elif load[taker] != poorest[0][0]:
            heappop(poorest)
        elif load[giver] - load[taker] < 2:
            break
        else:
            kind[taker].append(kind[giver].pop())
            load[giver] -= 1
            load[taker] += 1
            for reader in (giver, taker):
                heappush(richest, (-load[reader], -reader))
                heappush(poorest, (load[reader], reader))
            moved = True
    return moved


uniform = _Uniform()


@hookimpl
def halfmoon_allocators(ctx: PluginContext) -> dict[str, AnyAllocator]:
    return {"uniform": uniform}
