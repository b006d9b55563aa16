"""Machine room: only the queues of brokers in the named rooms are read, shared out averagely.

Source of the rule: RocketMQ's AllocateMessageQueueByMachineRoom (there MACHINE_ROOM). A broker called `ROOM@NAME`
stands in ROOM; a name without exactly one `@` stands in no room. Queues in other rooms get *no owner*: somebody else's
group members are to read them. Each member gets an equal run of neighbouring queues; what is left over at the end goes
to the first members, one each. Without `rooms` every queue counts (RocketMQ fails there).

    rooms r1; queues of r1: 0…6, of r2: 7…9; 3 members:   0 1 6 | 2 3 | 4 5
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from msgspec import field

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


class MachineRoomSettings(Section, frozen=True, kw_only=True):
    """`$.plugins.machine_room`."""

    rooms: list[str] = field(default_factory=list)
    """The rooms whose queues are read; none named means all queues."""


def machine_room(members: Sequence[str], queues: Sequence[Queue], /, rooms: Collection[str] = ()) -> Assignment:
    """A queue in one of the rooms has one owner, any other none; shares differ by one at most."""
    ordered = sorted_members(members)
    local = [queue for queue in sorted_queues(queues) if not rooms or _room(queue.broker) in rooms]
    if not ordered:
        return {}
    share, left = divmod(len(local), len(ordered))
    assignment = {member: local[index * share : (index + 1) * share] for index, member in enumerate(ordered)}
    for member, queue in zip(ordered, local[len(local) - left :], strict=False):
        assignment[member].append(queue)
    return assignment


def _room(broker: str) -> str | None:
    room, at, name = broker.partition("@")
    return room if at and name and "@" not in name else None


@hookimpl
def halfmoon_config() -> ConfigSection:
    return ConfigSection(MachineRoomSettings)


@hookimpl
def halfmoon_allocators(ctx: PluginContext) -> dict[str, AnyAllocator]:
    return {"machine_room": partial(machine_room, rooms=frozenset(ctx.settings_as(MachineRoomSettings).rooms))}
