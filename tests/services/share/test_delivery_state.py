"""Runs of offsets, held against one state for each offset."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from halfmoon.services.share.delivery_state import AVAILABLE, FINISHED, STATE_NAMES, DeliveryState, Run

_changes = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 12), st.sampled_from([0, 2, 3, 4]), st.integers(0, 2)), max_size=20
)


def checked(delivery_state: DeliveryState) -> dict[int, tuple[int, int]]:
    """Offset → state and deliveries; and that the runs are as they should be."""
    at, last = delivery_state.start, None
    for run in delivery_state.runs:
        assert run.first == at < run.end
        assert last is None or last[2:] != run[2:], "neighbours are alike"
        at, last = run.end, run
    assert delivery_state.end == at
    found = {offset: (run.state, run.deliveries) for run in delivery_state.runs for offset in range(run.first, run.end)}
    states = [state for state, _ in found.values()]
    assert delivery_state.counts == [states.count(state) for state in range(len(STATE_NAMES))]
    return found


@given(st.integers(0, 10), _changes)
def test_a_ledger_is_a_state_for_each_offset(start: int, changes: list[tuple[int, int, int, int]]) -> None:
    delivery_state = DeliveryState(start)
    known: dict[int, tuple[int, int]] = {}
    begins = start
    for first, count, state, deliveries in changes:
        mark, before = delivery_state.mark(), dict(known)
        delivery_state.put([(first, first + count, state, deliveries)])
        ends = max([begins, first + count, *(offset + 1 for offset in known)])
        begins = min(begins, first)
        known = {offset: known.get(offset, (AVAILABLE, 0)) for offset in range(begins, ends)}
        known |= dict.fromkeys(range(first, first + count), (state, 0 if state == FINISHED else deliveries))
        assert checked(delivery_state) == known
        after = delivery_state.mark()
        delivery_state.back_to(mark)
        assert checked(delivery_state) == before
        delivery_state.back_to(after)
    again = DeliveryState(delivery_state.start, delivery_state.saved())
    assert checked(again) == known


@given(st.integers(0, 10), _changes, st.integers(0, 50))
def test_what_lies_below_a_new_start_is_forgotten(
    start: int, changes: list[tuple[int, int, int, int]], moved: int
) -> None:
    delivery_state = DeliveryState(start)
    for first, count, state, deliveries in changes:
        delivery_state.put([(first, first + count, state, deliveries)])
    known = checked(delivery_state)
    delivery_state.begin_at(moved)
    assert delivery_state.start == moved
    kept = {offset: what for offset, what in known.items() if offset >= moved}
    assert {offset: what for offset, what in checked(delivery_state).items() if offset in known} == kept


@given(_changes)
@example([(0, 1, FINISHED, 0), (1, 1, FINISHED, 1)])
def test_the_start_moves_over_what_is_finished(changes: list[tuple[int, int, int, int]]) -> None:
    delivery_state = DeliveryState(0)
    for first, count, state, deliveries in changes:
        delivery_state.put([(first, first + count, state, deliveries)])
    known = checked(delivery_state)
    delivery_state.finish()
    assert all(known[offset][0] == FINISHED for offset in range(delivery_state.start))
    assert delivery_state.start not in known or known[delivery_state.start][0] != FINISHED
    assert checked(delivery_state) == {offset: what for offset, what in known.items() if offset >= delivery_state.start}


@given(st.integers(0, 10), _changes, st.lists(st.tuples(st.integers(0, 6), st.integers(1, 5), st.integers(0, 3))))
def test_several_stretches_change_at_once(
    start: int, changes: list[tuple[int, int, int, int]], steps: list[tuple[int, int, int]]
) -> None:
    """As one after the other."""
    delivery_state = DeliveryState(start)
    for first, count, state, deliveries in changes:
        delivery_state.put([(first, first + count, state, deliveries)])
    one_by_one = DeliveryState(delivery_state.start, delivery_state.saved())
    stretches, at = [], 0
    for distance, count, deliveries in steps:
        stretches.append((at + distance, at + distance + count, deliveries))
        at += distance + count

    def how(run: Run, deliveries: int) -> Run:
        return run._replace(deliveries=deliveries)

    delivery_state.change(stretches, how)
    for stretch in stretches:
        one_by_one.change([stretch], how)
    assert checked(delivery_state) == checked(one_by_one)


def test_a_million_finished_records_behind_one_that_is_not_are_two_runs() -> None:
    delivery_state = DeliveryState(0)
    for first in range(1, 1_000_001, 1000):
        delivery_state.put([(first, first + 1000, FINISHED, 0)])
    assert delivery_state.runs == [Run(0, 1, AVAILABLE), Run(1, 1_000_001, FINISHED)]


def test_records_of_the_log_may_be_applied_again_from_any_of_them_on() -> None:
    """As recovery does from a checkpoint that is newer than where it begins to read."""
    steps = [
        (0, [(0, 3, 2, 0)]), (3, [(5, 6, 0, 1)]), (3, [(4, 5, 2, 0)]), (3, [(7, 9, 3, 1)]), (6, [(3, 6, 2, 0)]),
        (6, [(6, 7, 4, 2)]),
    ]  # fmt: skip
    whole = DeliveryState(0)

    def apply(delivery_state: DeliveryState, start: int, changed: list[tuple[int, int, int, int]]) -> None:
        delivery_state.put(changed)
        delivery_state.begin_at(start)

    for start, changed in steps:
        apply(whole, start, changed)
    for at in range(len(steps)):
        again = DeliveryState(whole.start, whole.saved())
        for start, changed in steps[at:]:
            apply(again, start, changed)
        assert checked(again) == checked(whole)
