"""`halfmoon produce` and `consume` with `--protocol rocketmq` at a listener that wants TLS and signatures: one file
says how both protocols get in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.security.acting import rule
from tests.security.authority import Authority
from tests.security.conftest import Secure, Secured

RIGHTS = (
    "create topic orders",
    "write topic orders",
    "read topic orders",
    "read group billing",
    "read group halfmoon-cli",
)
"""Without a group of its own, `consume` asks as halfmoon-cli."""
MQ = ("--protocol", "rocketmq")
SIGNED = ("rocketmq.access.key=alice", "rocketmq.secret.key=secret of alice")
SASL = ("sasl.mechanism=SCRAM-SHA-512", "sasl.username=alice", "sasl.password=password of alice")

At = Callable[..., tuple[str, ...]]


@pytest.fixture
def found(secured: Secure, authority: Authority) -> Secured:
    made = secured(tls=True, listeners={"rocketmq": authority.signed_rocketmq()}, topics={"partitions": 2})
    # A secret is added to a user that is there.
    made.user("alice", "password of alice")
    made.in_loop(lambda: made.app.node.users.set_secret("alice", "secret of alice"))
    made.in_loop(lambda: made.app.node.acls.change([rule("alice", right) for right in RIGHTS]))
    return made


@pytest.fixture
def at(found: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> At:
    monkeypatch.setenv("HALFMOON_NAMESRV", found.broker.namesrv)
    monkeypatch.setenv("HALFMOON_BOOTSTRAP_SERVER", found.broker.bootstrap_servers)

    def written(*lines: str, protocol: str = "SSL", authorities: str = found.authority.path) -> tuple[str, ...]:
        file = tmp_path / "client.properties"
        file.touch(0o600)
        common = [f"security.protocol={protocol}", f"ssl.truststore.location={authorities}"]
        file.write_text("\n".join([*common, *lines]))
        return ("--command-config", str(file))

    return written


def test_producing_and_consuming(found: Secured, cli: CommandLine, at: At) -> None:
    signed = at(*SIGNED)
    assert cli.ok("produce", "orders", "one", "two", "-p", "1", *MQ, *signed).out.startswith("2 records to orders")
    assert cli.ok("consume", "orders", "-e", *MQ, *signed).out == "one\ntwo\n"
    assert cli.ok("consume", "orders", "--last", "1", *MQ, *signed).out == "two\n"
    assert cli.ok("consume", "orders", "-c", "2", "-g", "billing", *MQ, *signed).out == "one\ntwo\n"
    assert found.app.rocketmq.signatures.results["failed"] == 0


def test_one_file_is_for_both_protocols(cli: CommandLine, at: At) -> None:
    both = at(*SIGNED, *SASL, protocol="SASL_SSL")
    for protocol in (MQ, ()):
        cli.ok("produce", "orders", "one", "-k", "key", *protocol, *both)
    for protocol in (MQ, ()):
        done = cli.ok("consume", "orders", "-e", *protocol, *both)
        assert done.out == "one\none\n"
        assert done.err == ""


def test_a_wrong_secret_and_none(found: Secured, cli: CommandLine, at: At) -> None:
    for lines in (("rocketmq.access.key=alice", "rocketmq.secret.key=wrong"), ()):
        for command in (("produce", "orders", "x"), ("consume", "orders", "-e")):
            said = cli(*command, *MQ, *at(*lines)).failed_with(1)
            assert "authentication failed" in said
            assert "wrong" not in said
    assert found.app.rocketmq.signatures.results["failed"] >= 2


def test_a_missing_right(cli: CommandLine, at: At) -> None:
    signed = at(*SIGNED)
    for command in (("produce", "other", "x"), ("consume", "other", "-e")):
        assert "User:alice is not allowed to" in cli(*command, *MQ, *signed).failed_with(1)
    cli.ok("produce", "orders", "x", *MQ, *signed)
    said = cli("consume", "orders", "-e", "-g", "other", *MQ, *signed).failed_with(1)
    assert "User:alice is not allowed to read group 'other'" in said


def test_what_tls_says(cli: CommandLine, at: At, tmp_path: Path) -> None:
    stranger = at(*SIGNED, authorities=Authority(tmp_path, "other").path)
    for command in (("produce", "orders", "x"), ("consume", "orders", "-e")):
        assert "certificate" in cli(*command, *MQ, *stranger).failed_with(1)
        assert "no name server answers" in cli(*command, *MQ).failed_with(1)


def test_who_has_only_a_login_of_kafkas(cli: CommandLine, at: At) -> None:
    said = cli("produce", "orders", "x", *MQ, *at(*SASL, protocol="SASL_SSL")).failed_with(1)
    assert "RocketMQ's protocol has no SASL: rocketmq.access.key and rocketmq.secret.key are missing" in said
