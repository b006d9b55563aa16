"""The testing kit with RocketMQ's protocol: time, failures, kills."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from halfmoon.client import ConsumeFrom, Message, Producer, PushConsumer, Status, TransactionProducer, TransactionState
from halfmoon.testing import Broker

LISTENERS = {"listeners": {"rocketmq": {"bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0"}}}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(config=LISTENERS) as made:
        yield made


@pytest.fixture(autouse=True)
def _healed(broker: Broker) -> Iterator[None]:
    yield
    broker.heal()


def test_a_delayed_message(broker: Broker, halfmoon_topic: str) -> None:
    with Producer("p", namesrv=broker.namesrv) as producer:
        producer.send(Message(halfmoon_topic, b"later", delay_ms=3_600_000))
    broker.advance("1h")
    assert [each.value for each in broker.records(halfmoon_topic)] == [b"later"]


def test_redeliveries_come_at_once_and_consumers_stay(broker: Broker, halfmoon_topic: str) -> None:
    """Three times it fails: the delays between are 10 s, 30 s and 1 m."""
    seen: list[int] = []
    waits = threading.Semaphore(0)

    def listener(messages: object, _context: object) -> Status:
        seen.append(messages[0].reconsume_times)  # type: ignore[index]
        waits.release()
        return Status.RECONSUME_LATER if len(seen) < 4 else Status.SUCCESS

    broker.produce(halfmoon_topic, "x")
    consumer = PushConsumer(
        halfmoon_topic, listener, {halfmoon_topic: "*"}, namesrv=broker.namesrv, consume_from=ConsumeFrom.FIRST
    )
    begun_s = time.monotonic()
    with consumer:
        for _ in range(4):
            until_s = time.monotonic() + 40
            while not waits.acquire(timeout=0.5):
                broker.advance("10m")
                assert time.monotonic() < until_s
    assert seen == [0, 1, 2, 3]
    assert time.monotonic() - begun_s < 80


def test_consumers_stay_though_they_were_silent(broker: Broker, halfmoon_topic: str) -> None:
    got = threading.Semaphore(0)

    def listener(_messages: object, _context: object) -> Status:
        got.release()
        return Status.SUCCESS

    app = broker.app
    assert app is not None
    assert app.rocketmq is not None
    counters = app.rocketmq.counters
    broker.produce(halfmoon_topic, "one")
    consumer = PushConsumer(
        halfmoon_topic, listener, {halfmoon_topic: "*"}, namesrv=broker.namesrv, consume_from=ConsumeFrom.FIRST
    )
    with consumer:
        assert got.acquire(timeout=40)
        before = counters.accepted, counters.connections
        broker.advance("1d")
        broker._in_loop(lambda app: app.rocketmq and app.rocketmq.node._sweep())
        broker._in_loop(lambda app: app.rocketmq and app.rocketmq._sweep())
        broker.produce(halfmoon_topic, "two")
        assert got.acquire(timeout=40)
        assert (counters.accepted, counters.connections) == before


class Undecided:
    """A listener that knows nothing at first."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def execute_local_transaction(self, message: Message, argument: object) -> TransactionState:
        return TransactionState.UNKNOWN

    def check_local_transaction(self, message: object) -> TransactionState:
        self.asked.set()
        return TransactionState.COMMIT


def test_check_backs_come_at_once(broker: Broker, halfmoon_topic: str) -> None:
    listener = Undecided()
    with TransactionProducer(halfmoon_topic, listener, namesrv=broker.namesrv) as producer:
        producer.send_in_transaction(Message(halfmoon_topic, b"half"))
        until_s = time.monotonic() + 40
        while not listener.asked.wait(0.3):
            broker.advance("1m")
            assert time.monotonic() < until_s
        assert [each.value for each in broker.records(halfmoon_topic, at_least=1)] == [b"half"]


def test_a_producer_sends_again(broker: Broker, halfmoon_topic: str) -> None:
    with Producer("p", namesrv=broker.namesrv) as producer:
        producer.send(Message(halfmoon_topic, b"zero"))
        failure = broker.fail_next("SEND_MESSAGE_V2", "SYSTEM_BUSY")
        producer.send(Message(halfmoon_topic, b"one"))
        assert failure.met == 1
        lost = broker.disconnect("SEND_MESSAGE_V2", handled=True)
        assert lost is not None
        producer.send(Message(halfmoon_topic, b"two"))  # at least once, as RocketMQ's producers do
        assert lost.met == 1
    found = [each.value for each in broker.records(halfmoon_topic)]
    assert found.count(b"one") == 1
    assert found.count(b"two") == 2


def test_a_request_that_is_refused_has_done_nothing(broker: Broker, halfmoon_topic: str) -> None:
    with Producer("p", namesrv=broker.namesrv) as producer:
        producer.send(Message(halfmoon_topic, b"zero"))
        refused = broker.disconnect("SEND_MESSAGE_V2")
        assert refused is not None
        producer.send(Message(halfmoon_topic, b"one"))
        assert refused.met == 1
    assert sorted(each.value or b"" for each in broker.records(halfmoon_topic)) == [b"one", b"zero"]


def test_answers_are_late(broker: Broker, halfmoon_topic: str) -> None:
    with Producer("p", namesrv=broker.namesrv) as producer:
        producer.send(Message(halfmoon_topic, b"zero"))
        with broker.latency("300ms", "SEND_MESSAGE_V2"):
            begun_s = time.monotonic()
            producer.send(Message(halfmoon_topic, b"one"))
            assert time.monotonic() - begun_s >= 0.3
        producer.send(Message(halfmoon_topic, b"two"))
    assert len(broker.records(halfmoon_topic)) == 3


def test_it_is_killed_and_goes_on(halfmoon_topic: str) -> None:
    with Broker(config=LISTENERS) as broker, Producer("p", namesrv=broker.namesrv) as producer:
        producer.send(Message(halfmoon_topic, b"one"))
        before = broker.rocketmq, broker.namesrv
        broker.kill()
        broker.restart()
        assert (broker.rocketmq, broker.namesrv) == before
        until_s = time.monotonic() + 40
        while True:
            try:
                producer.send(Message(halfmoon_topic, b"two"))
                break
            except Exception:
                assert time.monotonic() < until_s
                time.sleep(0.2)
        assert {each.value for each in broker.records(halfmoon_topic)} == {b"one", b"two"}
