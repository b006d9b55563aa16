"""Sticky: equal shares with as few moves as equal shares allow.

RocketMQ 5.3.3 ships no such strategy; the aim is that of Kafka's sticky assignors (KIP-54), the rule is our own:

1. Each member's share is q // m, and q % m members get one more: those who own most now (ties: who sorts first).
2. A member keeps of what it owns the first queues, up to its share.
3. What is free goes, in order, to the members still below their share, in order.

No assignment with such shares moves less: a member that owns more than its share must lose the excess, and the larger
shares went to those who had most to lose. Without anything owned before, it is `averagely`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from halfmoon.plugin import AnyAllocator, Assignment, PluginContext, Queue, hookimpl, sorted_members, sorted_queues

api_version = 1


class _Sticky:
    """The function, with the mark that it wants to be told who owns what."""

    wants_previous = True

    def __call__(
        self, members: Sequence[str], queues: Sequence[Queue], previous: Mapping[str, Sequence[Queue]] | None = None, /
    ) -> Assignment:
        """Every queue has one owner; shares differ by one at most. A queue claimed twice counts for who sorts first."""
        ordered = sorted_members(members)
        if not ordered:
            return {}
        assignment, free = _still_owned(ordered, queues, previous or {})
        share, larger = divmod(len(set(queues)), len(ordered))
        by_loss = sorted(ordered, key=lambda member: -len(assignment[member]))
        shares = {member: share + (rank < larger) for rank, member in enumerate(by_loss)}
        for member, owned in assignment.items():
            free += owned[shares[member] :]
            del owned[shares[member] :]
        free = sorted_queues(free)
        for member, owned in assignment.items():
            missing = shares[member] - len(owned)
            assignment[member] = sorted_queues(owned + free[:missing])
            free = free[missing:]
        return assignment


def _still_owned(
    members: Sequence[str], queues: Sequence[Queue], previous: Mapping[str, Sequence[Queue]]
) -> tuple[Assignment, list[Queue]]:
    """What each living member owns of the queues that exist, sorted; and what nobody owns."""
    free = set(queues)
    assignment: Assignment = {}
    for member in members:
        assignment[member] = sorted_queues(free.intersection(previous.get(member, ())))
        free.difference_update(assignment[member])
    return assignment, list(free)


sticky = _Sticky()


@hookimpl
def halfmoon_allocators(ctx: PluginContext) -> dict[str, AnyAllocator]:
    return {"sticky": sticky}
