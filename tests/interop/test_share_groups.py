"""Share groups (KIP-932) by Kafka's Java client: acknowledging, releasing, rejecting, locks, transactions, tools."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.clients.kafka_jvm.jvm import CLIENTS, COMMON, KafkaJvm
from tests.interop.java_programs import jars, tool

MakeTopic = Callable[..., str]
SHARE_TOOL = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
PERF_TOOL = "org.apache.kafka.tools.ShareConsumerPerformance"
DEADLINE_S = 40.0
LOCK_S = 15.0
"""The shortest that Kafka allows (group.share.min.record.lock.duration.ms)."""
LIMIT = 5
"""How often a record is delivered at most (group.share.delivery.count.limit)."""
ACCEPT, RELEASE, REJECT, RENEW = "ACCEPT", "RELEASE", "REJECT", "RENEW"

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]


class Sharing:
    """A share group that begins at the earliest record, and its consumers."""

    def __init__(self, jvm: KafkaJvm, servers: str, group: str) -> None:
        self.jvm, self.servers, self.group = jvm, servers, group
        self.admin = jvm.admin(servers)
        self._consumers: list[Any] = []
        self.configure(**{"share.auto.offset.reset": "earliest"})

    def configure(self, **configs: str) -> None:
        """Of the group."""
        admin = f"{CLIENTS}.admin"
        kind = self.jvm.named(f"{COMMON}.config.ConfigResource$Type").valueOf("GROUP")
        resource = self.jvm.named(f"{COMMON}.config.ConfigResource")(kind, self.group)
        set_it = self.jvm.named(f"{admin}.AlterConfigOp$OpType").valueOf("SET")
        ops = [
            self.jvm.named(f"{admin}.AlterConfigOp")(self.jvm.named(f"{admin}.ConfigEntry")(key, value), set_it)
            for key, value in configs.items()
        ]
        self.admin.incrementalAlterConfigs(self.jvm.map({resource: self.jvm.list(ops)})).all().get()

    def consumer(self, topic: str, *, explicit: bool = True, **options: object) -> Any:
        made = self.jvm.share_consumer(
            self.servers, group_id=self.group, share_acknowledgement_mode="explicit" if explicit else "implicit",
            **options,
        )  # fmt: skip
        self._consumers.append(made)
        made.subscribe(self.jvm.list([topic]))
        return made

    def leave(self, consumer: Any) -> None:
        self._consumers.remove(consumer)
        consumer.close()

    def take(self, consumer: Any, count: int, answer: str | None = ACCEPT) -> list[Any]:
        """So many records at least, each answered; None: not answered."""
        found: list[Any] = []
        end = time.monotonic() + DEADLINE_S
        while len(found) < count:
            assert time.monotonic() < end, [record.value() for record in found]
            found += self.poll(consumer, answer)
        return found

    def poll(self, consumer: Any, answer: str | None = ACCEPT) -> list[Any]:
        records = self.jvm.poll(consumer, 200)
        if answer is not None:
            for record in records:
                consumer.acknowledge(record, self.jvm.value(f"{CLIENTS}.consumer.AcknowledgeType", answer))
            consumer.commitSync()
        return records

    def nothing_more(self, consumer: Any, quiet_s: float = 1.0) -> None:
        end = time.monotonic() + quiet_s
        while time.monotonic() < end:
            assert not self.poll(consumer)

    def close(self) -> None:
        for consumer in self._consumers:
            with suppress(Exception):
                consumer.close()
        self.admin.close()


@pytest.fixture
def sharing(jvm: KafkaJvm, bootstrap_servers: str, name: str) -> Iterator[Sharing]:
    made = Sharing(jvm, bootstrap_servers, f"{name}-share")
    yield made
    made.close()


def fill(servers: str, topic: str, count: int, *, of: str = "") -> list[str]:
    """Batches of one record each, so that records are not handed out together because they lie together."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, "batch.num.messages": 1})
    values = [f"{of}{number}" for number in range(count)]
    for value in values:
        producer.produce(topic, value.encode(), partition=0)
    assert producer.flush(30) == 0
    return values


def values(records: list[Any]) -> list[str]:
    return [record.value() for record in records]


