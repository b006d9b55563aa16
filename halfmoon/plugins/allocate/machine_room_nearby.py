"""Machine room nearby: a room's queues are read by the members in that room; rooms without a member are shared by all.

Source of the rule: RocketMQ's AllocateMachineRoomNearby. It asks another strategy (`strategy`, averagely by default)
room by room. A queue's room is its broker's name up to the `@`, a member's room is its name up to the first `-`:
members are called `ROOM-…` (a Kafka client sets `client_id` so). A member that says its rack (`client.rack` in Kafka's
new consumer groups) stands there, whatever it is called. With Kafka's classic groups a queue's room is the rack of its
partition's leader.

    broker r1@a: 0 1, broker r2@b: 2 3, broker r3@c: 4 5; members r1-x, r2-y:   0 1 4 | 2 3 5
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

from halfmoon.plugin import (
    Allocator,
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
from halfmoon.plugins.allocate.averagely import averagely
from halfmoon.plugins.allocate.averagely_by_circle import averagely_by_circle
from halfmoon.plugins.allocate.consistent_hash import consistent_hash

api_version = 1

STRATEGIES: dict[str, Allocator] = {
    "averagely": averagely,
    "averagely_by_circle": averagely_by_circle,
    "consistent_hash": consistent_hash,
}


class MachineRoomNearbySettings(Section, frozen=True, kw_only=True):
    """`$.plugins.machine_room_nearby`."""

    strategy: Literal["averagely", "averagely_by_circle", "consistent_hash"] = "averagely"
    """How the queues of one room are shared out."""


def machine_room_nearby(
    members: Sequence[str], queues: Sequence[Queue], /, strategy: Allocator = averagely
) -> Assignment:
    """Every queue has one owner (as far as `strategy` promises it), near by where there is anyone near by."""
    ordered = sorted_members(members)
    neighbours: dict[str, list[str]] = {}
    for member in ordered:
        room = getattr(member, "rack", None) or member.partition("-")[0]
        neighbours.setdefault(room, []).append(member)
    rooms: dict[str, list[Queue]] = {}
    for queue in sorted_queues(queues):
        rooms.setdefault(queue.broker.partition("@")[0], []).append(queue)
    assignment: Assignment = {member: [] for member in ordered}
    # Each member's own room comes first in its list, as in RocketMQ; then the rooms without a member, in order.
    for room in sorted(rooms, key=lambda room: (room not in neighbours, room.encode("utf-16-be", "surrogatepass"))):
        for member, owned in strategy(neighbours.get(room, ordered), rooms[room]).items():
            assignment[member] += owned
    return assignment


@hookimpl
def halfmoon_config() -> ConfigSection:
    return ConfigSection(MachineRoomNearbySettings)


@hookimpl
def halfmoon_allocators(ctx: PluginContext) -> dict[str, AnyAllocator]:
    strategy = STRATEGIES[ctx.settings_as(MachineRoomNearbySettings).strategy]
    return {"machine_room_nearby": partial(machine_room_nearby, strategy=strategy)}
