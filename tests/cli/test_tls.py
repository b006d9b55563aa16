"""`halfmoon tls`: what it makes is taken by a broker and by clients, and what it says is so."""

from __future__ import annotations

import builtins
import re
import stat
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from halfmoon.testing import Broker
from tests import several_workers
from tests.cli.conftest import CommandLine
from tests.security.authority import Authority

_DAYS = timedelta(days=100)


def parts(printed: str) -> tuple[dict[str, Any], str]:
    """The lines for broker.yaml and for client.properties."""
    match = re.fullmatch(r"# broker.yaml\n(.*)\n# client.properties\n(.*)", printed, re.DOTALL)
    assert match is not None
    return yaml.safe_load(match[1]), match[2]


def test_what_it_makes_and_prints_works(cli: CommandLine, tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    config, properties = parts(cli.ok("tls", "init", str(folder), "--name", "broker.example.com").out)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {file.name: stat.S_IMODE(file.stat().st_mode) & 0o077 for file in folder.iterdir()} == {
        "ca.crt": 0o044, "ca.key": 0, "broker.crt": 0o044, "broker.key": 0,
    }  # fmt: skip
    config["listeners"]["kafka"]["bind"] = "127.0.0.1:0"
    file = tmp_path / "client.properties"
    file.touch(0o600)
    file.write_text(f"{properties}sasl.username=alice\nsasl.password=s3cret\n")
    with Broker(config=config) as broker:
        assert broker.app is not None
        at = ("-b", f"unix:{broker.app.admin_socket}")
        cli.ok("user", "create", "alice", "--admin", "--password-file", "-", *at, stdin=b"s3cret")
        port = broker.bootstrap_servers.rpartition(":")[2]
        for host in ("127.0.0.1", "localhost"):
            cli.ok("produce", "orders", "x", "-b", f"{host}:{port}", "--command-config", str(file))


def test_the_authority_stays_and_the_certificate_is_replaced_when_it_is_asked_for(
    cli: CommandLine, tmp_path: Path
) -> None:
    folder = tmp_path / "tls"
    cli.ok("tls", "init", str(folder))
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert "--force" in cli("tls", "init", str(folder)).failed_with(1)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    cli.ok("tls", "init", str(folder), "--force")
    after = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert {name for name in before if before[name] != after[name]} == {"broker.crt", "broker.key"}
    (folder / "ca.key").unlink()
    assert "without its key" in cli("tls", "init", str(folder), "--force").failed_with(1)
    assert "broker.crt" not in cli("tls", "init", str(tmp_path / "other"), "--name", "bröker").failed_with(1)


def test_without_the_extra(cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **more: Any) -> Any:
        if name == "halfmoon.auth.development":
            raise ImportError(name)
        return real(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    assert "pip install 'halfmoon[auth]'" in cli("tls", "init", str(tmp_path / "tls")).failed_with(1)
    assert not (tmp_path / "tls").exists()


def broker_yaml(folder: Path, *tls: dict[str, str] | None) -> str:
    listeners: list[dict[str, Any]] = [
        {"name": f"l{number}", "bind": f"127.0.0.1:{9092 + number}"} | ({} if each is None else {"tls": each})
        for number, each in enumerate(tls)
    ]
    file = folder / "broker.yaml"
    file.write_text(yaml.safe_dump({"listeners": {"kafka": listeners}}))
    return str(file)


def test_check(cli: CommandLine, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    good = authority.pair("good", "broker.example.com", "10.0.0.1")
    file = broker_yaml(tmp_path, good, None)
    (row,) = cli.ok("tls", "check", file, "-o", "json").json()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT.*Z", row.pop("until"))
    assert row == {
        "listener": "l0", "certificate": good["cert"], "subject": row["subject"], "result": "taken", "ok": True,
        "names": ["broker.example.com", "10.0.0.1"],
    }  # fmt: skip
    assert "CN=good" in row["subject"]
    assert "broker.example.com,10.0.0.1" in cli.ok("tls", "check", file).out
    bad = authority.pair("bad")
    mixed = {"cert": good["cert"], "key": bad["key"]}
    found = cli("tls", "check", broker_yaml(tmp_path, good, mixed))
    assert found.code == 1
    assert "key values mismatch" in found.err
    Path(bad["key"]).chmod(0o640)
    assert "chmod 600" in cli("tls", "check", broker_yaml(tmp_path, bad)).err
    gone = {"cert": str(tmp_path / "gone"), "key": good["key"]}
    assert "gone: No such file" in cli("tls", "check", broker_yaml(tmp_path, gone)).err
    assert "no listener has TLS" in cli("tls", "check", broker_yaml(tmp_path, None)).failed_with(1)


def test_reload(cli: CommandLine, tmp_path: Path) -> None:
    # A worker listens at two addresses; a node is asked for itself.
    authority, processes = Authority(tmp_path), 1 if several_workers.NODES else max(several_workers.WORKERS, 1)
    pair = authority.pair("broker")
    kafka = [{"name": "plain", "bind": "127.0.0.1:0"}, {"name": "tls", "bind": "127.0.0.1:0", "tls": pair}]
    with Broker(config={"listeners": {"kafka": kafka}}) as broker:
        at = ("-b", broker.bootstrap_servers)
        first = cli.ok("tls", "reload", *at, "-o", "json").json()
        assert [(row["listener"], row["ok"]) for row in first] == [("tls", True)] * processes
        authority.pair("broker", lives=_DAYS)
        second = cli.ok("tls", "reload", *at, "-o", "json").json()
        assert second[0]["until"] != first[0]["until"]
        assert cli.ok("tls", "reload", *at).out == f"tls: taken, until {second[0]['until']}\n" * processes
        Path(pair["cert"]).write_text("nonsense")
        said = cli("tls", "reload", *at)
        assert (said.code, said.err.startswith("halfmoon: tls: "), len(said.err.splitlines())) == (1, True, processes)
        for line in said.err.splitlines():
            assert f"tls: the old certificate (until {second[0]['until']}) is still in use: " in line
            assert pair["cert"] in line
    with Broker() as broker:
        assert "no listener of the broker has TLS" in cli("tls", "reload", "-b", broker.bootstrap_servers).failed_with(
            1
        )
