"""Which worker of a parallel run gets which tests, and when: `--dist loadfile` as this project needs it.

A file stays together, since what a module sets up is set up once. Files that share a JVM of the whole run stay together
as well: the JVM starts in one worker. What takes longest comes first, else the last worker ends minutes after the
others. pytest-xdist's own order begins with the files of many tests, and those of a few long ones come last.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from xdist.scheduler import LoadScopeScheduling

_SESSION, _PROGRAMS, _ROCKETMQ = "Spark", "Spark's programs", "RocketMQ's Java client"
_TOGETHER = {
    # Neither needs the tests' own session.
    "tests/spark/test_cluster.py": "tests/spark/test_cluster.py",
    "tests/spark/test_connect.py": "tests/spark/test_connect.py",
    # Beside the session, they start programs with JVMs of their own.
    "tests/spark/test_kill9_pipeline.py": _PROGRAMS,
    "tests/spark/test_demo.py": _PROGRAMS,
    "tests/spark/": _SESSION,
    "tests/test_docs_pipeline.py": _SESSION,
    "tests/clients/rocketmq/": _ROCKETMQ,
}
"""The first that a path begins with says what it belongs to. What is not named is a unit of its own."""

EXPECTED_S = {
    _SESSION: 240,
    _PROGRAMS: 180,
    _ROCKETMQ: 100,
    "tests/spark/test_cluster.py": 50,
    "tests/spark/test_connect.py": 30,
}
"""Seconds that the long units take on two quiet processors, roughly. Only the order counts."""
SHORT_TEST_S = 0.03
"""What a test takes in a file that is not named."""


def unit_of(node_id: str) -> str:
    """The name of what stays together."""
    path = node_id.partition("::")[0]
    return next((unit for beginning, unit in _TOGETHER.items() if path.startswith(beginning)), path)


class LongestFirst(LoadScopeScheduling):
    """What `--dist loadfile` stands for in this project."""

    def __init__(self, config: Any, log: Any = None) -> None:
        super().__init__(config, log)
        self.workqueue = _Longest()

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


class _Longest(OrderedDict[str, dict[str, bool]]):
    """The units that nobody has yet. The scheduler takes from the front."""

    def popitem(self, last: bool = True) -> tuple[str, dict[str, bool]]:
        unit = max(self, key=lambda unit: EXPECTED_S.get(unit, SHORT_TEST_S * len(self[unit])))
        return unit, self.pop(unit)
