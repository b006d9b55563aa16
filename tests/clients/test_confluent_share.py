"""Share groups by confluent-kafka (librdkafka): two consumers of one partition, what they say of records, and what
becomes of those of one that is killed, or stops."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from typer.testing import CliRunner

from halfmoon.cli.commands import command_line
from halfmoon.testing import Broker
from tests.clients.polling import DEADLINE_S
from tests.several_workers import metric, metrics_of

LOCK_S = 4.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    share = {"auto_offset_reset": "earliest", "record_lock_duration": f"{LOCK_S:.0f}s", "delivery_count_limit": 3}
    config = {
        "log": {"segment_bytes": "1MiB"}, "groups": {"share": share}, "listeners": {"http": {"bind": "127.0.0.1:0"}},
    }  # fmt: skip
    with Broker(config=config) as started:
        yield started


@pytest.fixture
def topic(broker: Broker, name: str) -> str:
    make_topic(broker, name)
    return name


def make_topic(broker: Broker, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(10)


def fill(broker: Broker, topic: str, count: int) -> list[bytes]:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0, "batch.num.messages": 1})
    values = [b"%d" % number for number in range(count)]
    for value in values:
        producer.produce(topic, value, key=b"k", partition=0)
    assert producer.flush(30) == 0
    return values


class Member:
    def __init__(self, broker: Broker, topic: str, group: str = "") -> None:
        self.consumer = ShareConsumer(
            {
                "bootstrap.servers": broker.bootstrap_servers, "group.id": group or topic, "log_level": 3,
                "share.acknowledgement.mode": "explicit",
            }
        )  # fmt: skip
        self.consumer.subscribe([topic])

    def poll(self, answer: Any = None, timeout_s: float = 0.3) -> list[Any]:
        """Some records, answered if there is an answer."""
        found = [message for message in self.consumer.poll(timeout_s) if message.error() is None]
        if answer is not None and found:
            for message in found:
                self.consumer.acknowledge(message, answer)
            assert not any(self.consumer.commit_sync(10).values())
        return found

    def take(self, count: int, answer: Any = None) -> list[Any]:
        found: list[Any] = []
        end = time.monotonic() + DEADLINE_S
        while len(found) < count:
            assert time.monotonic() < end, f"{len(found)} of {count}"
            found += self.poll(answer)
        return found


@pytest.fixture
def join(broker: Broker, topic: str) -> Iterator[Callable[..., Member]]:
    members: list[Member] = []

    def make(topic: str = topic, group: str = "") -> Member:
        members.append(Member(broker, topic, group))
        return members[-1]

    yield make
    for member in members:
        member.consumer.close()


def test_two_consumers_share_one_partition(broker: Broker, topic: str, join: Callable[..., Member]) -> None:
    members = [join(), join()]
    for member in members:
        member.poll()
    seen: Counter[bytes] = Counter()
    taken = [0, 0]
    sent: list[bytes] = []
    end = time.monotonic() + DEADLINE_S
    while min(taken) == 0 or sum(taken) < len(sent):
        assert time.monotonic() < end, taken
        if sum(taken) == len(sent):
            fill(broker, topic, 20)
            sent += [b"%d" % number for number in range(20)]
        for number, member in enumerate(members):
            found = [message.value() for message in member.poll(AcknowledgeType.ACCEPT, 0.05)]
            seen.update(found)
            taken[number] += len(found)
    assert seen == Counter(sent)


def halfmoon(broker: Broker, *arguments: str) -> Any:
    given = [*arguments, "--bootstrap-server", broker.bootstrap_servers, "--output", "json"]
    result = CliRunner().invoke(command_line(), given)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    return [json.loads(line) for line in lines] if arguments[1] == "show" else json.loads(result.stdout)


def test_released_records_come_again_and_rejected_ones_are_dead_letters(
    broker: Broker, topic: str, join: Callable[..., Member]
) -> None:
    sent = fill(broker, topic, 4)
    member = join()
    found = member.take(4)
    kinds = [AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RELEASE]
    for message, kind in zip(found, kinds, strict=True):
        member.consumer.acknowledge(message, kind)
    member.consumer.commit_sync(10)
    again = member.take(2, AcknowledgeType.RELEASE)
    assert sorted(message.value() for message in again) == [sent[1], sent[3]]
    assert sorted(message.value() for message in member.take(2, AcknowledgeType.RELEASE)) == [sent[1], sent[3]]
    assert not member.poll(timeout_s=1.0)  # each was given out three times
    end = time.monotonic() + DEADLINE_S
    while len(letters := halfmoon(broker, "dlq", "show", topic)) < 3:
        assert time.monotonic() < end, letters
    headers = [{each["name"]: each["value"] for each in letter["headers"]} for letter in letters]
    told = {each["ORIGIN_MESSAGE_ID"]: each for each in headers}
    assert set(told) == {f"{topic}/0/{offset}" for offset in (1, 2, 3)}
    assert told[f"{topic}/0/2"]["__dlq.errors.message"] == "Offset rejected by client."
    assert told[f"{topic}/0/1"]["__dlq.errors.delivery.count"] == "3"
    metrics = metrics_of(broker)
    assert metric(metrics, "halfmoon_share_dead_letters_total", outcome="written") == 3
    assert metric(metrics, "halfmoon_share_sessions") == 1
    (listed,) = [row for row in halfmoon(broker, "dlq", "list") if row["group"] == topic]
    assert listed["dead_letters"] == 3
    assert halfmoon(broker, "dlq", "replay", topic)["dead_letters"] == 3
    retried = Member(broker, f"retry.{topic}", topic)
    found = retried.take(3, AcknowledgeType.ACCEPT)
    assert sorted(message.value() for message in found) == sent[1:]
    retried.consumer.close()


def test_dead_letters_of_two_groups_in_one_topic_are_told_apart(
    broker: Broker, topic: str, join: Callable[..., Member]
) -> None:
    groups, letters = [f"{topic}-a", f"{topic}-b"], f"dlq.{topic}"
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    for group in groups:
        configs = {"errors.deadletterqueue.topic.name": letters}
        admin.alter_configs([ConfigResource(ConfigResourceType.GROUP, group, configs)])
    admin.close()
    sent = fill(broker, topic, 2)
    join(group=groups[0]).take(2, AcknowledgeType.REJECT)
    join(group=groups[1]).take(2, AcknowledgeType.REJECT)
    end = time.monotonic() + DEADLINE_S
    while len(listed := [row for row in halfmoon(broker, "dlq", "list") if row["topic"] == letters]) < 2:
        assert time.monotonic() < end, listed
    assert listed == [
        {"group": group, "dead_letters": 2, "letters": 2, "replayed": 0, "topic": letters} for group in groups
    ]
    shown = halfmoon(broker, "dlq", "show", groups[1])
    assert [letter["value"] for letter in shown] == [value.decode() for value in sent]
    assert halfmoon(broker, "dlq", "replay", groups[1])["dead_letters"] == 2
    retried = join(group=groups[1], topic=f"retry.{groups[1]}")
    assert [message.value() for message in retried.take(2, AcknowledgeType.ACCEPT)] == sent


_OTHER = """
import sys, time
from confluent_kafka import ShareConsumer
consumer = ShareConsumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2],
                          "share.acknowledgement.mode": "explicit", "log_level": 3})
