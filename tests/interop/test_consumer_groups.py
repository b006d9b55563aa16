"""KIP-848's groups by Kafka's Java client and librdkafka: joining, patterns, assignors, changes of protocol, tools."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from py4j.protocol import Py4JJavaError

from tests.clients.kafka_jvm.jvm import CLIENTS, KafkaJvm, causes
from tests.interop.groups import CLASSIC, CONSUMER, Members
from tests.interop.java_programs import jars, tool

MakeTopic = Callable[..., str]
GROUPS_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]


@pytest.fixture
def members(jvm: KafkaJvm, bootstrap_servers: str, name: str) -> Iterator[Members]:
    made = Members(jvm, bootstrap_servers, f"{name}-group")
    yield made
    made.close()


@pytest.fixture
def java_admin(jvm: KafkaJvm, bootstrap_servers: str) -> Iterator[Any]:
    made = jvm.admin(bootstrap_servers)
    yield made
    made.close()


def fill(servers: str, topic: str, values: list[str], partitions: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    for number, value in enumerate(values):
        producer.produce(topic, value.encode(), partition=number % partitions)
    assert producer.flush(30) == 0


def all_of(topic: str, partitions: int) -> list[tuple[str, int]]:
    return [(topic, number) for number in range(partitions)]


def described(jvm: KafkaJvm, admin: Any, group: str) -> Any:
    """A ConsumerGroupDescription."""
    return admin.describeConsumerGroups(jvm.list([group])).describedGroups().get(group).get()


def test_members_come_and_go(members: Members, make_topic: MakeTopic, bootstrap_servers: str) -> None:
    topic = make_topic(6)
    fill(bootstrap_servers, topic, [str(number) for number in range(600)], 6)
    members.join("a", topic)
    members.have(all_of(topic, 6))
    members.until(lambda: sum(members.got.values()) >= 600, commit=True)
    members.join("b", topic)
    members.have(all_of(topic, 6))
    members.join("c", topic)
    members.have(all_of(topic, 6))
    assert members.shares() == [2, 2, 2]
    members.leave("a")
    members.have(all_of(topic, 6))
    members.leave("c")
    members.have(all_of(topic, 6))
    fill(bootstrap_servers, topic, [str(number) for number in range(600, 900)], 6)
    members.until(lambda: len(members.got) >= 900)
    assert set(members.got.values()) == {1}, "something was consumed twice"


def test_what_stays_with_a_member_is_not_taken_from_it(members: Members, make_topic: MakeTopic) -> None:
    """The assignment is incremental: who has too much gives away the rest, and keeps what it keeps all the while."""
    topic = make_topic(6)
    members.join("a", topic)
    members.have(all_of(topic, 6))
    held: list[set[tuple[str, int]]] = []

    def shared() -> bool:
        held.append(members.assigned("a"))
        return members.shares() == [3, 3]

    members.join("b", topic)
    members.until(shared)
    kept = members.assigned("a")
    assert all(kept <= each for each in held)


def test_a_pattern_finds_topics_that_come_later(members: Members, make_topic: MakeTopic, name: str) -> None:
    first = make_topic(2)
    members.join("a", pattern=f"{name}-[0-9]+")
    members.have(all_of(first, 2))
    second = make_topic(3)
    members.have([*all_of(first, 2), *all_of(second, 3)])
    members.join("b", pattern=f"{name}-1")
    members.until(lambda: members.assigned("b") <= set(all_of(second, 3)) and bool(members.assigned("b")))


def test_a_pattern_that_is_none(members: Members) -> None:
    members.join("a", pattern="halfmoon-[")
    with pytest.raises(Py4JJavaError) as caught:
        members.until(lambda: False, 15)
    assert "InvalidRegularExpression" in causes(caught.value)


def test_the_assignor_is_the_brokers_and_has_a_name(
    members: Members, make_topic: MakeTopic, jvm: KafkaJvm, java_admin: Any
) -> None:
    """By range each topic is divided alone: the same member has the larger part of both."""
    one, other = make_topic(3), make_topic(3)
    members.join("a", one, other, group_remote_assignor="range")
    members.join("b", one, other, group_remote_assignor="range")
    members.until(lambda: members.shares() == [2, 4])
    larger = max("ab", key=lambda name: len(members.assigned(name)))
    assert members.assigned(larger) == {(topic, number) for topic in (one, other) for number in (0, 1)}
    assert described(jvm, java_admin, members.group).partitionAssignor() == "range"


def test_an_assignor_that_nobody_has(members: Members, make_topic: MakeTopic) -> None:
    members.join("a", make_topic(), group_remote_assignor="no-such-assignor")
    with pytest.raises(Py4JJavaError) as caught:
        members.until(lambda: False, 15)
    assert "UnsupportedAssignorException" in causes(caught.value)


def test_a_static_member_comes_back_to_what_it_had(members: Members, make_topic: MakeTopic) -> None:
    topic = make_topic(4)
    members.join("a", topic, group_instance_id="one")
    members.join("b", topic, group_instance_id="two")
    members.have(all_of(topic, 4))
    mine, others = members.assigned("a"), members.assigned("b")
    members.clients.pop("a").close()
    end = time.monotonic() + 2
    members.until(lambda: time.monotonic() > end)
    assert members.assigned("b") == others, "its partitions were given away"
    members.join("a again", topic, group_instance_id="one")
    members.until(lambda: members.assigned("a again") == mine)
    assert members.assigned("b") == others


def test_an_instance_that_is_there_already(members: Members, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    members.join("a", topic, group_instance_id="one")
    members.have(all_of(topic, 2))
    members.join("b", topic, group_instance_id="one")
    with pytest.raises(Py4JJavaError) as caught:
        members.until(lambda: False, 15)
    assert {"UnreleasedInstanceIdException", "FencedInstanceIdException"} & set(causes(caught.value))


def test_java_and_librdkafka_in_one_group(members: Members, make_topic: MakeTopic, bootstrap_servers: str) -> None:
    topic = make_topic(4)
    members.join("java", topic)
    members.have(all_of(topic, 4))
    other = Consumer({
        "bootstrap.servers": bootstrap_servers, "group.id": members.group, "group.protocol": "consumer",
        "auto.offset.reset": "earliest", "enable.auto.commit": False,
    })  # fmt: skip
    other.subscribe([topic])

    def shared() -> bool:
        other.poll(0.05)
        held = {(each.topic, each.partition) for each in other.assignment()}
        return len(held) == 2 and held | members.assigned("java") == set(all_of(topic, 4))

    members.until(shared)
    other.close()
    members.have(all_of(topic, 4))


def test_a_living_group_changes_its_protocol_and_back(
    members: Members, make_topic: MakeTopic, bootstrap_servers: str, jvm: KafkaJvm, java_admin: Any
) -> None:
    """Two members, restarted one after the other with the other protocol, while records come: none is missed."""
    topic, sent = make_topic(4), 0

    def more() -> None:
        nonlocal sent
        fill(bootstrap_servers, topic, [str(number) for number in range(sent, sent + 100)], 4)
        sent += 100
        members.until(lambda: len(members.got) == sent, commit=True)

    def kind() -> str:
        return str(described(jvm, java_admin, members.group).type().toString())

    members.join("a0", topic, protocol=CLASSIC)
    members.join("b0", topic, protocol=CLASSIC)
    members.have(all_of(topic, 4))
    more()
    assert kind() == "Classic"
    for step, protocol in enumerate((CONSUMER, CLASSIC), start=1):
        for member in "ab":
            members.leave(f"{member}{step - 1}")
            members.join(f"{member}{step}", topic, protocol=protocol)
            members.have(all_of(topic, 4))
            more()
        assert kind() == {CONSUMER: "Consumer", CLASSIC: "Classic"}[protocol]
    assert set(members.got.values()) == {1}, "something was consumed twice"


def test_how_the_group_is_described(members: Members, make_topic: MakeTopic, jvm: KafkaJvm, java_admin: Any) -> None:
    topic = make_topic(4)
    for name in "ab":
        members.join(name, topic, group_remote_assignor="uniform")
    members.have(all_of(topic, 4))
    found = described(jvm, java_admin, members.group)
    assert str(found.groupState().toString()) == "Stable"
    assert found.partitionAssignor() == "uniform"
    assert found.groupEpoch().get() == found.targetAssignmentEpoch().get()
    for member in found.members():
        held = {(each.topic(), each.partition()) for each in member.assignment().topicPartitions()}
        assert held == members.assigned(member.clientId())
        assert member.memberEpoch().get() == found.groupEpoch().get()
        assert member.upgraded().get() is True
    listed = java_admin.listGroups(jvm.named(f"{CLIENTS}.admin.ListGroupsOptions").forConsumerGroups()).all().get()
    mine = next(each for each in listed if each.groupId() == members.group)
    assert str(mine.type().get().toString()) == "Consumer"


def test_the_command_line_tool(members: Members, make_topic: MakeTopic, bootstrap_servers: str) -> None:
    topic = make_topic(2)
    fill(bootstrap_servers, topic, [str(number) for number in range(10)], 2)
    members.join("reader", topic, group_remote_assignor="uniform")
    members.until(lambda: len(members.got) == 10, commit=True)

    def ask(*arguments: str) -> list[list[str]]:
        lines = tool(jars("kafka"), GROUPS_TOOL, ["--bootstrap-server", bootstrap_servers, *arguments]).splitlines()
        return [line.split() for line in lines if line.strip() and members.group in line]

    group = ["--group", members.group]
    offsets = ask("--describe", *group, "--offsets")
    assert sorted(row[1:6] for row in offsets) == [[topic, str(number), "5", "5", "0"] for number in (0, 1)]
    (member,) = ask("--describe", *group, "--members", "--verbose")
    assert f"{topic}:0,1" in member or f"{topic}:0,1;" in member, member
    (state,) = ask("--describe", *group, "--state", "--verbose")
    assert {"uniform", "Stable"} <= set(state)
    assert [members.group, "Consumer"] in ask("--list", "--type", "consumer")
    members.leave("reader")
    (row, *_) = ask("--reset-offsets", *group, "--topic", topic, "--to-earliest", "--execute")
    assert re.fullmatch(r"0", row[-1])
    tool(jars("kafka"), GROUPS_TOOL, ["--bootstrap-server", bootstrap_servers, "--delete", *group])
    assert ask("--list") == []


def test_offsets_of_a_topic_that_was_made_anew(
    members: Members, make_topic: MakeTopic, bootstrap_servers: str, jvm: KafkaJvm, java_admin: Any
) -> None:
    """Members go by topic ids: a namesake begins at its beginning."""
    topic = make_topic(1)
    fill(bootstrap_servers, topic, ["old"], 1)
    members.join("a", topic)
    members.until(lambda: members.got["old"] == 1, commit=True)
    java_admin.deleteTopics(jvm.list([topic])).all().get()
    members.until(lambda: not members.assigned("a"))
    new = jvm.named(f"{CLIENTS}.admin.NewTopic")(topic, 1, 1)

    def made() -> bool:
        with suppress(Py4JJavaError):  # It is still being deleted.
            java_admin.createTopics(jvm.list([new])).all().get()
            return True
        return False

    members.until(made)
    fill(bootstrap_servers, topic, ["new"], 1)
    members.until(lambda: members.got["new"] == 1)
