"""`halfmoon user`: what it makes can be logged in with, and no password is where it does not belong."""

from __future__ import annotations

import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from halfmoon.auth.errors import AuthenticationError
from halfmoon.auth.principals import user
from halfmoon.auth.scram import (
    BY_NUMBER,
    MECHANISMS,
    Login,
    Mechanism,
    ScramClient,
    ScramServer,
    credential_of,
    make_credential,
)
from halfmoon.cli import passwords
from halfmoon.testing import Broker
from tests.cli.conftest import CommandLine

BOTH = list(MECHANISMS)


@pytest.fixture
def alice(broker_cli: CommandLine, name: str) -> Iterator[str]:
    broker_cli.ok("user", "create", name, "--password-file", "-", stdin=b"s3cret\n")
    yield name
    broker_cli("user", "delete", name)


def listed(cli: CommandLine) -> dict[str, Any]:
    return {row["user"]: row for row in cli.ok("user", "list", "-o", "json").json()}


def test_create_list_describe_delete(broker_cli: CommandLine, alice: str) -> None:
    expected = {"user": alice, "mechanisms": BOTH, "admin": False, "disabled": False, "rocketmq": False}
    assert listed(broker_cli)[alice] == expected
    described = broker_cli.ok("user", "describe", alice, "-o", "json").json()
    assert described == expected | {"mechanisms": [{"mechanism": each, "iterations": 4096} for each in BOTH]}
    assert "SCRAM-SHA-256 (4096),SCRAM-SHA-512 (4096)" in broker_cli.ok("user", "describe", alice).out
    assert alice in broker_cli.ok("user", "list").out
    assert broker_cli.ok("user", "delete", alice).out == f"{alice}: deleted\n"
    assert alice not in listed(broker_cli)
    assert "there is no user" in broker_cli("user", "describe", alice).failed_with(1)
    assert "there is no user" in broker_cli("user", "delete", alice).failed_with(1)


def test_options_of_create(broker_cli: CommandLine, name: str) -> None:
    made = broker_cli.ok(
        "user", "create", name, "--admin", "--generate", "--mechanism", "scram-sha-512", "--iterations", "8192"
    )
    assert made.out.startswith(f"{name}: created: ")
    assert len(made.out.split()[-1]) >= 24
    described = broker_cli.ok("user", "describe", name, "-o", "json").json()
    assert (described["admin"], described["mechanisms"]) == (
        True, [{"mechanism": "SCRAM-SHA-512", "iterations": 8192}],
    )  # fmt: skip
    assert "a user" in broker_cli("user", "create", name, "--generate").failed_with(1)
    assert "SCRAM-SHA-1" in broker_cli("user", "create", "x", "--generate", "--mechanism", "SCRAM-SHA-1").failed_with(2)
    assert broker_cli("user", "create", "x", "--generate", "--iterations", "1000").code == 2
    broker_cli.ok("user", "delete", name)


def test_a_generated_password_for_programs(broker_cli: CommandLine, alice: str) -> None:
    first, second = (
        broker_cli.ok("user", "passwd", alice, "--generate", "-o", "json").json()[0]["password"] for _ in range(2)
    )
    assert first != second
    chosen = broker_cli.ok("user", "passwd", alice, "--password-file", "-", "-o", "json", stdin=b"x")
    assert chosen.json() == [{"user": alice, "result": "password set", "ok": True}]


def test_flags(broker_cli: CommandLine, alice: str, name: str) -> None:
    for command, field, value in (
        ("disable", "disabled", True), ("enable", "disabled", False), ("admin", "admin", True),
    ):  # fmt: skip
        broker_cli.ok("user", command, alice)
        assert listed(broker_cli)[alice][field] is value
    broker_cli.ok("user", "admin", "--revoke", alice)
    assert not listed(broker_cli)[alice]["admin"]
    partly = broker_cli("user", "disable", f"{name}-nobody", alice)
    assert (partly.code, partly.out) == (1, f"{alice}: disabled\n")


