"""A JVM with RocketMQ's client, and a broker that it talks to."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from halfmoon.testing import Broker
from tests.clients.rocketmq.java import Clients, Java

_runs = itertools.count()


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    started = Java(tmp_path_factory.mktemp("java"))
    yield started
    started.stop()


@pytest.fixture(scope="session")
def rocketmq_broker() -> Iterator[Broker]:
    config = {
        "listeners": {"rocketmq": {"bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0"}},
        "topics": {"partitions": 4},
        # RocketMQ's are 1s 5s 10s 30s …; retries without a level begin with the third.
        "plugins": {
            "delay": {"levels": "1s 2s 500ms 1500ms 3s"},
            "transaction": {"timeout": "1s", "check_interval": "1s"},
        },
    }
    with Broker(config=config) as broker:
        yield broker


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A module says with which of the two headers its clients speak (HEADERS); JSON is the Java client's own choice."""
    if "clients" in metafunc.fixturenames:
        metafunc.parametrize("clients", getattr(metafunc.module, "HEADERS", ["JSON"]), indirect=True)


@pytest.fixture
def clients(request: pytest.FixtureRequest, java: Java, rocketmq_broker: Broker) -> Iterator[Clients]:
    java.serialize(request.param)
    made = Clients(java, rocketmq_broker, str(next(_runs)))
    yield made
    made.close()


@pytest.fixture
def topic(clients: Clients) -> str:
    """A topic with one queue."""
    return clients.topic()


@pytest.fixture
def producer(clients: Clients) -> Any:
    return clients.producer()
