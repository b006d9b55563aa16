"""Averagely: each member gets one run of neighbouring queues, the first members one more where it does not divide.

Source of the rule: RocketMQ's AllocateMessageQueueAveragely (there AVG).

    7 queues, 3 members:   0 1 2 | 3 4 | 5 6
"""

from __future__ import annotations

from collections.abc import Sequence

from halfmoon.plugin import AnyAllocator, Assignment, PluginContext, Queue, hookimpl, sorted_members, sorted_queues

api_version = 1


def runs(members: Sequence[str], queues: Sequence[Queue]) -> Assignment:
    """Neighbouring queues for each member, both in the order given; the first members get one more."""
    share, larger = divmod(len(queues), len(members)) if members else (0, 0)
    assignment: Assignment = {}
    at = 0
    for index, member in enumerate(members):
        size = share + (index < larger)
        assignment[member] = list(queues[at : at + size])
        at += size
    return assignment


def averagely(members: Sequence[str], queues: Sequence[Queue], /) -> Assignment:
    """Every queue has one owner; shares differ by one at most."""
    return runs(sorted_members(members), sorted_queues(queues))


@hookimpl
def halfmoon_allocators(ctx: PluginContext) -> dict[str, AnyAllocator]:
    return {"averagely": averagely}
