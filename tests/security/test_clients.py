"""Clients that authenticate: each client, each mechanism, by TLS and without."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.security import round_trips
from tests.security.authority import Authority
from tests.security.conftest import Secure, Secured

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


ANYBODY = {"security": {"super_users": ["User:alice", "User:bob", "User:carol"]}}
"""What these may do is not the question here."""


def librdkafka(secured: Secured, mechanism: str, name: str, password: str, **more: Any) -> dict[str, Any]:
    config = {
        "bootstrap.servers": secured.broker.bootstrap_servers, "sasl.mechanism": mechanism, "sasl.username": name,
        "sasl.password": password, "security.protocol": "SASL_SSL" if secured.tls else "SASL_PLAINTEXT", **more,
    }  # fmt: skip
    return config | ({"ssl.ca.location": secured.authority.path} if secured.tls else {})


def python(secured: Secured, mechanism: str, name: str, password: str) -> dict[str, Any]:
    """Of kafka-python, and of aiokafka."""
    return {
        "bootstrap_servers": secured.broker.bootstrap_servers, "sasl_mechanism": mechanism,
        "sasl_plain_username": name, "sasl_plain_password": password,
        "security_protocol": "SASL_SSL" if secured.tls else "SASL_PLAINTEXT",
    }  # fmt: skip


def through_librdkafka(secured: Secured, mechanism: str) -> bytes | None:
    return round_trips.librdkafka(librdkafka(secured, mechanism, "alice", "secret"))


def through_kafka_python(secured: Secured, mechanism: str) -> bytes | None:
    config = python(secured, mechanism, "alice", "secret")
    if secured.tls:
        config["ssl_cafile"] = secured.authority.path
    return round_trips.kafka_python(config)


def through_aiokafka(secured: Secured, mechanism: str) -> bytes | None:
    config = python(secured, mechanism, "alice", "secret")
    if secured.tls:
        config["ssl_context"] = secured.authority.client()
    return round_trips.aiokafka(config)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("through", [through_librdkafka, through_kafka_python, through_aiokafka])
def test_every_client_by_every_mechanism(secured: Secure, through: Any, tls: bool) -> None:
    found = secured(tls=tls, **ANYBODY)
    found.user("alice", "secret")
    for mechanism in MECHANISMS:
        assert through(found, mechanism) == round_trips.VALUE
    counts = found.app.kafka.authentications
    assert {mechanism for _, mechanism, result in counts if result == "ok"} == set(MECHANISMS)
    assert not any(result == "failed" for _, _, result in counts)


def test_every_client_by_certificate(secured: Secure, authority: Authority) -> None:
    certificates = {"client_ca": authority.path, "client_auth": "require", "principal_rules": "RULE:^CN=(.*?),.*$/$1/"}
    listener = {"bind": "127.0.0.1:0", "tls": authority.pair("broker") | certificates}
    found = secured(tls=True, listeners={"kafka": listener}, **ANYBODY)
    pair, servers = authority.pair("alice"), found.broker.bootstrap_servers
    assert round_trips.librdkafka({"bootstrap.servers": servers, **authority.librdkafka(pair)}) == round_trips.VALUE
    config = {"bootstrap_servers": servers, "security_protocol": "SSL", "ssl_context": authority.client(pair)}
    assert round_trips.kafka_python(config) == round_trips.VALUE
    assert round_trips.aiokafka(config) == round_trips.VALUE
    admin = AdminClient({"bootstrap.servers": servers, **authority.librdkafka(authority.pair("mallory"))})
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        admin.delete_topics(["t"])["t"].result(20)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_is_told_that_its_password_is_wrong(secured: Secure, mechanism: str) -> None:
    found = secured(**ANYBODY)
    found.user("alice", "secret")
    errors: list[KafkaError] = []
    admin = AdminClient(librdkafka(found, mechanism, "alice", "wrong", error_cb=errors.append))
    deadline = time.monotonic() + 20
    while not any(error.code() == KafkaError._AUTHENTICATION for error in errors):
        assert time.monotonic() < deadline, errors
        admin.poll(0.1)


def test_aiokafka_is_told_that_its_password_is_wrong(secured: Secure) -> None:
    found = secured(**ANYBODY)
    found.user("alice", "secret")

    async def run() -> None:
        producer = AIOKafkaProducer(**python(found, "SCRAM-SHA-512", "alice", "wrong"))
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(KafkaConnectionError):
        asyncio.run(run())
    assert found.app.kafka.authentications == {("kafka", "SCRAM-SHA-512", "failed"): 1}


def test_a_user_that_is_disabled_or_deleted_is_gone_at_once(secured: Secure) -> None:
    found = secured(**ANYBODY)
    for name in ("alice", "bob", "carol"):
        found.user(name, "secret")
    producers = {
        name: Producer(librdkafka(found, "SCRAM-SHA-512", name, "secret", **{"message.timeout.ms": 2_000}))
        for name in ("alice", "bob", "carol")
    }
    for producer in producers.values():
        producer.produce("t", b"v")
        assert producer.flush(20) == 0
    users = found.app.node.users
    found.in_loop(lambda: users.set_flags("alice", disabled=True))
    found.in_loop(lambda: users.delete("bob"))
    outcomes: dict[str, bool] = {}
    for name, producer in producers.items():
        producer.produce("t", b"w", on_delivery=lambda error, _, name=name: outcomes.setdefault(name, error is None))
    for producer in producers.values():
        producer.flush(20)
    assert outcomes == {"alice": False, "bob": False, "carol": True}
    found.in_loop(lambda: users.set_flags("alice", disabled=False))
    again = Producer(librdkafka(found, "SCRAM-SHA-512", "alice", "secret"))
    again.produce("t", b"v")
    assert again.flush(20) == 0


def test_clients_authenticate_again_before_their_session_ends(secured: Secure) -> None:
    """librdkafka does it at nine tenths of the lifetime (KIP-368)."""
    found = secured("SCRAM-SHA-512", **ANYBODY)
    found.user("alice", "secret")
    (door,) = found.app.kafka.doors.values()
    door.sasl.reauthenticate_ms = 2_500
    producer = Producer(librdkafka(found, "SCRAM-SHA-512", "alice", "secret"))
    until = time.monotonic() + 8
    while time.monotonic() < until:
        producer.produce("t", b"v")
        assert producer.flush(20) == 0
        time.sleep(0.2)
    counts = found.app.kafka.authentications
    assert counts["kafka", "SCRAM-SHA-512", "ok"] >= 3
    assert found.app.kafka.counters.accepted <= 2 + 1  # bootstrap, and the broker itself
