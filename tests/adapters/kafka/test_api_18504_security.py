"""HalfmoonSecurity: what `halfmoon acl check` and `halfmoon tls reload` ask; malformed questions are answered."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kafka_rig import Rig

from halfmoon.adapters.kafka.api import api_18504_security as api
from halfmoon.adapters.kafka.api import registered
from halfmoon.adapters.kafka.registry import Context, Deferred, offered
from halfmoon.adapters.tcp.access import Rights, Use
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.control import AclRule
from halfmoon.services.common.services import Services
from halfmoon.services.security import Decide, Decided, ReadTls, SecurityAnswers

RULE = AclRule(2, "orders", 3, "User:alice", "*", 3, 3)
FIELDS = [2, "orders", 3, "User:alice", "*", 3, 3]
DECIDE = {
    "type": "decide", "principal": "User:alice", "host": "::1", "operation": "read", "resource_type": "topic",
    "name": "orders",
}  # fmt: skip


def decide(asked: Decide) -> Decided:
    if asked.name == "wrong":
        raise BrokerError(Fault.INVALID_REQUEST, "wrong")
    return Decided(True, f"{asked.principal} {asked.host} {asked.operation} {asked.resource_type} {asked.name}", RULE)


class Refusing:
    """Rights that lack one operation on the cluster."""

    principal = "User:alice"

    def __init__(self, operation: str) -> None:
        self._operation = operation

    def allows(self, use: Use) -> bool:
        return use != (self._operation, "cluster", "kafka-cluster")

    def allows_either(self, *uses: Use) -> bool:
        return any(map(self.allows, uses))

    def demands(self, uses: tuple[Use, ...]) -> bool:
        return self.allows_either(*uses)


class Client:
    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._connection = rig.client().connection
        listeners = (ReadTls("kafka", 5), ReadTls("http", 6, "it is gone"))
        rig.broker.services.add(SecurityAnswers(decide, lambda: listeners))

    def ask(self, body: bytes, rights: Rights | None = None) -> dict[str, Any]:
        broker = self._rig.broker
        context = Context(broker.kernel, broker.services, self._connection, 0, 1, "rig", rights)
        answer = registered()[api.KEY].handler(context, memoryview(body))
        self._rig.turn()
        found: dict[str, Any] = json.loads(answer.value if isinstance(answer, Deferred) else answer)
        return found


@pytest.fixture
def client(rig: Rig) -> Client:
    return Client(rig)


def test_decisions(client: Client) -> None:
    said = client.ask(json.dumps(DECIDE).encode())
    assert said == {
        "decided": {
            "allowed": True,
            "reason": "User:alice ::1 read topic orders",
            "rule": FIELDS,
        }
    }
    assert client.ask(json.dumps(DECIDE | {"name": "wrong"}).encode())["fault"] == "INVALID_REQUEST"


def test_certificates(client: Client) -> None:
    assert client.ask(b'{"type": "reload_tls"}')["listeners"] == [
        {"listener": "kafka", "expires_ms": 5, "problem": ""},
        {"listener": "http", "expires_ms": 6, "problem": "it is gone"},
    ]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"type": "x"}', b'{"type": "decide"}', b"\xff", b"[" * 90_000])
def test_malformed_questions(client: Client, body: bytes) -> None:
    assert client.ask(body)["fault"] == "INVALID_REQUEST"


@pytest.mark.parametrize(("question", "needed"), [(DECIDE, "describe"), ({"type": "reload_tls"}, "alter")])
def test_rights(client: Client, question: dict[str, str], needed: str) -> None:
    body = json.dumps(question).encode()
    assert client.ask(body, Refusing(needed))["fault"] == "CLUSTER_AUTHORIZATION_FAILED"
    assert "fault" not in client.ask(body, Refusing("alter" if needed == "describe" else "describe"))


def test_it_is_not_offered_where_nobody_answers() -> None:
    assert api.KEY not in offered(registered(), Services())
