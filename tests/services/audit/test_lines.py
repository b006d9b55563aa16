"""A line is one line, whatever clients call themselves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from halfmoon.services.audit import lines
from halfmoon.services.audit.lines import LONGEST_NAME, Who

AT_MS = 1_764_105_565_123
HOSTILE = 'a\nb\r\x1b[2J\x00"\\,{}\x85\u2028\u2029\ud800 é'
HARMLESS = 'a\\nb\\r\\x1b[2J\\x00"\\,{}\\x85\\u2028\\u2029\\ud800 é'


def decoded(line: bytes) -> dict[str, Any]:
    text = line.decode()
    assert len(text.splitlines()) == 1
    found: dict[str, Any] = json.loads(text)
    return found


def who(name: str = "User:alice", client: str = "app") -> Who:
    return Who("public", "10.0.0.7:5123", name, "SCRAM-SHA-512", client)


def test_a_refusal() -> None:
    use = "read", "topic", "orders"
    rule = "deny User:alice read topic:ord*"
    assert decoded(lines.access(AT_MS, "denied", who(), "Fetch", use, "rule", rule)) == {
        "event": "access", "time": "2025-11-25T21:19:25.123Z", "decision": "denied", "listener": "public",
        "peer": "10.0.0.7:5123", "principal": "User:alice", "mechanism": "SCRAM-SHA-512", "client_id": "app",
        "api": "Fetch", "operation": "read", "resource_type": "topic", "resource": "orders", "reason": "rule",
        "rule": rule,
    }  # fmt: skip


def test_what_says_nothing_is_left_out() -> None:
    stranger = Who("public", "10.0.0.7", "User:ANONYMOUS")
    found = decoded(lines.access(AT_MS, "denied", stranger, "", ("write", "topic", None), "", ""))
    assert set(found) == {
        "event", "time", "decision", "listener", "peer", "principal", "operation", "resource_type",
    }  # fmt: skip


def test_a_login_and_a_count() -> None:
    found = decoded(lines.login(AT_MS, "denied", who(), "User:bob", "another password"))
    assert (found["event"], found["claimed"], found["reason"]) == ("login", "User:bob", "another password")
    assert decoded(lines.left_out(AT_MS, "User:alice", 12)) == {
        "event": "left_out", "time": "2025-11-25T21:19:25.123Z", "of": "User:alice", "count": 12,
    }  # fmt: skip


@pytest.mark.parametrize("name", [HOSTILE, "\n" * 10_000, "\ud800" * 10_000, "x" * 100_000])
def test_no_name_makes_another_line_or_a_long_one(name: str) -> None:
    hostile = Who(name, "10.0.0.7", name, name, name)
    made = [
        lines.access(AT_MS, "denied", hostile, name, ("read", "group", name), name, name),
        lines.login(AT_MS, "denied", hostile, name, name),
        lines.left_out(AT_MS, name, 1),
    ]
    for line in made:
        for value in decoded(line).values():  # also once it is decoded
            assert len(str(value).splitlines()) == 1
            assert str(value).isprintable()
            assert len(str(value)) < 6 * LONGEST_NAME + 40
        assert len(line) < 30_000


def test_what_does_not_print_is_an_escape() -> None:
    use = "read", "group", HOSTILE
    found = decoded(lines.access(AT_MS, "denied", who(HOSTILE, HOSTILE), "JoinGroup", use, "", ""))
    assert found["principal"] == found["client_id"] == found["resource"] == HARMLESS
