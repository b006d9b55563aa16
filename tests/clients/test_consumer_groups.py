"""confluent-kafka with `group.protocol=consumer` (KIP-848). They run against a real Kafka too, where a second member's
share takes 5 s."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from halfmoon.testing import Broker
from tests.clients.polling import wait_for

MakeTopic = Callable[..., str]


class Member:
    """A consumer in a thread of its own: which partitions it has, and what it has read."""

    def __init__(self, servers: str, group: str, topics: list[str], **settings: Any) -> None:
        config = {
            "bootstrap.servers": servers,
            "group.id": group,
            "group.protocol": settings.pop("protocol", "consumer"),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 500,
        }
        self.consumer = Consumer(config | {key.replace("_", "."): value for key, value in settings.items()})
        self.partitions: frozenset[tuple[str, int]] = frozenset()
        """Replaced, not changed: other threads look at it."""
        self.values: list[bytes] = []
        self.errors: list[str] = []
        self.revocations = 0
        self.commits = False
        self._stop = threading.Event()
        self._topics = topics
        self.consumer.subscribe(topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.partitions = self.partitions | {(each.topic, each.partition) for each in partitions}

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.partitions = self.partitions - {(each.topic, each.partition) for each in partitions}
        self.revocations += 1

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self.consumer.poll(0.05)
            if message is None:
                continue
            if message.error() is not None:
                self.errors.append(str(message.error()))
                continue
            self.values.append(message.value())
            if self.commits:
                self.consumer.commit(message, asynchronous=False)

    def close(self) -> None:
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join()
            self.consumer.close()


@pytest.fixture
def members() -> Iterator[Callable[..., Member]]:
    with ExitStack() as stack:

        def make(*args: Any, **settings: Any) -> Member:
            member = Member(*args, **settings)
            stack.callback(member.close)
            return member

        yield make


def send(servers: str, topic: str, values: list[bytes], partitions: int = 1) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for at, value in enumerate(values):
        producer.produce(topic, value, partition=at % partitions)
    assert producer.flush(20) == 0


def shared(topic: str, count: int, *members: Member) -> bool:
    """Each partition is somebody's, and everybody has some."""
    found = [each for member in members for each in member.partitions]
    return sorted(found) == [(topic, index) for index in range(count)] and all(each.partitions for each in members)


def test_two_members_share_and_one_takes_over(
    bootstrap_servers: str, name: str, make_topic: MakeTopic, members: Callable[..., Member]
) -> None:
    topic = make_topic(4)
    send(bootstrap_servers, topic, [b"%d" % number for number in range(40)], 4)
    first = members(bootstrap_servers, name, [topic])
    wait_for(lambda: shared(topic, 4, first) and len(first.values) == 40)
    second = members(bootstrap_servers, name, [topic])
    wait_for(lambda: shared(topic, 4, first, second))
    first.close()
    wait_for(lambda: shared(topic, 4, second))
    assert not first.errors + second.errors


def test_a_second_member_has_its_share_within_a_second(own_broker: Broker, members: Callable[..., Member]) -> None:
    servers = own_broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("t", 4, 1)])["t"].result(10)
    took = []
    while len(took) < 3 and min(took, default=1) >= 1:  # the machine may have something else to do
        group = f"g{len(took)}"
        first = members(servers, group, ["t"])
        wait_for(lambda first=first: shared("t", 4, first))
        began = time.monotonic()
        second = members(servers, group, ["t"])
        wait_for(lambda first=first, second=second: shared("t", 4, first, second))
        took.append(time.monotonic() - began)
        first.close()
        second.close()
    assert min(took) < 1


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_a_named_strategy(
    bootstrap_servers: str,
    name: str,
    make_topic: MakeTopic,
    members: Callable[..., Member],
    admin: AdminClient,
    assignor: str,
) -> None:
    topic = make_topic(3)
    both = [members(bootstrap_servers, name, [topic], group_remote_assignor=assignor) for _ in range(2)]
    wait_for(lambda: shared(topic, 3, *both))
    described = admin.describe_consumer_groups([name])[name].result(10)
    assert (described.state, described.partition_assignor) == (ConsumerGroupState.STABLE, assignor)
    assert sorted(len(member.assignment.topic_partitions) for member in described.members) == [1, 2]


