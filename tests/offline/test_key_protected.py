"""What a backup has that needs node.key: found in the files, and said by `halfmoon backup` and `halfmoon restore`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from halfmoon.auth.principals import user
from halfmoon.offline.key_protected import KeyProtected, find
from halfmoon.server.app import App
from halfmoon.testing import Broker
from tests.cli.conftest import CommandLine
from tests.cli.conftest import cli as cli

NOW_MS = 1_800_000_000_000
FAR_MS = NOW_MS * 2


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(secure=True, data_dir=str(tmp_path / "data")) as made:
        yield made


def secrets(*names: str, remove: bool = False) -> object:
    def work(app: App) -> None:
        for name in names:
            app.node.users.set_secret(name, None if remove else "secret")

    return work


def token(owner: str) -> object:
    def work(app: App) -> None:
        app.node.tokens.create(user(owner), user(owner), [], -1)

    return work


def do(broker: Broker, *works: object) -> None:
    for work in works:
        broker._in_loop(work)  # type: ignore[arg-type]


def test_it_is_found_in_the_snapshot_and_in_the_log_behind_it(broker: Broker, cli: CommandLine, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for name in ("alice", "bob", "carol", "dave"):
        broker.create_user(name)
    assert not find(data, 0)
    do(broker, secrets("alice", "bob"), token("alice"), token("alice"), token("dave"))
    cli.ok("backup", str(data), str(tmp_path / "first"))
    broker.restart()  # its state is in a snapshot now
    do(broker, secrets("carol"), secrets("bob", remove=True), token("carol"))
    do(broker, lambda app: app.node.users.delete("dave"))
    cli.ok("backup", str(data), str(tmp_path / "second"))
    first = KeyProtected(["alice", "bob"], {"User:alice": 2, "User:dave": 1})
    second = KeyProtected(["alice", "carol"], {"User:alice": 2, "User:carol": 1})
    assert find(tmp_path / "first", 0) == first
    assert find(tmp_path / "second", 0) == second
    assert find(tmp_path / "second", FAR_MS) == KeyProtected(["alice", "carol"], {}), "tokens that have expired"


def test_the_commands_say_it(broker: Broker, cli: CommandLine, tmp_path: Path) -> None:
    broker.create_user("alice")
    data, saved = tmp_path / "data", tmp_path / "saved"
    assert cli.ok("backup", str(data), str(tmp_path / "before")).err == ""
    assert cli.ok("restore", str(tmp_path / "before"), str(tmp_path / "again")).err == ""
    do(broker, secrets("alice"), token("alice"))
    said = cli.ok("backup", str(data), str(saved))
    assert said.err == (
        "halfmoon: node.key is not in the backup; keep it elsewhere. It protects the RocketMQ secrets of alice and 1 "
        "delegation token\n"
    )
    assert not (saved / "node.key").exists()
    said = cli.ok("restore", str(saved), str(tmp_path / "restored"), "-o", "json")
    assert said.json()["ok"]
    assert said.err == (
        f"halfmoon: there is no node.key in {tmp_path}/restored: copy the broker's there before the first start, or "
        "set anew: halfmoon user secret NAME --rocketmq for alice; new delegation tokens for User:alice\n"
    )
    (saved / "node.key").write_bytes((data / "node.key").read_bytes())  # put there by whoever keeps both together
    assert cli.ok("restore", str(saved), str(tmp_path / "whole")).err == ""
