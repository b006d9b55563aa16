"""Lines for the audit topic are written in a shard of this process."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from halfmoon.server.workers.audit_lines import AuditLines


class Topic:
    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.dropped = 0

    def put(self, line: bytes, *, echo: bool) -> None:
        self.lines.append(line)


def node() -> Any:
    return SimpleNamespace(audit_topic=Topic(), kernel=SimpleNamespace(log=SimpleNamespace(failed=None)))


def test_one_whose_log_takes_writes_comes_first() -> None:
    """A shard of which the database has lost something stays open here, and takes nothing more."""
    nodes = {number: node() for number in (0, 1, 2)}
    lines = AuditLines(nodes, lambda number: number < 2)
    nodes[0].kernel.log.failed = OSError("the database has lost something of it")
    lines.put(b"a", echo=False)
    nodes[1].kernel.log.failed = OSError("it is away")
    lines.put(b"b", echo=False)  # whoever is asked says how many it has dropped
    assert [nodes[number].audit_topic.lines for number in nodes] == [[b"b"], [b"a"], []]


def test_it_is_the_first_of_those_that_are_open_here_whichever_was_opened_first() -> None:
    """Those that are fast come first."""
    nodes = {number: node() for number in (0, 9, 3)}
    owned = {3, 9}
    lines = AuditLines(nodes, owned.__contains__)
    lines.put(b"a", echo=False)
    owned.remove(3)
    lines.put(b"b", echo=False)
    assert {number: node.audit_topic.lines for number, node in nodes.items()} == {0: [], 3: [b"a"], 9: [b"b"]}
    owned.clear()
    lines.put(b"c", echo=False)
    lines.put(b"d", echo=True)
    assert lines.dropped == 1


def test_not_all_shards_are_looked_at_for_each_line() -> None:
    """A node may have 256, and strangers who are refused cause many lines."""
    nodes = {number: node() for number in range(1, 256)}
    asked: list[int] = []
    lines = AuditLines(nodes, lambda number: not asked.append(number))  # type: ignore[func-returns-value]
    lines.put(b"a", echo=False)
    asked.clear()
    for _ in range(10):
        lines.put(b"b", echo=False)
    assert set(asked) == {1}
    nodes[0] = node()
    lines.opened()
    lines.put(b"c", echo=False)
    assert [nodes[number].audit_topic.lines for number in (0, 1, 2)] == [[b"c"], [b"a", *[b"b"] * 10], []]
    del nodes[0]
    lines.put(b"d", echo=False)
    assert nodes[1].audit_topic.lines[-1] == b"d"


def test_what_a_shard_drops_while_it_is_closed_counts() -> None:
    """Its log is lost, and it still had lines. They are counted once at each moment, also where it could not be closed
    in good order."""
    nodes = {number: node() for number in (0, 1)}
    lines = AuditLines(nodes, lambda number: True)
    leaves = nodes[1]
    nodes[0].audit_topic.dropped, leaves.audit_topic.dropped = 2, 3

    def close_half() -> None:
        with lines.closing(leaves):
            assert lines.dropped == 5
            del nodes[1]
            assert lines.dropped == 5
            leaves.audit_topic.dropped += 4
            with lines.closing(leaves):
                assert lines.dropped == 9
            assert lines.dropped == 9
            raise OSError("half of it is closed")

    with pytest.raises(OSError, match="half"):
        close_half()
    assert lines.dropped == 9
    leaves.audit_topic.dropped += 1
    assert lines.dropped == 9, "it is not kept"
    with lines.closing(None):
        assert lines.dropped == 9
