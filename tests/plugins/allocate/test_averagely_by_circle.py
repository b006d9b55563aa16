"""averagely_by_circle: RocketMQ's results, and what holds for every group."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given

from halfmoon.plugin import Queue, sorted_queues
from halfmoon.plugins.allocate.averagely_by_circle import averagely_by_circle
from tests.plugins.allocate.allocation_cases import (
    MEMBERS,
    QUEUES,
    check_all_owned,
    check_any_order,
    golden,
    owners,
    results,
    shares_differ_by_one_at_most,
)


@pytest.mark.parametrize("case", golden("circle"))
def test_as_rocketmq(case: dict[str, Any]) -> None:
    assert results(averagely_by_circle, case) == case["result"]


@given(MEMBERS, QUEUES)
def test_every_queue_has_one_owner_and_shares_are_even(members: list[str], queues: list[Queue]) -> None:
    assignment = averagely_by_circle(members, queues)
    check_all_owned(members, queues, assignment)
    assert shares_differ_by_one_at_most(assignment)


@given(MEMBERS, QUEUES)
def test_order_does_not_matter(members: list[str], queues: list[Queue]) -> None:
    check_any_order(averagely_by_circle, members, queues)


@given(MEMBERS, QUEUES)
def test_neighbours_go_to_different_members(members: list[str], queues: list[Queue]) -> None:
    owner = owners(averagely_by_circle(members, queues))
    if len(members) > 1:
        in_order = sorted_queues(queues)
        assert all(owner[first] != owner[second] for first, second in pairwise(in_order))
