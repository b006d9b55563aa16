"""The demo as two users who have only the rights that they need, over TLS: `--secure`.

Certificates, passwords and client.properties are in the data directory, for its owner alone, and stay for a look around
afterwards:

D/security/ca.crt, broker.crt, broker.key, broker.yaml
D/security/admin.properties, flights-producer.properties, spark-reader.properties
D/security/admin.password    the first user's (HALFMOON_BOOTSTRAP_USER), which a second run needs again
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined,unused-ignore]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from halfmoon.demo.load import GROUP, REQUEST_TIMEOUT_S
from halfmoon.demo.source import FLIGHTS_TOPIC, SUMMARY_TOPIC
from halfmoon.demo.state import DataDir
from halfmoon.pipeline.brokers import Brokers
from halfmoon.pipeline.errors import PipelineError
from halfmoon.securing import Security
from halfmoon.securing.clients import as_file, java

ADMIN, PRODUCER, READER = "admin", "flights-producer", "spark-reader"
MECHANISM = "SCRAM-SHA-512"
ITERATIONS = 4096


class Rule(NamedTuple):
    """What a user may do; a name that ends with * is a prefix."""

    user: str
    operations: tuple[str, ...]
    resource: str
    name: str


RULES = (
    Rule(PRODUCER, ("Create", "Write", "Read"), "topic", FLIGHTS_TOPIC),
    Rule(PRODUCER, ("Create", "Write", "Read"), "topic", f"{FLIGHTS_TOPIC}.*"),
    Rule(PRODUCER, ("Read",), "group", GROUP),
    Rule(PRODUCER, ("Write",), "transactional_id", GROUP),
    Rule(READER, ("Read",), "topic", FLIGHTS_TOPIC),
    Rule(READER, ("Read",), "topic", f"{FLIGHTS_TOPIC}.*"),
    Rule(READER, ("Write",), "topic", SUMMARY_TOPIC),
    Rule(READER, ("Read",), "group", GROUP),
)
"""The producer reads to see what an earlier load has left, and a view shows what its maker may read."""


class Prepared(NamedTuple):
    """What the broker is started with."""

    folder: Path
    authority: str
    config: Path
    environment: dict[str, str]


def prepare(data: DataDir) -> Prepared:
    """Certificates, made anew for each run, and the broker's configuration. Raises PipelineError."""
    try:
        from halfmoon.auth.development import HERE, make_authority, make_server
    except ImportError as missing:
        raise PipelineError(f"{missing.name} is not installed: pip install 'halfmoon[auth]'") from None

    folder = data.root / "security"
    folder.mkdir(mode=0o700, exist_ok=True)
    now = datetime.now(UTC)
    authority = make_authority(now, "Halfmoon demo CA")
    server = make_server(authority, HERE, now)
    pems = (("ca.crt", authority.certificate), ("broker.crt", server.certificate), ("broker.key", server.key))
    for name, pem in pems:
        _write(folder / name, pem.decode())
    tls = {"cert": str(folder / "broker.crt"), "key": str(folder / "broker.key")}
    listener = {"bind": "127.0.0.1:0", "tls": tls, "sasl": [MECHANISM]}
    config = folder / "broker.yaml"
    _write(config, json.dumps({"listeners": {"kafka": listener}}, indent=1) + "\n")  # JSON is YAML
    password = folder / "admin.password"
    if not password.exists():
        _write(password, secrets.token_urlsafe(18) + "\n")
    environment = {"HALFMOON_BOOTSTRAP_USER": ADMIN, "HALFMOON_BOOTSTRAP_PASSWORD_FILE": str(password)}
    return Prepared(folder, authority.certificate.decode(), config, environment)


def set_up(prepared: Prepared, servers: str) -> tuple[Brokers, Brokers]:
    """Make both users and their rules, as the administrator: how the producer and the reader connect. Raises
    PipelineError."""
    admin = _client(prepared, servers, ADMIN, (prepared.folder / "admin.password").read_text().strip())
    passwords = {name: secrets.token_urlsafe(18) for name in (PRODUCER, READER)}
    client = AdminClient(admin.confluent())
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
    users: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion(name, info, password.encode()) for name, password in passwords.items()
    ]
    _wait(client.alter_user_scram_credentials(users).values(), "make the users")
    _wait(client.create_acls([each for rule in RULES for each in _bindings(rule)]).values(), "make the rules")
    producer, reader = (_client(prepared, servers, name, password) for name, password in passwords.items())
    return producer, reader


def denied(reader: Brokers) -> str:
    """The reader tries to write what it may only read: what the broker says. Raises PipelineError if it may."""
    said: list[object] = []
    producer = Producer(reader.confluent())
    producer.produce(FLIGHTS_TOPIC, b"not a flight", on_delivery=lambda error, _: said.append(error and error.name()))
    producer.flush(REQUEST_TIMEOUT_S)
    if said != ["TOPIC_AUTHORIZATION_FAILED"]:
        raise PipelineError(f"{READER} may not write to {FLIGHTS_TOPIC}, and the broker says {said}")
    return str(said[0])


def _client(prepared: Prepared, servers: str, user: str, password: str) -> Brokers:
    security = Security("SASL_SSL", MECHANISM, user, password, authorities=prepared.authority)
    _write(prepared.folder / f"{user}.properties", as_file(java(security)))
    return Brokers(servers, security=security)


def _bindings(rule: Rule) -> list[AclBinding]:
    pattern = ResourcePatternType.PREFIXED if rule.name.endswith("*") else ResourcePatternType.LITERAL
    return [
        AclBinding(
            ResourceType[rule.resource.upper()], rule.name.removesuffix("*"), pattern, f"User:{rule.user}", "*",
            AclOperation[operation.upper()], AclPermissionType.ALLOW,
        )
        for operation in rule.operations
    ]  # fmt: skip


def _wait(futures: Iterable[Future[Any]], what: str) -> None:
    """Raises PipelineError."""
    for future in futures:
        try:
            future.result(REQUEST_TIMEOUT_S)
        except KafkaException as refused:
            raise PipelineError(f"cannot {what}: {refused.args[0].str()}") from None


def _write(path: Path, text: str) -> None:
    """For its owner alone."""
    path.unlink(missing_ok=True)
    path.touch(0o600)
    path.write_text(text)
