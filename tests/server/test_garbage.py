"""When garbage is looked for in a broker's process."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from halfmoon.server import garbage
from halfmoon.server.garbage import LONGEST_LOOK_S, LOOK_S, MOST_TOPICS, Garbage


class Timers:
    """A loop that calls when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timers:
        self.waiting.append((delay_s, callback))
        return self

    def cancel(self) -> None:
        self.waiting.clear()

    def pass_time(self) -> None:
        (delay_s, callback) = self.waiting.pop()
        assert delay_s == LOOK_S
        callback()


class Node:
    """Something that knows itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def python_as_before() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)


def grown_old() -> weakref.ref[Node]:
    """Garbage that only a look at everything finds."""
    node = Node()
    gc.collect(0)
    gc.collect(1)
    return weakref.ref(node)


def started(topics: int = 0) -> tuple[Timers, Garbage]:
    loop: Any = Timers()
    looks = Garbage(loop, lambda: topics)
    looks.start()
    return loop, looks


def test_what_has_grown_old_is_found_again_and_again() -> None:
    loop, _ = started()
    for _ in range(3):
        left = grown_old()
        gc.collect(0)
        gc.collect(1)
        assert left() is not None
        loop.pass_time()
        assert left() is None


def test_nothing_that_was_there_at_the_start_is_looked_at() -> None:
    left = grown_old()
    loop, _ = started()
    loop.pass_time()
    assert left() is not None


def test_with_many_topics_it_waits_until_they_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, looks = started(MOST_TOPICS + 1)
    left = grown_old()
    loop.pass_time()
    assert left() is not None
    monkeypatch.setattr(looks, "_topics", lambda: MOST_TOPICS)
    loop.pass_time()
    assert left() is None


def test_a_look_that_took_long_was_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((1.0, 1.0 + LONGEST_LOOK_S * 2))
    monkeypatch.setattr(garbage.time, "thread_time", lambda: next(times))
    loop, _ = started()
    loop.pass_time()
    assert not loop.waiting


def test_a_stop_ends_it() -> None:
    loop, looks = started()
    looks.stop()
    assert not loop.waiting
