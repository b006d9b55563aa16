"""What an allocation strategy is given and what it answers (B22, B23).

A strategy says which member of a group reads which queue. It is a pure function: the same members and queues, in
whatever order, give the same answer on every machine, which is what lets RocketMQ's clients each work it out for
themselves and agree. Members and queues are sorted here, the way Java sorts them, before a strategy looks at them.

The functions act for RocketMQ's broker-side assignment, for our own client, for kafka-python through
`halfmoon.kafka.assignor`, and for Kafka's KIP-848 groups; Kafka's classic groups let the leading client assign.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol


class Queue(NamedTuple):
    """One queue of a topic (Kafka: a partition), as RocketMQ's MessageQueue names it."""

    topic: str
    broker: str
    """The broker's name, by RocketMQ's custom `ROOM@NAME` where machine rooms matter."""
    queue_id: int

    def __str__(self) -> str:
        """RocketMQ's `MessageQueue.toString`, to the letter: consistent hashing hashes it."""
        return f"MessageQueue [topic={self.topic}, brokerName={self.broker}, queueId={self.queue_id}]"


Assignment = dict[str, list[Queue]]
"""Every member's queues, in the strategy's order; a member that gets none has an empty list."""


class Allocator(Protocol):
    """A strategy. It neither keeps state nor looks at a clock, and raises nothing for any members and queues."""

    def __call__(self, members: Sequence[str], queues: Sequence[Queue], /) -> Assignment: ...


class StickyAllocator(Protocol):
    """A strategy that also wants to know who owns what now. It sets `wants_previous = True` (see `allocate`)."""

    wants_previous: bool

    def __call__(
        self, members: Sequence[str], queues: Sequence[Queue], previous: Mapping[str, Sequence[Queue]] | None = None, /
    ) -> Assignment: ...


AnyAllocator = Allocator | StickyAllocator


def allocate(
    allocator: AnyAllocator,
    members: Sequence[str],
    queues: Sequence[Queue],
    previous: Mapping[str, Sequence[Queue]] | None = None,
) -> Assignment:
    """Ask `allocator`, and check its answer: ValueError when a queue has two owners, or an owner or queue is unknown.

    Queues that nobody owns are allowed, since some strategies leave queues out on purpose; see `unowned`.
    """
    if getattr(allocator, "wants_previous", False):
        assignment = allocator(members, queues, previous)  # type: ignore[call-arg]
    else:
        assignment = allocator(members, queues)
    check_assignment(members, queues, assignment)
    return assignment


def check_assignment(
    members: Sequence[str], queues: Sequence[Queue], assignment: Mapping[str, Sequence[Queue]]
) -> None:
    """Raise ValueError unless every member is answered for and every queue given has one owner at most."""
    if set(assignment) != set(members):
        strange = set(assignment) ^ set(members)
        raise ValueError(f"the assignment's members are not the group's: {', '.join(sorted(strange))}")
    owners: dict[Queue, str] = {}
    known = set(queues)
    for member, owned in assignment.items():
        for queue in owned:
            if queue not in known:
                raise ValueError(f"{member} was given a queue that does not exist: {queue}")
            if queue in owners:
                raise ValueError(f"{queue} was given to {owners[queue]} and to {member}")
            owners[queue] = member


def unowned(queues: Sequence[Queue], assignment: Mapping[str, Sequence[Queue]]) -> list[Queue]:
    """The queues that nobody reads, in order."""
    owned = {queue for mine in assignment.values() for queue in mine}
    return sorted_queues(queue for queue in queues if queue not in owned)


def sorted_members(members: Iterable[str]) -> list[str]:
    """Each member once, ordered as Java's `String.compareTo` does (by UTF-16 code units)."""
    return sorted(set(members), key=_java_order)


def sorted_queues(queues: Iterable[Queue]) -> list[Queue]:
    """Each queue once, ordered as RocketMQ's `MessageQueue.compareTo`: topic, broker's name, queue id."""
    return sorted(set(queues), key=lambda queue: (_java_order(queue.topic), _java_order(queue.broker), queue.queue_id))


def _java_order(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
