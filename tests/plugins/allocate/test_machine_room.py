"""machine_room: who reads what is in no room."""

from __future__ import annotations

import pytest
from hypothesis import given

from halfmoon.plugin import Queue
from halfmoon.plugins.allocate.machine_room import machine_room
from tests.plugins.allocate.allocation_cases import MEMBERS, QUEUES, check_all_owned, shares_differ_by_one_at_most


@given(MEMBERS, QUEUES)
def test_queues_of_other_rooms_have_no_owner(members: list[str], queues: list[Queue]) -> None:
    assignment = machine_room(members, queues, rooms=["r1", "r2"])
    local = [queue for queue in queues if queue.broker in ("r1@broker-a", "r2@broker-b")]
    check_all_owned(members, local, assignment)
    assert shares_differ_by_one_at_most(assignment)


@given(MEMBERS, QUEUES)
def test_without_rooms_every_queue_counts(members: list[str], queues: list[Queue]) -> None:
    check_all_owned(members, queues, machine_room(members, queues))


@pytest.mark.parametrize("broker", ["r1", "r1@", "r1@a@b", "R1@a"])
def test_what_is_in_no_room(broker: str) -> None:
    assert machine_room(["m"], [Queue("t", broker, 0)], rooms=["r1"]) == {"m": []}