def test_an_unknown_strategy_is_an_error(
    bootstrap_servers: str, name: str, make_topic: MakeTopic, members: Callable[..., Member]
) -> None:
    member = members(bootstrap_servers, name, [make_topic()], group_remote_assignor="nobody")
    wait_for(lambda: any("assignor" in error.lower() for error in member.errors))


def test_a_pattern_finds_what_comes_later(
    bootstrap_servers: str, name: str, make_topic: MakeTopic, members: Callable[..., Member]
) -> None:
    first = make_topic()
    member = members(bootstrap_servers, name, [f"^{name}-.*"])
    wait_for(lambda: member.partitions == {(first, 0)})
    second = make_topic(2)
    wait_for(lambda: member.partitions == {(first, 0), (second, 0), (second, 1)})


def test_a_topic_that_grows(
    bootstrap_servers: str, name: str, make_topic: MakeTopic, members: Callable[..., Member], admin: AdminClient
) -> None:
    topic = make_topic(1)
    member = members(bootstrap_servers, name, [topic])
    wait_for(lambda: shared(topic, 1, member))
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(10)
    wait_for(lambda: shared(topic, 3, member))


def test_what_was_committed_is_not_read_again(
    bootstrap_servers: str, name: str, topic: str, members: Callable[..., Member]
) -> None:
    send(bootstrap_servers, topic, [b"a", b"b"])
    first = members(bootstrap_servers, name, [topic])
    first.commits = True
    wait_for(lambda: first.values == [b"a", b"b"])
    first.close()
    send(bootstrap_servers, topic, [b"c"])
    second = members(bootstrap_servers, name, [topic])
    wait_for(lambda: bool(second.values))
    assert second.values == [b"c"]


def test_a_static_member_comes_back_to_its_share(
    bootstrap_servers: str, name: str, make_topic: MakeTopic, members: Callable[..., Member]
) -> None:
    topic = make_topic(4)
    first = members(bootstrap_servers, name, [topic], group_instance_id="one")
    second = members(bootstrap_servers, name, [topic], group_instance_id="two")
    wait_for(lambda: shared(topic, 4, first, second))
    had = set(first.partitions)
    first.close()
    assert len(second.partitions) == 2
    again = members(bootstrap_servers, name, [topic], group_instance_id="one")
    wait_for(lambda: again.partitions == had)
    assert len(second.partitions) == 2


def test_classic_and_new_members_in_one_group(
    bootstrap_servers: str, name: str, make_topic: MakeTopic, members: Callable[..., Member], admin: AdminClient
) -> None:
    """An application is upgraded process by process, and goes back."""
    topic = make_topic(4)
    old = [members(bootstrap_servers, name, [topic], protocol="classic", heartbeat_interval_ms=100) for _ in range(2)]
    wait_for(lambda: shared(topic, 4, *old))
    new = members(bootstrap_servers, name, [topic])
    wait_for(lambda: shared(topic, 4, *old, new))
    old[0].close()
    wait_for(lambda: shared(topic, 4, old[1], new))
    again = members(bootstrap_servers, name, [topic], protocol="classic", heartbeat_interval_ms=100)
    wait_for(lambda: shared(topic, 4, old[1], again, new))
    new.close()
    wait_for(lambda: shared(topic, 4, old[1], again))
    described = admin.describe_consumer_groups([name])[name].result(10)
    assert str(described.type).endswith("CLASSIC")
    assert not [error for member in (*old, new, again) for error in member.errors]


def test_the_broker_is_restarted(own_broker: Broker, members: Callable[..., Member]) -> None:
    """Members go on with what they have."""
    servers = own_broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("t", 4, 1)])["t"].result(10)
    both = [members(servers, "g", ["t"]) for _ in range(2)]
    wait_for(lambda: shared("t", 4, *both))
    had = [(set(member.partitions), member.revocations) for member in both]
    for member in both:
        member.commits = True
    own_broker.restart()
    send(servers, "t", [b"%d" % number for number in range(8)], 4)
    wait_for(lambda: sum(len(member.values) for member in both) == 8)
    assert [(member.partitions, member.revocations) for member in both] == had


def test_offsets_of_a_group_with_members_are_not_reset(
    bootstrap_servers: str, name: str, topic: str, members: Callable[..., Member], admin: AdminClient
) -> None:
    member = members(bootstrap_servers, name, [topic])
    wait_for(lambda: shared(topic, 1, member))
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups([name])[name].result(10)
    member.close()
    admin.delete_consumer_groups([name])[name].result(10)
