"""averagely: RocketMQ's results, and what holds for every group."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from halfmoon.plugin import Queue, sorted_queues
from halfmoon.plugins.allocate.averagely import averagely
from tests.plugins.allocate.allocation_cases import (
    MEMBERS,
    QUEUES,
    check_all_owned,
    check_any_order,
    golden,
    results,
    shares_differ_by_one_at_most,
)


@pytest.mark.parametrize("case", golden("averagely"))
def test_as_rocketmq(case: dict[str, Any]) -> None:
    assert results(averagely, case) == case["result"]


@given(MEMBERS, QUEUES)
def test_every_queue_has_one_owner_and_shares_are_even(members: list[str], queues: list[Queue]) -> None:
    assignment = averagely(members, queues)
    check_all_owned(members, queues, assignment)
    assert shares_differ_by_one_at_most(assignment)


@given(MEMBERS, QUEUES)
def test_order_does_not_matter(members: list[str], queues: list[Queue]) -> None:
    check_any_order(averagely, members, queues)


@given(MEMBERS, QUEUES)
def test_shares_are_runs_of_neighbours(members: list[str], queues: list[Queue]) -> None:
    dealt = [queue for owned in averagely(members, queues).values() for queue in owned]
    assert dealt == (sorted_queues(queues) if members else [])
