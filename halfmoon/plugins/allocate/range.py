"""Range: each member gets a run of neighbouring queues, the same run of every topic that the same members read.

Source of the rule: Kafka's server-side assignor of that name (org.apache.kafka.coordinator.group.assignor
.RangeAssignor). So the queues with one number of equally partitioned topics are read together (joins stay local).
Static members come first, by their instance ids, which outlive a restart; then the others by name. Where it does not
come out even, the first members get one more.

    7 queues, 3 members:   0 1 2 | 3 4 | 5 6
"""

from __future__ import annotations

from collections.abc import Sequence

from halfmoon.plugin import AnyAllocator, Assignment, PluginContext, Queue, hookimpl, sorted_members, sorted_queues
from halfmoon.plugins.allocate.averagely import runs

api_version = 1


def range_(members: Sequence[str], queues: Sequence[Queue], /) -> Assignment:
    """Every queue has one owner; shares of one topic differ by one at most."""
    ordered = sorted(sorted_members(members), key=lambda member: getattr(member, "instance_id", None) is None)
    topics: dict[str, list[Queue]] = {}
    for queue in sorted_queues(queues):
        topics.setdefault(queue.topic, []).append(queue)
    assignment: Assignment = {member: [] for member in ordered}
    for theirs in topics.values():
        for member, run in runs(ordered, theirs).items():
            assignment[member] += run
    return assignment


@hookimpl
def halfmoon_allocators(ctx: PluginContext) -> dict[str, AnyAllocator]:
    return {"range": range_}
