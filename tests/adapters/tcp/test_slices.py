"""Long work goes on by turns, in the order in which it came."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest

from halfmoon.adapters.tcp.round_time import RoundTime
from halfmoon.adapters.tcp.slices import MOST, Job, Slicing


class Bench:
    """Each look at the clock costs a millisecond: a turn of 4 ms has four steps."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], object]] = []
        self.now_ms = 0
        self.round_time = RoundTime(self.soon.append, self._now)
        self.slicing = Slicing(self.soon.append, lambda: self.round_time)
        self.steps: list[str] = []
        self.ended: list[tuple[str, object]] = []

    def _now(self) -> float:
        self.now_ms += 1
        return self.now_ms / 1000

    def begin(
        self, name: str, steps: int, until: float | None = None, *, large: bool = False, bad: bool = False
    ) -> Job:
        def work() -> Generator[None, None, str]:
            for _ in range(steps):
                self.steps.append(name)
                yield
            if bad:
                raise ValueError(name)
            return name

        return self.slicing.begin(
            work(),
            lambda value: self.ended.append((name, value)),
            lambda error: self.ended.append((name, str(error))),
            self.round_time.begin() if until is None else until,
            may_wait=large,
        )

    def turn(self) -> None:
        """A turn of the loop: what was to be called soon before it."""
        calls, self.soon[:] = list(self.soon), []
        for call in calls:
            call()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_what_is_short_ends_at_once(bench: Bench) -> None:
    job = bench.begin("a", 1)
    assert bench.ended == [("a", "a")]
    assert not job.goes_on


def test_what_is_long_goes_on_in_later_turns(bench: Bench) -> None:
    job = bench.begin("a", 20)
    counts = [len(bench.steps)]
    while job.goes_on:
        bench.turn()
        counts.append(len(bench.steps))
    assert bench.ended == [("a", "a")]
    assert counts[-1] == 20
    assert len(counts) > 4
    assert max(after - before for before, after in zip([0, *counts], counts, strict=False)) <= 5
    bench.turn()
    assert not bench.soon, "nothing is left to be done"


def test_several_go_on_by_turns_and_others_behind_them(bench: Bench) -> None:
    names = [f"{at}" for at in range(MOST + 2)]
    for name in names:
        bench.begin(name, 12, until=-1.0)
    assert bench.steps == names, "one step of each: the round is over"
    bench.steps.clear()
    while len(bench.ended) < len(names):
        bench.turn()
        under_way = set(bench.steps) - {name for name, _ in bench.ended}
        assert len(under_way) <= MOST
    ended = [name for name, _ in bench.ended]
    assert set(ended[:MOST]) == set(names[:MOST])
    assert ended[MOST:] == names[MOST:]
    assert bench.steps.index("1") < 11, "the first has not been done by itself"


def test_a_large_one_waits_for_its_place(bench: Bench) -> None:
    for at in range(MOST):
        bench.begin(f"{at}", 12)
    before = len(bench.steps)
    bench.begin("large", 1, large=True)
    assert len(bench.steps) == before
    assert ("large", "large") not in bench.ended
    while bench.soon:
        bench.turn()
    assert ("large", "large") in bench.ended


def test_an_error_ends_its_work_alone(bench: Bench) -> None:
    bench.begin("bad", 9, bad=True)
    bench.begin("good", 9)
    while bench.soon:
        bench.turn()
    assert bench.ended == [("bad", "bad"), ("good", "good")]


@pytest.mark.parametrize("which", [0, MOST])
def test_what_is_cancelled_goes_no_further(bench: Bench, which: int) -> None:
    jobs = [bench.begin(f"{at}", 12, until=-1.0) for at in range(MOST + 1)]
    bench.turn()
    jobs[which].cancel()
    before = bench.steps.count(f"{which}")
    while bench.soon:
        bench.turn()
    assert bench.steps.count(f"{which}") == before < 12
    assert {name for name, _ in bench.ended} == {f"{at}" for at in range(MOST + 1)} - {f"{which}"}


def test_the_first_step_is_taken_at_once_whatever_the_time(bench: Bench) -> None:
    """What it reads lies in a buffer that serves others next."""
    bench.begin("a", 3, until=-1.0)
    assert bench.steps == ["a"]
    bench.begin("b", 3, until=-1.0, large=True)
    assert bench.steps == ["a"]
