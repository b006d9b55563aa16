"""Client commands at brokers that want encryption and a name: each of them logs in, and says what is wrong."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

import halfmoon.pipeline
from halfmoon.testing import Broker
from tests.cli.conftest import CommandLine
from tests.security.authority import Authority
from tests.security.conftest import Secure, Secured

ADMINISTRATORS = {"security": {"super_users": ["User:alice"]}}
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def client_properties(
    folder: Path, found: Secured, mechanism: str = "SCRAM-SHA-512", password: str = "secret", more: str = ""
) -> str:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    lines = [
        f"security.protocol={'SASL_SSL' if found.tls else 'SASL_PLAINTEXT'}",
        f"sasl.mechanism={mechanism}",
        f"sasl.jaas.config=org.apache.kafka.common.security.{module} \\",
        f'  required username="alice" password="{password}";',
        *([f"ssl.truststore.type=PEM\nssl.truststore.location={found.authority.path}"] if found.tls else []),
        more,
    ]
    file = folder / "client.properties"
    file.touch(0o600)
    file.write_text("\n".join(lines))
    return str(file)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_command_logs_in(
    secured: Secure, cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tls: bool, mechanism: str
) -> None:
    found = secured(tls=tls, **ADMINISTRATORS)
    found.user("alice", "secret")
    monkeypatch.setenv("HALFMOON_BOOTSTRAP_SERVER", found.broker.bootstrap_servers)
    monkeypatch.setenv("HALFMOON_COMMAND_CONFIG", client_properties(tmp_path, found, mechanism))
    cli.ok("topic", "create", "orders")
    cli.ok("produce", "orders", "one", "-k", "key")
    assert cli.ok("consume", "orders", "-e", "-f", "%s").out == "one"
    assert cli.ok("consume", "orders", "-c", "1", "-g", "billing", "-f", "%s").out == "one"
    assert "billing" in cli.ok("group", "list").out
    assert "alice" in cli.ok("user", "list").out
    assert cli.ok("message", "show", "-t", "orders", "--offset", "0").out
    cli.ok("dlq", "list")
    cli.ok("view", "list")
    cli.ok("group", "delete", "billing")
    results = {result for _, _, result in found.app.kafka.authentications}
    assert results == {"ok"}


def test_jobs_of_the_pipeline_log_in(
    secured: Secure, cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that run no Spark; tests/spark/test_secured.py has the others."""
    found = secured(tls=True, **ADMINISTRATORS)
    found.user("alice", "secret")
    at = ("-b", found.broker.bootstrap_servers, "--command-config")
    file = client_properties(tmp_path, found)
    said = cli.ok("pipeline", "orders", "shop", "-n", "50", *at, file)
    assert "shop" in said.out
    cli.ok("consume", "shop", "-e", "-g", "billing", *at, file)
    assert "billing" in cli.ok("pipeline", "report", "lag", "--out", str(tmp_path), *at, file).out
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    with monkeypatch.context() as quick:
        quick.setattr(halfmoon.pipeline.admin, "REQUEST_TIMEOUT_S", 2)
        said = cli("pipeline", "report", "lag", *at, client_properties(wrong, found, password="wrong")).failed_with(1)
        assert f"cannot log in at {found.broker.bootstrap_servers}: " in said
        assert "authentication failed with SASL mechanism SCRAM-SHA-512" in said
    file = client_properties(wrong, found, password="wrong", more="sasl.mechanizm=PLAIN")
    monkeypatch.setattr(halfmoon.pipeline, "session", lambda *_, **__: pytest.fail("Spark was started first"))
    assert "sasl.mechanizm is no property" in cli("pipeline", "report", "dlq", *at, file).failed_with(1)


@pytest.mark.parametrize("command", [("topic", "list"), ("produce", "t", "x"), ("user", "list")])
def test_a_wrong_password(secured: Secure, cli: CommandLine, tmp_path: Path, command: tuple[str, ...]) -> None:
    found = secured()
    found.user("alice", "secret")
    file = client_properties(tmp_path, found, password="wrong")
    said = cli(*command, "-b", found.broker.bootstrap_servers, "--command-config", file).failed_with(1)
    assert said.startswith("halfmoon: SASL_AUTHENTICATION_FAILED: ")


def test_a_mechanism_that_is_not_offered(secured: Secure, cli: CommandLine, tmp_path: Path) -> None:
    found = secured("SCRAM-SHA-256")
    file = client_properties(tmp_path, found)
    said = cli("topic", "list", "-b", found.broker.bootstrap_servers, "--command-config", file).failed_with(1)
    assert "SCRAM-SHA-512; the broker offers SCRAM-SHA-256" in said


