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


def test_each_process_of_a_parallel_run_has_a_broker(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import os
        import pathlib
        import pytest

        @pytest.mark.parametrize("number", range(8))
        def test_it(halfmoon_broker, halfmoon_topic, number):
            halfmoon_broker.produce(halfmoon_topic, "one")
            assert len(halfmoon_broker.records(halfmoon_topic)) == 1
            with pathlib.Path(os.environ["SEEN"]).open("a") as seen:
                seen.write(halfmoon_broker.bootstrap_servers + " " + halfmoon_broker.data_dir + "\\n")
        """
    )
    seen = suite.path / "seen"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEEN", str(seen))
        run(suite, "-n", "2").assert_outcomes(passed=8)
    places = {line.split()[0]: line.split()[1] for line in seen.read_text().splitlines()}
    assert len(places) == 2
    assert len({Path(folder).parent for folder in places.values()}) == 2
    assert not any(Path(folder).parent.exists() for folder in places.values())


def test_a_broker_of_the_tests_own(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest

        seen = []

        @pytest.fixture(scope="session")
        def halfmoon_config():
            return {"topics": {"partitions": 3}}

        @pytest.mark.parametrize("number", range(2))
        def test_it(halfmoon_own_broker, number):
            seen.append(halfmoon_own_broker.data_dir)
            halfmoon_own_broker.produce("t", "one", partition=2)
            halfmoon_own_broker.kill()
            halfmoon_own_broker.restart()
            assert len(halfmoon_own_broker.records("t")) == 1

        def test_each_had_one():
            assert len(set(seen)) == 2
        """
    )
    run(suite).assert_outcomes(passed=3)


def test_failures_end_with_the_test(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        from confluent_kafka import Producer

        def test_it_fails(halfmoon_broker):
            halfmoon_broker.fail_next("Produce", "INVALID_RECORD", 1_000)
            halfmoon_broker.latency("1m")

        def test_it_does_not(halfmoon_broker, halfmoon_topic):
            producer = Producer({"bootstrap.servers": halfmoon_broker.bootstrap_servers})
            told = []
            producer.produce(halfmoon_topic, b"one", on_delivery=lambda error, _: told.append(error))
            assert producer.flush(10) == 0
            assert told == [None]
        """
    )
    run(suite).assert_outcomes(passed=2)


def test_a_coroutine(suite: pytest.Pytester) -> None:
    """With whatever plugin runs it; here none."""
    suite.makepyfile(
        """
        import asyncio

        def test_it(halfmoon_async_broker):
            async def test():
                await halfmoon_async_broker.produce("t", "later", headers={"TIMER_DELAY_SEC": "60"})
                await halfmoon_async_broker.advance("1m")
                return [each.value for each in await halfmoon_async_broker.records("t")]

            assert asyncio.run(test()) == [b"later"]
        """
    )
    run(suite).assert_outcomes(passed=1)
