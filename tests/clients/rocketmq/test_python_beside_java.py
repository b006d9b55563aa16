"""halfmoon.client and RocketMQ's Java client in one group: they share its queues, and take over from each other."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from halfmoon.client import (
    ConsumeFrom,
    Context,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    Status,
    TransactionProducer,
    TransactionState,
    by_hash,
)
from tests.clients.rocketmq.java import Clients, Queue, as_queue, body, queues_of, until

pytestmark = pytest.mark.spark

QUEUES = 6


class Seen:
    """What Python consumers were given."""

    def __init__(self) -> None:
        self.bodies: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, messages: Sequence[ReceivedMessage], context: Context) -> Status:
        with self._lock:
            self.bodies += [message.body.decode() for message in messages]
        return Status.SUCCESS


@pytest.fixture
def python(clients: Clients) -> Iterator[Callable[..., Any]]:
    """(class, arguments) → a client that is started, and closed in the end."""
    started: list[Any] = []

    def start(kind: Callable[..., Any], *args: Any, **options: Any) -> Any:
        client = kind(*args, namesrv=clients.broker.namesrv, **options)
        client.start()
        started.append(client)
        return client

    yield start
    for client in reversed(started):
        client.close()


def kill(client: Any) -> None:
    """As if its process had died: its connections close, and it has not said goodbye."""
    client._shell.stop()
    client._is_closed = True


def consumer(python: Callable[..., Any], group: str, seen: Any, topic: str, **options: Any) -> PushConsumer:
    made = python(PushConsumer, group, seen, topic, consume_from=ConsumeFrom.FIRST, **options)
    assert isinstance(made, PushConsumer)
    return made


def owned(consumer: PushConsumer, topic: str) -> set[Queue]:
    return {(queue.broker, queue.queue_id) for queue in consumer.queues if queue.topic == topic}


def owners(java: list[Any], pythons: list[PushConsumer], topic: str) -> list[set[Queue]]:
    return [queues_of(each, topic) for each in java] + [owned(each, topic) for each in pythons]


def shared(found: list[set[Queue]]) -> bool:
    return all(found) and sum(map(len, found)) == len(set().union(*found)) == QUEUES


def test_two_pythons_and_a_java_share_the_queues(clients: Clients, python: Callable[..., Any]) -> None:
    topic, group = clients.topic(QUEUES), clients.name("group")
    seen = Seen()
    pythons = [consumer(python, group, seen, topic) for _ in range(2)]
    java = clients.push(group, topic)
    got = clients.listen(java)
    until(lambda: shared(owners([java], pythons, topic)), 20)
    assert {len(each) for each in owners([java], pythons, topic)} == {2}
    producer = python(Producer, clients.name("producers"))
    for number in range(60):
        producer.send(Message(topic, b"%d" % number))
    until(lambda: len(seen.bodies) + len(got) >= 60)
    assert Counter(seen.bodies + got.bodies()) == {str(number): 1 for number in range(60)}
    assert len(got) == 20
    # One dies: the two that are left take over at once.
    kill(pythons[0])
    until(lambda: shared(owners([java], pythons[1:], topic)), 10)
    # Java goes: Python has all of them.
    clients.java.let_go(java)
    until(lambda: shared(owners([], pythons[1:], topic)), 10)
    for number in range(60, 90):
        producer.send(Message(topic, b"%d" % number))
    until(lambda: {str(number) for number in range(90)} <= set(seen.bodies + got.bodies()))


def test_order_is_kept_between_python_and_java(clients: Clients, python: Callable[..., Any]) -> None:
    topic, group = clients.topic(QUEUES), clients.name("group")
    values: dict[str, list[int]] = defaultdict(list)

    def take(text: str) -> None:
        key, _, value = text.partition(":")
        values[key].append(int(value))

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Status:
        for message in messages:
            take(message.body.decode())
        return Status.SUCCESS

    def decide(message: Any, context: Any) -> str:
        take(body(message))
        return "SUCCESS"

    java = clients.push(group, topic)
    clients.listen(java, decide, orderly=True)
    first = consumer(python, group, listener, topic, ordered=True)
    producer = python(Producer, clients.name("producers"))
    for value in range(20):
        if value == 10:  # in the middle, the queues are shared anew
            second = consumer(python, group, listener, topic, ordered=True)
        for key in "abcdefghijkl":
            producer.send(Message(topic, f"{key}:{value}".encode()), select=by_hash, key=key)
    until(lambda: shared(owners([java], [first, second], topic)), 60)
    until(lambda: all(len(values[key]) >= 20 for key in "abcdefghijkl"), 30)
    # A message may come again where its queue was handed over in the midst of it: Java's client says how far it is
    # before it waits for its listener (RebalancePushImpl). None comes before one that was sent earlier.
    assert {key: list(dict.fromkeys(values[key])) for key in values} == {key: list(range(20)) for key in "abcdefghijkl"}


def test_a_key_goes_to_the_same_queue_from_both(clients: Clients, python: Callable[..., Any]) -> None:
    topic = clients.topic(7)
    producer, java = python(Producer, clients.name("producers")), clients.producer()
    selector = clients.java.named("org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash")()
    for key in ("order-17", "ö", "", "polygenelubricants", "a" * 100):
        ours = producer.send(Message(topic, b"x"), select=by_hash, key=key).queue
        theirs = java.send(clients.message(topic, None, "x"), selector, key).getMessageQueue()
        assert (ours.broker, ours.queue_id) == as_queue(theirs), key


def test_messages_are_the_same_to_both(clients: Clients, python: Callable[..., Any]) -> None:
    topic = clients.topic(1)
    seen: list[ReceivedMessage] = []

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Status:
        seen.extend(messages)
        return Status.SUCCESS

    consumer(python, clients.name("group"), listener, topic)
    got = clients.consume(topic)
    producer = python(Producer, clients.name("producers"))
    sent = producer.send(Message(topic, "größe".encode() * 2_000, tags="A", keys=["k1", "k2"], properties={"p": "ü"}))
    clients.producer().send(clients.message(topic, "B", "von Java" * 1_000, "k3", q="x"))
    until(lambda: len(seen) == 2)
    got.wait(2)
    seen.sort(key=lambda message: message.queue_offset)
    got.messages.sort(key=lambda message: message.getQueueOffset())
    for ours, theirs in zip(seen, got.messages, strict=True):
        assert ours.body == bytes(theirs.getBody())
        assert (ours.tags, " ".join(ours.keys)) == (theirs.getTags(), theirs.getKeys())
        assert ours.message_id == theirs.getMsgId()
        assert (ours.queue.broker, ours.queue.queue_id) == as_queue(theirs)
        assert ours.queue_offset == theirs.getQueueOffset()
        assert (ours.born_ms, ours.store_ms) == (theirs.getBornTimestamp(), theirs.getStoreTimestamp())
    assert got.messages[0].getUserProperty("p") == "ü"
    assert seen[1].properties["q"] == "x"
    assert sent.message_id == got.messages[0].getMsgId()


def test_javas_half_message_is_ended_by_python(clients: Clients, python: Callable[..., Any]) -> None:
    """A producer of the group that died may have been written in another language."""
    topic, group = clients.topic(1), clients.name("transactions")
    got = clients.consume(topic)
    java = clients.transactional(group, lambda message: "UNKNOW", lambda message: "UNKNOW")
    java.sendMessageInTransaction(clients.message(topic, None, "x"), None)
    clients.kill(java)

    class Listener:
        def execute_local_transaction(self, message: Message, argument: Any) -> TransactionState:
            return TransactionState.COMMIT

        def check_local_transaction(self, message: ReceivedMessage) -> TransactionState:
            return TransactionState.COMMIT if message.body == b"x" else TransactionState.ROLLBACK

    producer = python(TransactionProducer, group, Listener())
    producer.send_in_transaction(Message(topic, b"ours"))
    got.wait(2)
    assert sorted(got.bodies()) == ["ours", "x"]
