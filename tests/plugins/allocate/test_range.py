"""range: Kafka's server-side assignor: runs of each topic, the same for topics that are partitioned alike."""

from __future__ import annotations

from hypothesis import given

from halfmoon.plugin import GroupMember, Queue
from halfmoon.plugins.allocate.range import range_
from halfmoon.services.groups.allocation import allocate_topics
from tests.plugins.allocate.allocation_cases import MEMBERS, QUEUES, check_all_owned, check_any_order


def numbers(owned: list[Queue], topic: str = "t") -> list[int]:
    return [queue.queue_id for queue in owned if queue.topic == topic]


def queues(topic: str, count: int) -> list[Queue]:
    return [Queue(topic, "b", number) for number in range(count)]


@given(MEMBERS, QUEUES)
def test_every_queue_has_one_owner(members: list[str], given_queues: list[Queue]) -> None:
    check_all_owned(members, given_queues, range_(members, given_queues))
    check_any_order(range_, members, given_queues)


@given(MEMBERS, QUEUES)
def test_shares_of_a_topic_are_runs_and_differ_by_one_at_most(members: list[str], given_queues: list[Queue]) -> None:
    one = [queue for queue in given_queues if queue.topic == "t"]
    sizes = [len(share) for share in range_(members, one).values()]
    assert not sizes or max(sizes) - min(sizes) <= 1


def test_seven_among_three() -> None:
    assignment = range_(["a", "b", "c"], queues("t", 7))
    assert [numbers(assignment[member]) for member in "abc"] == [[0, 1, 2], [3, 4], [5, 6]]


def test_equally_partitioned_topics_are_read_together() -> None:
    assignment = range_(["b", "a"], queues("t", 5) + queues("u", 5))
    for member in "ab":
        assert numbers(assignment[member], "t") == numbers(assignment[member], "u")


def test_static_members_come_first_by_instance_id() -> None:
    members = [GroupMember("a-dynamic"), GroupMember("z", instance_id="z"), GroupMember("y", instance_id="y")]
    assignment = range_(members, queues("t", 3))
    assert {str(name): numbers(share) for name, share in assignment.items()} == {"y": [0], "z": [1], "a-dynamic": [2]}


def test_a_topic_goes_only_to_those_who_read_it() -> None:
    members = [GroupMember("a", topics=frozenset("t")), GroupMember("b", topics=frozenset("tu"))]
    assignment = allocate_topics(range_, members, {"t": queues("t", 2), "u": queues("u", 2)}, {})
    assert assignment == {"a": queues("t", 2)[:1], "b": queues("t", 2)[1:] + queues("u", 2)}
