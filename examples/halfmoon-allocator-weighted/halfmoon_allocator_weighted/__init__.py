"""Weighted: a member's share is in proportion to its weight, over all topics of the group together.

    plugins:
      weighted:
        weights: {"big-*": 3, "small-*": 0.5}    # pattern of a member's name → weight; 1 where none matches

A member keeps what it has, up to its share; what is left goes, queue by queue, to the member that has least for its
weight. Names are matched as in a shell (`*`, `?`, `[…]`), the first pattern that matches counts. A member's name is its
instance id, or its client id and an id that it makes up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from heapq import heapify, heapreplace
from itertools import groupby

from msgspec import field

from halfmoon.plugin import (
    AnyAllocator,
    Assignment,
    ConfigSection,
    PluginContext,
    Queue,
    Section,
    SettingError,
    hookimpl,
    readers,
    reads,
    sorted_members,
    sorted_queues,
)

api_version = 1


class Settings(Section, frozen=True, kw_only=True):
    """`$.plugins.weighted`."""

    weights: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for pattern, weight in self.weights.items():
            if not 0 < weight < 1_000_000:
                raise SettingError("weights", f"got {weight} for {pattern!r}, expected a number above 0")


class Weighted:
    """The strategy. It is asked once for all topics, and wants to know who has what now."""

    wants_all_topics = True
    wants_previous = True

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = weights

    def __call__(
        self, members: Sequence[str], queues: Sequence[Queue], previous: Mapping[str, Sequence[Queue]] | None = None, /
    ) -> Assignment:
        """Every queue of a topic that anybody reads has one owner."""
        ordered = sorted_members(members)
        weights = {member: self._weight(member) for member in ordered}
        wanted = self._deal({member: [] for member in ordered}, sorted_queues(queues), weights)
        shares = {member: len(owned) for member, owned in wanted.items()}
        free = set(queues)
        kept: Assignment = {}
        for member in ordered:
            mine = [queue for queue in (previous or {}).get(member, ()) if queue in free and reads(member, queue.topic)]
            kept[member] = sorted_queues(mine)[: shares[member]]
            free.difference_update(kept[member])
        assignment = self._deal(kept, sorted_queues(free), weights)
        return {member: sorted_queues(owned) for member, owned in assignment.items()}

    def _weight(self, member: str) -> float:
        return next((weight for pattern, weight in self._weights.items() if fnmatchcase(member, pattern)), 1)

    def _deal(self, owned: Assignment, queues: Sequence[Queue], weights: Mapping[str, float]) -> Assignment:
        """Each queue goes to the reader that would have least for its weight with it. The queues are sorted."""
        members = list(owned)
        readers_of = readers(members)
        # Of those who read the same topics: what each would have, and where it stands in `members`.
        heaps: dict[tuple[int, ...], list[tuple[float, int]]] = {}

        def with_one_more(at: int) -> tuple[float, int]:
            return (len(owned[members[at]]) + 1) / weights[members[at]], at

        for topic, theirs in groupby(queues, lambda queue: queue.topic):
            those = tuple(readers_of(topic))
            if those not in heaps:
                heaps[those] = [with_one_more(at) for at in those]
                heapify(heaps[those])
            heap = heaps[those]
            for queue in theirs if heap else ():
                while heap[0] != (now := with_one_more(heap[0][1])):
                    heapreplace(heap, now)  # it has got queues of other topics since
                owned[members[now[1]]].append(queue)
        return owned


@hookimpl
def halfmoon_config() -> ConfigSection:
    return ConfigSection(Settings)


@hookimpl
def halfmoon_allocators(ctx: PluginContext) -> dict[str, AnyAllocator]:
    return {"weighted": Weighted(ctx.settings_as(Settings).weights)}
