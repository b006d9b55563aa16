"""Fixtures for pytest, there as soon as Halfmoon is installed.

    def test_something(halfmoon_broker, halfmoon_topic):
        producer = KafkaProducer(bootstrap_servers=halfmoon_broker.bootstrap_servers)
        producer.send(halfmoon_topic, b"hello").get(timeout=5)

Override the fixture `halfmoon_config` in a conftest.py to configure the broker as in broker.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from halfmoon.testing.broker import Broker


@pytest.fixture(scope="session")
def halfmoon_config() -> Mapping[str, Any]:
    """Sections as in broker.yaml, over the testing kit's defaults."""
    return {}


@pytest.fixture(scope="session")
def halfmoon_broker(halfmoon_config: Mapping[str, Any]) -> Iterator[Broker]:
    """One broker for the whole session; see `halfmoon.testing.Broker`."""
    from halfmoon.testing.broker import Broker

    with Broker(config=halfmoon_config) as broker:
        yield broker


_topics = iter(range(1 << 30))


@pytest.fixture
def halfmoon_topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test has, made when it is first used (one partition)."""
    test = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)[:200]
    return f"{test}-{next(_topics)}"
