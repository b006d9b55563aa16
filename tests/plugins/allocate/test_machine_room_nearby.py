"""machine_room_nearby: that what can stay near by does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from halfmoon.plugin import Queue
from halfmoon.plugins.allocate.machine_room_nearby import STRATEGIES, machine_room_nearby
from tests.plugins.allocate.allocation_cases import MEMBERS, QUEUES, check_all_owned, owners


@given(MEMBERS, QUEUES, st.sampled_from(sorted(STRATEGIES)))
def test_every_queue_has_one_owner(members: list[str], queues: list[Queue], strategy: str) -> None:
    check_all_owned(members, queues, machine_room_nearby(members, queues, strategy=STRATEGIES[strategy]))


@given(MEMBERS, QUEUES)
def test_a_queue_stays_in_its_room_where_anyone_is_there(members: list[str], queues: list[Queue]) -> None:
    rooms = {member.partition("-")[0] for member in members}
    for queue, owner in owners(machine_room_nearby(members, queues)).items():
        room = queue.broker.partition("@")[0]
        assert owner.partition("-")[0] == room or room not in rooms
