"""When garbage is looked for in a broker's process, and over how much each look goes."""

from __future__ import annotations

import gc
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from halfmoon.server.garbage import AFTER, GROWN, LOOK_S, MOST_LIVING, MUCH_GROWN, YOUNG_LOOKS, Garbage
from tests.adapters.rig import BrokerRig

YOUNG = AFTER * (YOUNG_LOOKS + 2)
"""Containers that are made until those that stay have grown old."""
TEST = 5_000
"""Containers that the test itself makes, and those that Python does not count exactly."""


class Loop:
    """One that calls when it is told to."""

    def __init__(self) -> None:
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.soon: list[Callable[[], None]] = []

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Loop:
        self.later.append((delay_s, callback))
        return self

    def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def cancel(self) -> None:
        self.later.clear()

    def pass_time(self) -> None:
        (delay_s, callback) = self.later.pop()
        assert delay_s == LOOK_S
        callback()

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()


class Ring:
    """Something that knows itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def loop() -> Iterator[Loop]:
    """Of a process in which garbage is looked for."""
    threshold = gc.get_threshold()
    gc.collect()
    loop: Any = Loop()
    looks = Garbage(loop)
    looks.start()
    yield loop
    looks.stop()
    assert not loop.later
    gc.unfreeze()
    gc.set_threshold(*threshold)


@pytest.fixture
def looked_at(loop: Loop) -> Iterator[list[int]]:
    """Over how many containers each look at everything went."""
    counts: list[int] = []

    def count(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            counts.append(len(gc.get_objects()))

    gc.callbacks.append(count)
    yield counts
    gc.callbacks.remove(count)


def grown_old() -> weakref.ref[Ring]:
    """Garbage that only a look at everything finds."""
    ring = Ring()
    gc.collect(0)
    gc.collect(1)
    return weakref.ref(ring)


def test_what_has_grown_old_is_found_again_and_again(loop: Loop) -> None:
    for _ in range(3):
        left = grown_old()
        gc.collect(0)
        assert left() is not None
        loop.pass_time()
        assert left() is None


def test_nothing_that_was_there_at_the_start_is_looked_at() -> None:
    left = grown_old()
    loop: Any = Loop()
    looks = Garbage(loop)
    threshold = gc.get_threshold()
    looks.start()
    loop.pass_time()
    assert left() is not None
    looks.stop()
    gc.unfreeze()
    gc.set_threshold(*threshold)


@pytest.mark.parametrize("topics", [0, 300])
def test_what_a_plugin_leaves_in_cycles_goes(loop: Loop, topics: int) -> None:
    """Also among many topics, and without waiting for a look by the clock."""
    rig = BrokerRig()
    for number in range(topics):
        rig.topic(f"t{number}", 4)
        loop.turn()
    held: deque[Ring] = deque(maxlen=1_000)  # long enough to grow old
    rings: weakref.WeakSet[Ring] = weakref.WeakSet()
    for _ in range(15 * YOUNG):
        held.append(Ring())
        rings.add(held[-1])
        loop.turn()
    assert len(rings) <= len(held) + (GROWN + 2) * YOUNG


def test_each_look_goes_over_little_however_many_topics_are_made(loop: Loop, looked_at: list[int]) -> None:
    rig = BrokerRig()
    for number in range(4_000):
        rig.topic(f"t{number}", 4)
        loop.turn()
    loop.pass_time()
    assert max(looked_at) <= MOST_LIVING + (GROWN + 1) * YOUNG + TEST
    assert looked_at[-1] < sum(looked_at)


def test_what_was_made_in_one_turn_is_frozen_where_it_is_very_much(loop: Loop, looked_at: list[int]) -> None:
    made: list[list[None]] = [[] for _ in range((MUCH_GROWN + 1) * YOUNG)]
    loop.turn()
    assert not looked_at
    loop.pass_time()
    assert looked_at
    assert max(looked_at) < YOUNG + TEST
    assert made


def test_what_is_frozen_still_goes_when_nobody_points_at_it(loop: Loop) -> None:
    ring = Ring()
    left = weakref.ref(ring)
    made: list[list[None]] = [[] for _ in range((MUCH_GROWN + 1) * YOUNG)]
    loop.turn()
    del ring.me
    del ring
    assert left() is None
    assert made


def test_a_stop_ends_it() -> None:
    loop: Any = Loop()
    looks = Garbage(loop)
    threshold, callbacks = gc.get_threshold(), list(gc.callbacks)
    looks.start()
    looks.stop()
    assert not loop.later
    assert gc.callbacks == callbacks
    gc.unfreeze()
    gc.set_threshold(*threshold)
