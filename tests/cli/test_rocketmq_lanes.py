"""Lanes keep the order of each queue, send one request at a time, and end at the first failure."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from halfmoon.cli import rocketmq_lanes
from halfmoon.cli.rocketmq_lanes import BATCH_BYTES, Lanes
from halfmoon.client import BrokerRefusedError, Message, Queue, RequestTimeoutError, SendResult, SendStatus

QUEUES = [Queue("t", "b", 0), Queue("t", "b", 1)]


class _Broker:
    """In place of a producer: keeps what it is sent, as soon as the gate is open."""

    def __init__(self) -> None:
        self.requests: list[list[bytes]] = []
        self.gate = threading.Event()
        self.refuses: dict[bytes, Exception] = {}
        self.most = 1_000

    @property
    def bodies(self) -> list[bytes]:
        return [body for request in self.requests for body in request]

    def send(self, message: Message, *, queue: Queue | None) -> SendResult:
        (result,) = self.send_batch([message], queue=queue)
        return result

    def send_batch(self, messages: list[Message], *, queue: Queue | None) -> list[SendResult]:
        assert self.gate.wait(10)
        for message in messages:
            if message.body in self.refuses:
                raise self.refuses[message.body]
        if len(messages) > self.most:
            raise BrokerRefusedError(13, "too much")
        offset = sum(map(len, self.requests))
        self.requests.append([message.body for message in messages])
        ids = ",".join(f"id-{message.body.decode()}" for message in messages)
        return [SendResult(SendStatus.OK, ids, "", queue or QUEUES[0], offset)]


@pytest.fixture
def broker() -> Any:
    return _Broker()


def _bodies(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def test_what_comes_while_a_request_is_under_way_is_the_next_one(broker: Any) -> None:
    with Lanes(broker, QUEUES).running() as lanes:
        first = lanes.send(Message("t", b"0"), QUEUES[1])
        others = [lanes.send(Message("t", body), QUEUES[1]) for body in _bodies(1, 50)]
        broker.gate.set()
        places = [future.result(10) for future in (first, *others)]
    assert [(place.partition, place.offset, place.message_id) for place in places] == [
        (1, number, f"id-{number}") for number in range(50)
    ]
    assert broker.bodies == _bodies(0, 50)
    assert len(broker.requests) <= 3


def test_what_does_not_go_into_one_batch(broker: Any) -> None:
    """Each is delayed, too large for the rest, or waits for the disk in another way than the one before."""
    messages = [
        Message("t", b"0"),
        Message("t", b"1", delay_ms=5),
        Message("t", b"2", delay_level=1),
        Message("t", b"3", wait_for_disk=False),
        Message("t", b"4"),
        Message("t", b"5" * BATCH_BYTES),
        Message("t", b"6"),
    ]
    with Lanes(broker, QUEUES).running() as lanes:
        futures = [lanes.send(message, None) for message in messages]
        broker.gate.set()
        for future in futures:
            future.result(10)
    assert broker.requests == [[message.body] for message in messages]


def test_a_batch_that_is_refused_is_sent_in_parts(broker: Any) -> None:
    broker.most = 3
    with Lanes(broker, QUEUES).running() as lanes:
        futures = [lanes.send(Message("t", body), None) for body in _bodies(0, 20)]
        broker.gate.set()
        assert [future.result(10).offset for future in futures] == list(range(20))
    assert broker.bodies == _bodies(0, 20)


def test_a_message_that_is_refused_ends_its_lane(broker: Any) -> None:
    broker.refuses[b"7"] = BrokerRefusedError(13, "no")
    with Lanes(broker, QUEUES).running() as lanes:
        futures = [lanes.send(Message("t", body), QUEUES[0]) for body in _bodies(0, 20)]
        other = lanes.send(Message("t", b"other"), QUEUES[1])
        broker.gate.set()
        assert [future.result(10).offset >= 0 for future in futures[:7]] == [True] * 7
        with pytest.raises(BrokerRefusedError):
            futures[7].result(10)
        other.result(10)
    assert [body for body in broker.bodies if body != b"other"] == _bodies(0, 7)


def test_a_batch_of_which_nobody_knows_is_not_sent_again(broker: Any) -> None:
    broker.refuses[b"3"] = RequestTimeoutError("late")
    with Lanes(broker, QUEUES).running() as lanes:
        futures = [lanes.send(Message("t", body), None) for body in _bodies(0, 5)]
        broker.gate.set()
        with pytest.raises(RequestTimeoutError):
            futures[4].result(10)
    assert broker.bodies in ([], [b"0"])


def test_what_waits_at_the_end_is_given_a_moment_and_then_dropped(broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with Lanes(broker, QUEUES).running() as lanes:
        lanes.send(Message("t", b"0"), None)
        lanes.send(Message("t", b"1"), None)
        threading.Timer(0.05, broker.gate.set).start()
    assert broker.bodies == [b"0", b"1"]

    monkeypatch.setattr(rocketmq_lanes, "LAST_WAIT_S", 0.05)
    broker.gate.clear()
    broker.requests.clear()
    with Lanes(broker, QUEUES).running() as lanes:
        under_way = lanes.send(Message("t", b"2"), None)
        dropped = lanes.send(Message("t", b"3", delay_ms=1), None)
    broker.gate.set()
    under_way.result(10)
    with pytest.raises(TimeoutError):
        dropped.result(0.05)
    assert broker.requests == [[b"2"]]
