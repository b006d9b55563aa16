"""What the tests of the allocation strategies share: golden results, and groups and queues for properties."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from halfmoon.plugin import Allocator, Assignment, Queue

VECTORS: dict[str, Any] = json.loads(Path(__file__).with_name("vectors.json").read_text(encoding="utf-8"))
BROKERS = ("r1@broker-a", "r2@broker-b", "r3@broker-c")

MEMBERS = st.lists(
    st.from_regex(r"r[1-4]-[a-z0-9]{1,6}", fullmatch=True) | st.text(min_size=1, max_size=8), max_size=9, unique=True
)
QUEUES = st.lists(
    st.builds(Queue, st.sampled_from(["t", "u", "%RETRY%g"]), st.sampled_from([*BROKERS, "plain"]), st.integers(0, 40)),
    max_size=60,
    unique=True,
)


def golden(strategies: Iterable[str]) -> list[Any]:
    """RocketMQ's results of these strategies, 25 each, as pytest's parameters."""
    cases = [case for case in VECTORS["allocations"] if case["strategy"] in strategies]
    assert Counter(case["strategy"] for case in cases) == dict.fromkeys(strategies, 25)
    return [
        pytest.param(
            case["strategy"], case, id=f"{case['strategy']}-{case['queuesPerBroker']}x{len(case['consumers'])}"
        )
        for case in cases
    ]


def results(allocator: Allocator, case: dict[str, Any]) -> dict[str, list[str]]:
    """What `allocator` makes of a golden case, in the case's form."""
    queues = [Queue("T", broker, number) for broker in BROKERS for number in range(case["queuesPerBroker"])]
    assignment = allocator(case["consumers"], queues)
    return {member: [f"{queue.broker}:{queue.queue_id}" for queue in owned] for member, owned in assignment.items()}


def owners(assignment: Assignment) -> dict[Queue, str]:
    """Queue → its owner; fails where a queue has two."""
    found: dict[Queue, str] = {}
    for member, owned in assignment.items():
        for queue in owned:
            assert queue not in found, f"{queue} has two owners"
            found[queue] = member
    return found


def check_any_order(allocator: Allocator, members: list[str], queues: list[Queue]) -> None:
    """The same members and queues in another order, or twice, give the same answer."""
    expected = allocator(members, queues)
    assert allocator(members[::-1], queues[::-1]) == expected
    assert allocator(members[1:] + members[:1], queues[2:] + queues) == expected


def check_all_owned(members: list[str], queues: list[Queue], assignment: Assignment) -> None:
    """Every member is answered for, and every queue has one owner if there is anyone at all."""
    assert set(assignment) == set(members)
    assert set(owners(assignment)) == (set(queues) if members else set())


def shares_differ_by_one_at_most(assignment: Assignment) -> bool:
    sizes = [len(owned) for owned in assignment.values()]
    return not sizes or max(sizes) - min(sizes) <= 1
