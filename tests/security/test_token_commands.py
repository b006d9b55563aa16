"""`halfmoon token`: a token made, handed on, used, renewed and ended by commands."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from halfmoon.securing import read
from halfmoon.testing import Broker
from tests.cli.conftest import CommandLine
from tests.cli.conftest import cli as cli


@pytest.fixture
def broker(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    with Broker(secure=True) as made:
        for name in ("alice", "bob", "carol"):
            made.create_user(name)
        made.allow("alice", "topic:orders", "Read", "Write", "Create")
        monkeypatch.setenv("HALFMOON_BOOTSTRAP_SERVER", made.bootstrap_servers)
        yield made


def as_user(broker: Broker, name: str) -> tuple[str, str]:
    return "--command-config", str(broker.client_properties(name))


def lasts(row: dict[str, str]) -> timedelta:
    return datetime.fromisoformat(row["expires"]) - datetime.now().astimezone()


def test_from_the_first_to_the_last(broker: Broker, cli: CommandLine, tmp_path: Path) -> None:
    alice, file = as_user(broker, "alice"), tmp_path / "token.properties"
    file.touch(0o644)
    made = cli.ok(
        "token", "create", "--renewer", "User:bob", "--lifetime", "2h", "--output-file", str(file), *alice, "-o", "json"
    ).json()
    assert (made["owner"], made["file"], "hmac" in made) == ("User:alice", str(file), False)
    assert timedelta(hours=1.9) < lasts(made) <= timedelta(hours=2)
    assert file.stat().st_mode & 0o777 == 0o600
    security = read(file, pytest.fail)
    assert (security.protocol, security.is_token, security.username) == ("SASL_SSL", True, made["token"])
    assert security.authorities

    by_token = ("--command-config", str(file))
    cli.ok("topic", "create", "orders", *by_token)
    assert "orders" in cli.ok("topic", "list", *by_token).out
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in cli("token", "create", *by_token).failed_with(1)

    (row,) = cli.ok("token", "list", *alice, "-o", "json").json()
    assert row == {
        "token": made["token"], "owner": "User:alice", "requester": "User:alice", "renewers": ["User:bob"],
        "issued": row["issued"], "expires": made["expires"], "latest": made["latest"],
    }  # fmt: skip
    assert cli.ok("token", "list", *as_user(broker, "carol"), "-o", "json").json() == []
    said = cli("token", "renew", made["token"], *as_user(broker, "carol")).failed_with(1)
    assert "there is no such token, or it is not for you to see" in said

    (renewed,) = cli.ok("token", "renew", made["token"], "--period", "1h", *as_user(broker, "bob"), "-o", "json").json()
    assert timedelta(minutes=55) < lasts(renewed) <= timedelta(hours=1)
    (earlier,) = cli.ok("token", "expire", made["token"], "--period", "5m", *alice, "-o", "json").json()
    assert lasts(earlier) <= timedelta(minutes=5)
    assert cli.ok("token", "expire", made["token"], *alice).out == f"{made['token']}: ended\n"
    assert cli.ok("token", "list", *alice, "-o", "json").json() == []
    assert "SASL_AUTHENTICATION_FAILED" in cli("topic", "list", *by_token).failed_with(1)


def test_it_is_printed_once_and_no_list_has_it(broker: Broker, cli: CommandLine) -> None:
    alice = as_user(broker, "alice")
    made = cli.ok("token", "create", *alice, "-o", "json").json()
    assert len(made["hmac"]) == 88
    assert made["token"] in cli.ok("token", "list", *alice).out
    assert made["hmac"] not in cli.ok("token", "list", *alice, "-o", "json").out
    assert "hmac" in cli.ok("token", "create", *alice).out


def test_an_administrator_makes_them_for_others(broker: Broker, cli: CommandLine) -> None:
    assert broker.app is not None
    socket = ("-b", f"unix:{broker.app.admin_socket}")
    made = cli.ok("token", "create", "--owner", "User:alice", *socket, "-o", "json").json()
    assert made["owner"] == "User:alice"
    (row,) = cli.ok("token", "list", "--owner", "User:alice", *socket, "-o", "json").json()
    assert row["requester"] == "User:local-admin"
    assert cli.ok("token", "list", "--owner", "User:bob", *socket, "-o", "json").json() == []
    assert "say whose it is" in cli("token", "create", *socket).failed_with(2)
    said = cli("token", "create", "--owner", "User:bob", *as_user(broker, "alice")).failed_with(1)
    assert "DELEGATION_TOKEN_AUTHORIZATION_FAILED" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("create", "--renewer", "bob"), "expected User:bob"), (("create", "--lifetime", "soon"), "--lifetime"),
        (("create", "--lifetime", "0s"), "no time to live"), (("renew", "x", "--period", "never"), "--period"),
    ],
)  # fmt: skip
def test_what_is_no_argument(broker: Broker, cli: CommandLine, arguments: tuple[str, ...], said: str) -> None:
    assert said in cli("token", *arguments, *as_user(broker, "alice")).failed_with(2)