def counts(records: list[Any]) -> set[int]:
    """The delivery counts of records."""
    return {record.deliveryCount().get() for record in records}


def test_what_is_polled_counts_as_done_with_the_next_poll(sharing: Sharing, topic: str, bootstrap_servers: str) -> None:
    sent = fill(bootstrap_servers, topic, 100)
    consumer = sharing.consumer(topic, explicit=False)
    found = sharing.take(consumer, 100, None)
    assert values(found) == sent
    assert counts(found) == {1}
    sharing.poll(consumer, None)
    sharing.leave(consumer)
    again = sharing.consumer(topic)
    more = fill(bootstrap_servers, topic, 3, of="more ")
    assert values(sharing.take(again, 3)) == more


def test_accepted_records_do_not_come_again(sharing: Sharing, topic: str, bootstrap_servers: str) -> None:
    sent = fill(bootstrap_servers, topic, 20)
    consumer = sharing.consumer(topic)
    assert values(sharing.take(consumer, 20)) == sent
    sharing.nothing_more(consumer)
    sharing.leave(consumer)
    sharing.nothing_more(sharing.consumer(topic), 3.0)


def test_released_records_come_again_and_say_so(sharing: Sharing, topic: str, bootstrap_servers: str) -> None:
    sent = fill(bootstrap_servers, topic, 10)
    consumer = sharing.consumer(topic)
    first = sharing.take(consumer, 10, RELEASE)
    assert values(first[:10]) == sent
    second = sharing.take(consumer, 10)
    assert sorted(values(second)) == sorted(sent)
    assert counts(second) == {2}
    sharing.nothing_more(consumer)


def test_rejected_records_do_not_come_again(sharing: Sharing, topic: str, bootstrap_servers: str) -> None:
    fill(bootstrap_servers, topic, 10)
    consumer = sharing.consumer(topic)
    sharing.take(consumer, 10, REJECT)
    sharing.nothing_more(consumer)
    sharing.leave(consumer)
    sharing.nothing_more(sharing.consumer(topic), 3.0)


def test_a_record_is_delivered_five_times_at_most(sharing: Sharing, topic: str, bootstrap_servers: str) -> None:
    fill(bootstrap_servers, topic, 1)
    consumer = sharing.consumer(topic)
    seen = [record.deliveryCount().get() for _ in range(LIMIT) for record in sharing.take(consumer, 1, RELEASE)]
    assert seen == [1, 2, 3, 4, 5]
    sharing.nothing_more(consumer, 2.0)
    following = fill(bootstrap_servers, topic, 1, of="next ")
    assert values(sharing.take(consumer, 1)) == following


def test_one_queue_and_many_consumers(sharing: Sharing, make_topic: MakeTopic, bootstrap_servers: str) -> None:
    """More consumers than partitions: all have work, and no record has two."""
    topic, total = make_topic(), 600
    consumers = [sharing.consumer(topic, max_poll_records=10) for _ in range(3)]
    for consumer in consumers:
        sharing.poll(consumer)
    sent = fill(bootstrap_servers, topic, total)
    got: Counter[str] = Counter()
    by_consumer: Counter[int] = Counter()
    end = time.monotonic() + DEADLINE_S
    while sum(got.values()) < total:
        assert time.monotonic() < end, f"{sum(got.values())} of {total}"
        for number, consumer in enumerate(consumers):
            records = sharing.poll(consumer)
            got.update(values(records))
            by_consumer[number] += len(records)
    assert got == Counter(sent)
    assert len(by_consumer) == 3
    assert min(by_consumer.values()) > 0


def test_whoever_leaves_gives_back_what_it_has_not_answered(
    sharing: Sharing, topic: str, bootstrap_servers: str
) -> None:
    sent = fill(bootstrap_servers, topic, 10)
    consumer = sharing.consumer(topic)
    sharing.take(consumer, 10, None)
    sharing.leave(consumer)
    other = sharing.consumer(topic)
    found = sharing.take(other, 10)
    assert sorted(values(found)) == sorted(sent)


