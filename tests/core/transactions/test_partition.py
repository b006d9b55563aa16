"""What a partition knows of transactions: the packed list of aborted ones, held against a plain one; what is stable."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.core.records.batch_header import CONTROL, TRANSACTIONAL, BatchHeader
from halfmoon.core.records.batches import build_batch, parse_header
from halfmoon.core.transactions.aborted import Aborted, AbortedBatches, AbortedTransactions
from halfmoon.core.transactions.partition import PartitionTransactions

MANY = 3_000
"""Several blocks of the packed list."""


def batch(offset: int, producer_id: int, attributes: int = TRANSACTIONAL) -> BatchHeader:
    header = parse_header(build_batch([(None, b"v", 0, ())]))
    return header._replace(base_offset=offset, producer_id=producer_id, attributes=attributes)


def test_which_batches_were_aborted() -> None:
    aborted = AbortedBatches([Aborted(5, 10, 20), Aborted(5, 40, 50), Aborted(6, 0, 100)])
    assert [offset for offset in range(60) if aborted.hold(batch(offset, 5))] == [*range(10, 21), *range(40, 51)]
    assert aborted.hold(batch(45, 6))
    assert not aborted.hold(batch(15, 7))
    assert not aborted.hold(batch(15, 5, 0))
    assert not aborted.hold(batch(20, 5, TRANSACTIONAL | CONTROL))
    assert aborted.hide(batch(30, 5, TRANSACTIONAL | CONTROL)), "a marker is for nobody"
    assert not aborted.hide(batch(30, 5))


class Transactions:
    """One write after the other; of each transaction its first offset and its marker's are remembered."""

    def __init__(self) -> None:
        self.partition = PartitionTransactions()
        self.aborted: list[Aborted] = []
        self.next_offset = self.start_offset = 0

    def write(self, producer_id: int) -> None:
        self.partition.began(producer_id, self.next_offset)
        self.next_offset += 1

    def end(self, producer_id: int, *, commit: bool, visible: int | None = None) -> None:
        first = self.partition.open.get(producer_id)
        end_offset = self.next_offset + 1 if visible is None else visible
        self.partition.ended(producer_id, self.next_offset, end_offset, committed=commit)
        if first is not None and not commit:
            self.aborted.append(Aborted(producer_id, first, self.next_offset))
        self.next_offset += 1

    def move_start(self, offset: int) -> None:
        self.start_offset = max(self.start_offset, min(offset, self.next_offset))
        self.partition.forget(self.start_offset)
        self.aborted = [each for each in self.aborted if each.last_offset >= self.start_offset]

    def check(self, low: int, high: int) -> None:
        """What is found is what overlaps, and maybe some that do not (readers do not mind)."""
        found = list(self.partition.aborted_in(low, high))
        wanted = [each for each in self.aborted if each.last_offset >= low and each.first_offset < high]
        assert found == wanted


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 5)),
        st.tuples(st.just("abort"), st.integers(0, 5)),
        st.tuples(st.just("commit"), st.integers(0, 5)),
        st.tuples(st.just("start"), st.integers(0, 60)),
        st.tuples(st.just("look"), st.integers(0, 60)),
    ),
    max_size=60,
)


@given(ACTIONS, st.integers(0, 700))
def test_what_is_found_is_what_overlaps(actions: list[tuple[str, int]], many: int) -> None:
    here = Transactions()
    here.write(9)  # open until the end: nothing becomes stable beside it
    for _ in range(many):
        here.write(8)
        here.end(8, commit=False)
    for action, number in actions:
        if action == "write":
            here.write(number)
        elif action == "start":
            here.move_start(number * here.next_offset // 60)
        elif action == "look":
            at = here.start_offset + number * (here.next_offset - here.start_offset) // 60
            here.check(at, at + 1)
            here.check(at, at + 40)
        else:
            here.end(number, commit=action == "commit")
    here.check(here.start_offset, here.next_offset)
    again = AbortedTransactions(here.partition.aborted.to_bytes())
    assert list(again) == list(here.partition.aborted) == here.aborted
    assert list(again.overlapping(0, here.next_offset)) == here.aborted


@pytest.mark.pure
@pytest.mark.parametrize("beside", [False, True], ids=["one after the other", "beside one that stays open"])
def test_a_search_does_not_walk_over_all_that_come_later(beside: bool) -> None:
    here = Transactions()
    if beside:
        here.write(9)
    for _ in range(MANY):
        here.write(8)
        here.end(8, commit=False)
    looked_at = 0

    class Counting(int):
        def __gt__(self, other: int) -> bool:  # a first offset < this
            nonlocal looked_at
            looked_at += 1
            return int(self) > other

    assert len(list(here.partition.aborted_in(100, Counting(110)))) in (5, 6)
    assert 0 < looked_at < MANY // 8


def test_entries_are_given_back_to_memory() -> None:
    here = Transactions()
    for _ in range(MANY):
        here.write(8)
        here.end(8, commit=False)
    full = here.partition.aborted._state[0][0]
    here.move_start(here.next_offset - 10)
    assert len(here.partition.aborted) == 5
    assert len(here.partition.aborted._state[0][0]) < len(full) // 4
    assert len(full) == MANY, "who searches in another thread goes on with what it has"


# -- what is stable ----------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("write"), st.integers(0, 3)),
            st.tuples(st.just("end"), st.integers(0, 3)),
            st.tuples(st.just("see"), st.integers(0, 10)),
        ),
        max_size=50,
    )
)
def test_what_is_stable_is_decided_and_visible(actions: list[tuple[str, int]]) -> None:
    here = Transactions()
    undecided: dict[int, int] = {}
    ended: list[tuple[int, int]] = []
    visible = 0
    for action, number in actions:
        if action == "write":
            undecided.setdefault(number, here.next_offset)
            here.write(number)
        elif action == "end":
            first = undecided.pop(number, None)
            if first is not None:
                ended.append((first, here.next_offset))
            here.end(number, commit=bool(number % 2), visible=visible)
        else:
            visible = min(here.next_offset, visible + number)
        ended = [each for each in ended if each[1] >= visible]
        first = min([*undecided.values(), *(first for first, _ in ended), visible])
        assert here.partition.stable_offset(visible) == first


def test_what_has_ended_is_forgotten_though_nobody_reads() -> None:
    here = Transactions()
    for _ in range(MANY):
        here.write(1)
        here.end(1, commit=True, visible=here.next_offset)  # visible is what came before this marker
    assert len(here.partition._ending) == 1
