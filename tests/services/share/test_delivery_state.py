"""Runs of offsets, held against one state for each offset."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from halfmoon.core.share.ledger import AVAILABLE, FINISHED, STATE_NAMES, Ledger, Run

_changes = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 12), st.sampled_from([0, 2, 3, 4]), st.integers(0, 2)), max_size=20
)


def checked(ledger: Ledger) -> dict[int, tuple[int, int]]:
    """Offset → state and deliveries; and that the runs are as they should be."""
    at, last = ledger.start, None
    for run in ledger.runs:
        assert run.first == at < run.end
        assert last is None or last[2:] != run[2:], "neighbours are alike"
        at, last = run.end, run
    assert ledger.end == at
    found = {offset: (run.state, run.deliveries) for run in ledger.runs for offset in range(run.first, run.end)}
    states = [state for state, _ in found.values()]
    assert ledger.counts == [states.count(state) for state in range(len(STATE_NAMES))]
    return found


@given(st.integers(0, 10), _changes)
def test_a_ledger_is_a_state_for_each_offset(start: int, changes: list[tuple[int, int, int, int]]) -> None:
    ledger = Ledger(start)
    known: dict[int, tuple[int, int]] = {}
    begins = start
    for first, count, state, deliveries in changes:
        mark, before = ledger.mark(), dict(known)
        ledger.put([(first, first + count, state, deliveries)])
        ends = max([begins, first + count, *(offset + 1 for offset in known)])
        begins = min(begins, first)
        known = {offset: known.get(offset, (AVAILABLE, 0)) for offset in range(begins, ends)}
        known |= dict.fromkeys(range(first, first + count), (state, 0 if state == FINISHED else deliveries))
        assert checked(ledger) == known
        after = ledger.mark()
        ledger.back_to(mark)
        assert checked(ledger) == before
        ledger.back_to(after)
    again = Ledger(ledger.start, ledger.saved())
    assert checked(again) == known


@given(st.integers(0, 10), _changes, st.integers(0, 50))
def test_what_lies_below_a_new_start_is_forgotten(
    start: int, changes: list[tuple[int, int, int, int]], moved: int
) -> None:
    ledger = Ledger(start)
    for first, count, state, deliveries in changes:
        ledger.put([(first, first + count, state, deliveries)])
    known = checked(ledger)
    ledger.begin_at(moved)
    assert ledger.start == moved
    kept = {offset: what for offset, what in known.items() if offset >= moved}
    assert {offset: what for offset, what in checked(ledger).items() if offset in known} == kept


@given(_changes)
@example([(0, 1, FINISHED, 0), (1, 1, FINISHED, 1)])
def test_the_start_moves_over_what_is_finished(changes: list[tuple[int, int, int, int]]) -> None:
    ledger = Ledger(0)
    for first, count, state, deliveries in changes:
        ledger.put([(first, first + count, state, deliveries)])
    known = checked(ledger)
    ledger.finish()
    assert all(known[offset][0] == FINISHED for offset in range(ledger.start))
    assert ledger.start not in known or known[ledger.start][0] != FINISHED
    assert checked(ledger) == {offset: what for offset, what in known.items() if offset >= ledger.start}


@given(st.integers(0, 10), _changes, st.lists(st.tuples(st.integers(0, 6), st.integers(1, 5), st.integers(0, 3))))
def test_several_stretches_change_at_once(
    start: int, changes: list[tuple[int, int, int, int]], steps: list[tuple[int, int, int]]
) -> None:
    """As one after the other."""
    ledger = Ledger(start)
    for first, count, state, deliveries in changes:
        ledger.put([(first, first + count, state, deliveries)])
    one_by_one = Ledger(ledger.start, ledger.saved())
    stretches, at = [], 0
    for distance, count, deliveries in steps:
        stretches.append((at + distance, at + distance + count, deliveries))
        at += distance + count

    def how(run: Run, deliveries: int) -> Run:
        return run._replace(deliveries=deliveries)

    ledger.change(stretches, how)
    for stretch in stretches:
        one_by_one.change([stretch], how)
    assert checked(ledger) == checked(one_by_one)


def test_a_million_finished_records_behind_one_that_is_not_are_two_runs() -> None:
    ledger = Ledger(0)
    for first in range(1, 1_000_001, 1000):
        ledger.put([(first, first + 1000, FINISHED, 0)])
    assert ledger.runs == [Run(0, 1, AVAILABLE), Run(1, 1_000_001, FINISHED)]


def test_records_of_the_log_may_be_applied_again_from_any_of_them_on() -> None:
    """As recovery does from a checkpoint that is newer than where it begins to read."""
    steps = [
        (0, [(0, 3, 2, 0)]), (3, [(5, 6, 0, 1)]), (3, [(4, 5, 2, 0)]), (3, [(7, 9, 3, 1)]), (6, [(3, 6, 2, 0)]),
        (6, [(6, 7, 4, 2)]),
    ]  # fmt: skip
    whole = Ledger(0)

    def apply(ledger: Ledger, start: int, changed: list[tuple[int, int, int, int]]) -> None:
        ledger.put(changed)
        ledger.begin_at(start)

    for start, changed in steps:
        apply(whole, start, changed)
    for at in range(len(steps)):
        again = Ledger(whole.start, whole.saved())
        for start, changed in steps[at:]:
            apply(again, start, changed)
        assert checked(again) == checked(whole)