def test_secrets_of_rocketmq(broker_cli: CommandLine, alice: str) -> None:
    assert broker_cli.ok("user", "secret", alice, "--rocketmq").out.startswith(f"{alice}: secret set: ")
    assert listed(broker_cli)[alice]["rocketmq"]
    broker_cli.ok("user", "secret", alice, "--rocketmq", "--remove")
    assert not listed(broker_cli)[alice]["rocketmq"]
    assert "--rocketmq" in broker_cli("user", "secret", alice).failed_with(2)
    assert "--remove" in broker_cli(
        "user", "secret", alice, "--rocketmq", "--remove", "--password-file", "-"
    ).failed_with(2)


@pytest.mark.parametrize("data", [b"", b"\n", b"a\nb\n", b"a\0b", b"\xff", b"x" * 1025])
def test_what_is_no_password(broker_cli: CommandLine, name: str, data: bytes) -> None:
    assert "halfmoon: " in broker_cli("user", "create", name, "--password-file", "-", stdin=data).failed_with(1)
    assert name not in listed(broker_cli)


def test_a_password_comes_from_somewhere(broker_cli: CommandLine, name: str, tmp_path: Path) -> None:
    assert "--generate" in broker_cli("user", "create", name).failed_with(1)
    assert "exclude" in broker_cli("user", "create", name, "--generate", "--password-file", "-").failed_with(2)
    assert "No such file" in broker_cli("user", "create", name, "--password-file", str(tmp_path / "no")).failed_with(1)


def test_a_file_that_others_may_read_is_told_of(broker_cli: CommandLine, alice: str, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("s3cret\r\n")
    file.chmod(0o644)
    assert "others may read" in broker_cli.ok("user", "passwd", alice, "--password-file", str(file)).err
    file.chmod(0o600)
    assert broker_cli.ok("user", "passwd", alice, "--password-file", str(file)).err == ""


def test_a_prompt_asks_twice_and_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    def prompt(text: str, **how: Any) -> str:
        asked.append((text, how))
        return "s3cret"

    monkeypatch.setattr(passwords.typer, "prompt", prompt)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert passwords.given("password of alice", None, False) == ("s3cret", False)
    assert asked == [("Password of alice", {"hide_input": True, "confirmation_prompt": True, "err": True})]


def test_what_is_sent_is_the_password_salted_anew_each_time() -> None:
    first, second = (passwords.salted("s3cret", BOTH, 4096) for _ in range(2))
    assert [each.mechanism for each in first] == [1, 2]
    assert {each.salt for each in first}.isdisjoint(each.salt for each in second)
    for each in first:
        mechanism = BY_NUMBER[each.mechanism]
        made = credential_of(mechanism, each.salted_password, each.salt, each.iterations)
        assert made == make_credential(mechanism, "s3cret", each.salt, 4096)


def log_in(broker: Broker, mechanism: Mechanism, name: str, password: str) -> Login | None:
    """Raises AuthenticationError."""
    assert broker.app is not None
    users = broker.app.node.users
    served = ScramServer(mechanism, lambda name, _: users.credentials(name).get(mechanism), "sn", users.unknown_key())
    client = ScramClient(mechanism, name, password, "cn")
    client.verify(served.final(client.final(served.first(client.first()))))
    return served.login


def test_a_user_that_was_created_logs_in_and_no_password_is_in_the_data_directory(
    cli: CommandLine, tmp_path: Path
) -> None:
    old, password, secret = b"correct-horse-1", b"correct-horse-2", b"battery-staple"
    data = tmp_path / "data"
    with Broker(data_dir=str(data)) as broker:

        def at(*arguments: str, stdin: bytes = b"") -> None:
            cli.ok(*arguments, "-b", broker.bootstrap_servers, stdin=stdin)

        at("user", "create", "alice", "--password-file", "-", stdin=old)
        at("user", "secret", "alice", "--rocketmq", "--password-file", "-", stdin=secret)
        at("user", "passwd", "alice", "--password-file", "-", stdin=password)
        broker.restart()
        for mechanism in MECHANISMS.values():
            assert log_in(broker, mechanism, "alice", password.decode()) == Login(user("alice"))
            with pytest.raises(AuthenticationError):
                log_in(broker, mechanism, "alice", old.decode())
        assert broker.app is not None
        assert broker.app.node.users.secret("alice") == secret.decode()
        files = [file for file in data.rglob("*") if file.is_file()]
        assert data / "node.key" in files
        for file in files:
            content = file.read_bytes()
            for word in (old, password, secret):
                assert word not in content
                assert b64encode(word) not in content
