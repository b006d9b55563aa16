"""A turn of the broker: one who raises keeps no other from what has become visible."""

from __future__ import annotations

import logging

import pytest

from halfmoon.core.features import Arrivals
from halfmoon.core.hold import Held
from halfmoon.core.turn import ANSWERED_AT_ONCE
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, open_broker, partition_of, send, sync


@pytest.fixture
def broker(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    broker = open_broker(fs, clock)
    broker.create_topic("t", 2)
    return broker


def test_one_who_raises_keeps_nobody_from_an_arrival(broker: BareNode, caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []

    def fail(*_: object) -> bool:
        raise ValueError("broken")

    def arrived(arrivals: Arrivals) -> None:
        told.append("feature")

    turn = broker.kernel.turn
    turn.arrived = (fail, arrived)  # type: ignore[assignment]
    turn.flushed = (fail, lambda: told.append("flushed"))
    for name, match, wake in (("match", fail, None), ("wake", None, fail), ("whole", None, None)):
        for index in (0, 1):
            call = wake or (lambda name=name, index=index: told.append(f"{name} {index}"))
            held = Held((partition_of(broker, "t", index),), 1, 1 << 60, None, call, match=match)  # type: ignore[arg-type]
            broker.hold.park(held, broker.clock.mono_ms())
    send(broker, "t", b"a")
    produced = send(broker, "t", b"b", index=1)
    broker.when_durable(produced.position, lambda error: told.append("durable"))
    with caplog.at_level(logging.ERROR, logger=broker.kernel.logger.name):
        broker.write()
        sync(broker)
    assert sorted(told) == ["durable", "feature", "flushed", "match 0", "match 1", "whole 0", "whole 1"]
    assert len(broker.hold) == 0
    assert {record.getMessage() for record in caplog.records} == {"event=callback_failed"}
    assert len(caplog.records) == 6


def test_very_many_answers_leave_one_part_after_the_other(broker: BareNode) -> None:
    turn = broker.kernel.turn
    turn.flush()
    asked: list[int] = []
    told: list[int] = []
    turn.on_late = lambda: asked.append(len(told))
    for number in range(2 * ANSWERED_AT_ONCE + 3):
        position = send(broker, "t", b"v").position
        turn.when_durable(position, lambda error, number=number: told.append(number))  # type: ignore[misc]
    broker.write()
    sync(broker)
    assert (len(told), asked) == (ANSWERED_AT_ONCE, [ANSWERED_AT_ONCE])
    turn.answer_late()
    assert asked == [ANSWERED_AT_ONCE, 2 * ANSWERED_AT_ONCE]
    send(broker, "t", b"more")
    broker.write()
    sync(broker)  # its answers are those that were late
    assert told == list(range(2 * ANSWERED_AT_ONCE + 3))
    turn.answer_late()
    assert len(asked) == 2


def test_at_a_stop_all_answers_leave(broker: BareNode) -> None:
    turn = broker.kernel.turn
    turn.on_late = lambda: None
    told: list[object] = []
    for _ in range(3 * ANSWERED_AT_ONCE):
        turn.when_durable(send(broker, "t", b"v").position, told.append)
    turn.flush()
    assert told == [None] * 3 * ANSWERED_AT_ONCE
