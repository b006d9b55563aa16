"""What the tests of other people's clients share. They run against a real Kafka too: see `bootstrap_servers`."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from halfmoon.testing import Broker

_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    """A topic or group name that no other test has, nor an earlier run against the same broker."""
    return f"clients-{os.getpid()}-{next(_numbers)}"


@pytest.fixture(scope="module")
def admin(bootstrap_servers: str) -> AdminClient:
    """confluent's, whichever client is tested: it makes the topics."""
    return AdminClient({"bootstrap.servers": bootstrap_servers})


@pytest.fixture
def make_topic(admin: AdminClient, name: str) -> Iterator[Callable[..., str]]:
    """`make_topic(3, **{"max.message.bytes": "100000"})` creates a topic of 3 partitions and returns its name."""
    made: list[str] = []

    def make(partitions: int = 1, **configs: str) -> str:
        topic = f"{name}-{len(made)}"
        # Records of 1970 are what tests like: a real Kafka would delete them at once.
        new = NewTopic(topic, partitions, 1, config={"retention.ms": "-1", **configs})
        admin.create_topics([new])[topic].result(10)
        made.append(topic)
        return topic

    yield make
    if made:
        for future in admin.delete_topics(made).values():
            future.exception(10)


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    """A topic with one partition."""
    return make_topic()


@pytest.fixture
def members(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """`members(…)` starts a Member of the test's module. Those that are there at the end leave."""
    started: list[Any] = []

    def start(*arguments: Any, **settings: Any) -> Any:
        started.append(request.module.Member(*arguments, **settings))
        return started[-1]

    yield start
    for member in started:
        if member.is_alive():
            member.leave()


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    """A broker of the test's own, to be restarted. It comes back at the same address."""
    with Broker(config={"log": {"segment_bytes": "1MiB"}, "groups": {"initial_rebalance_delay": "50ms"}}) as broker:
        yield broker
