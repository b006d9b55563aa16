"""What audit is told of RocketMQ's requests."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rocketmq_rig import Rig, sending
from test_signatures import SECRETS, SignedRig

from halfmoon.adapters.tcp.access import OpinionAccess
from halfmoon.config.security_settings import AuditLevel
from halfmoon.remoting.codes import Code
from halfmoon.services.audit.service import Audit

CHANGE = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG", "defaultTopic": "T"}


class Sink:
    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def put(self, line: bytes, *, echo: bool) -> None:
        self.lines.append(json.loads(line))

    def taken(self) -> list[dict[str, Any]]:
        found, self.lines = self.lines, []
        return found


def audited(rig: Rig, level: AuditLevel = "denied") -> Sink:
    sink = Sink()
    audit = Audit(level, rig.clock)
    audit.sinks = (sink,)
    rig.server.audit = rig.server.node.audit = audit
    return sink


def uses(lines: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    return [(each["decision"], each["operation"], each["resource_type"], each["resource"]) for each in lines]


def test_a_refusal_is_its_signers() -> None:
    rig = SignedRig()
    rig.rules("alice write topic orders")
    sink = audited(rig)
    alice = rig.signing()
    bob = rig.signing("bob", on=alice.client)
    assert alice.ask(310, b"a", **sending("orders", 0, ""))[0] == Code.SUCCESS
    assert bob.ask(310, b"a", **sending("orders", 0, ""))[0] == Code.NO_PERMISSION
    (line,) = sink.taken()
    assert {name: line[name] for name in line if name not in ("time", "peer")} == {
        "event": "access", "decision": "denied", "listener": "rocketmq", "principal": "User:bob",
        "mechanism": "SIGNATURE", "api": "SEND_MESSAGE_V2", "operation": "write", "resource_type": "topic",
        "resource": "orders",
    }  # fmt: skip


def test_a_wrong_signature() -> None:
    rig = SignedRig()
    sink = audited(rig, "all")
    for name, secret, reason in (
        ("alice", "wrong", "the signature is wrong"), ("eve\n", "x", "no secret that counts"),
        ("", "x", "the request has no AccessKey"),
    ):  # fmt: skip
        assert rig.signing(name, secret).ask(206)[0] == Code.NO_PERMISSION
        (line,) = sink.taken()
        assert (line["event"], line["decision"], line["principal"]) == ("login", "denied", "User:ANONYMOUS")
        assert line["reason"] == reason
        assert line.get("claimed", "") == (f"User:{name}".replace("\n", "\\n") if name else "")
    assert not any(secret in str(sink.lines) for secret in SECRETS.values())


def test_the_first_right_signature_of_a_connection_is_a_login() -> None:
    rig = SignedRig()
    rig.rules("alice write topic orders")
    sink = audited(rig, "all")
    alice = rig.signing()
    for _ in range(3):
        alice.ask(310, b"a", **sending("orders", 0, ""))
    rig.signing("bob", on=alice.client).ask(206)
    lines = sink.taken()
    logins = [(each["principal"], each["decision"]) for each in lines if each["event"] == "login"]
    assert logins == [("User:alice", "allowed"), ("User:bob", "allowed")]
    assert uses([each for each in lines if each["event"] == "access"]) == [
        ("allowed", "write", "topic", "orders")
    ] * 3  # fmt: skip


def test_changes() -> None:
    rig = Rig()
    sink = audited(rig, "changes")
    rig.server.node.access = OpinionAccess(lambda *use: None)
    client = rig.client()
    assert client.ask(17, topic="made", **CHANGE).code == Code.SUCCESS
    assert client.ask(17, topic="made", **CHANGE).code == Code.SUCCESS
    assert client.produce("made", b"a").code == Code.SUCCESS
    assert client.ask(310, b"a", **sending("by-sending", 0, "") | {"c": "TBW102"}).code == Code.SUCCESS
    client.pull("made", consumerGroup="g")
    assert client.ask(215, topic="made").code == Code.SUCCESS
    lines = sink.taken()
    assert uses(lines) == [
        ("allowed", "create", "topic", "made"), ("allowed", "alter", "topic", "made"),
        ("allowed", "alter_configs", "topic", "made"), ("allowed", "create", "topic", "by-sending"),
        ("allowed", "delete", "topic", "made"),
    ]  # fmt: skip
    assert [each["api"] for each in lines] == [
        "UPDATE_AND_CREATE_TOPIC", "UPDATE_AND_CREATE_TOPIC", "UPDATE_AND_CREATE_TOPIC", "SEND_MESSAGE_V2",
        "DELETE_TOPIC_IN_BROKER",
    ]  # fmt: skip


@pytest.mark.parametrize("level", ["denied", "changes", "all"])
def test_where_something_is_made_by_sending_it_is_told_once(level: AuditLevel) -> None:
    rig = Rig()
    sink = audited(rig, level)
    rig.server.node.access = OpinionAccess(lambda *use: None)
    rig.client().ask(310, b"a", **sending("by-sending", 0, "") | {"c": "TBW102"})
    creates = [each for each in uses(sink.taken()) if each[1] == "create"]
    assert len(creates) == (level != "denied")


def test_a_change_from_another_machine_that_no_rules_allow() -> None:
    rig = Rig()
    sink = audited(rig)
    client = rig.client(peer="10.0.0.9")
    assert client.ask(215, topic="orders").code == Code.NO_PERMISSION
    (line,) = sink.taken()
    assert (line["api"], line["reason"], line["peer"].startswith("10.0.0.9")) == (
        "DELETE_TOPIC_IN_BROKER", "not from this machine", True,
    )  # fmt: skip
