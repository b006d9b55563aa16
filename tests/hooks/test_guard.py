"""Plugins that say exit(), and that take their time: the broker goes on, and says whose fault it is."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

import halfmoon.testing
from halfmoon.hooks.guard import LOGGED_S, SLOW_S, Guard, PluginExitError
from halfmoon.plugin import Dispatcher, FetchFilter, HoldPolicy, Observer, Put, PutInterceptor, Service, hookimpl


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def guard(clock: Clock) -> Guard:
    guard = Guard(clock)
    guard.runs_here()
    return guard


def leave(*_: object) -> Any:
    sys.exit(3)


NO_EXCEPTIONS = [
    SystemExit,
    KeyboardInterrupt,
    asyncio.CancelledError,
    GeneratorExit,
    type("Own", (BaseException,), {}),
]


@pytest.mark.parametrize("error", NO_EXCEPTIONS)
def test_what_would_end_the_process_becomes_an_exception(guard: Guard, error: type[BaseException]) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(PluginExitError, match="plugin mine: halfmoon_hold raised"):
        guard.wrap("mine", "halfmoon_hold", fail)()


def test_other_exceptions_stay_what_they_are(guard: Guard) -> None:
    def fail() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        guard.wrap("mine", "halfmoon_hold", fail)()


def test_slices_cannot_be_cancelled_by_what_they_raise(guard: Guard) -> None:
    """Only who awaits a task knows what to do with a CancelledError."""

    def slices() -> Generator[None, None, None]:
        yield
        raise asyncio.CancelledError

    made = guard.wrap("mine", "halfmoon_commitlog", slices)()
    next(made)
    with pytest.raises(PluginExitError, match="CancelledError"):
        next(made)


def test_slices_that_are_not_needed_any_more_end(guard: Guard) -> None:
    ended: list[str] = []

    def slices() -> Generator[None, None, None]:
        try:
            yield
        finally:
            ended.append("closed")

    made = guard.wrap("mine", "halfmoon_commitlog", slices)()
    next(made)
    made.close()
    assert ended == ["closed"]


def test_a_plugin_that_asks_for_a_cancelled_tasks_result_does_not_end_the_stop(tmp_path: Path) -> None:
    """As `task.result()` does in a plugin that cancels its own task at the stop."""

    class Plugin:
        api_version = 1

        @hookimpl
        def halfmoon_stopping(self) -> None:
            raise asyncio.CancelledError

    with halfmoon.testing.Broker(plugins=[Plugin()], data_dir=str(tmp_path)):
        assert not (tmp_path / "clean").exists()
    assert (tmp_path / "clean").exists()


def test_a_service_can_be_cancelled_and_cannot_exit(guard: Guard) -> None:
    steps: list[str] = []

    async def run() -> None:
        try:
            steps.append("begun")
            await asyncio.sleep(0)
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            steps.append("cancelled")
            raise

    async def exits() -> None:
        await asyncio.sleep(0)
        leave()

    async def main() -> None:
        service = guard.given("mine", "halfmoon_services", Service("s", run))
        task = asyncio.ensure_future(service.run())
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(PluginExitError):
            await guard.given("mine", "halfmoon_services", Service("s", exits)).run()

    asyncio.run(main())
    assert steps == ["begun", "cancelled"]


class Slow:
    needle = None
    takes_long = True

    def match(self, record: object) -> bool:
        raise SystemExit


def test_a_filter_is_guarded_and_stays_what_it_is(guard: Guard) -> None:
    compiled = guard.wrap("mine", "halfmoon_filters", lambda expression: Slow())("")
    assert (compiled.needle, compiled.takes_long) == (None, True)
    with pytest.raises(PluginExitError):
        compiled.match(None)


def test_slices_are_guarded_one_by_one(guard: Guard, clock: Clock) -> None:
    def slices(put: object) -> Generator[Any, Any, str]:
        got = yield 1
        clock.now += SLOW_S * 0.9
        got += yield 2
        clock.now += SLOW_S * 0.9
        return f"sent {got}"

    made = guard.wrap("mine", "halfmoon_commitlog", slices)("put")
    assert (next(made), made.send(10), guard.slow) == (1, 2, {})
    with pytest.raises(StopIteration) as stopped:
        made.send(5)
    assert stopped.value.value == "sent 15"


def test_who_holds_up_the_loop_is_counted_and_named_now_and_then(
    guard: Guard, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    def slow() -> None:
        clock.now += SLOW_S * 1.5

    call = guard.wrap("mine", "halfmoon_observers", slow)
    with caplog.at_level(logging.WARNING, "halfmoon.plugins"):
        for _ in range(5):
            call()
        assert len(caplog.records) == 1
        assert "event=plugin_slow plugin=mine hook=halfmoon_observers took_ms=150 calls=1" in caplog.text
        clock.now += LOGGED_S
        call()
        assert len(caplog.records) == 2
        assert "calls=6" in caplog.records[1].getMessage()
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    assert guard.slow == {("mine", "halfmoon_observers"): 6}, "in a thread it holds up nobody"


class Leaving:
    """A plugin whose every function says exit()."""

    __name__ = "leaving"
    api_version = 1
    where: str = ""

    @hookimpl
    def halfmoon_commitlog(self, ctx: object) -> list[PutInterceptor]:
        def slow(put: Put) -> memoryview:
            time.sleep(SLOW_S * 1.2)
            return put.batch

        return [PutInterceptor("leaving", ("LEAVE",), leave), PutInterceptor("slow", ("SLOW",), slow)]

    @hookimpl
    def halfmoon_observers(self, ctx: object) -> list[Observer]:
        return [Observer("leaving", on_produced=leave, on_fetched=leave)]

    @hookimpl
    def halfmoon_hold(self, ctx: object) -> list[HoldPolicy]:
        return [HoldPolicy("leaving", on_park=leave, matches=leave, on_expire=leave)]

    @hookimpl
    def halfmoon_dispatch(self, ctx: object) -> list[Dispatcher]:
        return [Dispatcher("leaving", leave, lambda: b"")]

    @hookimpl
    def halfmoon_fetch(self, ctx: object) -> list[FetchFilter]:
        return [FetchFilter("leaving", ("HIDE",), leave)]

    @hookimpl
    def halfmoon_services(self, ctx: object) -> list[Service]:
        async def run() -> None:
            leave()

        return [Service("leaving", run)]

    @hookimpl
    def halfmoon_authorize(self, operation: str, resource: str) -> bool | None:
        return leave() if resource == "guarded" else None

    @hookimpl
    def halfmoon_topic_changed(self, topic: str) -> None:
        leave()

    @hookimpl
    def halfmoon_stopping(self) -> None:
        leave()


@pytest.fixture(scope="module")
def broker() -> Iterator[halfmoon.testing.Broker]:
    with halfmoon.testing.Broker(plugins=[Leaving()]) as running:
        yield running


def produce(broker: halfmoon.testing.Broker, topic: str, **headers: str) -> KafkaError | None:
    told: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "retries": 0})
    producer.produce(topic, b"v", headers=headers, on_delivery=lambda error, _: told.append(error))
    assert producer.flush(20) == 0
    return told[0]


def test_no_hook_in_which_a_plugin_exits_ends_the_broker(broker: halfmoon.testing.Broker) -> None:
    refused = produce(broker, "orders", LEAVE="1")
    assert refused is not None
    assert refused.code() == -1, "UNKNOWN_SERVER_ERROR"
    assert produce(broker, "orders", HIDE="1") is None
    denied = produce(broker, "guarded")
    assert denied is not None
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    message = consumer.poll(20)
    consumer.close()
    assert message is not None
    assert (message.error(), message.value()) == (None, b"v")
    assert produce(broker, "orders") is None


def test_a_plugin_that_takes_its_time_is_named(
    broker: halfmoon.testing.Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "halfmoon.plugins"):
        assert produce(broker, "orders", SLOW="1") is None
    assert "event=plugin_slow plugin=leaving hook=halfmoon_commitlog" in caplog.text
