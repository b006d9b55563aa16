"""The turns of a broker on a real loop: what they do at once, what by bytes, and what by time."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvloop

from halfmoon.config.settings import load_settings
from halfmoon.core.durations import FLUSH_BUCKETS_S, Durations
from halfmoon.core.features import Feature
from halfmoon.core.hold import Held
from halfmoon.core.records.batches import build_batch
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.core.storage.log_files import segment_path
from halfmoon.server.clock import SystemClock
from halfmoon.server.deadlines import READ_S
from halfmoon.server.tick import SHARED_ROUNDS, Round, Ticker
from halfmoon.testing.node import BareNode


@asynccontextmanager
async def ticking(
    directory: Path, kind: type[BareNode] = BareNode, **log: Any
) -> AsyncIterator[tuple[BareNode, Ticker]]:
    """A broker that is turned, with one topic of one partition; `log` stands under `$.log`."""
    given = {"log": {"segment_bytes": 4 << 20, "low_disk_bytes": 0} | log}
    broker = kind(OsFileSystem(directory), load_settings(given, {}, {}), SystemClock(), os.urandom)
    broker.open()
    ticker = Ticker(broker.kernel, asyncio.get_running_loop())
    ticker.start()
    try:
        _, position = broker.create_topic("t", 1)
        await durable(broker, position)
        yield broker, ticker
    finally:
        await ticker.stop()
        broker.close()


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(main(), 30)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(limited())


def append(broker: BareNode, size: int) -> int:
    """One record of `size` bytes; returns the log position to wait for."""
    batch = memoryview(bytearray(build_batch([(None, os.urandom(size), 0, ())])))
    topic = broker.topic("t")
    assert topic is not None
    return broker.append(topic.partitions[0], batch, broker.clock.wall_ms()).position


async def durable(broker: BareNode, position: int) -> None:
    told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    broker.when_durable(position, lambda error: told.set_result(None) if error is None else told.set_exception(error))
    await told


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def visible(broker: BareNode) -> int:
    topic = broker.topic("t")
    assert topic is not None
    return topic.partitions[0].high_watermark


def test_with_interval_it_is_visible_after_one_turn_and_on_disk_a_while_later(tmp_path: Path) -> None:
    async def main() -> None:
        async with ticking(tmp_path, flush="interval", flush_interval="200ms") as (broker, _):
            await until(lambda: broker.log.flushed == broker.log.end)
            position = append(broker, 100)
            await durable(broker, position)
            assert visible(broker) == 1
            assert broker.log.flushed < position
            await until(lambda: broker.log.flushed >= position)

    run(main)


def test_who_sends_alone_does_not_wait_for_the_end_of_the_round(tmp_path: Path) -> None:
    async def main() -> None:
        async with ticking(tmp_path, flush="interval") as (broker, _):
            for number in range(1, 4):
                append(broker, 100)
                append(broker, 100)
                assert visible(broker) == 2 * number - 2
                broker.on_handled()
                assert visible(broker) == 2 * number
                await asyncio.sleep(0)

    run(main)


def test_those_who_send_at_the_same_time_share_a_turn(tmp_path: Path) -> None:
    async def main() -> None:
        async with ticking(tmp_path, flush="interval") as (broker, ticker):
            append(broker, 100)
            broker.on_handled()  # nobody knows yet that there is a second one
            append(broker, 100)
            broker.on_handled()
            assert visible(broker) == 1
            await until(lambda: visible(broker) == 2)
            turns = sum(ticker.tick_durations.counts)
            for _ in range(3):
                append(broker, 100)
                broker.on_handled()
            assert visible(broker) == 2
            await until(lambda: visible(broker) == 5)
            assert sum(ticker.tick_durations.counts) == turns + 1

    run(main)


@pytest.mark.parametrize("flush", ["interval", "sync"])
def test_what_was_written_before_its_turn_is_answered_all_the_same(tmp_path: Path, flush: str) -> None:
    """So does whoever is short of memory (`BufferPool`)."""

    async def main() -> None:
        async with ticking(tmp_path, flush=flush) as (broker, _):
            position = append(broker, 100)
            broker.write()
            broker.on_handled()
            await asyncio.wait_for(durable(broker, position), 1)
            position = append(broker, 100)
            broker.write()
            await asyncio.wait_for(durable(broker, position), 1)

    run(main)


def test_a_round_is_waited_for_as_long_as_others_have_been_seen_of_late() -> None:
    round_ = Round()
    assert round_.alone()
    assert not round_.alone()
    round_.end()
    for _ in range(SHARED_ROUNDS):
        assert not round_.alone()
        round_.end()
    assert round_.alone()


def test_with_interval_many_bytes_do_not_wait_for_the_time(tmp_path: Path) -> None:
    async def main() -> None:
        async with ticking(tmp_path, flush="interval", flush_interval="1h", flush_bytes="64KiB") as (broker, _):
            append(broker, 100)
            few = append(broker, 100)
            await durable(broker, few)
            await asyncio.sleep(0.05)
            assert broker.log.flushed < few
            many = append(broker, 64 << 10)
            await until(lambda: broker.log.flushed >= many)

    run(main)


def test_with_sync_what_came_during_a_sync_shares_the_next(tmp_path: Path) -> None:
    async def main() -> None:
        async with ticking(tmp_path, flush="sync") as (broker, ticker):
            syncs = sum(ticker.flush_durations.counts)
            first = append(broker, 20_000)
            await asyncio.sleep(0)
            positions = [append(broker, 20_000) for _ in range(20)]
            await asyncio.gather(*(durable(broker, position) for position in (first, *positions)))
            assert broker.log.flushed == broker.log.end
            assert visible(broker) == 21
            assert sum(ticker.flush_durations.counts) - syncs <= 3

    run(main)


def test_the_next_segment_is_made_when_enough_was_written(tmp_path: Path) -> None:
    """Not only at the turns of the clock, every five seconds: a log that grows fast would have to wait for it."""

    async def main() -> None:
        async with ticking(tmp_path, flush="interval") as (broker, _):
            assert broker.log.wants_spare() is False
            for _ in range(10):
                await durable(broker, append(broker, 256 << 10))
            await asyncio.wait_for(until(lambda: (tmp_path / "log" / "spare").exists()), 2)

    run(main)


@pytest.mark.pure
@pytest.mark.parametrize("in_loop", [True, False])
def test_files_go_with_the_sync_that_lets_them(tmp_path: Path, *, in_loop: bool) -> None:
    async def main() -> None:
        async with ticking(tmp_path, flush="sync") as (broker, ticker):
            ticker._place.in_loop = lambda nbytes, requests: in_loop  # type: ignore[method-assign]
            for _ in range(5):
                await durable(broker, append(broker, 1 << 20))
            first = tmp_path / segment_path(0)
            assert first.exists()
            housekeeping = broker.housekeeping
            housekeeping.freeze()
            await durable(broker, append(broker, 100))
            await until(lambda: not broker.dispatch.frozen)
            topic = broker.topic("t")
            assert topic is not None
            _, position = broker.create_topic("other", 1)
            broker.delete_records(topic.partitions[0], -1)
            housekeeping.drop_segments()
            await durable(broker, position)
            await asyncio.wait_for(until(lambda: not first.exists()), 2)

    run(main)


class WithoutCleaner(BareNode):
    def _features(self) -> list[Feature]:
        return [feature for feature in super()._features() if feature.name != "cleaner"]


def test_a_node_without_a_cleaner_does_everything_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfmoon.server.tick.TURN_INTERVAL_S", 0.05)

    async def main() -> None:
        async with ticking(tmp_path, WithoutCleaner, segment_bytes=65536, flush="interval") as (broker, _):
            topic = broker.topic("t")
            assert topic is not None
            assert all(each is not broker.cleaner for each in broker.features.background)
            broker.alter_configs(topic, {"cleanup.policy": "compact,delete"})
            broker.alter_configs(topic, {})
            for _ in range(20):
                await durable(broker, append(broker, 10_000))
            assert len(broker.log.segments) > 3
            broker.housekeeping.freeze()
            await durable(broker, append(broker, 100))
            await until(lambda: not broker.dispatch.frozen)
            broker.delete_records(topic.partitions[0], -1)
            broker.housekeeping.drop_segments()
            await until(lambda: not (tmp_path / segment_path(0)).exists())

    run(main)


def test_a_held_request_is_woken_by_its_message_and_at_its_deadline(tmp_path: Path) -> None:
    async def main() -> None:
        async with ticking(tmp_path, flush="interval") as (broker, _):
            topic = broker.topic("t")
            assert topic is not None
            woken: list[str] = []
            now_ms = broker.clock.mono_ms()
            for name, wait_ms in (("late", 60_000), ("soon", 30)):
                held = Held([topic.partitions[0]], 1, now_ms + wait_ms, name, partial(woken.append, name))
                broker.hold.park(held, now_ms)
            await until(lambda: bool(woken))
            assert woken == ["soon"]
            assert broker.clock.mono_ms() >= now_ms + 30
            await durable(broker, append(broker, 100))
            assert woken == ["soon", "late"]

    run(main)


def test_stopping_lets_a_sync_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with ticking(tmp_path, flush="sync") as (broker, _):
            append(broker, 100_000)
            await asyncio.sleep(0)
        again = BareNode(OsFileSystem(tmp_path), broker.settings, SystemClock(), os.urandom)
        again.open()
        assert again.report.clean
        assert visible(again) == 1
        again.close()

    run(main)


@pytest.mark.parametrize(("bucket", "bound_s"), list(enumerate(FLUSH_BUCKETS_S)))
def test_a_duration_counts_in_the_first_bucket_that_holds_it(bucket: int, bound_s: float) -> None:
    durations = Durations()
    durations.add(bound_s)
    durations.add(bound_s * 1.01)
    expected = [0] * (len(FLUSH_BUCKETS_S) + 1)
    expected[bucket] = expected[bucket + 1] = 1
    assert durations.counts == expected
    assert durations.total_s == pytest.approx(bound_s * 2.01)


def test_what_is_called_again_and_again_goes_on_after_an_exception(tmp_path: Path) -> None:
    async def main() -> None:
        async with ticking(tmp_path) as (_, ticker):
            called: list[int] = []

            def fail() -> None:
                called.append(1)
                raise ValueError("broken")

            ticker.every(0.001, fail)
            await until(lambda: len(called) >= 3)

    run(main)


def test_deadlines_are_kept_after_one_of_them_has_raised(tmp_path: Path) -> None:
    async def main() -> None:
        async with ticking(tmp_path) as (broker, _):
            mono_ms = broker.clock.mono_ms()
            woken: list[str] = []

            class Broken:
                deadline: int | None = mono_ms + 5

                def next_deadline(self) -> int | None:
                    return self.deadline

                def expire(self, now_ms: int) -> None:
                    if self.deadline is not None and self.deadline <= now_ms:
                        self.deadline = None
                        raise ValueError("broken")

            broken = Broken()
            broker.kernel.timers.add(broken)
            broker.kernel.timers.arm(mono_ms + 5)
            await until(lambda: broken.deadline is None)
            broker.hold.park(Held((), 1, broker.clock.mono_ms() + 5, None, lambda: woken.append("w")), mono_ms)
            await until(lambda: woken == ["w"])

    run(main)


def test_after_a_stall_what_has_come_meanwhile_is_read_before_anything_expires(tmp_path: Path) -> None:
    """A member's heartbeat lies in its socket while the loop stands still for longer than the session."""

    async def main() -> None:
        async with ticking(tmp_path) as (broker, _):
            loop = asyncio.get_running_loop()
            expired: list[int] = []

            class Session:
                deadline: int | None = broker.clock.mono_ms() + 150

                def next_deadline(self) -> int | None:
                    return self.deadline

                def expire(self, now_ms: int) -> None:
                    if self.deadline is not None and self.deadline <= now_ms:
                        expired.append(now_ms)
                        self.deadline = None

            session = Session()

            def beat() -> None:
                theirs.recv(16)
                session.deadline = broker.clock.mono_ms() + 200

            ours, theirs = socket.socketpair()
            theirs.setblocking(False)
            loop.add_reader(theirs, beat)
            broker.kernel.timers.add(session)
            broker.kernel.timers.arm(session.deadline or 0)
            await asyncio.sleep(0.01)
            ours.send(b"heartbeat")
            time.sleep(0.4)  # the stall
            await asyncio.sleep(0.02 + READ_S)
            assert expired == []
            await until(lambda: bool(expired))  # it sends no more
            loop.remove_reader(theirs)
            ours.close()
            theirs.close()

    run(main)


@pytest.mark.pure
def test_a_leap_of_the_wall_clock_is_noticed_and_alarms_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halfmoon.server.tick.CLOCK_INTERVAL_S", 0.01)

    async def main() -> None:
        async with ticking(tmp_path) as (broker, _):
            looked: list[int] = []
            leap_ms = 0
            wall_ms = broker.clock.wall_ms
            monkeypatch.setattr(broker.kernel.relays, "wake_alarms", lambda: looked.append(leap_ms))
            monkeypatch.setattr(broker.clock, "wall_ms", lambda: wall_ms() + leap_ms)
            await asyncio.sleep(0.05)
            assert looked == []
            for leap_ms in (86_400_000, 0):
                await until(lambda: looked[-1:] == [leap_ms])  # noqa: B023 (it is waited for)

    run(main)
