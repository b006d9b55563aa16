"""What the tests with Spark share: one broker, and markers. The one session is a fixture of tests/conftest.py.

Every test in this directory gets the marker `spark`. HALFMOON_TEST_BOOTSTRAP=HOST:PORT runs them against another
broker, a real Kafka above all, where topics named `flights…` must not exist yet.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from halfmoon.demo.load import ensure_topic

HERE = str(Path(__file__).parent) + os.sep


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:  # of all folders: thousands
        if str(item.path).startswith(HERE):
            item.add_marker(pytest.mark.spark)
            # Over the limit for other tests: the first one waits for Spark to start and download its connector.
            item.add_marker(pytest.mark.timeout(600))
            # pyspark leaves the sockets it collects results through to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Where the broker under test answers."""
    given = os.environ.get("HALFMOON_TEST_BOOTSTRAP")
    return given or str(request.getfixturevalue("halfmoon_broker").bootstrap_servers)


@pytest.fixture
def make_topic(bootstrap: str) -> Callable[[int], str]:
    """Creates a topic of so many partitions under a name of its own."""

    def make(partitions: int = 1) -> str:
        name = f"spark-{uuid.uuid4().hex[:12]}"
        assert ensure_topic(bootstrap, name, partitions) == partitions
        return name

    return make


@pytest.fixture
def topic(make_topic: Callable[[int], str]) -> str:
    """A topic with one partition."""
    return make_topic(1)
