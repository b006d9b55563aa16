"""The rules of a consumer's loop, with a consumer that is made up: what is handled again, handed to the broker,
committed, and what a stop leaves."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from halfmoon.kafka import ConsumerLoop, DeadLetter, NotStoredError, RetryLater

Offsets = dict[tuple[str, int], int]


def record(value: str, offset: int, topic: str = "orders", error: Any = None) -> Any:
    fields = {
        "topic": topic, "partition": 0, "offset": offset, "key": None, "value": value, "headers": None, "error": error,
        "timestamp": (1, 1_700_000_000_000),
    }  # fmt: skip
    return SimpleNamespace(**{name: (lambda content=content: content) for name, content in fields.items()})


class World:
    """A consumer of confluent-kafka, and a Nack, as far as the loop needs them."""

    topic = "retry.billing"

    def __init__(self, *batches: list[Any]) -> None:
        self.batches = list(batches)
        self.steps: list[str] = []
        self.errors: list[BaseException | None] = []
        self.failures: dict[str, Exception] = {}
        self.loop: ConsumerLoop | None = None

    def take(self, step: str) -> None:
        self.steps.append(step)
        if step in self.failures:
            raise self.failures[step]

    # -- the consumer

    def subscribe(self, topics: list[str]) -> None:
        self.take(f"subscribe {' '.join(topics)}")

    def consume(self, most: int, timeout: float) -> list[Any]:
        if not self.batches:
            assert self.loop is not None
            self.loop.stop()
            return []
        return self.batches.pop(0)

    def commit(self, offsets: list[Any], asynchronous: bool) -> list[Any]:
        assert not asynchronous
        self.take("commit " + " ".join(f"{each.topic}/{each.partition}={each.offset}" for each in offsets))
        return [SimpleNamespace(error=None)]

    def close(self) -> None:
        self.take("close")

    # -- the Nack

    def __call__(
        self,
        record: Any,
        *,
        delay_ms: int | None = None,
        level: int | None = None,
        error: BaseException | None = None,
    ) -> None:
        self.errors.append(error)
        self.take(f"nack {record.value()}" + (f" {delay_ms or level}" if delay_ms or level else ""))

    def dead_letter(self, record: Any, *, error: BaseException | None = None) -> None:
        self.errors.append(error)
        self.take(f"dead letter {record.value()}")

    def flush(self, timeout: float) -> None:
        self.take("flush")

    def run(self, handle: Callable[[Any], object], *, nack: bool = True, **options: Any) -> ConsumerLoop:
        helper: Any = self if nack else None
        self.loop = ConsumerLoop(self, ["orders"], handle, nack=helper, backoff_s=0, **options)
        self.loop.run()
        return self.loop


def fail(error: Exception | type[BaseException]) -> Callable[[Any], None]:
    def handle(each: Any) -> None:
        if each.value().startswith("bad"):
            raise error

    return handle


def test_a_batch_is_committed_once_its_nacks_are_stored() -> None:
    world = World([record("a", 0), record("bad", 1), record("c", 2)], [record("d", 7, "retry.billing")])
    loop = world.run(fail(RuntimeError("not now")))
    assert world.steps == [
        "subscribe orders retry.billing", "nack bad", "flush", "commit orders/0=3", "flush",
        "commit retry.billing/0=8", "close",
    ]  # fmt: skip
    assert (loop.handled, loop.nacked, loop.dead_lettered) == (3, 1, 0)


def test_a_handler_decides() -> None:
    world = World([record("bad", 0)])
    world.run(fail(RetryLater("busy", delay_ms=500)), retries=5)
    assert world.steps[1] == "nack bad 500"
    assert world.errors == [None], "no policy decides otherwise"
    world = World([record("bad", 0)])
    world.run(fail(RetryLater(level=7)))
    assert world.steps[1] == "nack bad 7"
    world = World([record("bad", 0)])
    loop = world.run(fail(DeadLetter("nonsense")), retries=5)
    assert world.steps[1] == "dead letter bad"
    assert (loop.nacked, loop.dead_lettered) == (0, 1)


def test_exceptions_that_no_retry_helps() -> None:
    world = World([record("bad 1", 0), record("bad 2", 1)])
    raised = [UnicodeDecodeError("utf-8", b"", 0, 1, "no text"), KeyError("k")]
    errors = iter(raised)

    def handle(_: Any) -> None:
        raise next(errors)

    world.run(handle, no_retry=[ValueError])
    assert world.steps[1:3] == ["dead letter bad 1", "nack bad 2"]
    assert world.errors == raised, "the group's retry policy and the dead letter say why"


def test_attempts_here_come_first(caplog: pytest.LogCaptureFixture) -> None:
    attempts: list[int] = []

    def handle(_: Any) -> None:
        attempts.append(1)
        if len(attempts) < 3:
            raise RuntimeError("not now")

    world = World([record("a", 5)])
    assert world.run(handle, retries=2).handled == 1
    assert world.steps[1:3] == ["flush", "commit orders/0=6"]
    world = World([record("bad", 0)])
    world.run(fail(RuntimeError("not now")), retries=2)
    assert world.steps[1] == "nack bad"
    assert "event=handler_failed topic=orders partition=0 offset=0 attempt=3 error=RuntimeError" in caplog.text


def test_back_off_doubles_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(ConsumerLoop, "_sleep", lambda self, seconds: waits.append(seconds))
    world = World([record("bad", 0)])
    world.loop = ConsumerLoop(world, ["orders"], fail(RuntimeError()), nack=world, retries=12, backoff_s=0.1)  # type: ignore[arg-type]
    world.loop.run()
    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30, 30])


def test_without_a_nack_the_loop_ends_and_commits_what_was_handled() -> None:
    world = World([record("a", 0), record("bad", 1), record("c", 2)])
    with pytest.raises(RuntimeError, match="not now"):
        world.run(fail(RuntimeError("not now")), nack=False, retries=1)
    assert world.steps == ["subscribe orders", "commit orders/0=1", "close"]


def test_what_is_no_exception_ends_it_too() -> None:
    world = World([record("a", 0), record("bad", 1)])
    with pytest.raises(SystemExit):
        world.run(fail(SystemExit))
    assert world.steps[1:] == ["flush", "commit orders/0=1", "close"]


def test_nothing_is_committed_where_a_nack_is_refused() -> None:
    world = World([record("a", 0), record("bad", 1)])
    world.failures["flush"] = NotStoredError("refused")
    with pytest.raises(NotStoredError):
        world.run(fail(RuntimeError()))
    assert world.steps[1:] == ["nack bad", "flush", "close"]


def test_a_stop_leaves_the_rest_of_the_batch() -> None:
    world = World([record(str(number), number) for number in range(9)])

    def handle(each: Any) -> None:
        if each.value() == "4":
            assert world.loop is not None
            world.loop.stop()

    world.run(handle)
    assert world.steps[1:] == ["flush", "commit orders/0=5", "close"]


def test_a_stop_ends_the_attempts() -> None:
    def handle(_: Any) -> None:
        assert world.loop is not None
        world.loop.stop()
        raise RuntimeError

    world = World([record("bad", 0)])
    world.run(handle, retries=1_000_000)
    assert world.steps[1] == "nack bad"


def test_a_stop_ends_a_back_off() -> None:
    world = World([record("bad", 0)])
    started = threading.Event()

    def handle(_: Any) -> None:
        started.set()
        raise RuntimeError

    world.loop = ConsumerLoop(world, ["orders"], handle, nack=world, retries=9, backoff_s=30)  # type: ignore[arg-type]
    thread = threading.Thread(target=world.loop.run)  # not the main thread: no signals
    thread.start()
    assert started.wait(20)
    world.loop.stop()
    thread.join(20)
    assert not thread.is_alive()
    assert world.steps[1] == "nack bad"


class TestSignals:
    def test_a_signal_stops_it_and_handlers_are_as_before(self) -> None:
        before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
        world = World([record(str(number), number) for number in range(3)])

        def handle(each: Any) -> None:
            if each.value() == "1":
                os.kill(os.getpid(), signal.SIGTERM)

        world.run(handle)
        assert world.steps[1:] == ["flush", "commit orders/0=2", "close"]
        assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before

    def test_a_second_one_does_what_it_always_does(self) -> None:
        world = World([record("a", 0)])

        def handle(_: Any) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

        with pytest.raises(KeyboardInterrupt):
            world.run(handle)
        assert world.steps[-1] == "close"

    def test_others_and_none(self) -> None:
        world = World([record("a", 0), record("b", 1)])
        world.run(lambda each: os.kill(os.getpid(), signal.SIGUSR1), signals=[signal.SIGUSR1])
        assert world.steps[2] == "commit orders/0=1"
        world = World([record("a", 0)])
        with pytest.raises(KeyboardInterrupt):
            world.run(lambda each: os.kill(os.getpid(), signal.SIGINT), signals=[])


class TestErrors:
    def error(self, code: int, *, fatal: bool = False) -> KafkaError:
        return KafkaError(code, "said", fatal)

    def test_errors_that_pass_are_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        passing = [record("", 0, error=self.error(code)) for code in (KafkaError._PARTITION_EOF, KafkaError._TRANSPORT)]
        world = World([*passing, record("a", 1)])
        assert world.run(lambda each: None).handled == 1
        assert caplog.text.count("event=consumer_error") == 1

    @pytest.mark.parametrize(
        ("code", "fatal"), [(KafkaError.TOPIC_AUTHORIZATION_FAILED, False), (KafkaError._TIMED_OUT, True)]
    )
    def test_errors_that_do_not_pass_end_it(self, code: int, fatal: bool) -> None:
        world = World([record("", 0, error=self.error(code, fatal=fatal))])
        with pytest.raises(KafkaException):
            world.run(lambda each: None)
        assert world.steps[-1] == "close"

    def test_a_commit_that_came_too_late_is_no_error(self, caplog: pytest.LogCaptureFixture) -> None:
        world = World([record("a", 0)], [record("b", 9)])
        world.failures["commit orders/0=1"] = KafkaException(self.error(KafkaError.ILLEGAL_GENERATION))
        assert world.run(lambda each: None).handled == 2
        assert world.steps[-3:] == ["flush", "commit orders/0=10", "close"]
        assert "event=commit_lost" in caplog.text

    def test_another_error_of_a_commit_ends_it(self) -> None:
        world = World([record("a", 0)])
        world.failures["commit orders/0=1"] = KafkaException(self.error(KafkaError.GROUP_AUTHORIZATION_FAILED))
        with pytest.raises(KafkaException):
            world.run(lambda each: None)
        assert world.steps[-1] == "close"

    def test_of_one_partition(self) -> None:
        world = World([record("a", 0)])
        world.commit = lambda offsets, asynchronous: [  # type: ignore[method-assign]
            SimpleNamespace(error=self.error(KafkaError.OFFSET_METADATA_TOO_LARGE))
        ]
        with pytest.raises(KafkaException):
            world.run(lambda each: None)


def test_it_calls_between_polls() -> None:
    calls: list[int] = []
    World([record("a", 0)]).run(lambda each: None, on_poll=lambda: calls.append(1))
    assert len(calls) == 2


def test_what_is_refused() -> None:
    with pytest.raises(TypeError, match="not one name"):
        ConsumerLoop(World(), "orders", print)
    with pytest.raises(ValueError, match="not negative"):
        ConsumerLoop(World(), ["orders"], print, retries=-1)
    with pytest.raises(TypeError, match="AsyncConsumerLoop"):
        ConsumerLoop(SimpleNamespace(getmany=None), ["orders"], print)
    with pytest.raises(ValueError, match="enable_auto_commit=False"):
        ConsumerLoop(SimpleNamespace(config={"enable_auto_commit": True}), ["orders"], print)
