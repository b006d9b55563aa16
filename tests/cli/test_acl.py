"""`halfmoon acl`: rules come and go, and the broker says what they decide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from halfmoon.testing import Broker
from tests.cli.conftest import CommandLine


@pytest.fixture(scope="module")
def authorizing() -> Iterator[Broker]:
    """Everybody is anonymous, and an administrator."""
    security = {"authorizer": "acl", "super_users": ["User:ANONYMOUS"]}
    with Broker(config={"security": security}) as broker:
        yield broker


@pytest.fixture
def acl(authorizing: Broker, cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLine]:
    monkeypatch.setenv("HALFMOON_BOOTSTRAP_SERVER", authorizing.bootstrap_servers)
    yield cli
    for row in listed(cli):
        cli("acl", "remove", f"--{row['permission']}", row["principal"])
    assert listed(cli) == []


def listed(cli: CommandLine, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cli.ok("acl", "list", *options, "-o", "json").json()
    return found


def rules(cli: CommandLine, *options: str) -> list[str]:
    """In short."""
    return [
        " ".join((row["permission"], row["principal"], row["operation"], f"{row['resource']}:{row['name']}"))
        + ("*" if row["pattern"] == "prefixed" else "")
        + ("" if row["host"] == "*" else f" from {row['host']}")
        for row in listed(cli, *options)
    ]


def test_add_list_remove(acl: CommandLine) -> None:
    made = acl.ok("acl", "add", "--allow", "User:alice", "--operation", "Read", "--topic", "orders")
    assert made.out == "allow User:alice Read topic:orders: added\n"
    acl.ok(
        "acl", "add", "--allow", "User:alice", "--deny", "User:bob", "--operation", "write", "--topic", "ord",
        "--prefixed", "--host", "10.1.0.0/16",
    )  # fmt: skip
    acl.ok("acl", "add", "--allow", "User:alice", "--operation", "describe-configs", "--cluster", "--prefixed")
    assert rules(acl) == [
        "allow User:alice DescribeConfigs cluster:kafka-cluster",
        "allow User:alice Write topic:ord* from 10.1.0.0/16",
        "deny User:bob Write topic:ord* from 10.1.0.0/16",
        "allow User:alice Read topic:orders",
    ]
    assert rules(acl, "--topic", "orders") == rules(acl)[1:]
    assert rules(acl, "--topic", "orchid") == []
    assert rules(acl, "--principal", "User:bob") == rules(acl)[2:3]
    assert "prefixed" in acl.ok("acl", "list").out
    assert acl.ok("acl", "remove", "--topic", "orders").out == "allow User:alice Read topic:orders: removed\n"
    assert "no rule matches" in acl("acl", "remove", "--topic", "ord").failed_with(1)
    assert acl.ok("acl", "remove", "--deny", "User:bob", "--topic", "ord", "--prefixed", "-o", "json").json() == [
        {
            "rule": "deny User:bob Write topic:ord* from 10.1.0.0/16", "result": "removed", "permission": "deny",
            "principal": "User:bob", "host": "10.1.0.0/16", "operation": "Write", "resource": "topic", "name": "ord",
            "pattern": "prefixed", "ok": True,
        }
    ]  # fmt: skip
    assert len(rules(acl)) == 2


def test_every_kind_of_resource(acl: CommandLine) -> None:
    acl.ok(
        "acl", "add", "--allow", "User:alice", "--operation", "Describe", "--topic", "t", "--group", "g",
        "--transactional-id", "x", "--delegation-token", "d", "--cluster",
    )  # fmt: skip
    acl.ok("acl", "add", "--allow", "User:alice", "--operation", "All", "--user", "User:bob", "--topic", "*")
    assert rules(acl) == [
        "allow User:alice Describe cluster:kafka-cluster", "allow User:alice Describe delegation-token:d",
        "allow User:alice Describe group:g", "allow User:alice All topic:*", "allow User:alice Describe topic:t",
        "allow User:alice Describe transactional-id:x", "allow User:alice All user:User:bob",
    ]  # fmt: skip


def test_shortcuts(acl: CommandLine) -> None:
    acl.ok("acl", "add", "--allow", "User:p", "--producer", "--topic", "t", "--transactional-id", "x")
    acl.ok("acl", "add", "--allow", "User:c", "--consumer", "--topic", "t", "--group", "g")
    assert sorted(rules(acl)) == [
        "allow User:c Describe topic:t", "allow User:c Read group:g", "allow User:c Read topic:t",
        "allow User:p Create topic:t", "allow User:p Describe topic:t", "allow User:p Describe transactional-id:x",
        "allow User:p Write topic:t", "allow User:p Write transactional-id:x",
    ]  # fmt: skip
    acl.ok("acl", "remove", "--allow", "User:c", "--consumer", "--topic", "t", "--group", "g")
    assert {row["principal"] for row in listed(acl)} == {"User:p"}
    acl.ok("acl", "add", "--allow", "User:b", "--producer", "--consumer", "--topic", "t", "--group", "g")
    assert len(listed(acl, "--principal", "User:b")) == 5


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["add", "--allow", "alice", "--operation", "Read", "--topic", "t"], "expected User:alice"),
        (["add", "--allow", "User:a", "--operation", "Raed", "--topic", "t"], "'Raed' is none of"),
        (["add", "--operation", "Read", "--topic", "t"], "--allow User:NAME"),
        (["add", "--allow", "User:a", "--operation", "Read"], "--topic, --group"),
        (["add", "--allow", "User:a", "--topic", "t"], "--operation, --producer"),
        (["add", "--allow", "User:a", "--operation", "Write", "--group", "g"], "Write is no operation on a group"),
        (["add", "--allow", "User:a", "--consumer", "--topic", "t"], "--consumer needs --group"),
        (["add", "--allow", "User:a", "--producer", "--group", "g"], "need --topic"),
        (["add", "--allow", "User:a", "--producer", "--topic", "t", "--cluster"], "say nothing of a cluster"),
        (["add", "--allow", "User:a", "--producer", "--operation", "Read", "--topic", "t"], "exclude"),
        (["remove"], "which rules?"),
        (["check", "User:a", "Read", "orders"], "'orders' is no resource"),
        (["check", "User:a", "Write", "group:g"], "Write is no operation on a group"),
        (["check", "User:a", "All", "topic:t"], "one operation at a time"),
        (["check", "a", "Read", "topic:t"], "expected User:a"),
    ],
)
def test_what_is_wrong(cli: CommandLine, options: list[str], said: str) -> None:
    assert said in cli("acl", *options).failed_with(2)


def test_the_broker_refuses(acl: CommandLine) -> None:
    refused = acl("acl", "add", "--allow", "User:a", "--operation", "Read", "--topic", "t", "--host", "10.1.2.3/16")
    assert "INVALID_REQUEST" in refused.failed_with(1)


def test_check(acl: CommandLine) -> None:
    def check(*asked: str) -> tuple[int, str]:
        answer = acl("acl", "check", *asked)
        assert answer.err == ""
        return answer.code, answer.out.strip()

    assert check("User:alice", "Read", "topic:orders") == (1, "no: no rule allows it")
    acl.ok("acl", "add", "--allow", "User:alice", "--operation", "Read", "--topic", "ord", "--prefixed")
    allowed = "yes: allow User:alice Read topic:ord*"
    assert check("User:alice", "Read", "topic:orders") == (0, allowed)
    assert check("User:alice", "describe", "topic:orders") == (0, allowed)
    acl.ok("acl", "add", "--deny", "User:*", "--operation", "All", "--topic", "orders", "--host", "10.1.0.0/16")
    assert check("User:alice", "Read", "topic:orders") == (0, allowed)
    denied = "no: deny User:* All topic:orders from 10.1.0.0/16"
    assert check("User:alice", "Read", "topic:orders", "--host", "10.1.2.3") == (1, denied)
    assert check("User:ANONYMOUS", "Alter", "cluster") == (0, "yes: super user")
    assert check("User:alice", "Write", "transactional-id:x") == (1, "no: no rule allows it")
    said = acl.ok("acl", "check", "User:alice", "Read", "topic:orders", "-o", "json").json()
    assert said == {
        "allowed": True, "reason": "rule",
        "rule": {
            "permission": "allow", "principal": "User:alice", "host": "*", "operation": "Read", "resource": "topic",
            "name": "ord", "pattern": "prefixed",
        },
    }  # fmt: skip


def test_without_an_authorizer(broker_cli: CommandLine) -> None:
    said = broker_cli.ok("acl", "check", "User:alice", "Read", "topic:orders").out
    assert said == "yes: there is no authorizer: everybody may do everything\n"
