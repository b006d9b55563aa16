"""Who was refused what, who has changed what, and who has logged in: as the audit log of a real broker has it."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

import halfmoon.client
from halfmoon.adapters.kafka import auditing
from halfmoon.adapters.kafka.access import guarded
from halfmoon.adapters.kafka.routes import build_routes
from halfmoon.auth.oauth import message
from halfmoon.client import ClientError, Message
from halfmoon.schema.readable_topics import AUDIT_TOPIC
from halfmoon.server import admin_socket
from tests.cli.conftest import CommandLine
from tests.clients.polling import wait_for
from tests.interop.access.client import Connection
from tests.interop.access.world import build
from tests.kafka_messages import request_bytes
from tests.security.acting import User, rule
from tests.security.authority import Authority
from tests.security.conftest import Secure, Secured
from tests.security.journal import Journal, Line
from tests.security.provider import Provider
from tests.security.test_clients import librdkafka
from tests.security.test_command_config import client_properties
from tests.security.test_http_access import HTTP, Web

TOPIC = 29
Make = Callable[..., User]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "audit.log")


@pytest.fixture
def users() -> Iterator[Callable[[Secured], Make]]:
    with ExitStack() as stack:

        def of(found: Secured) -> Make:
            def make(name: str, *rights: str) -> User:
                made = User(found, name, *rights)
                stack.callback(made.connection.close)
                return made

            return make

        yield of


def use_of(line: Line) -> tuple[str, str, str | None]:
    return line["operation"], line["resource_type"], line.get("resource")


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_a_refused_produce_and_consume(secured: Secure, journal: Journal) -> None:
    found = secured(security=journal.settings())
    found.user("alice", "secret")
    rules = [rule("alice", "describe topic orders"), rule("alice", "deny write topic ord*")]
    found.in_loop(lambda: found.app.node.acls.change(rules))
    config = librdkafka(found, "SCRAM-SHA-512", "alice", "secret", **{"client.id": "shop"})
    failed: list[Any] = []
    producer = Producer(config)
    found.in_loop(lambda: found.app.node.kernel.administration.create_topic("orders", 1))
    producer.produce("orders", b"v", on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(20) == 0
    assert failed[0] is not None
    line = journal.new(api="Produce")[0]
    assert line["peer"].startswith("127.0.0.1:")
    assert {name: line[name] for name in line if name not in ("time", "peer")} == {
        "event": "access", "decision": "denied", "listener": "kafka", "principal": "User:alice",
        "mechanism": "SCRAM-SHA-512", "client_id": "shop", "api": "Produce", "operation": "write",
        "resource_type": "topic", "resource": "orders", "reason": "rule", "rule": "deny User:alice write topic:ord*",
    }  # fmt: skip
    with closing(Consumer(config | {"group.id": "billing"})) as consumer:
        consumer.subscribe(["orders"])
        wait_for(lambda: (answer := consumer.poll(0.1)) is not None and answer.error() is not None)
    line = journal.new(resource_type="group")[0]
    assert use_of(line) == ("describe", "group", "billing")
    assert (line["api"], line["reason"], "rule" in line) == ("FindCoordinator", "no rule allows it", False)


REFUSED: list[tuple[Callable[[User], Any], tuple[str, str, str | None]]] = [
    (lambda user: user.described("orders"), ("describe", "topic", "orders")),
    (lambda user: user.produce("orders"), ("write", "topic", "orders")),
    (lambda user: user.fetch("orders"), ("read", "topic", "orders")),
    (lambda user: user.create("new"), ("create", "topic", "new")),
    (lambda user: user.delete("orders"), ("delete", "topic", "orders")),
    (lambda user: user.ask(75, 0, topics=[{"name": "orders"}], response_partition_limit=9, cursor=None),
     ("describe", "topic", "orders")),
    (lambda user: user.ask(22, 4, transactional_id=None, transaction_timeout_ms=1, producer_id=-1, producer_epoch=-1),
     ("write", "topic", None)),
    (lambda user: user.ask(22, 4, transactional_id="t", transaction_timeout_ms=1, producer_id=-1, producer_epoch=-1),
     ("write", "transactional_id", "t")),
    (lambda user: user.ask(38, 3, owner_principal_type="User", owner_principal_name="bob", renewers=[],
                           max_lifetime_ms=-1), ("create_tokens", "user", "User:bob")),
    (lambda user: user.ask(60, 1, include_cluster_authorized_operations=True), None),
    (lambda user: user.ask(3, 12, topics=None, allow_auto_topic_creation=False), None),
    (lambda user: user.ask(16, 4, states_filter=[]), None),
    (lambda user: user.ask_own(18502, {"type": "find", "topic": "orders", "key": "aw=="}), ("read", "topic", "orders")),
    (lambda user: user.ask_own(18506, {"type": "count", "selection": {"topic": "orders"}}),
     ("describe", "topic", "orders")),
    (lambda user: user.ask_own(18506, {"type": "count"}), None),
    (lambda user: user.ask_own(18503, {"type": "list"}), ("describe", "cluster", "kafka-cluster")),
]  # type: ignore[list-item]  # fmt: skip


def test_what_each_api_is_refused_and_nothing_that_is_left_out(
    secured: Secure, journal: Journal, users: Callable[[Secured], Make]
) -> None:
    found = secured(security=journal.settings())
    user = users(found)
    root = user("root")
    assert root.create("orders") == 0
    for number, (ask, use) in enumerate(REFUSED):
        name = f"u{number}"  # each has ten lines a second
        ask(user(name))
        lines = [line for line in journal.all() if line["principal"] == f"User:{name}"]
        if use is not None:
            wait_for(lambda name=name: f"User:{name}" in journal.path.read_text())  # type: ignore[misc]
            lines = [line for line in journal.all() if line["principal"] == f"User:{name}"]
            assert use in [use_of(line) for line in lines], number
        assert all(line["decision"] == "denied" for line in lines)
    root.produce("orders")
    user("last").produce("orders")
    journal.new(principal="User:last")
    silent = {f"User:u{number}" for number, (_, use) in enumerate(REFUSED) if use is None}
    assert not silent & {line["principal"] for line in journal.all()}
    assert "User:root" not in {line["principal"] for line in journal.all()}


def test_what_records_ask_for(secured: Secure, journal: Journal, users: Callable[[Secured], Make]) -> None:
    user = users(found := secured(security=journal.settings()))
    assert user("root").create("orders") == 0
    alice = user("alice", "write topic orders", "read group g")
    assert alice.produce("orders", headers={"TRAN_MSG": b"true", "PGROUP": b"p", "UNIQ_KEY": b"k"}) != 0
    line = journal.one(principal="User:alice")
    assert (line["api"], use_of(line)) == ("Produce", ("write", "transactional_id", "p"))
    assert alice.described("retry.g") == 0
    assert alice.produce("retry.g", headers={"RETRY_OF": b"secret/0/1"}) == TOPIC
    assert use_of(journal.one(principal="User:alice")) == ("read", "topic", "secret")
    assert found.app.access.denials == 2


def test_a_flood_is_ten_lines_and_a_count(
    secured: Secure, journal: Journal, users: Callable[[Secured], Make]
) -> None:  # fmt: skip
    alice = users(secured(security=journal.settings()))("alice")
    for _ in range(200):
        assert alice.produce("orders") == TOPIC
    # A line, or one of a count: all of them are told, and none twice.
    wait_for(lambda: sum(line.get("count", 1) for line in journal.all()) >= 200)
    lines = journal.all()
    counted = sum(line["count"] for line in lines if line["event"] == "left_out")
    assert counted + sum(line["event"] == "access" for line in lines) == 200
    assert sum(line["event"] == "access" for line in lines) <= 10 * 20
    assert {line["of"] for line in lines if line["event"] == "left_out"} == {"User:alice"}


# -- hostile names -----------------------------------------------------------------------------------------------------

HOSTILE = 'x\n{"event":"access","decision":"allowed","principal":"User:root"}\r\x1b[2J'


def test_names_forge_no_line(secured: Secure, journal: Journal, users: Callable[[Secured], Make]) -> None:
    found = secured(security=journal.settings())
    alice = users(found)("alice")
    alice.connection.exchange(request_bytes(42, 1, 99, HOSTILE, groups_names=[HOSTILE]))
    line = journal.one(api="DeleteGroups")
    assert line["client_id"] == line["resource"] == HOSTILE.encode("unicode_escape").decode()
    alice.ask(42, 2, groups_names=["g" * 30_000])
    assert len(journal.one(api="DeleteGroups")["resource"]) < 300
    with socket.create_connection(_address(found), 20) as client:
        client.sendall(request_bytes(17, 1, 1, "c", mechanism="PLAIN"))
        client.sendall(request_bytes(36, 2, 2, "c", auth_bytes=b"\0" + HOSTILE.encode() + b"\0wrong"))
        line = journal.one(event="login")
    assert line["claimed"].startswith("User:x\\n{")
    for each in journal.path.read_bytes().split(b"\n")[:-1]:
        json.loads(each)
    assert b"\x1b" not in journal.path.read_bytes()


def test_a_user_with_a_hostile_name(secured: Secure, journal: Journal, users: Callable[[Secured], Make]) -> None:
    name = "eve\nUser:root"
    users(secured(security=journal.settings()))(name).produce("orders")
    assert journal.one(api="Produce")["principal"] == "User:eve\\nUser:root"


# -- changes -----------------------------------------------------------------------------------------------------------


def config(name: str, value: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "value": value, "config_operation": 0, **more}


RULE = {
    "resource_type": 2, "resource_name": "orders", "resource_pattern_type": 3, "principal": "User:bob", "host": "*",
    "operation": 3, "permission_type": 3,
}  # fmt: skip
CLUSTER = ("cluster", "kafka-cluster")
CHANGES: list[tuple[str, Callable[[User], Any], set[tuple[str, ...]]]] = [
    ("CreateTopics", lambda u: u.create("made"), {("create", "topic", "made")}),
    ("Metadata", lambda u: u.described("by-asking"), {("create", "topic", "by-asking")}),
    ("CreatePartitions", lambda u: u.ask(37, 3, topics=[{"name": "orders", "count": 2, "assignments": None}],
                                         timeout_ms=1, validate_only=False), {("alter", "topic", "orders")}),
    ("IncrementalAlterConfigs", lambda u: u.ask(44, 1, resources=[
        {"resource_type": 2, "resource_name": "orders", "configs": [config("retention.ms", "77777")]}
    ], validate_only=False), {("alter_configs", "topic", "orders")}),
    ("DeleteRecords", lambda u: u.ask(21, 2, topics=[
        {"name": "orders", "partitions": [{"partition_index": 0, "offset": 0}]}
    ], timeout_ms=1), {("delete", "topic", "orders")}),
    ("CreateAcls", lambda u: u.ask(30, 3, creations=[RULE]), {("alter", *CLUSTER)}),
    ("DeleteAcls", lambda u: u.ask(31, 3, filters=[
        {"resource_type_filter": 2, "resource_name_filter": "orders", "pattern_type_filter": 3,
         "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
    ]), {("alter", *CLUSTER)}),
    ("AlterClientQuotas", lambda u: u.ask(49, 1, entries=[
        {"entity": [{"entity_type": "user", "entity_name": "bob"}],
         "ops": [{"key": "producer_byte_rate", "value": 9999.0, "remove": False}]}
    ], validate_only=False), {("alter_configs", *CLUSTER)}),
    ("AlterUserScramCredentials", lambda u: u.ask(51, 0, deletions=[{"name": "bob", "mechanism": 1}], upsertions=[]),
     {("alter", *CLUSTER)}),
    ("DeleteGroups", lambda u: u.ask(42, 2, groups_names=["g"]), {("delete", "group", "g")}),
    ("OffsetDelete", lambda u: u.ask(47, 0, group_id="g", topics=[{"name": "orders", "partitions": []}]),
     {("delete", "group", "g"), ("read", "topic", "orders")}),
    ("HalfmoonUsers", lambda u: u.ask_own(18503, {"type": "flags", "name": "bob", "disabled": True}),
     {("alter", *CLUSTER)}),
    ("HalfmoonSecurity", lambda u: u.ask_own(18504, {"type": "reload_tls"}), {("alter", *CLUSTER)}),
    ("HalfmoonSchedules", lambda u: u.ask_own(18508, {"type": "create", "topic": "orders", "name": "n",
                                                      "cron": "0 0 1 1 *"}), {("write", "topic", "orders")}),
    ("CreateDelegationToken", lambda u: u.ask(38, 3, owner_principal_type="User", owner_principal_name="root",
                                              renewers=[], max_lifetime_ms=-1), {("create", "delegation_token")}),
    ("DeleteTopics", lambda u: u.delete("orders"), {("delete", "topic", "orders")}),
]  # fmt: skip


def test_changes(secured: Secure, journal: Journal, users: Callable[[Secured], Make]) -> None:
    user = users(found := secured(security=journal.settings("changes")))
    root = user("root")
    found.user("bob", "secret")
    assert root.create("orders") == 0
    journal.forget()
    for api, change, uses in CHANGES:
        change(root)
        lines = journal.new(len(uses), api=api, decision="allowed")
        assert {tuple(each for each in use_of(line) if each is not None)[: len(use)] for line in lines for use in uses
                if line["operation"] == use[0]} == uses, api  # fmt: skip
    root.produce("made")
    root.fetch("made")
    root.described("made")
    root.ask(32, 4, resources=[{"resource_type": 2, "resource_name": "made", "configuration_keys": None}],
             include_synonyms=False, include_documentation=False)  # fmt: skip
    assert root.create("last") == 0
    assert [line["api"] for line in journal.new(api="CreateTopics")] == ["CreateTopics"]
    assert {line["api"] for line in journal.all()} == {api for api, _, _ in CHANGES}
    text = journal.path.read_text()
    assert "77777" not in text
    assert "9999" not in text
    assert "super user" in text


def test_delegation_tokens(secured: Secure, journal: Journal, users: Callable[[Secured], Make]) -> None:
    user = users(secured(security=journal.settings("changes")))
    alice, bob = user("alice"), user("bob")
    made = alice.ask(38, 3, owner_principal_type=None, owner_principal_name=None, renewers=[], max_lifetime_ms=-1)
    hmac = bytes(made.hmac)
    line = journal.one(api="CreateDelegationToken")
    assert use_of(line) == ("create", "delegation_token", made.token_id)
    assert bob.ask(39, 2, hmac=hmac, renew_period_ms=-1).error_code == 63
    line = journal.one(api="RenewDelegationToken")
    assert (line["decision"], line["principal"], line["reason"]) == (
        "denied", "User:bob", "DELEGATION_TOKEN_OWNER_MISMATCH",
    )  # fmt: skip
    assert line["resource"] == made.token_id
    assert alice.ask(39, 2, hmac=hmac, renew_period_ms=-1).error_code == 0
    assert use_of(journal.one(api="RenewDelegationToken")) == ("alter", "delegation_token", made.token_id)
    with closing(Connection(alice.secured.broker.bootstrap_servers, made.token_id, base64.b64encode(hmac).decode(),
                            token=True)) as by_token:  # fmt: skip
        request = {"owner_principal_type": None, "owner_principal_name": None, "renewers": [], "max_lifetime_ms": -1}
        assert by_token.ask(38, 3, **request).error_code == 64
    line = journal.one(api="CreateDelegationToken")
    assert (line["decision"], line["reason"]) == ("denied", "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED")
    assert alice.ask(40, 2, hmac=hmac, expiry_time_period_ms=-1).error_code == 0
    assert use_of(journal.one(api="ExpireDelegationToken")) == ("delete", "delegation_token", made.token_id)
    assert base64.b64encode(hmac).decode() not in journal.path.read_text()
    assert hmac.hex() not in journal.path.read_text()


def test_changes_where_nobody_decides(secured: Secure, journal: Journal, users: Callable[[Secured], Make]) -> None:
    security = journal.settings("changes") | {"authorizer": "none"}
    alice = users(secured(security=security))("alice")
    assert alice.create("orders") == 0
    line = journal.one(api="CreateTopics")
    assert (line["principal"], line["resource"], line["decision"]) == ("User:alice", "orders", "allowed")


# -- everything --------------------------------------------------------------------------------------------------------


def test_all_sees_answers_that_are_kept(secured: Secure, journal: Journal, users: Callable[[Secured], Make]) -> None:
    user = users(found := secured(security=journal.settings("all")))
    assert user("root").create("orders") == 0
    alice = user("alice", "write topic orders", "read topic orders")
    login = journal.new(event="login", principal="User:alice", decision="allowed")[0]
    assert (login["mechanism"], login["client_id"]) == ("SCRAM-SHA-256", "access")
    for _ in range(5):
        assert alice.produce("orders") == 0
        alice.fetch("orders")
    assert ("write", "topic", "orders") in found.app.access.rights("User:alice", "127.0.0.1")._asker
    lines = journal.new(10, principal="User:alice")
    assert [(line["api"], line["operation"]) for line in lines] == [("Produce", "write"), ("Fetch", "read")] * 5
    assert {line["rule"] for line in lines} == {
        "allow User:alice write topic:orders", "allow User:alice read topic:orders",
    }  # fmt: skip


def test_less_than_all_leaves_the_handlers_of_records_alone(secured: Secure, journal: Journal) -> None:
    found = secured(security=journal.settings("changes"))
    kafka = found.app.kafka
    routes = guarded(build_routes(kafka.shared.apis.by_key, kafka.counters.requests))
    wrapped = auditing.recorded(routes, found.app.node.audit)
    assert {route.key for number, route in routes.items() if wrapped[number] is not route} == auditing.CHANGES & {
        route.key for route in routes.values()
    }
    assert not {0, 1, 2, 8, 9, 11, 12, 14, 68, 78} & auditing.CHANGES


# -- who is not let in -------------------------------------------------------------------------------------------------


def refused(config: dict[str, Any]) -> None:
    with pytest.raises(KafkaException):
        AdminClient(config).list_topics(timeout=3)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
def test_a_wrong_password(secured: Secure, journal: Journal, mechanism: str) -> None:
    found = secured(security=journal.settings(topic=False))
    found.user("alice", "the-secret")
    refused(librdkafka(found, mechanism, "alice", "the-guess"))
    line = journal.new(event="login")[0]
    assert (line["decision"], line["mechanism"], line["claimed"]) == ("denied", mechanism, "User:alice")
    assert (line["principal"], line["listener"]) == ("User:ANONYMOUS", "kafka")
    assert "password" in line["reason"]
    refused(librdkafka(found, mechanism, "nobody", "the-guess"))
    assert journal.new(event="login", claimed="User:nobody")
    text = journal.path.read_text()
    assert "the-secret" not in text
    assert "the-guess" not in text


def test_a_mechanism_that_is_not_offered(secured: Secure, journal: Journal) -> None:
    found = secured("SCRAM-SHA-512", security=journal.settings())
    with socket.create_connection(_address(found), 20) as client:
        client.sendall(request_bytes(17, 1, 1, "c", mechanism="EVIL\nONE"))
        line = journal.one(event="login")
    assert (line["mechanism"], line["reason"]) == ("EVIL\\nONE", "the mechanism is not offered")


def test_an_access_token_that_is_not_accepted(secured: Secure, journal: Journal, provider: Provider) -> None:
    security = journal.settings() | {"oauth": provider.settings()}
    found = secured("OAUTHBEARER", security=security)
    forged = provider.token(sub="root", aud="others")
    with socket.create_connection(_address(found), 20) as client:
        client.sendall(request_bytes(17, 1, 1, "c", mechanism="OAUTHBEARER"))
        client.sendall(request_bytes(36, 2, 2, "c", auth_bytes=message(forged)))
        client.sendall(request_bytes(36, 2, 3, "c", auth_bytes=b"\x01"))
        line = journal.one(event="login")
    assert (line["mechanism"], line["decision"], "claimed" in line) == ("OAUTHBEARER", "denied", False)
    assert line["reason"]
    assert forged.split(".")[2] not in journal.path.read_text()


def test_a_delegation_token_that_is_none(secured: Secure, journal: Journal) -> None:
    found = secured(security=journal.settings())
    with socket.create_connection(_address(found), 20) as client:
        client.sendall(request_bytes(17, 1, 1, "c", mechanism="SCRAM-SHA-256"))
        client.sendall(request_bytes(36, 2, 2, "c", auth_bytes=b"n,,n=some-token,r=abc,tokenauth=true"))
        client.sendall(request_bytes(36, 2, 3, "c", auth_bytes=b"c=biws,r=abc,p=" + base64.b64encode(b"p" * 32)))
        line = journal.one(event="login")
    assert (line["mechanism"], line["claimed"], line["decision"]) == ("SCRAM-SHA-256", "User:some-token", "denied")


def test_an_access_token_at_the_admin_port(secured: Secure, journal: Journal, provider: Provider) -> None:
    security = journal.settings() | {"oauth": provider.settings()}
    found = secured(http=HTTP | {"auth": ["bearer"]}, security=security)
    forged = provider.token(sub="root", aud="others")
    assert Web(found).ask("/metrics", Authorization=f"Bearer {forged}")[0] == 401
    line = journal.one(event="login")
    assert (line["listener"], line["mechanism"], line["decision"]) == ("http", "BEARER", "denied")
    assert forged not in journal.path.read_text()


def _address(found: Secured) -> tuple[str, int]:
    host, _, port = found.broker.bootstrap_servers.rpartition(":")
    return host, int(port)


@pytest.mark.parametrize("shows", ["nothing", "another authority's", "a bad subject"])
def test_certificates(secured: Secure, journal: Journal, authority: Authority, tmp_path: Path, shows: str) -> None:
    tls = authority.pair("door") | {
        "client_ca": authority.path, "client_auth": "require", "principal_rules": "RULE:^CN=(good),.*$/$1/",
    }  # fmt: skip
    door = {"name": "certs", "bind": "127.0.0.1:0", "tls": tls}
    listeners = {"kafka": [{"name": "main", "bind": "127.0.0.1:0", "sasl": ["PLAIN"]}, door]}
    found = secured(security=journal.settings("all"), listeners=listeners)
    host, port = found.app.kafka_addresses["certs"]
    other = tmp_path / "other"
    other.mkdir()
    pair = {
        "nothing": None, "another authority's": Authority(other).pair("good"), "a bad subject": authority.pair("bad"),
    }[shows]  # fmt: skip

    def connect(shown: dict[str, str] | None) -> None:
        context = authority.client()
        if shown is not None:
            context.load_cert_chain(shown["cert"], shown["key"])
        with socket.create_connection((host, port), 20) as plain, context.wrap_socket(plain, server_hostname=host) as c:
            c.sendall(request_bytes(18, 0, 1, "c"))
            c.recv(100)

    try:
        connect(pair)
    except OSError as error:
        assert isinstance(error, ssl.SSLError | ConnectionError)  # noqa: PT017
    line = journal.one(event="login")
    assert (line["decision"], line["listener"], line["mechanism"]) == ("denied", "certs", "TLS")
    assert line["reason"]
    connect(authority.pair("good"))
    line = journal.one(event="login", decision="allowed")
    assert (line["principal"], line["mechanism"]) == ("User:good", "TLS")


def test_the_administrators_socket(
    secured: Secure, journal: Journal, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = secured(security=journal.settings("all"))
    cli.ok("user", "list", "-b", f"unix:{found.app.admin_socket}")
    line = journal.new(event="login")[0]
    assert (line["decision"], line["principal"], line["listener"], line["mechanism"]) == (
        "allowed", "User:local-admin", "local", "LOCAL",
    )  # fmt: skip
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    monkeypatch.setattr(admin_socket, "ROOT", 12345)
    assert cli("user", "list", "-b", f"unix:{found.app.admin_socket}").code == 1
    line = journal.new(event="login", decision="denied")[0]
    assert (line["mechanism"], line["reason"]) == ("LOCAL", "the process is of another user")


# -- the admin port ----------------------------------------------------------------------------------------------------


def test_the_admin_port(secured: Secure, journal: Journal) -> None:
    found = secured(http=HTTP | {"auth": ["basic"]}, security=journal.settings("all", topic=False))
    for name in ("root", "alice"):
        found.user(name, f"pass of {name}")
    web = Web(found)
    assert web.ask("/metrics", "alice:wrong-one")[0] == 401
    line = journal.one(event="login")
    assert (line["decision"], line["listener"], line["mechanism"], line["peer"]) == (
        "denied", "http", "BASIC", "127.0.0.1",
    )  # fmt: skip
    assert web.ask("/metrics", "alice:pass of alice")[0] == 403
    lines = journal.new(2)
    assert [(line["event"], line["decision"]) for line in lines] == [("login", "allowed"), ("access", "denied")]
    assert (lines[1]["api"], use_of(lines[1])) == ("GET /metrics", ("describe", "cluster", "kafka-cluster"))
    assert web.ask("/healthz", "alice:pass of alice")[:2] == (200, "ok\n")  # nobody is refused it
    journal.forget()
    status, body, _ = web.ask("/metrics", "root:pass of root")
    assert status == 200
    lines = journal.new(2)
    assert [(line["event"], line["decision"]) for line in lines] == [("login", "allowed"), ("access", "allowed")]
    assert not {"wrong-one", "pass of alice"} & set(journal.path.read_text().split('"'))
    assert 'halfmoon_authorizations_total{decision="denied"} 1.0' in body
    assert 'halfmoon_audit_dropped_total{sink="file"} 0.0' in body
    assert "halfmoon_acls 0.0" in body


# -- RocketMQ ----------------------------------------------------------------------------------------------------------


def test_a_rocketmq_producer_that_is_refused(secured: Secure, journal: Journal) -> None:
    listener = {"bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0", "auth": True}
    found = secured(security=journal.settings(), listeners={"rocketmq": listener})
    found.in_loop(lambda: found.app.node.users.create("bob", secret="secret of bob"))
    options = {"namesrv": found.broker.namesrv, "access_key": "bob", "timeout_ms": 2_000}
    for secret in ("secret of bob", "another one"):
        with halfmoon.client.Producer("p", secret_key=secret, **options) as producer, pytest.raises(ClientError):
            producer.send(Message("orders", b"one"))
    lines = journal.new(2)
    line = next(each for each in lines if each["event"] == "access")
    assert (line["principal"], line["mechanism"], line["listener"]) == ("User:bob", "SIGNATURE", "namesrv")
    assert line["api"] == "GET_ROUTEINFO_BY_TOPIC"
    line = next(each for each in lines + journal.all() if each["event"] == "login")
    assert (line["decision"], line["claimed"], line["reason"]) == ("denied", "User:bob", "the signature is wrong")
    assert "secret of bob" not in journal.path.read_text()


# -- the topic ---------------------------------------------------------------------------------------------------------


def test_the_topic_is_for_super_users_and_exact_rules(
    secured: Secure, users: Callable[[Secured], Make]
) -> None:  # fmt: skip
    user = users(secured(security={"super_users": ["User:root"]}))
    root, mallory = user("root"), user("mallory", "all topic *", "all topic halfmoon*", "all topic h*")
    assert mallory.fetch(AUDIT_TOPIC) == TOPIC
    found = root.until_read(AUDIT_TOPIC, b'"principal":"User:mallory"')
    assert b'"resource":"halfmoon.audit"' in found
    assert mallory.fetch(AUDIT_TOPIC) == mallory.described(AUDIT_TOPIC) == TOPIC
    assert mallory.produce(AUDIT_TOPIC) == TOPIC
    assert mallory.delete(AUDIT_TOPIC) == [TOPIC]
    auditor = user("auditor", f"read topic {AUDIT_TOPIC}")
    assert auditor.described(AUDIT_TOPIC) == 0
    auditor.until_read(AUDIT_TOPIC, b'"principal":"User:mallory"')
    assert root.produce(AUDIT_TOPIC) == 17  # INVALID_TOPIC_EXCEPTION: nobody forges
    assert root.delete(AUDIT_TOPIC) != [0]


def test_it_is_read_by_halfmoon_consume(
    secured: Secure, cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, users: Callable[[Secured], Make]
) -> None:
    found = secured(security={"super_users": ["User:alice"]})
    users(found)("mallory").produce("orders")
    found.user("alice", "secret")
    monkeypatch.setenv("HALFMOON_BOOTSTRAP_SERVER", found.broker.bootstrap_servers)
    monkeypatch.setenv("HALFMOON_COMMAND_CONFIG", client_properties(tmp_path, found))
    wait_for(lambda: found.app.node.kernel.catalog.topic(AUDIT_TOPIC) is not None)
    line = json.loads(cli.ok("consume", AUDIT_TOPIC, "-c", "1", "-f", "%s").out)
    assert (line["principal"], line["api"], line["resource"]) == ("User:mallory", "Produce", "orders")


def test_a_reader_is_not_told_of_his_own_reading_without_end(
    secured: Secure, users: Callable[[Secured], Make]
) -> None:  # fmt: skip
    found = secured(security={"super_users": ["User:root"], "audit": {"level": "all"}})
    user = users(found)
    root = user("root")
    assert root.create("orders") == 0
    root.until_read(AUDIT_TOPIC, b'"resource":"orders"')

    def size() -> int:
        return int(found.in_loop(lambda: found.app.node.kernel.catalog.topic(AUDIT_TOPIC).partitions[0].next_offset))

    time.sleep(0.8)
    before = size()
    for _ in range(100):
        root.fetch(AUDIT_TOPIC)
    time.sleep(0.8)
    assert size() == before
    # Who reads another topic beside it is told of that, and no more often than twice a second.
    begun = time.monotonic()
    batches = set()
    while time.monotonic() - begun < 1.7:
        root.fetch("orders")
        batches.add(size())
        time.sleep(0.005)
    assert 1 <= len(batches) - 1 <= 5


def test_a_refused_auditor_does_not_loop(secured: Secure, users: Callable[[Secured], Make]) -> None:
    user = users(found := secured(security={"super_users": ["User:root"], "audit": {"level": "all"}}))
    mallory = user("mallory")
    assert mallory.fetch(AUDIT_TOPIC) == TOPIC
    user("root").until_read(AUDIT_TOPIC, b'"principal":"User:mallory"')

    def size() -> int:
        return int(found.in_loop(lambda: found.app.node.kernel.catalog.topic(AUDIT_TOPIC).partitions[0].next_offset))

    time.sleep(1)
    before = size()
    time.sleep(1.5)
    assert size() == before


@pytest.mark.parametrize("audit", [{"topic": False}, None])
def test_where_there_is_no_topic(secured: Secure, users: Callable[[Secured], Make], audit: Any) -> None:
    security: dict[str, Any] = {"super_users": ["User:root"]}
    found = secured(security=security | ({"audit": audit} if audit else {}))
    mallory = users(found)("mallory")
    assert mallory.produce("orders") == TOPIC
    time.sleep(1)
    assert (found.app.node.kernel.catalog.topic(AUDIT_TOPIC) is None) == (audit is not None)
    assert (found.app.node.audit is None) == (audit is not None)
    assert found.app.access.denials == 1


# -- the file ----------------------------------------------------------------------------------------------------------


def test_a_hangup_has_the_file_opened_again(journal: Journal, tmp_path: Path) -> None:
    yaml = tmp_path / "broker.yaml"
    audit = f"security: {{audit: {{file: {journal.path}, level: changes}}}}\n"
    yaml.write_text(audit)
    process = subprocess.Popen(
        [sys.executable, "-m", "halfmoon", "serve", "--config", str(yaml), "--kafka", "127.0.0.1:0"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[1].removeprefix("kafka=")
        assert journal.path.stat().st_mode & 0o777 == 0o600
        _create(address, "one")
        assert journal.one(api="CreateTopics")["resource"] == "one"
        for broken in (False, True):
            yaml.write_text("nonsense: true" if broken else audit)
            moved = tmp_path / f"audit.log.{broken}"
            journal.path.rename(moved)
            process.send_signal(signal.SIGHUP)
            wait_for(journal.path.exists)
            _create(address, f"two-{broken}")
            journal._seen = 0
            assert journal.one(api="CreateTopics")["resource"] == f"two-{broken}"
            assert "two" not in moved.read_text() or broken
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()


def _create(address: str, topic: str) -> None:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 20) as client:
        made = {"name": topic, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        fields = build(19, {"topics": [made], "timeout_ms": 1_000, "validate_only": False})
        client.sendall(request_bytes(19, 4, 1, "c", **fields))
        (size,) = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))
        assert size > 4
        client.recv(size, socket.MSG_WAITALL)


def test_a_file_that_cannot_be_opened_stops_the_start(secured: Secure, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"\$\.security\.audit\.file: cannot open '.*': No such file or directory"):
        secured(security={"audit": {"file": str(tmp_path / "nowhere" / "audit.log")}})


def test_a_dying_disk_is_a_warning(secured: Secure, journal: Journal, users: Callable[[Secured], Make]) -> None:
    found = secured(security=journal.settings(topic=False))

    def fail(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    found.app.auditing._file._write = fail
    alice = users(found)("alice")
    assert alice.produce("orders") == TOPIC
    wait_for(lambda: found.app.auditing._file.dropped == 1)
    assert any("audit lines are lost" in each for each in found.app.warnings())
    assert found.app.health() == []
    found.app.auditing._file._write = os.write
    assert alice.produce("orders") == TOPIC
    journal.one(api="Produce")
    wait_for(lambda: found.app.warnings() == [])
