"""The timing wheel: nothing early, nothing late, nothing lost, in order; compared with a sorted list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from halfmoon.services.waiting.due_times import HOUR_MS, MOVED, SORTED, Due, DueTimes

NOW = 1_700_000_000_000


def taken(times: DueTimes, now_ms: int, limit: int = 7) -> list[Due]:
    found: list[Due] = []
    while True:
        while times.move_down(now_ms):
            pass
        part = times.pop(now_ms, limit)
        if not part:
            return found
        assert len(part) <= limit
        found += part


_distance = st.one_of(
    st.integers(-5, 50), st.integers(0, 5_000), st.integers(0, 3 * HOUR_MS), st.integers(0, 40 * 24 * HOUR_MS)
)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), _distance, st.integers(0, 3)),
            st.tuples(st.just("pass"), _distance.filter(lambda ms: ms >= 0), st.just(0)),
        ),
        max_size=60,
    )
)
def test_what_is_due_comes_in_order_and_nothing_else(actions: list[tuple[str, int, int]]) -> None:
    times, model, now_ms = DueTimes(), list[Due](), NOW
    for offset, (what, ms, queue) in enumerate(actions):
        if what == "add":
            times.add(now_ms + ms, queue, offset)
            model.append((now_ms + ms, queue, offset))
        else:
            now_ms += ms
            due = sorted(entry for entry in model if entry[0] <= now_ms)
            model = [entry for entry in model if entry[0] > now_ms]
            assert taken(times, now_ms) == due
        assert len(times) == len(model) or any(entry[0] <= now_ms for entry in model)
        next_ms = times.next_ms()
        assert (next_ms is None) == (not len(times))
        assert next_ms is None or next_ms <= min(entry[0] for entry in model)
    assert taken(times, NOW + 10**12) == sorted(model)
    assert times.next_ms() is None


@given(st.lists(_distance, min_size=1, max_size=20))
def test_who_comes_when_told_misses_nothing(distances: list[int]) -> None:
    times, now_ms = DueTimes(), NOW
    for offset, ms in enumerate(distances):
        times.add(NOW + ms, 0, offset)
    late, turns = [], 0
    while (next_ms := times.next_ms()) is not None:
        now_ms = max(now_ms, next_ms)
        late += [now_ms - max(due_ms, NOW) for due_ms, _, _ in taken(times, now_ms)]
        turns += 1
    assert late == [0] * len(distances)
    assert turns <= 4 * len(distances)


def test_much_at_once_moves_in_parts() -> None:
    times = DueTimes()
    for offset in range(3 * MOVED):
        times.add(NOW + 5, 0, offset)
    parts = 1
    while times.move_down(NOW):
        parts += 1
    assert parts >= 6, "down two levels, each at most so many at a time"
    assert taken(times, NOW + 4) == []
    assert [offset for _, _, offset in taken(times, NOW + 5, 1000)] == list(range(3 * MOVED))


def test_very_much_in_one_millisecond_is_all_there() -> None:
    times = DueTimes()
    count = SORTED + 5_000
    for offset in range(count):
        times.add(NOW, 1, offset)
    assert sorted(offset for _, _, offset in taken(times, NOW, 1000)) == list(range(count))


def test_the_largest_numbers_fit() -> None:
    times = DueTimes()
    times.add(NOW, (1 << 14) - 1, (1 << 40) - 1)
    times.add(-5, 0, 0)
    assert taken(times, NOW) == [(0, 0, 0), (NOW, (1 << 14) - 1, (1 << 40) - 1)]
