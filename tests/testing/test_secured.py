"""A broker for tests that wants TLS and a password: clients get what they need, and nobody else gets in."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer

from halfmoon.securing import read
from halfmoon.securing.clients import librdkafka
from halfmoon.testing import Broker

QUIET = {"log_level": 0}


@pytest.fixture(scope="module")
def broker() -> Any:
    with Broker(secure=True) as made:
        yield made


def produce(broker: Broker) -> int:
    producer = Producer(broker.client_config() | QUIET)
    producer.produce("t", b"v")
    return producer.flush(10)


def test_confluent_kafka(broker: Broker) -> None:
    assert produce(broker) == 0
    assert "t" in AdminClient(broker.client_config()).list_topics(timeout=10).topics


def test_kafka_python(broker: Broker) -> None:
    producer = KafkaProducer(**broker.kafka_python_config())
    assert producer.send("k", b"v").get(10).offset == 0
    producer.close()


def test_aiokafka(broker: Broker) -> None:
    async def run() -> int:
        async with AIOKafkaProducer(**broker.kafka_python_config()) as producer:
            found: int = (await producer.send_and_wait("a", b"v")).offset
            return found

    assert asyncio.run(run()) == 0


@pytest.mark.parametrize(
    "missing", ["security.protocol", "ssl.ca.location", "sasl.password"],
)  # fmt: skip
def test_nobody_else_gets_in(broker: Broker, missing: str) -> None:
    config = broker.client_config() | QUIET
    if missing == "sasl.password":
        config[missing] = "guessed"
    else:
        del config[missing]
        if missing == "security.protocol":
            config = {name: value for name, value in config.items() if not name.startswith(("sasl", "ssl"))}
    failed: list[object] = []
    client = AdminClient(config | {"error_cb": failed.append})
    with pytest.raises(Exception, match=r"timed out|Local"):
        client.list_topics(timeout=2)


def test_the_password_stays_over_a_restart_and_files_go(tmp_path: Path) -> None:
    for _ in range(2):
        with Broker(secure=True, data_dir=str(tmp_path / "data")) as broker:
            assert produce(broker) == 0
            broker.restart()
            assert produce(broker) == 0
            ca = Path(broker.client_config()["ssl.ca.location"])
            assert ca.exists()
        del broker
        assert not ca.parent.exists()


def test_one_that_is_not_secure() -> None:
    with Broker() as broker:
        assert broker.client_config() == {"bootstrap.servers": broker.bootstrap_servers}
        assert broker.kafka_python_config() == {"bootstrap_servers": broker.bootstrap_servers}


def test_others_may_do_what_they_are_allowed(broker: Broker) -> None:
    broker.create_user("alice")
    broker.allow("alice", "topic:orders.", "Write", "Create", prefixed=True)
    broker.allow("alice", "cluster", "idempotent_write")
    broker.deny("alice", "topic:orders.secret", "ALL")
    said: dict[Any, Any] = {}
    producer = Producer(broker.client_config("alice") | QUIET)
    for topic in ("orders.paid", "orders.secret", "t"):
        producer.produce(
            topic, b"v", on_delivery=lambda error, message: said.update({message.topic(): error and error.name()})
        )
    assert producer.flush(10) == 0
    assert said == {"orders.paid": None, "orders.secret": "TOPIC_AUTHORIZATION_FAILED", "t": said["orders.secret"]}
    assert KafkaProducer(**broker.kafka_python_config("alice")).send("orders.paid", b"v").get(10).offset == 1


def test_users_with_a_password_of_the_tests_and_over_a_restart() -> None:
    with Broker(secure=True) as broker:
        broker.create_user("bob", "s3cret")
        broker.allow("bob", "topic:t", "Read", "Write", "Create")
        assert broker.client_config("bob")["sasl.password"] == "s3cret"
        broker.create_user("bob", "changed")
        broker.restart()
        producer = Producer(broker.client_config("bob") | QUIET)
        producer.produce("t", b"v")
        assert producer.flush(10) == 0
        with pytest.raises(ValueError, match="there is no user 'carol'"):
            broker.client_config("carol")


def test_the_file_is_understood_and_nobody_elses(broker: Broker) -> None:
    file = broker.client_properties()
    assert file.stat().st_mode & 0o077 == 0
    security = read(file, pytest.fail)
    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers, **librdkafka(security)})
    assert client.list_topics(timeout=10).cluster_id


@pytest.mark.parametrize(
    ("resource", "operations", "said"),
    [
        ("orders", ("Read",), "'orders' is no resource: topic:NAME"),
        ("topic:", ("Read",), "'topic:' is no resource"),
        ("topic:orders", ("Read", "Eat"), "'Eat' is no operation"),
        ("topic:orders", (), "no operation was named"),
    ],
)
def test_what_is_no_rule(broker: Broker, resource: str, operations: tuple[str, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        broker.allow("alice", resource, *operations)


def test_users_and_rules_are_for_secure_brokers() -> None:
    with Broker() as broker:
        for ask in (
            broker.client_properties,
            lambda: broker.create_user("a"),
            lambda: broker.allow("a", "cluster", "Alter"),
        ):
            with pytest.raises(AssertionError, match="not secure"):
                ask()
