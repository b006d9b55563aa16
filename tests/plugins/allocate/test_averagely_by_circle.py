"""averagely_by_circle: which queues stand apart."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given

from halfmoon.plugin import Queue, sorted_queues
from halfmoon.plugins.allocate.averagely_by_circle import averagely_by_circle
from tests.plugins.allocate.allocation_cases import MEMBERS, QUEUES, owners


@given(MEMBERS, QUEUES)
def test_neighbours_go_to_different_members(members: list[str], queues: list[Queue]) -> None:
    owner = owners(averagely_by_circle(members, queues))
    if len(members) > 1:
        in_order = sorted_queues(queues)
        assert all(owner[first] != owner[second] for first, second in pairwise(in_order))
