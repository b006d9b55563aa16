"""Averagely by circle: the queues are dealt out like cards, one to each member in turn.

Source of the rule: RocketMQ's AllocateMessageQueueAveragelyByCircle (there AVG_BY_CIRCLE). With several brokers it
spreads each broker's queues over the members, where `averagely` gives a member neighbouring queues, mostly of one
broker.

    7 queues, 3 members:   0 3 6 | 1 4 | 2 5
"""

from __future__ import annotations

from collections.abc import Sequence

from halfmoon.plugin import AnyAllocator, Assignment, PluginContext, Queue, hookimpl, sorted_members, sorted_queues

api_version = 1


def averagely_by_circle(members: Sequence[str], queues: Sequence[Queue], /) -> Assignment:
    """Every queue has one owner; shares differ by one at most."""
    ordered = sorted_members(members)
    cards = sorted_queues(queues)
    return {member: cards[index :: len(ordered)] for index, member in enumerate(ordered)}


@hookimpl
def halfmoon_allocators(ctx: PluginContext) -> dict[str, AnyAllocator]:
    return {"averagely_by_circle": averagely_by_circle}
