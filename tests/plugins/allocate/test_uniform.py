"""uniform: equal shares over all topics, with few moves, also where members read different topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from halfmoon.plugin import Assignment, GroupMember, Queue
from halfmoon.plugins.allocate.averagely import averagely
from halfmoon.plugins.allocate.sticky import sticky
from halfmoon.plugins.allocate.uniform import uniform
from halfmoon.services.groups.allocation import allocate_topics
from tests.plugins.allocate.allocation_cases import (
    MEMBERS,
    QUEUES,
    check_all_owned,
    check_any_order,
    owners,
    shares_differ_by_one_at_most,
)

TOPICS = {name: [Queue(name, "b", number) for number in range(count)] for name, count in (("t", 7), ("u", 1), ("v", 4))}
READERS = st.lists(st.frozensets(st.sampled_from("tuv")), min_size=1, max_size=6)
ALL = [queue for queues in TOPICS.values() for queue in queues]


def group(readers: Sequence[frozenset[str]]) -> list[GroupMember]:
    return [GroupMember(f"m{number}", topics=topics) for number, topics in enumerate(readers)]


def ask(members: Sequence[GroupMember], previous: Mapping[str, Sequence[Queue]]) -> Assignment:
    return allocate_topics(uniform, members, TOPICS, previous)


@given(MEMBERS, MEMBERS, QUEUES, QUEUES)
def test_every_queue_has_one_owner_and_shares_are_even(
    members: list[str], more: list[str], queues: list[Queue], others: list[Queue]
) -> None:
    previous = averagely([*members[::2], *more], [*queues[::3], *others])
    assignment = uniform(members, queues, previous)
    check_all_owned(members, queues, assignment)
    assert shares_differ_by_one_at_most(assignment)
    check_any_order(lambda m, q: uniform(m, q, previous), members, queues)


@given(MEMBERS, QUEUES, MEMBERS)
def test_where_all_read_the_same_it_moves_no_more_than_sticky(
    members: list[str], queues: list[Queue], before: list[str]
) -> None:
    previous = averagely(before, queues)
    old = owners(previous)

    def kept(assignment: Assignment) -> int:
        return sum(old.get(queue) == owner for queue, owner in owners(assignment).items())

    assert kept(uniform(members, queues, previous)) == kept(sticky(members, queues, previous))


def test_many_topics_with_one_queue_are_shared_out() -> None:
    queues = [Queue(f"t{number}", "b", 0) for number in range(10)]
    assignment = uniform(["a", "b"], queues, {})
    assert [len(assignment[member]) for member in "ab"] == [5, 5]


@given(READERS, READERS)
def test_queues_go_to_readers_and_no_move_would_help(
    before: list[frozenset[str]], readers: list[frozenset[str]]
) -> None:
    members = group(readers)
    previous = ask(group(before), {})
    assignment = ask(members, previous)
    owner = owners(assignment)
    for queue in ALL:
        readable = [member for member in members if queue.topic in (member.topics or ())]
        assert (queue in owner) == bool(readable)
        for member in readable:
            assert len(assignment[owner[queue]]) - len(assignment[member]) < 2
    assert ask(members, assignment) == assignment


def test_a_queue_that_two_claim_counts_for_who_sorts_first() -> None:
    queue = Queue("t", "b", 0)
    assert uniform(["b", "a"], [queue], {"a": [queue], "b": [queue]}) == {"a": [queue], "b": []}
