"""sticky: even shares, and no assignment with even shares that would move less."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from halfmoon.plugin import Assignment, Queue
from halfmoon.plugins.allocate.averagely import averagely
from halfmoon.plugins.allocate.sticky import sticky
from tests.plugins.allocate.allocation_cases import (
    MEMBERS,
    QUEUES,
    check_all_owned,
    check_any_order,
    owners,
    shares_differ_by_one_at_most,
)

SMALL_MEMBERS = ["a", "b", "c"]
SMALL_QUEUES = [Queue("t", "b", number) for number in range(5)]


def kept(before: Assignment, after: Assignment) -> int:
    old = owners(before)
    return sum(old.get(queue) == owner for queue, owner in owners(after).items())


@given(MEMBERS, QUEUES)
def test_at_first_it_is_averagely(members: list[str], queues: list[Queue]) -> None:
    assert sticky(members, queues) == averagely(members, queues)
    check_any_order(sticky, members, queues)


@given(MEMBERS, MEMBERS, QUEUES, QUEUES)
def test_every_queue_has_one_owner_and_shares_are_even(
    members: list[str], more: list[str], queues: list[Queue], others: list[Queue]
) -> None:
    previous = averagely([*members[::2], *more], [*queues[::3], *others])
    assignment = sticky(members, queues, previous)
    check_all_owned(members, queues, assignment)
    assert shares_differ_by_one_at_most(assignment)


@given(MEMBERS, QUEUES)
def test_without_a_change_nothing_moves(members: list[str], queues: list[Queue]) -> None:
    before = sticky(members, queues)
    assert sticky(members[::-1], queues[::-1], before) == before


@given(st.lists(st.sampled_from([None, "a", "b", "c", "gone"]), min_size=5, max_size=5), st.integers(1, 3))
def test_nothing_even_moves_less(owned: list[str | None], count: int) -> None:
    members = SMALL_MEMBERS[:count]
    before: Assignment = {}
    for queue, was in zip(SMALL_QUEUES, owned, strict=True):
        if was is not None:
            before.setdefault(was, []).append(queue)
    best = 0
    for choice in product(members, repeat=len(SMALL_QUEUES)):
        other: Assignment = {member: [] for member in members}
        for queue, owner in zip(SMALL_QUEUES, choice, strict=True):
            other[owner].append(queue)
        if shares_differ_by_one_at_most(other):
            best = max(best, kept(before, other))
    assert kept(before, sticky(members, SMALL_QUEUES, before)) == best


def test_a_new_member_takes_no_more_than_its_share() -> None:
    queues = [Queue("t", "b", number) for number in range(9)]
    before = sticky(["a", "b"], queues)
    after = sticky(["a", "b", "c"], queues, before)
    assert [len(owned) for owned in after.values()] == [3, 3, 3]
    assert kept(before, after) == 6


def test_a_queue_claimed_twice_goes_to_one() -> None:
    queues = SMALL_QUEUES[:2]
    assert sticky(["a", "b"], queues, {"b": queues, "a": queues[:1]}) == {"a": queues[:1], "b": queues[1:]}
