"""HALFMOON_BOOTSTRAP_USER: the first administrator of a broker in a container."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from halfmoon.auth.principals import user
from halfmoon.auth.scram import BY_NUMBER, credential_of, salted_password
from halfmoon.config.settings import load_settings
from halfmoon.errors import StartError
from halfmoon.securing import Security
from halfmoon.securing.clients import as_file, java
from halfmoon.server.app import App
from halfmoon.services.credentials.users import Users
from tests.cli.conftest import CommandLine
from tests.cli.conftest import cli as cli

PASSWORD = "correct horse"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "password"
    made.write_text(f"{PASSWORD}\n")
    return made


def named(name: str, file: Path | str) -> dict[str, str]:
    return {"HALFMOON_BOOTSTRAP_USER": name, "HALFMOON_BOOTSTRAP_PASSWORD_FILE": str(file)}


def has_password(users: Users, name: str, password: str) -> bool:
    def same(each: object) -> bool:
        mechanism = BY_NUMBER[each.mechanism]  # type: ignore[attr-defined]
        salted = salted_password(mechanism, password, each.salt, each.iterations)  # type: ignore[attr-defined]
        return credential_of(mechanism, salted, each.salt, each.iterations).stored_key == each.stored_key  # type: ignore[attr-defined]

    return [same(each) for each in users.scram(name)] == [True, True]


def start(folder: Path, environment: dict[str, str], look: object = None) -> None:
    """A broker, started and stopped; `look` sees its users. Raises what the start does."""
    listener = {"bind": "127.0.0.1:0", "sasl": ["SCRAM-SHA-256"]}
    settings = load_settings({"listeners": {"kafka": listener}, "node": {"data_dir": str(folder)}}, {}, {})

    async def run() -> None:
        app = App(settings, environment=environment)
        await app.start()
        try:
            if callable(look):
                look(app.node.users)
        finally:
            await app.stop()

    asyncio.run(run())


def test_it_is_an_administrator_with_this_password(tmp_path: Path, file: Path) -> None:
    def look(users: Users) -> None:
        assert [each.name for each in users.all()] == ["root"]
        assert users.is_admin(user("root"))
        assert has_password(users, "root", PASSWORD)

    start(tmp_path / "data", named("root", file), look)
    start(tmp_path / "data", {}, look)


def test_a_later_start_changes_nothing(tmp_path: Path, file: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "halfmoon.auth")
    start(tmp_path / "data", named("root", file))
    assert "event=bootstrap_user_created user=root" in caplog.text
    file.write_text("another\n")

    def look(users: Users) -> None:
        assert [each.name for each in users.all()] == ["root"]
        assert has_password(users, "root", PASSWORD)

    start(tmp_path / "data", named("root", file), look)
    start(tmp_path / "data", named("other", tmp_path / "gone"), look)
    assert "event=bootstrap_user_ignored user=root reason=users_exist" in caplog.text
    assert "event=bootstrap_user_ignored user=other" in caplog.text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"), (b"", "one line of 1 to 1024 bytes"), (b"\n", "one line"), (b"a\nb\n", "one line"),
        (b"\xff", "not UTF-8"), (b"x" * 1025, "one line"), (b"a\0b", "one line"),
    ],
)  # fmt: skip
def test_a_password_that_is_none(tmp_path: Path, content: bytes | None, said: str) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(StartError, match=rf"HALFMOON_BOOTSTRAP_PASSWORD_FILE: .*password: .*{said}"):
        start(tmp_path / "data", named("root", file))
    start(tmp_path / "data", {}, lambda users: pytest.fail("there is one") if users.count else None)


@pytest.mark.parametrize("missing", ["USER", "PASSWORD_FILE"])
def test_one_variable_without_the_other(tmp_path: Path, file: Path, missing: str) -> None:
    environment = named("root", file)
    del environment[f"HALFMOON_BOOTSTRAP_{missing}"]
    with pytest.raises(StartError, match=f"HALFMOON_BOOTSTRAP_{missing} is not"):
        start(tmp_path / "data", environment)


def test_a_name_that_is_none(tmp_path: Path, file: Path) -> None:
    with pytest.raises(StartError, match=r"HALFMOON_BOOTSTRAP_USER: .*NUL"):
        start(tmp_path / "data", named("a\0b", file))


def test_halfmoon_serve_takes_it_from_its_environment(
    cli: CommandLine, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "broker.yaml"
    config.write_text("listeners: {kafka: {bind: '127.0.0.1:0', sasl: [SCRAM-SHA-256]}}")
    command = [sys.executable, "-m", "halfmoon", "serve", "--config", str(config), "--data-dir", str(tmp_path / "data")]
    environment = {**os.environ, **named("root", file)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[1].removeprefix("kafka=")
            login = Security("SASL_PLAINTEXT", "SCRAM-SHA-256", "root", PASSWORD)
            client = tmp_path / "client.properties"
            client.touch(0o600)
            client.write_text(as_file(java(login)))
            found = cli.ok("user", "list", "-b", address, "--command-config", str(client), "-o", "json").json()
            assert [(each["user"], each["admin"]) for each in found] == [("root", True)]
        finally:
            process.terminate()
            _, err = process.communicate(timeout=20)
    assert "no_users" not in err
    assert PASSWORD not in err


def test_a_broker_without_users_says_which_command_makes_the_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "halfmoon.server"):
        start(tmp_path / "data", {})
    said = next(message for message in caplog.messages if "no_users" in message)
    assert f"socket={tmp_path}" in said
    assert "advice=halfmoon user create NAME --admin" in said