def test_a_lock_ends(sharing: Sharing, make_topic: MakeTopic, bootstrap_servers: str) -> None:
    """Who takes too long loses its records to another, which sees that they have been delivered before."""
    sharing.configure(**{"share.record.lock.duration.ms": str(int(LOCK_S * 1e3))})
    topic = make_topic()
    sent = fill(bootstrap_servers, topic, 5)
    slow, other = sharing.consumer(topic), sharing.consumer(topic)
    begun = time.monotonic()
    sharing.take(slow, 5, None)
    found = sharing.take(other, 5)
    assert time.monotonic() - begun > LOCK_S - 1
    assert sorted(values(found)) == sorted(sent)
    assert counts(found) == {2}


def test_only_committed_records_where_the_group_wants_that(
    sharing: Sharing, make_topic: MakeTopic, bootstrap_servers: str, name: str
) -> None:
    sharing.configure(**{"share.isolation.level": "read_committed"})
    topic = make_topic()
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(30)
    for value, commit in (("a", True), ("b", False), ("c", True)):
        producer.begin_transaction()
        producer.produce(topic, value.encode(), partition=0)
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
    consumer = sharing.consumer(topic)
    assert values(sharing.take(consumer, 2)) == ["a", "c"]
    sharing.nothing_more(consumer)


def test_how_the_group_is_described(sharing: Sharing, make_topic: MakeTopic, bootstrap_servers: str) -> None:
    topic = make_topic(2)
    fill(bootstrap_servers, topic, 4)
    consumers = [sharing.consumer(topic, client_id=name) for name in "ab"]
    while sum(len(sharing.poll(consumer)) for consumer in consumers) == 0:
        pass
    jvm = sharing.jvm
    end = time.monotonic() + DEADLINE_S
    while True:
        for consumer in consumers:
            sharing.poll(consumer)
        found = sharing.admin.describeShareGroups(jvm.list([sharing.group])).describedGroups().get(sharing.group).get()
        held = {
            member.clientId(): {each.partition() for each in member.assignment().topicPartitions()}
            for member in found.members()
        }
        if len(held) == 2 and set().union(*held.values()) == {0, 1}:
            break
        assert time.monotonic() < end, held
    assert str(found.groupState().toString()) == "Stable"


def test_the_command_line_tool(sharing: Sharing, topic: str, bootstrap_servers: str) -> None:
    sent = fill(bootstrap_servers, topic, 10)
    consumer = sharing.consumer(topic, client_id="reader")
    sharing.take(consumer, 10)

    def ask(*arguments: str) -> list[list[str]]:
        lines = tool(jars("kafka"), SHARE_TOOL, ["--bootstrap-server", bootstrap_servers, *arguments]).splitlines()
        return [line.split() for line in lines if line.strip() and sharing.group in line]

    group = ["--group", sharing.group]
    (offsets,) = ask("--describe", *group)
    # Where a group begins may be moved later than its last record is dealt with; that it lags by none is known at once.
    assert (offsets[:3], offsets[4]) == ([sharing.group, topic, "0"], "0")
    (member,) = ask("--describe", *group, "--members")
    assert f"{topic}:0" in member
    (state,) = ask("--describe", *group, "--state")
    assert "Stable" in state
    assert any(row[0] == sharing.group for row in ask("--list"))
    sharing.leave(consumer)
    ask("--reset-offsets", *group, "--topic", topic, "--to-earliest", "--execute")
    consumer = sharing.consumer(topic)
    assert values(sharing.take(consumer, 10)) == sent
    sharing.leave(consumer)
    tool(jars("kafka"), SHARE_TOOL, ["--bootstrap-server", bootstrap_servers, "--delete", *group])
    assert ask("--list") == []


def test_the_performance_tool(sharing: Sharing, topic: str, bootstrap_servers: str) -> None:
    """On a group's first use. The tool interrupts its own consumer, and ends with a stack trace of
    ShareFetchBuffer.awaitNotEmpty, where not all records have come within `--timeout`: against Kafka, too."""
    count = 2_000
    fill(bootstrap_servers, topic, count)
    said = tool(jars("kafka"), PERF_TOOL, [
        "--bootstrap-server", bootstrap_servers, "--topic", topic, "--group", sharing.group,
        "--num-records", str(count), "--timeout", "60000", "--hide-header",
    ], timeout_s=100)  # fmt: skip
    (line,) = said.splitlines()
    assert int(line.split(", ")[5]) == count
