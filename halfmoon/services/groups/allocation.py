"""What an allocation strategy is given and what it answers (B22, B23).

A strategy says which member of a group reads which queue. It is a pure function: the same members and queues, in
whatever order, give the same answer on every machine, which is what lets RocketMQ's clients each work it out for
themselves and agree. Members and queues are sorted here, the way Java sorts them, before a strategy looks at them.

The functions act for RocketMQ's broker-side assignment, for our own client, for kafka-python through
`halfmoon.kafka.assignor`, and for Kafka's KIP-848 groups; Kafka's classic groups let the leading client assign.

A strategy is asked topic by topic, with the members that read the topic. One that weighs several topics against each
other sets `wants_all_topics = True` and is asked once, with the queues of all topics; who reads what is then in the
members, which are `GroupMember`s, and it must give nobody a queue of a topic that they do not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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


class GroupMember(str):
    """A member's name, as every strategy is given it, with what else is known of a member of a consumer group."""

    rack: str | None
    """Where it says that it stands (`client.rack`)."""
    instance_id: str | None
    """Of a static member; its name is the same, and outlives a restart."""
    topics: frozenset[str] | None
    """What it reads; None: all topics that are asked about."""

    def __new__(
        cls,
        name: str,
        *,
        rack: str | None = None,
        instance_id: str | None = None,
        topics: frozenset[str] | None = None,
    ) -> GroupMember:
        member = super().__new__(cls, name)
        member.rack, member.instance_id, member.topics = rack, instance_id, topics
        return member


def reads(member: str, topic: str) -> bool:
    """Whether a member reads a topic. One of whom nothing is known but the name reads all that are asked about."""
    topics = getattr(member, "topics", None)
    return topics is None or topic in topics


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


def allocate_topics(
    allocator: AnyAllocator,
    members: Sequence[GroupMember],
    topics: Mapping[str, Sequence[Queue]],
    previous: Mapping[str, Sequence[Queue]],
) -> Assignment:
    """Ask `allocator` for a whole group, whose members may read different topics: each topic's queues go only to
    members that read it. `previous` matters only if it wants that. Raises what the strategy raises, and ValueError as
    `allocate`."""
    if getattr(allocator, "wants_all_topics", False):
        everything = [queue for queues in topics.values() for queue in queues]
        assignment = allocate(allocator, members, everything, previous)
        for member in members:
            for queue in assignment[member]:
                if not reads(member, queue.topic):
                    raise ValueError(f"{member} was given a queue of a topic that it does not read: {queue}")
        return assignment
    whole: Assignment = {member: [] for member in members}
    owned: dict[str, dict[str, list[Queue]]] = {}
    if getattr(allocator, "wants_previous", False):
        for name, had in previous.items():
            for queue in had:
                owned.setdefault(queue.topic, {}).setdefault(name, []).append(queue)
    readers_of = readers(members)
    for topic, queues in topics.items():
        those = [members[at] for at in readers_of(topic)]
        if those:
            for name, theirs in allocate(allocator, those, queues, owned.get(topic, {})).items():
                if theirs:
                    whole[name] += theirs
    return whole


def readers(members: Sequence[str]) -> Callable[[str], Sequence[int]]:
    """A function that says who reads a topic: at which places of `members` they stand, in order. Most members of a
    group read the same topics, and are looked at as one."""
    alike: dict[frozenset[str] | None, list[int]] = {}
    for at, member in enumerate(members):
        alike.setdefault(getattr(member, "topics", None), []).append(at)
    places = list(alike.values())
    found: dict[tuple[int, ...], Sequence[int]] = {}

    def readers_of(topic: str) -> Sequence[int]:
        those = tuple(kind for kind, topics in enumerate(alike) if topics is None or topic in topics)
        if those not in found:
            found[those] = sorted(at for kind in those for at in places[kind])
        return found[those]

    return readers_of


def check_assignment(
    members: Sequence[str], queues: Sequence[Queue], assignment: Mapping[str, Sequence[Queue]]
) -> None:
    """Raise ValueError unless every member is answered for and every queue given has one owner at most."""
    if set(assignment) != set(members):
        strange = set(assignment) ^ set(members)
        raise ValueError(f"the assignment's members are not the group's: {', '.join(sorted(strange))}")
    known = set(queues)
    given = [queue for owned in assignment.values() for queue in owned]
    distinct = set(given)
    if len(distinct) == len(given) and distinct <= known:
        return
    owners: dict[Queue, str] = {}
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
    once = dict.fromkeys(members)  # which keeps their order: most often they are sorted already
    # Most names are ASCII, where Python's order is Java's.
    return sorted(once) if "".join(once).isascii() else sorted(once, key=_java_order)


def sorted_queues(queues: Iterable[Queue]) -> list[Queue]:
    """Each queue once, ordered as RocketMQ's `MessageQueue.compareTo`: topic, broker's name, queue id."""
    once = dict.fromkeys(queues)  # which keeps their order: most often they are sorted already
    if all(name.isascii() for name in {queue.topic for queue in once} | {queue.broker for queue in once}):
        return sorted(once)
    return sorted(once, key=lambda queue: (_java_order(queue.topic), _java_order(queue.broker), queue.queue_id))


def _java_order(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
