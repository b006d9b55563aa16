"""Consume queues against a plain list of batches, over any division into runs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.core.storage import consume_queue
from halfmoon.core.storage.consume_queue import ConsumeQueue


@dataclass
class Batch:
    base: int
    span: int
    position: int
    length: int
    max_ms: int

    @property
    def place(self) -> tuple[int, int]:
        return self.position, self.length

    @property
    def end(self) -> int:
        return self.base + self.span


@st.composite
def queues(draw: st.DrawFn) -> tuple[ConsumeQueue, list[Batch]]:
    """A queue, frozen now and then, and what is in it."""
    queue = ConsumeQueue()
    batches = []
    base = draw(st.integers(0, 5))
    position = 0
    for span, length, max_ms, freeze in draw(
        st.lists(st.tuples(st.integers(1, 4), st.integers(61, 400), st.integers(0, 20), st.booleans()), max_size=25)
    ):
        queue.add(base, span, position, length, max_ms)
        batches.append(Batch(base, span, position, length, max_ms))
        base += span
        position += length + 92
        if freeze:
            queue.freeze()
    return queue, batches


@given(queues(), st.integers(-1, 80), st.integers(0, 3000), st.booleans())
def test_places(made: tuple[ConsumeQueue, list[Batch]], offset: int, max_bytes: int, min_one: bool) -> None:
    queue, batches = made
    expected = []
    left = max_bytes
    for batch in batches:
        if batch.end <= offset:
            continue
        if batch.length > left and not (min_one and not expected):
            break
        expected.append(batch.place)
        left -= batch.length
    assert queue.places(offset, max_bytes, min_one=min_one) == expected


@given(queues(), st.integers(0, 80))
def test_span_at(made: tuple[ConsumeQueue, list[Batch]], base: int) -> None:
    queue, batches = made
    assert queue.span_at(base) == next((batch.span for batch in batches if batch.base == base), 0)


@given(queues(), st.integers(-1, 80), st.integers(1, 3000))
def test_bytes_from(made: tuple[ConsumeQueue, list[Batch]], offset: int, enough: int) -> None:
    queue, batches = made
    all_of_them = sum(batch.length for batch in batches if batch.end > offset)
    counted = queue.bytes_from(offset, enough)
    assert counted == all_of_them or enough <= counted <= all_of_them
    assert queue.size_bytes() == sum(batch.length for batch in batches)


@given(queues(), st.integers(0, 25), st.integers(0, 80))
def test_places_for_a_time_hold_the_first_record_that_reaches_it(
    made: tuple[ConsumeQueue, list[Batch]], timestamp_ms: int, start: int
) -> None:
    queue, batches = made
    expected = []
    for batch in batches:
        if batch.end > start and batch.max_ms >= timestamp_ms:
            expected.append(batch.place)
            if batch.base >= start:
                break
    assert queue.places_for_time(timestamp_ms, start) == expected


@given(queues(), st.integers(0, 80))
def test_the_newest_time_and_the_batch_cut_into(made: tuple[ConsumeQueue, list[Batch]], start: int) -> None:
    queue, batches = made
    assert queue.max_ms(start) == max((batch.max_ms for batch in batches if batch.base >= start), default=None)
    cut = next((batch for batch in batches if batch.base < start < batch.end), None)
    assert queue.cut_batch(start) == (None if cut is None else (cut.place, cut.max_ms))


@given(queues())
def test_the_end_is_behind_the_last_batch(made: tuple[ConsumeQueue, list[Batch]]) -> None:
    queue, batches = made
    assert queue.end_offset == (batches[-1].end if batches else 0)
    runs = list(queue.runs())
    assert sum(run.high - run.low for run in runs) == len(batches)
    for before, after in pairwise(runs):
        assert before.end_offset <= after.first_offset
        assert before.total_after == after.total_before


def test_freezing_nothing_makes_no_run() -> None:
    assert ConsumeQueue().freeze() is None


@given(queues(), st.integers(0, 80), st.integers(1, 30), st.integers(0, 80), st.integers(0, 3000))
def test_a_read_never_goes_over_what_is_lost(
    made: tuple[ConsumeQueue, list[Batch]], low: int, length: int, offset: int, max_bytes: int
) -> None:
    _, batches = made
    queue = ConsumeQueue()
    lost = (low, low + length)
    for batch in batches:
        if batch.end <= lost[0] or batch.base >= lost[1]:
            queue.add(batch.base, batch.span, batch.position, batch.length, batch.max_ms)
    plain = queue.places(offset, max_bytes, min_one=True)
    queue.lose(*lost)
    if queue.damage_at(offset):
        return
    by_place = {batch.place: batch for batch in batches}
    found = queue.places(offset, max_bytes, min_one=True)
    assert found == plain[: len(found)]
    if offset < lost[0]:
        assert all(by_place[place].base < lost[0] for place in found)
        assert len(found) == len([place for place in plain if by_place[place].base < lost[0]])
    else:
        assert found == plain


def test_losses_are_kept_sorted_and_joined() -> None:
    queue = ConsumeQueue()
    for low, high in [(50, 60), (10, 20), (20, 25), (5, 5), (55, 70), (12, 13)]:
        queue.lose(low, high)
    assert queue.damaged == [(10, 25), (50, 70)]
    assert [offset for offset in (9, 10, 24, 25, 69, 70) if queue.damage_at(offset)] == [10, 24, 69]
    queue.forget_damage(24)
    assert queue.damaged == [(10, 25), (50, 70)]
    queue.forget_damage(25)
    assert queue.damaged == [(50, 70)]


def test_runs_must_follow_one_another() -> None:
    queue = ConsumeQueue()
    queue.add(5, 1, 0, 100, 0)
    run = queue.freeze()
    assert run is not None
    with pytest.raises(AssertionError):
        queue.attach(run)


@given(queues(), st.integers(0, 40), st.integers(1, 6), st.booleans())
def test_no_more_places_than_are_found_in_one_go(
    made: tuple[ConsumeQueue, list[Batch]], offset: int, most: int, readable: bool
) -> None:
    queue, _ = made
    whole = queue.places(offset, 1 << 20, min_one=True, readable=readable)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consume_queue, "MOST_PLACES", most)
        assert queue.places(offset, 1 << 20, min_one=True, readable=readable) == whole[:most]
