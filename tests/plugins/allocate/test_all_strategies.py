"""What holds for several strategies: RocketMQ's results, every queue with one owner, and order that does not matter."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given

from halfmoon.plugin import Allocator, Queue
from halfmoon.plugins.allocate.averagely import averagely
from halfmoon.plugins.allocate.averagely_by_circle import averagely_by_circle
from halfmoon.plugins.allocate.consistent_hash import consistent_hash
from halfmoon.plugins.allocate.machine_room import machine_room
from halfmoon.plugins.allocate.machine_room_nearby import machine_room_nearby
from tests.plugins.allocate.allocation_cases import (
    MEMBERS,
    QUEUES,
    check_all_owned,
    check_any_order,
    golden,
    results,
    shares_differ_by_one_at_most,
)

ROCKETMQ: dict[str, Allocator] = {
    "averagely": averagely,
    "circle": averagely_by_circle,
    "consistentHash": consistent_hash,
    "machineRoom": partial(machine_room, rooms={"r1", "r2"}),
    "machineRoomNearby(averagely)": machine_room_nearby,
}
"""Its names, in the golden results."""


@pytest.mark.parametrize(("strategy", "case"), golden(ROCKETMQ))
def test_as_rocketmq(strategy: str, case: dict[str, Any]) -> None:
    assert results(ROCKETMQ[strategy], case) == case["result"]


@pytest.mark.parametrize("allocator", [averagely, averagely_by_circle])
@given(MEMBERS, QUEUES)
def test_every_queue_has_one_owner_and_shares_are_even(
    allocator: Allocator, members: list[str], queues: list[Queue]
) -> None:
    assignment = allocator(members, queues)
    check_all_owned(members, queues, assignment)
    assert shares_differ_by_one_at_most(assignment)


@pytest.mark.parametrize("strategy", ROCKETMQ)
@given(MEMBERS, QUEUES)
def test_order_does_not_matter(strategy: str, members: list[str], queues: list[Queue]) -> None:
    check_any_order(ROCKETMQ[strategy], members, queues)
