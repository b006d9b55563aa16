"""What broker.yaml says of a strategy is what the strategy then does."""

from __future__ import annotations

from typing import Any

import pytest

from halfmoon.config.settings import load_settings
from halfmoon.hooks.plugins import load_plugins
from halfmoon.plugin import Queue
from halfmoon.plugins import BUILT_IN
from halfmoon.plugins.allocate import find_allocator
from halfmoon.plugins.allocate.averagely_by_circle import averagely_by_circle
from halfmoon.plugins.allocate.consistent_hash import consistent_hash

MEMBERS = ["r1-a", "r1-b", "r1-c"]
QUEUES = [Queue("t", broker, number) for broker in ("r1@x", "r2@y") for number in range(8)]
"""Queues are numbered below by their place in this list."""
TABLE = {"r1-b": ["t/3"], "r1-c": ["t/*"]}
EXPECTED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "consistent_hash": ({"virtual_nodes": 40}, consistent_hash(MEMBERS, QUEUES, virtual_nodes=40)),
    "machine_room": ({"rooms": ["r2"]}, {"r1-a": [8, 9, 14], "r1-b": [10, 11, 15], "r1-c": [12, 13]}),
    "machine_room_nearby": (
        {"strategy": "averagely_by_circle"},
        {
            member: averagely_by_circle(MEMBERS, QUEUES[:8])[member] + averagely_by_circle(MEMBERS, QUEUES[8:])[member]
            for member in MEMBERS
        },
    ),
    "by_config": (
        {"assign": TABLE},
        {"r1-a": [], "r1-b": [3, 11], "r1-c": [number for number in range(16) if number not in (3, 11)]},
    ),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_strategy_does_what_its_settings_say(name: str) -> None:
    settings, expected = EXPECTED[name]
    shares = {
        member: [QUEUES[each] if isinstance(each, int) else each for each in queues]
        for member, queues in expected.items()
    }
    loaded = load_plugins(load_settings({"plugins": {name: settings}}, {}, {}), BUILT_IN, installed=[])
    plain = load_plugins(load_settings({}, {}, {}), BUILT_IN, installed=[])
    assert loaded.allocators[name](MEMBERS, QUEUES) == shares
    assert find_allocator(name, settings)(MEMBERS, QUEUES) == shares
    assert plain.allocators[name](MEMBERS, QUEUES) != shares
