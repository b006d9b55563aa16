"""Kafka 4.3.1's own tools of security against a secured broker: kafka-acls.sh, kafka-configs.sh for users, and
kafka-delegation-tokens.sh, each with a client.properties."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from halfmoon.securing import Security
from halfmoon.securing.clients import as_file, java
from halfmoon.testing import Broker
from tests.cli.conftest import CommandLine
from tests.cli.conftest import cli as cli
from tests.interop.java_programs import jars

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
ACLS, CONFIGS, TOKENS = (
    "org.apache.kafka.tools.AclCommand", "kafka.admin.ConfigCommand", "org.apache.kafka.tools.DelegationTokenCommand",
)  # fmt: skip


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(secure=True) as running:
        yield running


def tool(broker: Broker, main: str, *arguments: str, properties: Path | None = None) -> str:
    """What it prints; it has to succeed."""
    file = properties or broker.client_properties()
    done = subprocess.run(
        ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{jars('kafka')}/*:{jars('broker')}/*", main,
         "--bootstrap-server", broker.bootstrap_servers, "--command-config", str(file), *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def topics(broker: Broker, user: str, password: str) -> set[str]:
    login = {"sasl.username": user, "sasl.password": password}
    return set(AdminClient(broker.client_config() | login).list_topics(timeout=10).topics)


def test_kafka_acls(broker: Broker) -> None:
    broker.create_user("alice")
    who = ("--allow-principal", "User:alice")
    tool(broker, ACLS, "--add", *who, "--consumer", "--topic", "orders", "--group", "billing")
    tool(broker, ACLS, "--add", *who, "--operation", "Write", "--topic", "paid.", "--resource-pattern-type", "prefixed")
    listed = tool(broker, ACLS, "--list", "--principal", "User:alice")
    for said in ("name=orders", "name=billing", "patternType=PREFIXED", "operation=WRITE", "permissionType=ALLOW"):
        assert said in listed
    tool(broker, ACLS, "--remove", "--force", "--topic", "orders")
    assert "name=orders" not in tool(broker, ACLS, "--list")


def test_kafka_configs_for_users(broker: Broker) -> None:
    of = ("--entity-type", "users", "--entity-name", "bob")
    tool(broker, CONFIGS, "--alter", *of, "--add-config", "SCRAM-SHA-256=[iterations=8192,password=bobs]")
    assert "SCRAM-SHA-256=iterations=8192" in tool(broker, CONFIGS, "--describe", *of)
    assert topics(broker, "bob", "bobs") == set()
    tool(broker, CONFIGS, "--alter", *of, "--delete-config", "SCRAM-SHA-256")
    assert "SCRAM-SHA-256" not in tool(broker, CONFIGS, "--describe", *of)


def test_kafka_delegation_tokens_and_ours_are_the_same(broker: Broker, cli: CommandLine, tmp_path: Path) -> None:
    made = tool(broker, TOKENS, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:alice")
    token, hmac = re.search(r"(\S+)\s+(\S+==)\s+User:test", made).groups()  # type: ignore[union-attr]
    at = ("-b", broker.bootstrap_servers, "--command-config", str(broker.client_properties()))
    (listed,) = cli.ok("token", "list", *at, "-o", "json").json()
    assert (listed["token"], listed["renewers"]) == (token, ["User:alice"])
    # Java logs in by the file that ours would write.
    ca = Path(broker.client_config()["ssl.ca.location"]).read_text()
    login = Security("SASL_SSL", "SCRAM-SHA-512", token, hmac, is_token=True, authorities=ca)
    file = tmp_path / "token.properties"
    file.write_text(as_file(java(login)))
    tool(broker, ACLS, "--list", properties=file)
    tool(broker, TOKENS, "--renew", "--renew-time-period", "-1", "--hmac", hmac)
    assert token in tool(broker, TOKENS, "--describe", "--owner-principal", "User:test")
    tool(broker, TOKENS, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert cli.ok("token", "list", *at, "-o", "json").json() == []
