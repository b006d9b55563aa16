"""What all tests with Spark share: one session (a JVM takes 5 s to start and 1 GB), one broker.

Every test in this directory gets the marker `spark`. HALFMOON_TEST_BOOTSTRAP=HOST:PORT runs them against another
broker, a real Kafka above all, where topics named `flights…` must not exist yet.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from halfmoon.demo.load import ensure_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)
            # Over the limit for other tests: the first one waits for Spark to start and download its connector.
            item.add_marker(pytest.mark.timeout(300))
            # pyspark leaves the sockets it collects results through to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session of the whole test run."""
    from halfmoon.pipeline import session, stop

    started = session("halfmoon-tests", log_file=tmp_path_factory.mktemp("spark") / "spark.log")
    yield started
    stop(started)


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
