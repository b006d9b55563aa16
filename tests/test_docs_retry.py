"""docs/retry.md and docs/transactions.md: their loops run with each client, and lose nothing that is refused."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaProducer

import halfmoon.testing
from halfmoon.kafka import NotStoredError, TransactionalOutbox, attempts

ROOT = Path(__file__).parents[1]
PROGRAM = re.compile(r"<!-- test: ([a-z -]+) -->\n```python\n(.*?)```", re.DOTALL)
RETRY = dict(PROGRAM.findall((ROOT / "docs/retry.md").read_text(encoding="utf-8")))
OUTBOX = dict(PROGRAM.findall((ROOT / "docs/transactions.md").read_text(encoding="utf-8")))
CHECK_BACK = OUTBOX.pop("check-back")
CLIENTS = ["confluent-kafka", "kafka-python", "aiokafka"]


class StopLoop(BaseException):
    """Ends a loop that handles every Exception."""


@pytest.fixture(scope="module")
def broker() -> Iterator[halfmoon.testing.Broker]:
    plugins = {"delay": {"levels": "1ms 1ms 1ms"}, "transaction": {"timeout": "500ms", "check_interval": "500ms"}}
    with halfmoon.testing.Broker(config={"plugins": plugins}) as running:
        yield running


def run(program: str, broker: halfmoon.testing.Broker, **names: Any) -> dict[str, Any]:
    """Run a program of the docs; its group and its topics are its own, so that one does not see the other's."""
    assert "127.0.0.1:9092" in program
    space: dict[str, Any] = {"__name__": "docs", **names}
    try:
        exec(program.replace("127.0.0.1:9092", broker.bootstrap_servers), space)
    finally:
        if isinstance(producer := space.get("producer"), KafkaProducer):
            producer.close()
    return space


def value_of(record: Any) -> bytes:
    found: bytes = record.value() if callable(record.value) else record.value
    return found


def committed(broker: halfmoon.testing.Broker, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=10)
    consumer.close()
    return int(found.offset)


def send(broker: halfmoon.testing.Broker, topic: str, *records: tuple[bytes, dict[str, str]]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value, headers in records:
        producer.produce(topic, value, headers=headers)
    assert producer.flush(10) == 0


def retry_program(client: str) -> tuple[str, str, str]:
    """The program, its topic and its group."""
    topic = f"orders-{uuid.uuid4().hex}"
    group = f"billing-{uuid.uuid4().hex}"
    return RETRY[client].replace('"orders"', f'"{topic}"').replace('"billing"', f'"{group}"'), topic, group


def test_there_is_a_loop_for_each_client() -> None:
    assert set(RETRY) == set(CLIENTS)
    assert {client for clients in OUTBOX for client in clients.split()} == set(CLIENTS)


@pytest.mark.parametrize("client", CLIENTS)
def test_the_safe_loop(client: str, broker: halfmoon.testing.Broker) -> None:
    program, topic, group = retry_program(client)
    send(broker, topic, (b"good", {}), (b"bad", {}), (b"good", {}))
    handled: list[tuple[bytes, int]] = []

    def handle(record: Any) -> None:
        value, before = value_of(record), attempts(record)
        handled.append((value, before))
        if value == b"bad" and before < 2:
            raise RuntimeError("not now")
        if value == b"bad":
            raise StopLoop

    with pytest.raises(StopLoop):
        run(program, broker, handle=handle)
    assert sorted(handled) == [(b"bad", 0), (b"bad", 1), (b"bad", 2), (b"good", 0), (b"good", 0)]
    assert committed(broker, group, topic) == 3
    assert committed(broker, group, f"retry.{group}") == 1


@pytest.mark.parametrize("client", CLIENTS)
def test_the_safe_loop_commits_nothing_that_was_refused(client: str, broker: halfmoon.testing.Broker) -> None:
    program, topic, group = retry_program(client)
    send(broker, topic, (b"refused", {"RECONSUME_TIME": "many"}))

    def handle(record: Any) -> None:
        raise RuntimeError("never")

    with pytest.raises(NotStoredError, match=f"negative acknowledgement of {topic}/0/0 is not stored"):
        run(program, broker, handle=handle)
    assert committed(broker, group, topic) == -1001


@pytest.mark.parametrize("client", CLIENTS)
def test_the_outbox(client: str, broker: halfmoon.testing.Broker) -> None:
    ends: list[Callable[[], list[bytes]]] = []

    class Database:
        def __init__(self) -> None:
            self.committed: list[str] = []

        def commit(self, name: str) -> None:
            self.committed.append(name)
            assert ends[0]() == []

    program = next(text for clients, text in OUTBOX.items() if client in clients.split())
    topic = f"orders-{uuid.uuid4().hex}"
    name = f"order-{uuid.uuid4().hex}"
    if client == "kafka-python":
        program = program.replace("from confluent_kafka import Producer", "from kafka import KafkaProducer")
        program = program.replace(
            'Producer({"bootstrap.servers": "127.0.0.1:9092"})', 'KafkaProducer(bootstrap_servers="127.0.0.1:9092")'
        )
        assert "confluent" not in program
    program = program.replace('"orders"', f'"{topic}"').replace('"order-7"', f'"{name}"')

    def delivered(wait_s: float = 0.2) -> list[bytes]:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "docs"})
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(wait_s)
        consumer.close()
        return [] if message is None or message.error() else [message.value()]

    ends.append(delivered)
    database = Database()
    run(program, broker, database=database)
    assert database.committed == [name]
    assert delivered(30) == [b"order 7 was paid"]


@pytest.mark.parametrize("client", CLIENTS)
def test_the_outbox_does_not_commit_what_was_refused(client: str, broker: halfmoon.testing.Broker) -> None:
    class Database:
        def commit(self, name: str) -> None:
            raise AssertionError("the half message is not stored")

    program = next(text for clients, text in OUTBOX.items() if client in clients.split())
    with pytest.raises(NotStoredError, match="half message"):
        run(program.replace('"order-7"', '"' + "n" * 2_000 + '"'), broker, database=Database())


def test_check_backs_are_answered(broker: halfmoon.testing.Broker) -> None:
    """The database knows two of four transactions. At the fourth check-back the answers to the others are stored."""
    group, topic = f"shop-{uuid.uuid4().hex}", f"orders-{uuid.uuid4().hex}"
    asked: list[str] = []

    class Database:
        def __contains__(self, name: str) -> bool:
            if name not in asked and len(asked) == 3:
                raise StopLoop
            if name not in asked:
                asked.append(name)
            return name.startswith("paid")

    outbox = TransactionalOutbox(group, Producer({"bootstrap.servers": broker.bootstrap_servers}))
    for name in ("paid 1", "lost 1", "paid 2", "lost 2"):
        outbox.prepare(topic, name.encode(), transaction=name)
    outbox.close(10)
    assert CHECK_BACK.count('"shop') == 2
    with pytest.raises(StopLoop):
        run(CHECK_BACK.replace('"shop', f'"{group}'), broker, database=Database())
    paid = sorted(name.encode() for name in asked if name.startswith("paid"))
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "docs"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    delivered = [message.value() for message in consumer.consume(len(paid), timeout=30)]
    assert sorted(delivered) == paid
    assert consumer.poll(0.2) is None
    consumer.close()
