"""Allocation strategies as kafka-python's `partition_assignment_strategy`.

In Kafka's classic groups the leading client assigns. So a strategy serves a Kafka user today by running in the client:
the class made here is handed to KafkaConsumer, which tells the group its name, and whichever member leads calls
`assign`. Every member of a group must offer the same name.

How Kafka's words become RocketMQ's:
- A strategy is asked topic by topic, with the members that subscribe to the topic, as RocketMQ's rebalance does. So the
  same queue of two equally partitioned topics goes to the same member (joins stay local), and many one-queue topics all
  go to the first one, except with `consistent_hash`.
- A member is its `group_instance_id` where it has one, since that outlives a restart, else its member id, which begins
  with its `client_id`.
- A queue's broker is `kafka`, or `RACK@kafka` where the partition's leader says its rack: that is the queue's machine
  room. It is not the leader's name, because leaders change and queues should not move with them.
- Who owned what before, for `sticky`, travels in the subscription (KIP-429's owned partitions, KIP-792's generation).

Assignments are eager: every member gives its partitions up before it gets new ones.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import kafka
from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from kafka.structs import TopicPartition

from halfmoon.kafka.consumer_protocol import Assignment, Member, Subscription, members_of
from halfmoon.plugin import AnyAllocator, Queue, allocate, unowned
from halfmoon.plugins.allocate import find_allocator

MAKES_OBJECTS = int(kafka.__version__.partition(".")[0]) >= 3

log = logging.getLogger("halfmoon.kafka")


class AllocatorAssignor(AbstractPartitionAssignor):  # type: ignore[misc,unused-ignore]
    """A strategy in the form kafka-python wants; `assignor` makes the subclasses.

    One instance belongs to one consumer: it remembers what that consumer owns.
    """

    name: str
    allocator: AnyAllocator

    def __init__(self) -> None:
        self._owned: list[TopicPartition] = []
        self._generation = -1

    def __call__(self) -> AllocatorAssignor:
        """Another one like this: what `assignor` gives is called, whatever it is."""
        return type(self)()

    def metadata(self, topics: Iterable[str]) -> Subscription:
        """What this member tells the leader when it joins."""
        owned: dict[str, list[int]] = {}
        for partition in self._owned:
            owned.setdefault(partition.topic, []).append(partition.partition)
        return Subscription(
            sorted(topics), {topic: sorted(numbers) for topic, numbers in owned.items()}, self._generation
        )

    def on_assignment(self, assignment: Any, generation: int = -1) -> None:
        """Remember what this member was given. kafka-python 2 says no generation here."""
        self._owned = assignment.partitions()
        self._generation = generation

    def on_generation_assignment(self, generation: int) -> None:
        """kafka-python 2 says the generation here, and only to an assignor of the name `sticky`."""
        self._generation = generation

    def assign(self, cluster: Any, members: Mapping[str, Any] | Sequence[Any]) -> dict[str, Assignment]:
        """The leader's work: every member's partitions. `cluster` is a ClusterMetadata, `members` what the version of
        kafka-python gives.

        Raises ValueError when the strategy gives a partition to two members or to a stranger: KafkaConsumer.poll shows
        it. Partitions that the strategy leaves without an owner are logged as a warning.
        """
        joined = members_of(members)
        names = _names(joined)
        given: dict[str, dict[str, list[int]]] = {member.member_id: {} for member in joined}
        for topic in sorted({topic for member in joined for topic in member.topics}):
            queues = _queues(cluster, topic)
            subscribed = {names[m.member_id]: m.member_id for m in joined if topic in m.topics}
            previous = _previous(topic, queues, joined, names)
            assignment = allocate(type(self).allocator, list(subscribed), list(queues.values()), previous)
            idle = unowned(list(queues.values()), assignment)
            if idle:
                numbers = ",".join(str(queue.queue_id) for queue in idle)
                log.warning(
                    "event=partitions_without_owner assignor=%s topic=%s partitions=%s", self.name, topic, numbers
                )
            for name, owned in assignment.items():
                if owned:
                    given[subscribed[name]][topic] = [queue.queue_id for queue in owned]
        return {member_id: Assignment(topics) for member_id, topics in given.items()}


def assignor(
    strategy: str | AnyAllocator,
    *,
    settings: Mapping[str, object] | None = None,
    plugin: str | None = None,
    name: str | None = None,
) -> Any:
    """What KafkaConsumer's `partition_assignment_strategy` takes: a class; with kafka-python 2, which makes no objects
    of classes, an object, which is for one consumer alone.

    `strategy`: the name of an allocator, built-in or of an installed package, or the function itself. `settings`: the
    section of the plugin that offers it, as in broker.yaml. `plugin`: that plugin, where it is not called like the
    strategy. `name`: what the group calls it; by default the strategy's name. Raises halfmoon.core's StartError for an
    unknown name.
    """
    if isinstance(strategy, str):
        allocator = find_allocator(strategy, settings, plugin=plugin)
    else:
        allocator = strategy
    protocol = name or (strategy if isinstance(strategy, str) else str(getattr(strategy, "__name__", "")))
    if not protocol:
        raise ValueError("give the strategy a name: assignor(function, name=...)")
    # As a static method, or a plain function would be bound to the instance.
    attributes = {"name": protocol, "allocator": staticmethod(allocator), "__module__": __name__}
    made = type(f"AllocatorAssignor_{protocol}", (AllocatorAssignor,), attributes)
    return made if MAKES_OBJECTS else made()


def _names(members: Sequence[Member]) -> dict[str, str]:
    """Member id → the name a strategy knows the member by."""
    names = {member.member_id: member.instance_id or member.member_id for member in members}
    # Somebody's instance id is somebody else's member id: nothing forbids it, and two members must not become one.
    return names if len(set(names.values())) == len(names) else {member_id: member_id for member_id in names}


def _queues(cluster: Any, topic: str) -> dict[int, Queue]:
    """The topic's partitions as queues; none yet where there is no metadata, which a later rebalance will see."""
    numbers = cluster.partitions_for_topic(topic)
    if numbers is None:
        log.warning("event=no_metadata topic=%s", topic)
        return {}
    return {number: Queue(topic, _broker(cluster, topic, number), number) for number in sorted(numbers)}


def _broker(cluster: Any, topic: str, number: int) -> str:
    leader = cluster.leader_for_partition(TopicPartition(topic, number))
    broker = cluster.broker_metadata(leader) if leader is not None else None
    rack = getattr(broker, "rack", None)
    return f"{rack}@kafka" if rack else "kafka"


def _previous(
    topic: str, queues: Mapping[int, Queue], members: Sequence[Member], names: Mapping[str, str]
) -> dict[str, list[Queue]]:
    """Who owned which of the topic's queues: of two claims the one from the newer generation counts, ties stay both."""
    newest: dict[int, int] = {}
    claims: list[tuple[str, int, int]] = []
    for member in members:
        for number in member.owned.get(topic, ()):
            newest[number] = max(newest.get(number, -1), member.generation)
            claims.append((names[member.member_id], number, member.generation))
    previous: dict[str, list[Queue]] = {}
    for name, number, generation in claims:
        if generation == newest[number] and number in queues:
            previous.setdefault(name, []).append(queues[number])
    return previous
