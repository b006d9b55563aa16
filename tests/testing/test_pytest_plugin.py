"""The pytest plugin in somebody else's test suite: run in a pytest of its own."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """An empty test suite of a project that has Halfmoon installed."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]))
    if "halfmoon" not in {entry.name for entry in importlib.metadata.entry_points(group="pytest11")}:
        pytester.makeconftest("pytest_plugins = ['halfmoon.testing.pytest_plugin']")
    return pytester


def run(suite: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Warnings are errors there: what the broker imports must not cost its users a filter."""
    return suite.runpytest_subprocess("-q", "-W", "error", *arguments)


def test_a_broker_and_topics(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest
        from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

        seen = []

        @pytest.mark.parametrize("value", [b"one", b"two", b"a/b c"])
        def test_round_trip(halfmoon_broker, halfmoon_topic, value):
            seen.append((halfmoon_broker, halfmoon_topic))
            servers = {"bootstrap.servers": halfmoon_broker.bootstrap_servers}
            producer = Producer(servers)
            producer.produce(halfmoon_topic, value)
            assert producer.flush(10) == 0
            consumer = Consumer({**servers, "group.id": "unused"})
            consumer.assign([TopicPartition(halfmoon_topic, 0, OFFSET_BEGINNING)])
            (message,) = consumer.consume(1, timeout=10)
            assert (message.value(), message.offset()) == (value, 0)
            consumer.close()

        def test_one_broker_and_a_topic_each():
            assert len({id(broker) for broker, _ in seen}) == 1
            assert len({topic for _, topic in seen}) == 3
        """
    )
    run(suite).assert_outcomes(passed=4)


def test_the_configuration_can_be_overridden(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="session")
        def halfmoon_config():
            return {"topics": {"partitions": 3}}

        def test_it(halfmoon_broker):
            assert halfmoon_broker.app.settings.topics.partitions == 3
        """
    )
    run(suite).assert_outcomes(passed=1)


def test_a_wrong_configuration_is_an_error_that_names_it(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="session")
        def halfmoon_config():
            return {"topics": {"partition": 3}}

        def test_it(halfmoon_broker):
            pass
        """
    )
    result = run(suite)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*$.topics.partition: no such setting; did you mean partitions?*"])


def test_who_does_not_ask_for_a_broker_gets_none(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import sys

        def test_nothing_of_it_was_imported():
            assert "halfmoon.server.app" not in sys.modules
            assert "halfmoon.core.kernel" not in sys.modules
            assert "kafka" not in sys.modules
        """
    )
    run(suite).assert_outcomes(passed=1)
