"""What an allocation strategy is given, and how its answer is checked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from halfmoon.plugins.allocate.averagely import averagely
from halfmoon.plugins.allocate.uniform import uniform
from halfmoon.services.groups.allocation import (
    AnyAllocator,
    GroupMember,
    Queue,
    allocate,
    allocate_topics,
    readers,
    sorted_members,
    sorted_queues,
    unowned,
)

VECTORS = json.loads((Path(__file__).parents[2] / "plugins/allocate/vectors.json").read_text(encoding="utf-8"))
Q0, Q1 = Queue("t", "b", 0), Queue("t", "b", 1)


def test_a_queue_is_written_as_in_rocketmq() -> None:
    assert str(Queue("T", "broker-a", 3)) == VECTORS["messageQueueToString"]


def test_queues_are_ordered_by_topic_then_broker_then_number() -> None:
    ordered = [Queue("a", "x", 10), Queue("a", "y", 2), Queue("a", "y", 10), Queue("b", "a", 0)]
    assert sorted_queues([*reversed(ordered), ordered[0]]) == ordered


def test_names_are_ordered_as_java_does() -> None:
    # U+1F600 is two surrogates from U+D83D on, so for Java it sorts before U+FF5E; for Python after it.
    assert sorted_members(["\uff5e", "\U0001f600", "b", "B", "b"]) == ["B", "b", "\U0001f600", "\uff5e"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"a": [Q0]}, "members are not the group's: b"),
        ({"a": [], "b": [], "c": []}, "members are not the group's: c"),
        ({"a": [Queue("t", "b", 9)], "b": []}, "a was given a queue that does not exist"),
        ({"a": [Q0], "b": [Q1, Q0]}, "was given to a and to b"),
        ({"a": [Q0, Q0], "b": []}, "was given to a and to a"),
    ],
)
def test_a_wrong_answer_is_refused(answer: dict[str, list[Queue]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        allocate(lambda members, queues: answer, ["a", "b"], [Q0, Q1])


def test_queues_may_be_left_out() -> None:
    assignment = allocate(lambda members, queues: {"a": [Q1]}, ["a"], [Q1, Q0])
    assert unowned([Q1, Q0], assignment) == [Q0]


def test_only_those_who_ask_are_told_who_owned_what() -> None:
    class Curious:
        wants_previous = True

        def __call__(
            self,
            members: Sequence[str],
            queues: Sequence[Queue],
            previous: Mapping[str, Sequence[Queue]] | None = None,
            /,
        ) -> dict[str, list[Queue]]:
            assert previous == {"a": [Q0]}
            return {"a": list(queues)}

    assert allocate(Curious(), ["a"], [Q0], {"a": [Q0]}) == {"a": [Q0]}
    assert allocate(lambda members, queues: {"a": list(queues)}, ["a"], [Q0], {"a": []}) == {"a": [Q0]}


def test_who_reads_a_topic() -> None:
    wants = [frozenset("tu"), frozenset("v"), None, frozenset("tu"), frozenset()]
    members = [GroupMember(f"m{number}", topics=topics) for number, topics in enumerate(wants)]
    of = readers([*members, "plain"])
    assert {topic: list(of(topic)) for topic in "tuvw"} == {
        "t": [0, 2, 3, 5], "u": [0, 2, 3, 5], "v": [1, 2, 5], "w": [2, 5]
    }  # fmt: skip


@pytest.mark.parametrize("allocator", [averagely, uniform], ids=["by_topic", "all_topics"])
def test_members_that_read_the_same_topics_are_looked_at_as_one(allocator: AnyAllocator) -> None:
    class Counted(frozenset[str]):
        looks = 0

        def __contains__(self, topic: object) -> bool:
            Counted.looks += 1
            return super().__contains__(topic)

    topics = {f"t{number}": [Queue(f"t{number}", "b", 0)] for number in range(20)}
    wanted = Counted(topics)
    members = [GroupMember(f"m{number}", topics=wanted) for number in range(50)]
    assignment = allocate_topics(allocator, members, topics, {})
    assert sum(map(len, assignment.values())) == len(topics)
    assert Counted.looks <= 2 * len(topics)
