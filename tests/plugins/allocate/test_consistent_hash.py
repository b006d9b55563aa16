"""consistent_hash: that few queues move."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from halfmoon.plugin import Queue
from halfmoon.plugins.allocate.consistent_hash import consistent_hash
from tests.plugins.allocate.allocation_cases import MEMBERS, QUEUES, check_all_owned, owners


@given(MEMBERS, QUEUES)
def test_every_queue_has_one_owner(members: list[str], queues: list[Queue]) -> None:
    check_all_owned(members, queues, consistent_hash(members, queues))


@given(MEMBERS.filter(bool), QUEUES, st.integers(0))
def test_only_the_queues_of_who_leaves_move(members: list[str], queues: list[Queue], which: int) -> None:
    left = members[which % len(members)]
    before = owners(consistent_hash(members, queues))
    after = owners(consistent_hash([member for member in members if member != left], queues))
    moved = {queue for queue in after if after[queue] != before[queue]}
    assert moved == ({queue for queue in before if before[queue] == left} if len(members) > 1 else set())


def test_more_places_on_the_ring_make_shares_more_even() -> None:
    members, queues = [f"m{n}" for n in range(8)], [Queue("t", "b", n) for n in range(2_000)]

    def largest(virtual_nodes: int) -> int:
        return max(map(len, consistent_hash(members, queues, virtual_nodes=virtual_nodes).values()))

    assert largest(1) > largest(10) > largest(1_000)
    assert largest(1_000) < 1.2 * len(queues) / len(members)


def test_a_member_stands_on_the_ring_ten_times() -> None:
    members, queues = [f"m{n}" for n in range(8)], [Queue("t", "b", n) for n in range(2_000)]
    shares = {nodes: consistent_hash(members, queues, virtual_nodes=nodes) for nodes in (9, 10, 11)}
    assert consistent_hash(members, queues) == shares[10]
    assert shares[10] not in (shares[9], shares[11])
