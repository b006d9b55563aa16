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
