"""A turn of the broker: one who raises keeps no other from what has become visible."""

from __future__ import annotations

import logging

import pytest

from halfmoon.core.features import Arrivals
from halfmoon.core.hold import Held
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
