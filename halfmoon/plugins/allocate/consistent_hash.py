"""Consistent hash: members and queues lie on a ring; a queue belongs to the first member at or after it.

A member that comes takes queues from others and moves none between them; one that goes gives its own away. The price is
that shares are uneven.

Source of the rule: RocketMQ's AllocateMessageQueueConsistentHash (there CONSISTENT_HASH) and its ConsistentHashRouter.
Each member stands on the ring `virtual_nodes` times (10), as "MEMBER-0" … "MEMBER-9". A place is the first four bytes
of the MD5 of the UTF-8 text, big-endian; a queue's text is its `MessageQueue.toString`. Where two members fall on the
same place, the one that sorts last has it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from hashlib import md5
from typing import Annotated

from msgspec import Meta

from halfmoon.plugin import (
    AnyAllocator,
    Assignment,
    ConfigSection,
    PluginContext,
    Queue,
    Section,
    hookimpl,
    sorted_members,
    sorted_queues,
)

api_version = 1


class ConsistentHashSettings(Section, frozen=True, kw_only=True):
    """`$.plugins.consistent_hash`."""

    virtual_nodes: Annotated[int, Meta(ge=1, le=10_000)] = 10


def consistent_hash(members: Sequence[str], queues: Sequence[Queue], /, virtual_nodes: int = 10) -> Assignment:
    """Every queue has one owner; a change of members moves only the queues of those who came or went."""
    ordered = sorted_members(members)
    assignment: Assignment = {member: [] for member in ordered}
    ring = {_place(f"{member}-{node}"): member for member in ordered for node in range(virtual_nodes)}
    places = sorted(ring)
    for queue in sorted_queues(queues) if places else ():
        at = bisect_left(places, _place(str(queue)))
        assignment[ring[places[at % len(places)]]].append(queue)
    return assignment


def _place(text: str) -> int:
    return int.from_bytes(md5(text.encode(errors="replace"), usedforsecurity=False).digest()[:4], "big")


@hookimpl
def halfmoon_config() -> ConfigSection:
    return ConfigSection(ConsistentHashSettings)


@hookimpl
def halfmoon_allocators(ctx: PluginContext) -> dict[str, AnyAllocator]:
    settings = ctx.settings_as(ConsistentHashSettings)
    return {"consistent_hash": partial(consistent_hash, virtual_nodes=settings.virtual_nodes)}
