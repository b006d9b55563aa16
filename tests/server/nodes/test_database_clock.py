"""Nodes whose clocks are hours apart go by the database's."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from halfmoon.cluster.engine.pieces import Durability
from halfmoon.server.nodes import node
from halfmoon.server.nodes.database_clock import SLOW_MS, TOLERATED_MS, DatabaseClock
from tests.server.nodes.cluster import World, stopped
from tests.server.server_rig import played

HOUR_MS = 3_600_000


class Machine:
    """A machine's clock, and a database that answers after a time."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self.time_ms = 1_000_000_000_000
        self.ahead_ms = ahead_ms
        self.takes_ms = 4

    def wall_ms(self) -> int:
        return self.time_ms + self.ahead_ms

    def mono_ms(self) -> int:
        return self.time_ms

    async def now_ms(self) -> int:
        self.time_ms += self.takes_ms // 2
        said = self.time_ms
        self.time_ms += self.takes_ms - self.takes_ms // 2
        return said


@pytest.mark.parametrize("ahead_ms", [2 * HOUR_MS, -2 * HOUR_MS, TOLERATED_MS + 3, -TOLERATED_MS - 3])
def test_a_clock_that_is_wrong_is_corrected(ahead_ms: int) -> None:
    machine = Machine(ahead_ms)
    clock = DatabaseClock(machine)
    asyncio.run(clock.look(machine.now_ms))
    assert clock.wall_ms() == machine.time_ms
    assert clock.mono_ms() == machine.time_ms


def test_small_differences_are_left_alone() -> None:
    machine = Machine(TOLERATED_MS)
    clock = DatabaseClock(machine)
    asyncio.run(clock.look(machine.now_ms))
    assert clock.offset_ms == 0
    machine.ahead_ms = HOUR_MS
    asyncio.run(clock.look(machine.now_ms))
    machine.ahead_ms = HOUR_MS + TOLERATED_MS
    asyncio.run(clock.look(machine.now_ms))
    assert clock.offset_ms == -HOUR_MS


def test_a_clock_that_is_set_right_needs_no_correction_any_more() -> None:
    machine = Machine(-HOUR_MS)
    clock = DatabaseClock(machine)
    asyncio.run(clock.look(machine.now_ms))
    assert len(clock.warnings()) == 1
    assert "3,600.0 s behind" in clock.warnings()[0]
    machine.ahead_ms = 7
    asyncio.run(clock.look(machine.now_ms))
    assert clock.offset_ms == 0
    assert clock.warnings() == []


def test_a_slow_answer_says_nothing() -> None:
    machine = Machine(HOUR_MS)
    machine.takes_ms = SLOW_MS + 2
    clock = DatabaseClock(machine)
    asyncio.run(clock.look(machine.now_ms))
    assert clock.offset_ms == 0


class Wrong:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000 - 3 * HOUR_MS

    def mono_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


def test_a_node_with_a_wrong_clock_has_the_right_time_before_it_opens_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "DatabaseClock", lambda: DatabaseClock(Wrong()))

    async def story() -> None:
        async with stopped(World(tmp_path, [Durability.FAST])) as world:
            started = await world.start(1)
            await world.shared_out()
            kernel = started.worker.shards.nodes[0].kernel
            assert abs(kernel.clock.wall_ms() - time.time_ns() // 1_000_000) < 1_000
            assert any("behind the database's" in each for each in started.worker.warnings())

    played(story())
