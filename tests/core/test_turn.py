"""A turn of the broker: one who raises keeps no other from what has become visible."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Thread, get_ident

import pytest

from halfmoon.core.features import Arrivals
from halfmoon.core.hold import Held
from halfmoon.core.records.batches import build_batch
from halfmoon.core.turn import ANSWERED_AT_ONCE
from halfmoon.errors import BrokerError, Fault, LeaseLostError
from halfmoon.schema import control
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


class Shutting:
    """A broker that a thread closes while the loop, which is the test, goes on."""

    def __init__(self, broker: BareNode) -> None:
        self.broker = broker
        self.told: list[tuple[str, Fault | None, bool]] = []
        self._here = get_ident()

    def wait(self, position: int, name: str) -> None:
        def told(error: BrokerError | None) -> None:
            self.told.append((name, None if error is None else error.fault, get_ident() == self._here))

        self.broker.kernel.turn.when_durable(position, told)

    def close(self, append: Callable[[], object] = lambda: None) -> None:
        turn = self.broker.kernel.turn

        def work() -> None:
            turn.closes_here()
            append()
            self.broker.kernel.appender.append_control(control.GroupDeleted("by the thread"))
            self.broker.kernel.close()

        thread = Thread(target=work)
        thread.start()
        thread.join()


def test_who_waits_while_a_thread_closes_the_log_is_told_in_the_loop(broker: BareNode) -> None:
    kernel, shutting = broker.kernel, Shutting(broker)
    before = kernel.appender.append_control(control.GroupDeleted("before"))
    shutting.wait(before, "before")
    kernel.turn.begin_closing()
    shutting.wait(before, "late")
    shutting.wait(before + 1_000_000, "never")
    shutting.close()
    assert shutting.told == []
    kernel.turn.closed(LeaseLostError("closed"))
    assert shutting.told == [
        ("before", None, True), ("late", None, True), ("never", Fault.NOT_LEADER_OR_FOLLOWER, True)
    ]  # fmt: skip


def test_a_log_that_a_thread_closes_takes_nothing_from_elsewhere(broker: BareNode) -> None:
    """In the middle of it, and afterwards: nobody would write it, and who has sent it would wait for ever."""
    kernel, shutting = broker.kernel, Shutting(broker)
    turn, appender = kernel.turn, kernel.appender

    def refused() -> None:
        end = kernel.log.end
        for append in (
            lambda: appender.append_control(control.GroupDeleted("late")),
            lambda: appender.append_group([], 0, before=[control.GroupDeleted("late")]),
            lambda: appender.append_relayed(partition_of(broker, "t"), bytearray()),
        ):
            with pytest.raises(BrokerError) as caught:
                append()
            assert caught.value.fault is Fault.NOT_LEADER_OR_FOLLOWER
        assert kernel.log.end == end

    turn.begin_closing()
    refused()
    shutting.close()
    refused()
    turn.closed(LeaseLostError("closed"))
    refused()
    shutting.wait(kernel.log.end + 1, "afterwards")
    assert shutting.told == [("afterwards", Fault.NOT_LEADER_OR_FOLLOWER, True)]
    freed: list[bool] = []
    turn.after_write(lambda: freed.append(True))
    assert freed == [True]


def test_what_the_thread_that_closes_a_log_appends_wakes_nobody(broker: BareNode, clock: VirtualClock) -> None:
    """Who waits for messages, here or in another shard, is the loop's. Lines of audit are written at that time."""
    kernel, shutting = broker.kernel, Shutting(broker)
    partition = partition_of(broker, "t")
    woken: list[str] = []
    kernel.hold.park(Held((partition,), 1, 60_000, None, lambda: woken.append("held")), clock.mono_ms())
    kernel.turn.arrived = (lambda arrivals: woken.append("feature"),)
    kernel.turn.begin_closing()
    shutting.close(lambda: kernel.appender.append_relayed(partition, bytearray(build_batch([(None, b"v", 1, ())]))))
    assert (partition.queue.end_offset, woken) == (1, [])


def test_why_a_log_failed_before_it_was_closed_stays(broker: BareNode) -> None:
    turn = broker.kernel.turn
    broker.log.failed = OSError("the disk is broken")
    turn.begin_closing()
    turn.closed(LeaseLostError("closed"))
    assert turn.refusal().fault is Fault.KAFKA_STORAGE_ERROR
