"""Fixtures for pytest, there as soon as Halfmoon is installed.

    def test_something(halfmoon_broker, halfmoon_topic):
        producer = KafkaProducer(bootstrap_servers=halfmoon_broker.bootstrap_servers)
        producer.send(halfmoon_topic, b"hello").get(timeout=5)

Override the fixture `halfmoon_config` in a conftest.py to configure the broker as in broker.yaml. None of the fixtures
is a coroutine, so they work with pytest-asyncio and anyio, in every mode.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from halfmoon.testing.aio import AsyncBroker
    from halfmoon.testing.broker import Broker

_shared: list[Broker] = []
"""The session's broker, if a test has used it."""


@pytest.fixture(scope="session")
def halfmoon_config() -> Mapping[str, Any]:
    """Sections as in broker.yaml, over the testing kit's defaults."""
    return {}


@pytest.fixture(scope="session")
def halfmoon_broker(halfmoon_config: Mapping[str, Any]) -> Iterator[Broker]:
    """One broker for the whole session; see `halfmoon.testing.Broker`. With pytest-xdist, one for each worker."""
    from halfmoon.testing.broker import Broker

    with Broker(config=halfmoon_config) as broker:
        _shared.append(broker)
        yield broker
        _shared.remove(broker)


@pytest.fixture
def halfmoon_own_broker(halfmoon_config: Mapping[str, Any]) -> Iterator[Broker]:
    """A broker of the test's own, which it may kill, and whose time it may move."""
    from halfmoon.testing.broker import Broker

    with Broker(config=halfmoon_config) as broker:
        yield broker


@pytest.fixture
def halfmoon_async_broker(halfmoon_own_broker: Broker) -> AsyncBroker:
    """The same for a test that is a coroutine; see `halfmoon.testing.AsyncBroker`."""
    from halfmoon.testing.aio import AsyncBroker

    return AsyncBroker(halfmoon_own_broker)


_topics = iter(range(1 << 30))


@pytest.fixture
def halfmoon_topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test has, made when it is first used (one partition)."""
    test = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)[:200]
    return f"{test}-{next(_topics)}"


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """What a test has the session's broker do to its clients ends with the test."""
    for broker in _shared:
        broker.heal()
