"""The administrator's socket: who may connect, what it makes possible, and what is left of it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from confluent_kafka import Producer

from halfmoon.errors import StartError
from halfmoon.server import admin_socket
from halfmoon.testing import Broker
from tests.cli.conftest import CommandLine
from tests.security.conftest import Secure
from tests.security.test_clients import librdkafka
from tests.several_workers import first_folder, of_one_process


def test_the_first_user_is_made_through_it(secured: Secure, cli: CommandLine, tmp_path: Path) -> None:
    found = secured()
    path = found.app.admin_socket
    assert path == Path(found.broker.data_dir) / "admin.sock"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (tmp_path / "password").write_text("secret\n")
    made = cli.ok(
        "user", "create", "alice", "--admin", "--password-file", str(tmp_path / "password"), "-b", f"unix:{path}"
    )
    assert "alice" in made.out
    producer = Producer(librdkafka(found, "SCRAM-SHA-512", "alice", "secret"))
    producer.produce("t", b"v")
    assert producer.flush(20) == 0
    found.broker.stop()
    assert not path.exists()


def test_without_a_broker_named_the_socket_of_the_data_directory_is_asked(
    secured: Secure, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = secured()
    monkeypatch.setenv("HALFMOON_NODE_DATA_DIR", first_folder(found.broker))
    cli.ok("user", "create", "bob", "--generate")
    assert "bob" in cli.ok("user", "list").out


@of_one_process
def test_also_where_its_path_is_too_long_for_a_socket(
    secured: Secure, cli: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    deep = tmp_path / ("d" * 100) / "data"
    deep.mkdir(parents=True)
    runtime = tmp_path / "r"
    runtime.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    found = secured()
    found.broker.stop()
    found.broker._given_dir = str(deep)
    found.broker.start()
    assert found.app.admin_socket.parent == runtime
    monkeypatch.setenv("HALFMOON_NODE_DATA_DIR", str(deep))
    assert cli.ok("user", "list").out.startswith("USER")


def test_others_are_turned_away(secured: Secure, cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    found = secured()
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    monkeypatch.setattr(admin_socket, "ROOT", 12345)
    refused = cli("user", "list", "-b", f"unix:{found.app.admin_socket}")
    assert refused.code == 1
    assert "closed the connection" in refused.err


def test_where_rules_count_it_is_there_without_authentication(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody could make the first rule else."""
    with Broker(data_dir=str(tmp_path / "data"), config={"security": {"authorizer": "acl"}}) as broker:
        monkeypatch.setenv("HALFMOON_NODE_DATA_DIR", first_folder(broker))
        config = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
        error = Producer(config).list_topics("orders", timeout=20).topics["orders"].error
        assert error is not None
        assert error.name() == "TOPIC_AUTHORIZATION_FAILED"
        cli.ok("acl", "add", "--allow", "User:ANONYMOUS", "--producer", "--topic", "orders")
        producer = Producer(config)
        producer.produce("orders", b"v")
        assert producer.flush(20) == 0
    assert "no_users" not in caplog.text


def test_without_authentication_there_is_none(tmp_path: Path) -> None:
    with Broker() as broker:
        assert broker.app is not None
        assert broker.app.admin_socket is None
        assert not (Path(broker.data_dir) / "admin.sock").exists()


def test_a_path_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    runtime = tmp_path / "r"
    runtime.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    path = admin_socket.path_of(deep)
    assert path.parent == runtime
    assert path == admin_socket.path_of(deep)
    assert path != admin_socket.path_of(tmp_path / "r")


def test_a_folder_in_which_others_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: CommandLine) -> None:
    """Somebody made it first, as anybody can in /tmp: he would get the passwords that administrators set."""
    deep, runtime = tmp_path / ("d" * 100), tmp_path / "r"
    for folder in (deep, runtime):
        folder.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("HALFMOON_NODE_DATA_DIR", str(deep))
    for mode in (0o777, 0o720):
        runtime.chmod(mode)
        with pytest.raises(StartError, match="others may write there"):
            admin_socket.path_of(deep)
    assert "others may write there" in cli("user", "list").failed_with(1)
    runtime.chmod(0o700)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(StartError, match="others may write there"):
        admin_socket.path_of(deep)


def test_what_is_left_over_is_replaced(tmp_path: Path) -> None:
    path = Path(os.path.relpath(tmp_path / "s"))
    for _ in range(2):
        admin_socket.listening_at(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
