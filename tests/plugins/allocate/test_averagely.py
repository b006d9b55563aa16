"""averagely: which queues stand together."""

from __future__ import annotations

from hypothesis import given

from halfmoon.plugin import Queue, sorted_queues
from halfmoon.plugins.allocate.averagely import averagely
from tests.plugins.allocate.allocation_cases import MEMBERS, QUEUES


@given(MEMBERS, QUEUES)
def test_shares_are_runs_of_neighbours(members: list[str], queues: list[Queue]) -> None:
    dealt = [queue for owned in averagely(members, queues).values() for queue in owned]
    assert dealt == (sorted_queues(queues) if members else [])
