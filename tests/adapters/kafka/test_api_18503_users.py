"""HalfmoonUsers: what `halfmoon user` asks; malformed questions are answered, not hung up on."""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_rig import Rig, RigClient

from halfmoon.adapters.kafka.api import api_18503_users as api
from halfmoon.adapters.kafka.api import registered
from halfmoon.adapters.kafka.api.api_18_api_versions import answer
from halfmoon.adapters.kafka.registry import ApiTable
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.credentials.questions import MOST
from halfmoon.services.credentials.users import Upsertion

KINDS = ["create", "passwords", "flags", "secret", "delete", "describe", "list"]
SALTED = {"mechanism": 1, "iterations": 4096, "salt": b64encode(b"salt").decode(), "salted_password": "cA=="}


def send(client: RigClient, body: bytes) -> None:
    request = struct.pack(">hhih", api.KEY, 0, 7, -1) + body
    client.feed(struct.pack(">i", len(request)) + request)


def raw(client: RigClient, body: bytes) -> dict[str, Any]:
    send(client, body)
    client.rig.turn()
    (frame,) = client.frames()
    assert frame[:4] == struct.pack(">i", 7)
    return json.loads(frame[4:])


def ask(client: RigClient, kind: str, **fields: Any) -> dict[str, Any]:
    return raw(client, json.dumps({"type": kind, **fields}).encode())


@pytest.fixture
def client(rig: Rig) -> RigClient:
    return rig.client()


def test_users_from_the_first_to_the_last_day(client: RigClient) -> None:
    assert ask(client, "create", name="alice", passwords=[SALTED], admin=True) == {}
    assert ask(client, "create", name="alice")["fault"] == "DUPLICATE_RESOURCE"
    shown = {
        "name": "alice", "mechanisms": [["SCRAM-SHA-256", 4096]], "disabled": False, "admin": True, "rocketmq": False,
    }  # fmt: skip
    assert ask(client, "describe", name="alice") == {"users": [shown]}
    assert ask(client, "flags", name="alice", disabled=True) == {}
    assert ask(client, "secret", name="alice", secret="s") == {}
    assert ask(client, "passwords", name="alice", passwords=[SALTED | {"mechanism": 2, "iterations": 8192}]) == {}
    shown |= {"disabled": True, "rocketmq": True, "mechanisms": [["SCRAM-SHA-512", 8192]]}
    assert ask(client, "list") == {"users": [shown]}
    assert ask(client, "flags", name="alice", admin=False) == {}
    assert ask(client, "secret", name="alice", secret=None) == {}
    assert ask(client, "describe", name="alice") == {"users": [shown | {"admin": False, "rocketmq": False}]}
    assert ask(client, "delete", name="alice") == {}
    assert ask(client, "list") == {}
    for kind, more in (("delete", {}), ("describe", {}), ("flags", {}), ("secret", {"secret": "x"})):
        assert ask(client, kind, name="alice", **more)["fault"] == "RESOURCE_NOT_FOUND"


def test_many_users_are_shown_page_by_page(rig: Rig, client: RigClient) -> None:
    names = [f"u{number:05}" for number in range(MOST + 5)]
    rig.broker.users.alter([], [Upsertion(name, 1, 4096, b"s", b"p") for name in reversed(names)])
    first = [each["name"] for each in ask(client, "list")["users"]]
    second = [each["name"] for each in ask(client, "list", after=first[-1])["users"]]
    assert (first, second) == (names[:MOST], names[MOST:])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"type": "drop", "name": "a"}',
        b'{"type": "create"}',
        b'{"type": "create", "name": 5}',
        b'{"type": "create", "name": "a", "password": "in plain"}',
        b'{"type": "create", "name": "a", "passwords": [{"mechanism": 1}]}',
        b'{"type": "flags", "name": "a", "admin": "yes"}',
        b'{"type": "secret", "name": "a"}',
        b'{"type": "list", "after": null}',
    ],
)
def test_no_question(rig: Rig, client: RigClient, body: bytes) -> None:
    assert raw(client, body)["fault"] == "INVALID_REQUEST"
    assert rig.broker.users.count == 0


@pytest.mark.parametrize(
    ("name", "password", "fault"),
    [
        ("", {}, "UNACCEPTABLE_CREDENTIAL"),
        ("a" * 256, {}, "UNACCEPTABLE_CREDENTIAL"),
        ("\ud800", {}, "INVALID_REQUEST"),
        ("a", {"iterations": 1}, "UNACCEPTABLE_CREDENTIAL"),
        ("a", {"mechanism": 7}, "UNSUPPORTED_SASL_MECHANISM"),
        ("a", {"salt": ""}, "UNACCEPTABLE_CREDENTIAL"),
        ("a", {"salt": "!"}, "INVALID_REQUEST"),
    ],
)
def test_what_is_refused(rig: Rig, client: RigClient, name: str, password: dict[str, Any], fault: str) -> None:
    assert ask(client, "create", name=name, passwords=[SALTED | password])["fault"] == fault
    assert rig.broker.users.count == 0


def test_no_secret_is_ever_shown(rig: Rig, client: RigClient) -> None:
    rig.broker.users.create("alice", [Upsertion("alice", 1, 4096, b"saltsalt", b"p")], secret="rocket")
    (kept,) = rig.broker.users.scram("alice")
    said = json.dumps([ask(client, "list"), ask(client, "describe", name="alice")])
    for secret in (b"saltsalt", kept.stored_key, kept.server_key, b"rocket"):
        assert b64encode(secret).decode().rstrip("=") not in said
    assert 'rocket"' not in said.replace('"rocketmq"', "")


def test_an_answer_waits_until_it_is_durable(rig: Rig, client: RigClient) -> None:
    send(client, b'{"type": "create", "name": "a"}')
    other = rig.client()
    send(other, b'{"type": "describe", "name": "a"}')
    send(other, b'{"type": "create", "name": "a"}')
    rig.broker.write()
    rig.broker.settle()
    rig.loop.run()
    assert (client.frames(), other.frames()) == ([], [])
    rig.turn()
    assert (len(client.frames()), len(other.frames())) == (1, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_who_may_ask(rig: Rig, client: RigClient, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Alter or Describe on the cluster, as Kafka's 51 and 50."""
    asked: list[tuple[str, str, str]] = []

    def check(self: object, *use: str) -> None:
        asked.append(use)  # type: ignore[arg-type]
        raise BrokerError(Fault.CLUSTER_AUTHORIZATION_FAILED)

    monkeypatch.setattr("halfmoon.adapters.kafka.registry.Context.check", check)
    fields = {} if kind == "list" else {"name": "a"}
    fields |= {"passwords": {"passwords": []}, "secret": {"secret": "s"}}.get(kind, {})
    assert ask(client, kind, **fields)["fault"] == "CLUSTER_AUTHORIZATION_FAILED"
    assert asked == [("describe" if kind in ("describe", "list") else "alter", "cluster", "kafka-cluster")]
    assert rig.broker.users.count == 0


def test_it_is_not_advertised() -> None:
    for version in range(5):
        assert struct.pack(">h", api.KEY) not in answer(ApiTable(registered()), version, 0)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(KINDS),
    st.lists,
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(["type", "name", "passwords", "admin", "secret", "after"]), values))
def test_every_question_has_an_answer(question: dict[str, Any]) -> None:
    assert isinstance(raw(Rig().client(), json.dumps(question).encode()), dict)