@pytest.mark.parametrize("command", [("topic", "list"), ("produce", "t", "x"), ("user", "list")])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_without_it_the_command_says_what_may_be_missing(
    secured: Secure, cli: CommandLine, command: tuple[str, ...], tls: bool
) -> None:
    found = secured(tls=tls)
    said = cli(*command, "-b", found.broker.bootstrap_servers).failed_with(1)
    assert "(--command-config)" in said


def test_a_broker_that_is_not_trusted(secured: Secure, cli: CommandLine, tmp_path: Path) -> None:
    found = secured(tls=True, **ADMINISTRATORS)
    found.user("alice", "secret")
    file = Path(client_properties(tmp_path, found))
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    good = file.read_text()
    file.write_text(good.replace(found.authority.path, other.path))
    at = ("-b", found.broker.bootstrap_servers, "--command-config", str(file))
    assert "certificate is not trusted" in cli("topic", "list", *at).failed_with(1)
    file.write_text(good.replace(f"ssl.truststore.type=PEM\nssl.truststore.location={found.authority.path}", ""))
    assert "certificate is not trusted" in cli("topic", "list", *at).failed_with(1)


def test_the_brokers_name_is_checked_unless_it_is_not_to_be(
    authority: Authority, secured: Secure, cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = authority.pair
    monkeypatch.setattr(authority, "pair", lambda name: pair(name, "broker.example.com"))
    found = secured(tls=True, **ADMINISTRATORS)
    found.user("alice", "secret")
    at = ("-b", found.broker.bootstrap_servers, "--command-config")
    said = cli("topic", "list", *at, client_properties(tmp_path, found)).failed_with(1)
    assert "certificate is not trusted" in said
    unchecked = client_properties(tmp_path, found, more="ssl.endpoint.identification.algorithm=")
    cli.ok("topic", "list", *at, unchecked)
    cli.ok("produce", "t", "x", *at, unchecked)


def test_a_certificate_of_the_clients(
    authority: Authority, cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    listener = {
        "bind": "127.0.0.1:0",
        "tls": authority.pair("broker") | {"client_ca": authority.path, "client_auth": "require"},
    }
    pair = authority.pair("alice")
    file = tmp_path / "client.properties"
    common = f"security.protocol=SSL\nssl.ca.location={authority.path}\n"
    with Broker(config={"listeners": {"kafka": listener}, "security": {"authorizer": "none"}}) as b:
        at = ("-b", b.bootstrap_servers, "--command-config", str(file))
        file.write_text(common + f"ssl.certificate.location={pair['cert']}\nssl.key.location={pair['key']}\n")
        cli.ok("topic", "list", *at)
        both = tmp_path / "both.pem"
        both.write_text(Path(pair["key"]).read_text() + Path(pair["cert"]).read_text())
        file.write_text(common + f"ssl.keystore.location={both}\n")
        file.chmod(0o600)
        cli.ok("produce", "t", "x", *at)
        file.write_text(common)
        assert cli("topic", "list", *at).code == 1
    assert not list(temporary.glob("*.pem"))


def test_through_the_administrators_socket(secured: Secure, cli: CommandLine, tmp_path: Path) -> None:
    found = secured(tls=True)
    at = ("-b", f"unix:{found.app.admin_socket}")
    cli.ok("topic", "create", "orders", *at)
    assert "orders" in cli.ok("topic", "describe", "orders", *at).out
    cli.ok("group", "list", *at)
    assert "-b HOST:PORT" in cli("produce", "orders", "x", *at).failed_with(1)
    file = client_properties(tmp_path, found)
    assert "needs no --command-config" in cli("topic", "list", *at, "--command-config", file).failed_with(1)
    assert "No such file" in cli("topic", "list", "-b", f"unix:{tmp_path}/none").failed_with(1)


def test_consume_stays_logged_in_while_it_watches_for_the_broker(
    secured: Secure, cli: CommandLine, tmp_path: Path
) -> None:
    """A connection that asks nothing and has not logged in would be closed again and again."""
    from halfmoon.cli.away import AwayWatch
    from halfmoon.cli.brokers import Brokers

    found = secured(tls=True, **ADMINISTRATORS)
    found.user("alice", "secret")
    brokers = Brokers(found.broker.bootstrap_servers, Path(client_properties(tmp_path, found)))
    said: list[str] = []
    watch = AwayWatch(brokers.tcp_servers(), said.append, brokers.security)
    connection, problem = watch._connect()
    assert connection is not None, problem
    assert sum(found.app.kafka.authentications.values()) == 1
    connection.close()
