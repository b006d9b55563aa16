"""Groups of the Java client's consumers: who reads what, in which order, again, and not at all."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

import pytest

from tests.clients.rocketmq.java import CLIENT, Clients, Got, as_queue, body, interface, queues_of, until
from tests.several_workers import WORKERS, of_one_process

pytestmark = pytest.mark.spark


def members(clients: Clients, group: str) -> list[str]:
    try:
        connections = clients.admin.examineConsumerConnectionInfo(group).getConnectionSet()
    except Exception:
        return []  # None is connected.
    return sorted(connection.getClientId() for connection in connections)


def identity(consumer: Any) -> str:
    return str(consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId())


def shared(consumers: list[Any], topic: str, count: int) -> bool:
    """Whether they have all the queues, each once, and each consumer some."""
    found = [queues_of(consumer, topic) for consumer in consumers]
    return all(found) and sum(map(len, found)) == len(set().union(*found)) == count


def test_ordered(clients: Clients) -> None:
    topic, group = clients.topic(8), clients.name("group")
    seen: dict[str, list[int]] = defaultdict(list)
    counts = [0, 0]

    def decide(number: int, message: Any) -> str:
        key, _, value = body(message).partition(":")
        seen[key].append(int(value))
        counts[number] += 1
        return "SUCCESS"

    consumers = []
    for number in range(2):
        consumer = clients.push(group, topic)
        clients.listen(consumer, lambda message, context, n=number: decide(n, message), orderly=True)
        consumers.append(consumer)
    until(lambda: shared(consumers, topic, 8))
    producer = clients.producer()
    for value in range(15):
        for key in range(16):
            producer.send(clients.message(topic, "A", f"{key}:{value}"), clients.queue(topic, key % 8))
    until(lambda: sum(counts) == 240, 30, lambda: f"{counts}")
    assert seen == {str(key): list(range(15)) for key in range(16)}
    assert min(counts) > 0


def test_an_ordered_queue_is_suspended_for_a_moment(clients: Clients, topic: str) -> None:
    attempts: list[str] = []

    def decide(message: Any, context: Any) -> str:
        attempts.append(f"{body(message)}/{message.getReconsumeTimes()}")
        return "SUSPEND_CURRENT_QUEUE_A_MOMENT" if attempts[-1] in ("m2/0", "m2/1") else "SUCCESS"

    consumer = clients.push(topic=topic)
    consumer.setSuspendCurrentQueueTimeMillis(300)
    got = clients.listen(consumer, decide, orderly=True)
    producer = clients.producer()
    for number in range(5):
        producer.send(clients.message(topic, "A", f"m{number}"))
    got.exactly(7)
    assert attempts == ["m0/0", "m1/0", "m2/0", "m2/1", "m2/2", "m3/0", "m4/0"]
    assert got.at[3] - got.at[2] >= 0.28


def test_an_ordered_queue_is_taken_over_at_once_when_its_consumer_stops(clients: Clients) -> None:
    topic, group = clients.topic(4), clients.name("group")
    consumers, got = [], []
    for _ in range(2):
        consumer = clients.push(group, topic)
        got.append(clients.listen(consumer, orderly=True))
        consumers.append(consumer)
    until(lambda: shared(consumers, topic, 4))
    producer = clients.producer()
    for number in range(20):
        producer.send(clients.message(topic, "A", f"m{number}"))
    until(lambda: sum(len(each) for each in got) == 20)
    had = len(got[1])
    threading.Thread(target=consumers[0].shutdown).start()
    until(lambda: members(clients, group) == [identity(consumers[1])])
    for number in range(20):
        producer.send(clients.message(topic, "A", f"n{number}"))
    got[1].wait(had + 20, 20)  # The locks of one that is gone without a word hold for 60 s.


def test_messages_come_again_and_are_given_up_in_the_end(clients: Clients) -> None:
    topic, group = clients.topic(), clients.name("group")
    producer = clients.producer()
    consumer = clients.push(group, topic)
    consumer.setMaxReconsumeTimes(3)

    def decide(message: Any, context: Any) -> str:
        context.setDelayLevelWhenNextConsume(-1 if body(message) == "straight" else 3)  # 500 ms
        return "RECONSUME_LATER"

    got = clients.listen(consumer, decide)
    sent = producer.send(clients.message(topic, "RT", "retry", "rk"))
    got.wait(4)
    assert [(body(message), message.getReconsumeTimes()) for message in got.messages] == [
        ("retry", times) for times in range(4)
    ]
    assert all(later - earlier >= 0.49 for earlier, later in zip(got.at, got.at[1:], strict=False))
    again = got.messages[1]
    assert (again.getTopic(), again.getMsgId(), again.getTags(), again.getKeys()) == (
        topic,
        sent.getMsgId(),
        "RT",
        "rk",
    )
    producer.send(clients.message(topic, "RT", "straight"))
    dead = clients.read_all(f"%DLQ%{group}", 2)
    assert sorted(body(message) for message in dead) == ["retry", "straight"]
    assert {message.getProperty("RETRY_TOPIC") for message in dead} == {topic}
    got.exactly(5, quiet_s=0.7)


def test_retries_wait_longer_each_time(clients: Clients, topic: str) -> None:
    consumer = clients.push(topic=topic)
    consumer.setMaxReconsumeTimes(2)
    got = clients.listen(consumer, lambda message, context: "RECONSUME_LATER")
    clients.producer().send(clients.message(topic, "RT", "retry"))
    got.wait(3)  # Levels 3 and 4 of the broker's: 500 and 1,500 ms.
    gaps = [later - earlier for earlier, later in zip(got.at, got.at[1:], strict=False)]
    assert gaps[0] >= 0.49
    assert gaps[1] >= 1.49
    assert len(clients.read_all(f"%DLQ%{consumer.getConsumerGroup()}", 1)) == 1


def test_broadcasting_and_clustering(clients: Clients) -> None:
    topic, all_of_it, half_of_it = clients.topic(4), clients.name("group"), clients.name("group")
    models = clients.java.named("org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel")
    broadcast: list[Got] = []
    clustered: list[Got] = []
    sharing = []
    for _ in range(2):
        consumer = clients.push(all_of_it)
        consumer.setMessageModel(models.valueOf("BROADCASTING"))
        consumer.subscribe(topic, "*")
        broadcast.append(clients.listen(consumer))
        consumer = clients.push(half_of_it, topic)
        clustered.append(clients.listen(consumer))
        sharing.append(consumer)
    until(lambda: shared(sharing, topic, 4))
    producer = clients.producer()
    for number in range(40):
        producer.send(clients.message(topic, "A", f"m{number}"))
    for each in broadcast:
        each.exactly(40)
    assert [len(each) for each in clustered] == [20, 20]


@pytest.mark.parametrize("strategy", ["Averagely", "AveragelyByCircle", "ConsistentHash", "MachineRoomNearby"])
def test_queues_are_shared_by_the_clients_strategies(clients: Clients, strategy: str) -> None:
    """Clients compute who reads what; the broker tells them who is there, and when that changes."""
    rebalance = f"{CLIENT}.consumer.rebalance"

    def named(name: str, *arguments: Any) -> Any:
        return clients.java.named(f"{rebalance}.{name}")(*arguments)

    if strategy == "MachineRoomNearby":
        resolver = interface(
            f"{rebalance}.AllocateMachineRoomNearby$MachineRoomResolver",
            brokerDeployIn=lambda queue: "r1",
            consumerDeployIn=lambda client_id: "r1",
        )
        chosen = named("AllocateMachineRoomNearby", named("AllocateMessageQueueAveragely"), resolver)
    else:
        chosen = named(f"AllocateMessageQueue{strategy}")
    topic, group = clients.topic(8), clients.name("group")
    producer = clients.producer()
    consumers: list[Any] = []
    got: list[Got] = []

    def settled() -> bool:
        ids = members(clients, group)
        if len(ids) != len(consumers):
            return False
        queues = clients.java.list(sorted((clients.queue(topic, number) for number in range(8)), key=as_queue))
        for consumer in consumers:
            mine = chosen.allocate(group, identity(consumer), queues, clients.java.list(ids))
            if set(map(as_queue, mine)) != queues_of(consumer, topic):
                return False
        return True

    def all_are_served(when: str) -> None:
        for number in range(8):
            producer.send(clients.message(topic, "A", f"{when}/{number}"), clients.queue(topic, number))
        wanted = {f"{when}/{number}" for number in range(8)}
        until(lambda: wanted <= {text for each in got for text in each.bodies()})

    for _ in range(3):
        consumer = clients.push(group)
        consumer.setAllocateMessageQueueStrategy(chosen)
        consumer.subscribe(topic, "*")
        got.append(clients.listen(consumer))
        consumers.append(consumer)
        until(settled)
        all_are_served(f"{len(consumers)} members")
    gone = consumers.pop()
    threading.Thread(target=gone.shutdown).start()
    until(settled)
    all_are_served("one is gone")


def test_a_group_goes_on_where_it_was(clients: Clients) -> None:
    topic, group = clients.topic(4), clients.name("group")
    producer = clients.producer()

    def consumed() -> tuple[Any, Got]:
        consumer = clients.push(group, topic)
        return consumer, clients.listen(consumer)

    for number in range(20):
        producer.send(clients.message(topic, "A", f"a{number}"))
    consumer, got = consumed()
    got.exactly(20)
    consumer.shutdown()

    def progress() -> int:
        table = clients.admin.examineConsumeStats(group, topic).getOffsetTable()
        return sum(wrapper.getConsumerOffset() for wrapper in table.values())

    if WORKERS:  # each queue's shard tells the group's, and nobody waits for that
        until(lambda: progress() == 20)
    assert progress() == 20
    for number in range(10):
        producer.send(clients.message(topic, "A", f"b{number}"))
    _, more = consumed()
    more.exactly(10)
    assert sorted(more.bodies()) == [f"b{number}" for number in range(10)]


@of_one_process
def test_a_group_whose_members_subscribe_differently_is_named(
    clients: Clients, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = clients.topic(), clients.name("group")
    with caplog.at_level("WARNING", "halfmoon.rocketmq"):
        for expression in "a", "b":
            consumer = clients.push(group)
            consumer.subscribe(topic, expression)
            clients.listen(consumer)
        until(lambda: group in caplog.text)
    assert topic in caplog.text
