"""RocketMQ's clients by certificate: it says who they are where requests are not signed, and nothing where they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halfmoon.client import ClientError, ConsumeFrom, LitePullConsumer, Message, Producer
from tests.clients.polling import until
from tests.security.acting import rule
from tests.security.authority import Authority
from tests.security.conftest import Secure, Secured
from tests.security.journal import Journal

ALICE = ("create topic orders", "write topic orders", "read topic orders", "read group g")
BY_NAME = "RULE:^CN=([a-z]*),.*$/$1/"

Start = Callable[..., Secured]


@pytest.fixture
def start(secured: Secure, authority: Authority) -> Start:
    def started(*, auth: bool = False, client_auth: str = "require", rules: str = BY_NAME, **more: Any) -> Secured:
        tls = authority.pair("rocketmq") | {
            "mode": "enforcing", "client_ca": authority.path, "client_auth": client_auth, "principal_rules": rules,
        }  # fmt: skip
        listener = {"bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0", "auth": auth, "tls": tls}
        found = secured(listeners={"rocketmq": listener}, topics={"partitions": 1}, **more)
        found.in_loop(lambda: found.app.node.acls.change([rule("alice", right) for right in ALICE]))
        return found

    return started


def options(found: Secured, name: str | None = None, **more: Any) -> dict[str, Any]:
    """Of a client with a certificate of this name."""
    pair = None if name is None else found.authority.pair(name)
    return {"namesrv": found.broker.namesrv, "tls": found.authority.client(pair), **more}


def sends(found: Secured, name: str | None = None, **more: Any) -> None:
    """Or raises ClientError."""
    with Producer("p", **options(found, name, **more)) as producer:
        producer.send(Message("orders", b"x"))


def test_the_certificate_is_the_user(start: Start) -> None:
    found = start()
    sends(found, "alice")
    with LitePullConsumer("g", consume_from=ConsumeFrom.FIRST, **options(found, "alice")) as consumer:
        consumer.subscribe("orders")
        polled: list[Any] = []
        until(lambda: polled.extend(consumer.poll(1)) or bool(polled))
        assert polled[0].body == b"x"
    with pytest.raises(ClientError, match="User:bob is not allowed to describe topic 'orders'"):
        sends(found, "bob")


def test_who_shows_none_is_turned_away_or_nobody(start: Start) -> None:
    with pytest.raises(ClientError, match="no name server answers"):
        sends(start())
    found = start(client_auth="request")
    with pytest.raises(ClientError, match="User:ANONYMOUS is not allowed"):
        sends(found)
    sends(found, "alice")


def test_a_certificate_that_makes_no_user_is_closed(start: Start) -> None:
    found = start(rules="RULE:^CN=nobody$/nobody/")
    with pytest.raises(ClientError, match="no name server answers"):
        sends(found, "alice")


def test_where_requests_are_signed_the_signature_counts(start: Start) -> None:
    found = start(auth=True)
    for name in ("alice", "bob"):
        found.in_loop(lambda name=name: found.app.node.users.create(name, secret=f"secret of {name}"))
    sends(found, "bob", access_key="alice", secret_key="secret of alice")
    with pytest.raises(ClientError, match="User:bob is not allowed"):
        sends(found, "alice", access_key="bob", secret_key="secret of bob")
    with pytest.raises(ClientError, match="authentication failed"):
        sends(found, "alice")


def test_a_user_that_is_disabled_is_closed_and_not_let_in_again(start: Start) -> None:
    found = start()
    found.user("alice", "secret")
    with Producer("p", **options(found, "alice")) as producer:
        producer.send(Message("orders", b"x"))
        found.in_loop(lambda: found.app.node.users.set_flags("alice", disabled=True))
        until(lambda: found.app.rocketmq.counters.connections == 0)
        with pytest.raises(ClientError):
            producer.send(Message("orders", b"x"))
    with pytest.raises(ClientError, match="no name server answers"):
        sends(found, "alice")
    found.in_loop(lambda: found.app.node.users.set_flags("alice", disabled=False))
    sends(found, "alice")


def test_audit_is_told_of_certificates(start: Start, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "audit.jsonl")
    found = start(rules="RULE:^CN=(alice),.*$/$1/", security=journal.settings("all"))
    sends(found, "alice")
    logins = journal.new(2, event="login", decision="allowed", principal="User:alice")
    assert {(login["listener"], login["mechanism"]) for login in logins} == {("namesrv", "TLS"), ("rocketmq", "TLS")}
    with pytest.raises(ClientError):
        sends(found, "bob")
    refused = journal.new(event="login", decision="denied")[0]
    assert refused["mechanism"] == "TLS"
    assert "no rule makes a user's name" in refused["reason"]