consumer.subscribe([sys.argv[2]])
found = 0
while found < int(sys.argv[3]):
    found += sum(1 for message in consumer.poll(1.0) if message.error() is None)
print("taken", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("how", "latest_s"), [(signal.SIGKILL, LOCK_S - 0.5), (signal.SIGSTOP, 2 * LOCK_S)], ids=["killed", "stopped"]
)
def test_what_a_member_held_that_is_killed_or_stops_goes_to_another(
    broker: Broker, topic: str, join: Callable[..., Member], how: int, latest_s: float
) -> None:
    """Killed, its connection is closed, and that is noticed at once; stopped, its locks have to end."""
    sent = fill(broker, topic, 10)
    command = [sys.executable, "-c", _OTHER, broker.bootstrap_servers, topic, "10"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "taken\n"
            taken = time.monotonic()
            member = join()
            if how is signal.SIGSTOP:
                assert not member.poll(timeout_s=0.5)
            os.kill(other.pid, how)
            killed = time.monotonic()
            found = member.take(10, AcknowledgeType.ACCEPT)
        finally:
            other.kill()
    assert sorted(message.value() for message in found) == sorted(sent)
    assert time.monotonic() - killed < latest_s
    if how is signal.SIGSTOP:
        assert time.monotonic() - taken > LOCK_S - 1.0


def test_members_go_on_when_the_broker_was_restarted(name: str) -> None:
    share = {"auto_offset_reset": "earliest"}
    with Broker(config={"log": {"segment_bytes": "1MiB"}, "groups": {"share": share}}) as broker:
        make_topic(broker, name)
        sent = fill(broker, name, 10)
        member = Member(broker, name)
        found = member.take(10, AcknowledgeType.ACCEPT)
        broker.restart()
        sent += fill(broker, name, 20)
        found += member.take(20, AcknowledgeType.ACCEPT)
        assert not member.poll(timeout_s=0.5)
        assert sorted(message.value() for message in found) == sorted(sent)  # none twice: all were answered
        member.consumer.close()
