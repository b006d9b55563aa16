"""Outbox and loops against a secured broker, as users with no more rights than docs/outbox.md says, and with fewer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer

from halfmoon.kafka import AsyncConsumerLoop, ConsumerLoop, NotStoredError, TransactionalOutbox
from halfmoon.outbox import State
from halfmoon.testing import Broker

sqlalchemy = pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed: pip install 'halfmoon[outbox]'")

from halfmoon.outbox.sqlalchemy import Outbox  # noqa: E402

SETTINGS = {"plugins": {"transaction": {"timeout": "200ms", "check_interval": "300ms", "check_max": 100}}}
WAIT_S = 30


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(config=SETTINGS, secure=True) as running:
        yield running


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Any]:
    made = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'shop.sqlite'}")
    yield made
    made.dispose()


def produce(broker: Broker, topic: str, value: bytes) -> None:
    """As the super user, who has the topic made."""
    producer = Producer(broker.client_config())
    producer.produce(topic, value)
    assert producer.flush(WAIT_S) == 0


def test_the_rights_that_the_page_names(broker: Broker, engine: Any) -> None:
    produce(broker, "orders", b"first")
    broker.create_user("shop")
    broker.allow("shop", "topic:orders", "Write")
    broker.allow("shop", "transactional-id:shop", "Write")
    broker.create_user("checker")
    broker.allow("checker", "transactional-id:shop", "Write")
    broker.allow("checker", "group:shop-checks", "Read")
    outbox = Outbox("shop", Producer(broker.client_config("shop")), engine)
    outbox.create_table()
    with outbox.transaction(transaction_id="t") as tx:
        tx.send("orders", b"with its end")
    half = TransactionalOutbox("shop", Producer(broker.client_config("shop")))
    half.prepare("orders", b"by a check-back", transaction="t#1")[1].result(WAIT_S)
    answering = Outbox("shop", Producer(broker.client_config("checker")), engine)
    answer, told = answering.answer, []

    def answered(check: Any) -> State | None:
        told.append(answer(check))
        loop.stop()
        return told[-1]

    answering.answer = answered  # type: ignore[method-assign]
    settings = {"group.id": "shop-checks", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    loop = answering.check_back_loop(Consumer({**broker.client_config("checker"), **settings}))
    loop.run()
    assert told == [State.COMMITTED]
    reader = Consumer({**broker.client_config(), "group.id": "look"})
    reader.assign([TopicPartition("orders", 0, 0)])
    found = [message.value() for message in reader.consume(3, timeout=WAIT_S)]
    reader.close()
    assert found == [b"first", b"with its end", b"by a check-back"]


def test_without_them_nothing_is_committed(broker: Broker, engine: Any) -> None:
    produce(broker, "others", b"first")
    broker.create_user("stranger")
    broker.allow("stranger", "topic:others", "Write")
    outbox = Outbox("others", Producer(broker.client_config("stranger")), engine)
    outbox.create_table()
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE orders (number INTEGER)"))
    with pytest.raises(NotStoredError, match=r"(?i)authoriz"), outbox.transaction() as tx:
        tx.session.execute(sqlalchemy.text("INSERT INTO orders VALUES (1)"))
        tx.send("others", b"never")
    with engine.connect() as connection:
        assert connection.execute(sqlalchemy.text("SELECT * FROM orders")).all() == []


@pytest.mark.parametrize("kind", ["confluent-kafka", "kafka-python", "aiokafka"])
@pytest.mark.parametrize("lacking", ["topic", "group"])
def test_a_loop_without_a_right_ends(broker: Broker, kind: str, lacking: str) -> None:
    """It does not wait for ever for records that it will never get."""
    topic, user = f"watched-{kind}-{lacking}", f"reader-{kind}-{lacking}"
    produce(broker, topic, b"first")
    broker.create_user(user)
    broker.allow(user, f"topic:{topic if lacking == 'group' else 'another'}", "Read")
    broker.allow(user, f"group:{user if lacking == 'topic' else 'another'}", "Read")

    def handle(record: Any) -> None:
        raise AssertionError

    if kind == "confluent-kafka":
        settings = {"group.id": user, "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0}
        loop: Any = ConsumerLoop(Consumer({**broker.client_config(user), **settings}), [topic], handle)
        with pytest.raises(Exception, match=r"(?i)authoriz"):
            loop.run()
        return
    options = {"group_id": user, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    if kind == "kafka-python":
        loop = ConsumerLoop(KafkaConsumer(**broker.kafka_python_config(user), **options), [topic], handle)
        with pytest.raises(Exception, match=r"(?i)authoriz"):
            loop.run()
        return

    async def run() -> None:
        consumer = AIOKafkaConsumer(**broker.kafka_python_config(user), **options)
        with pytest.raises(Exception, match=r"(?i)authoriz"):
            await AsyncConsumerLoop(consumer, [topic], handle).run()

    asyncio.run(run())
