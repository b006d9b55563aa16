"""`halfmoon cluster` for nodes: on a real PostgreSQL, and a real object store, where they are installed."""

from __future__ import annotations

import asyncio
import json
import ssl
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from halfmoon.cli.cluster_common import carried_out
from halfmoon.cli.cluster_nodes import WAIT_S, drain_node, move_shard
from halfmoon.cli.errors import CliError
from halfmoon.cli.main import run
from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.engine.pieces import Durability
from halfmoon.config.cluster_settings import ClusterSettings
from halfmoon.errors import StartError
from halfmoon.server.workers.routes import contexts
from tests.cluster.engine.doubles import MemoryDatabase
from tests.cluster.engine.virtual import play
from tests.cluster.servers import object_store, postgres

Say = Callable[..., Any]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    dsn = asyncio.run(postgres().new_database())
    sections = {
        "node": {"id": 1},
        "cluster": {"database": dsn, "store": "s3://nowhere/", "keys": str(tmp_path / "keys")},
    }
    path = tmp_path / "broker.yaml"
    path.write_text(json.dumps(sections))
    return path


@pytest.fixture
def say(config: Path, capsys: pytest.CaptureFixture[str]) -> Say:
    def say(*words: str, code: int = 0) -> str:
        assert run(["cluster", *words, "--config", str(config)]) == code
        said = capsys.readouterr()
        return said.out if code == 0 else said.err

    return say


def test_a_cluster_is_made_once_with_keys_for_its_nodes(say: Say, config: Path) -> None:
    made = json.loads(say("init", "--fast", "4", "--objects", "2", "--nodes", "2", "-o", "json"))
    assert len(made["cluster_id"]) == 22
    keys = config.parent / "keys"
    assert sorted(path.name for path in keys.iterdir()) == [
        "ca.crt", "ca.key", "node-1.crt", "node-1.key", "node-2.crt", "node-2.key", "node.key"
    ]  # fmt: skip
    for secret in ("ca.key", "node-1.key", "node-2.key", "node.key"):
        assert stat.S_IMODE((keys / secret).stat().st_mode) == 0o600
    before = (keys / "ca.crt").read_bytes(), (keys / "node.key").read_bytes()
    assert "has a cluster already" in say("init", code=1)
    assert ((keys / "ca.crt").read_bytes(), (keys / "node.key").read_bytes()) == before
    (keys / "ca.crt").unlink()
    assert "has a cluster already" in say("init", code=1)
    assert not (keys / "ca.crt").exists()  # no new authority for a cluster that is there
    assert say("status") == "NODE  ADDRESS  RACK  STATE  FORMAT  FAST  OBJECT\n"
    assert "have format" in say("upgrade")


def test_no_keys_are_made_for_shards_that_cannot_be(say: Say, config: Path) -> None:
    assert "256 together are possible" in say("init", "--fast", "300", code=1)
    assert not (config.parent / "keys").exists()


def test_the_keys_of_nodes_let_them_in_at_each_other(say: Say, config: Path) -> None:
    say("init", "--nodes", "1")
    say("certificate", "7")
    keys = config.parent / "keys"
    serving, _ = contexts(keys / "ca.crt", keys / "node-1.crt", keys / "node-1.key")
    _, connecting = contexts(keys / "ca.crt", keys / "node-7.crt", keys / "node-7.key")
    inside, outside = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = serving.wrap_bio(inside, outside, server_side=True)
    client = connecting.wrap_bio(outside, inside)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    found = server.getpeercert()
    assert found is not None
    assert found["subject"] == ((("commonName", "node-7"),),)


def test_after_a_stolen_key_there_is_a_new_authority(say: Say, config: Path) -> None:
    say("init", "--nodes", "2")
    keys = config.parent / "keys"
    secrets_key, stolen = (keys / "node.key").read_bytes(), (keys / "node-2.crt").read_bytes()
    say("certificate", "1", "--new-authority")
    authority = x509.load_pem_x509_certificate((keys / "ca.crt").read_bytes())
    x509.load_pem_x509_certificate((keys / "node-1.crt").read_bytes()).verify_directly_issued_by(authority)
    with pytest.raises(InvalidSignature):
        x509.load_pem_x509_certificate(stolen).verify_directly_issued_by(authority)
    say("certificate", "2")
    x509.load_pem_x509_certificate((keys / "node-2.crt").read_bytes()).verify_directly_issued_by(authority)
    assert (keys / "node.key").read_bytes() == secrets_key


def test_whoever_has_lost_all_keys_gets_new_ones(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = config.parent / "keys"
    assert run(["cluster", "certificate", "1", "--new-authority", "--config", str(config)]) == 0
    assert f"there was no node.key in {keys}" in capsys.readouterr().err
    assert {path.name for path in keys.iterdir()} == {"ca.crt", "ca.key", "node.key", "node-1.crt", "node-1.key"}
    assert run(["cluster", "certificate", "1", "--new-authority", "--config", str(config)]) == 0
    assert capsys.readouterr().err == ""


def test_without_the_authoritys_key_no_keys_are_made(say: Say, config: Path) -> None:
    assert "ca.crt is missing: `halfmoon cluster init` makes one with a new cluster" in say("certificate", "1", code=1)
    say("init", "--nodes", "1")
    (config.parent / "keys" / "ca.key").unlink()
    said = say("certificate", "2", code=1)
    assert "ca.key is missing" in said
    assert "elsewhere" in said


def test_what_is_no_cluster_is_said(say: Say, config: Path, tmp_path: Path) -> None:
    for words in (["upgrade"], ["status"], ["shards"], ["move", "0", "1"], ["drain", "1"]):
        assert say(*words, code=1) == "halfmoon: the database has no cluster: `halfmoon cluster init` makes one\n"
    (tmp_path / "plain.yaml").write_text("node: {id: 1}\n")
    assert run(["cluster", "status", "--config", str(tmp_path / "plain.yaml")]) == 1


def test_nodes_that_are_gone_are_shown_for_a_while(say: Say, config: Path) -> None:
    say("init", "--fast", "3", "--objects", "1")

    async def starts() -> None:
        connection = await asyncpg.connect(json.loads(config.read_text())["cluster"]["database"])
        try:
            for number, left_s, draining in (
                (1, -60, False),
                (2, -9, False),
                (3, -9, True),
                (1, 60, False),
                (4, -3_700, False),
            ):
                await connection.execute(
                    "insert into node (number, host, port, rack, doors, lease_until, format, draining) "
                    "values ($1, 'host', 9190, 'a', '', clock_timestamp() + make_interval(secs => $2), 1, $3)",
                    number, left_s, draining,
                )  # fmt: skip
            incarnations = [row[0] for row in await connection.fetch("select incarnation from node order by 1")]
            for shard, owner in enumerate((incarnations[0], incarnations[1], incarnations[3])):
                await connection.execute("update shard set owner = $2 where shard = $1", shard, owner)
        finally:
            await connection.close()

    asyncio.run(starts())
    found = json.loads(say("status", "-o", "json"))
    assert [(row["node"], row["state"], row["fast"]) for row in found] == [
        (1, "up", 2),
        (2, "down", 1),
        (3, "stopped", 0),
    ]


def test_shards_cannot_be_moved_to_nobody(say: Say) -> None:
    say("init")
    assert "node 3 is not up" in say("move", "0", "3", code=1)
    assert "node 3 is not up" in say("drain", "3", code=1)


async def _execute(dsn: str, *statements: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(dsn)
    for each in statements:
        await connection.execute(each)
    await connection.close()


def test_shards_are_shown_with_what_is_wrong(say: Say, config: Path) -> None:
    say("init", "--fast", "2", "--objects", "1")
    dsn = json.loads(config.read_text())["cluster"]["database"]
    lived = "clock_timestamp() + interval '1 h'"
    asyncio.run(_execute(
        dsn,
        f"insert into node (number, host, port, rack, doors, lease_until) values (7, 'a', 1, '', '', {lived})",
        "update shard set owner = 1, epoch = 3",
        "insert into object (key, size) values ('k', 900)",
        "insert into piece values (0, 100, 400, 1, 100, 'k', 0)",
        "insert into piece values (1, 0, 300, 1, 0, 'k', 300), (1, 400, 500, 1, 400, 'k', 600)",
        "insert into wal values (0, 400, 450, 1, 100, 'frames')",
        "update shard set end_position = 450 where shard = 0",
        "update shard set end_position = 600, wanted = 2 where shard = 1",
    ))  # fmt: skip
    rows = {row["shard"]: row for row in json.loads(_shown(config))}
    assert rows[0] == {
        "shard": 0, "durability": "fast", "node": 7, "epoch": 3, "start": 100, "end": 450, "bytes": 350, "rows": 50,
        "pieces": 2, "wanted": None, "problems": [],
    }  # fmt: skip
    assert rows[1]["problems"] == ["its pieces end at 500", "its pieces have 400 bytes, and not 500"]
    assert rows[2]["durability"] == "object"
    assert rows[2]["problems"] == []


def _shown(config: Path) -> str:
    words = [sys.executable, "-m", "halfmoon", "cluster", "shards", "--config", str(config), "-o", "json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    return done.stdout


def test_a_database_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("asyncpg", reason="asyncpg is not installed: pip install 'halfmoon[cluster]'")
    path = tmp_path / "broker.yaml"
    cluster: dict[str, Any] = {
        "database": "postgresql://x:secret@127.0.0.1:1/x?application_name=secret",
        "store": "s3://a/b",
        "keys": str(tmp_path / "keys"),
    }
    path.write_text(json.dumps({"node": {"id": 1}, "cluster": cluster}))
    for words in (["init"], ["status"], ["upgrade"]):
        assert run(["cluster", *words, "--config", str(path)]) == 1
        said = capsys.readouterr().err
        assert said.startswith("halfmoon: the database (127.0.0.1:1/x): ConnectionRefusedError")
        assert "secret" not in said


@pytest.mark.parametrize(
    ("user", "name", "said"),
    [("nobody", None, 'role "nobody" does not exist'), (None, "nothing", 'database "nothing" does not exist')],
)
def test_a_database_that_refuses_to_be_connected_to_is_no_surprise(
    config: Path, capsys: pytest.CaptureFixture[str], user: str | None, name: str | None, said: str
) -> None:
    sections = json.loads(config.read_text())
    url = urlsplit(sections["cluster"]["database"])
    netloc = url.netloc if user is None else f"{user}@{url.netloc.rpartition('@')[2]}"
    sections["cluster"]["database"] = url._replace(
        netloc=netloc, path=url.path if name is None else f"/{name}"
    ).geturl()
    config.write_text(json.dumps(sections))
    for words in ("init", "status"):  # what `halfmoon serve` does then: tests/server/nodes/test_starting.py
        assert run(["cluster", words, "--config", str(config)]) == 1
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith("halfmoon: the database")
        assert said in error
        assert "unexpected" not in error


def test_a_store_that_is_not_there_is_named(say: Say, config: Path) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed: pip install 'halfmoon[cluster]'")
    say("init")
    sections = json.loads(config.read_text())
    (config.parent / "secret").write_text("a secret")
    sections["cluster"] |= {
        "store": "s3://bucket/prefix", "store_endpoint": "http://127.0.0.1:1", "store_access_key": "key",
        "store_secret": str(config.parent / "secret"),
    }  # fmt: skip
    config.write_text(json.dumps(sections))
    said = say("resume", code=1)
    assert said.startswith("halfmoon: the object store (s3://bucket/prefix at 127.0.0.1:1): ")
    assert "a secret" not in said


def test_a_shard_that_is_there_already_is_not_wanted_anywhere(say: Say, config: Path) -> None:
    """So a wish can be taken back."""
    say("init", "--fast", "2", "--objects", "0")
    dsn = json.loads(config.read_text())["cluster"]["database"]
    with asyncio.Runner() as runner:
        connection = runner.run(asyncpg.connect(dsn))
        for statement in (
            "insert into node (number, host, port, rack, doors, lease_until) "
            "values (7, 'a', 1, '', '', clock_timestamp() + interval '1 h')",
            "select pg_advisory_lock(77, 1)",  # by which it lives
            "update shard set owner = 1, epoch = 1, wanted = 3 where shard = 0",
        ):
            runner.run(connection.execute(statement))
        assert say("move", "0", "7") == "shard 0 is at node 7\n"
        assert runner.run(connection.fetchval("select wanted from shard where shard = 0")) is None
        assert "there is no shard 2" in say("move", "2", "7", code=1)
        runner.run(connection.close())


def test_a_move_ends_at_the_node_that_was_started_anew_meanwhile() -> None:
    async def story() -> None:
        database = MemoryDatabase([Durability.FAST])
        first, second = await database.register(1, "a", 1, ""), await database.register(2, "b", 1, "")
        assert await database.take(0, 0, first) is not None
        moving = asyncio.ensure_future(move_shard(database, 0, 2))
        await asyncio.sleep(1)
        await database.leave(second)
        again = await database.register(2, "b", 1, "")
        assert database.shards[0].head.wanted == 2
        assert await database.hand_over(0, 1, again) is not None
        await moving

    play(story())


def test_a_move_that_does_not_come_about_ends_in_time_though_the_database_is_slow() -> None:
    async def story() -> None:
        database = MemoryDatabase([Durability.FAST])
        lives = await database.register(1, "a", 1, "")
        database._lives = lambda number: number == lives  # type: ignore[method-assign]
        heads, loop = database.heads, asyncio.get_running_loop()

        async def slow() -> Any:
            await asyncio.sleep(5)
            return await heads()

        database.heads = slow  # type: ignore[method-assign]
        begun_s = loop.time()
        with pytest.raises(StartError, match="it is still wanted there"):
            await move_shard(database, 0, 1)
        assert WAIT_S <= loop.time() - begun_s < WAIT_S + 20

    play(story())


def test_a_move_goes_on_where_the_database_is_away_for_a_while() -> None:
    async def story() -> None:
        database = MemoryDatabase([Durability.FAST])
        first, second = await database.register(1, "a", 1, ""), await database.register(2, "b", 1, "")
        assert await database.take(0, 0, first) is not None
        moving = asyncio.ensure_future(move_shard(database, 0, 2))
        await asyncio.sleep(1)
        heads = database.heads

        async def away() -> Any:
            raise DatabaseUnavailableError("no answer")

        database.heads = away  # type: ignore[method-assign]
        await asyncio.sleep(1)
        assert not moving.done()
        database.heads = heads  # type: ignore[method-assign]
        assert await database.hand_over(0, 1, second) is not None
        await moving

    play(story())


@pytest.mark.parametrize("undone", [True, False])
def test_a_drain_that_is_over_is_not_waited_for(undone: bool) -> None:
    async def story() -> None:
        database = MemoryDatabase([Durability.FAST])
        first = await database.register(1, "a", 1, "")
        assert await database.take(0, 0, first) is not None
        draining = asyncio.ensure_future(drain_node(database, 1))
        await asyncio.sleep(1)
        assert not draining.done()
        if undone:
            await drain_node(database, 1, undo=True)
        else:
            await database.leave(first)
            await database.register(1, "a", 1, "")
        begun_s = asyncio.get_running_loop().time()
        with pytest.raises(StartError, match="node 1 may have shards again"):
            await draining
        assert asyncio.get_running_loop().time() - begun_s < 1

    play(story())


def test_services_are_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = object_store()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", store.settings["access_key_id"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", store.settings["secret_access_key"])
    dsn = asyncio.run(postgres().new_database())
    words = ["cluster", "check", "--database", dsn, "--store", f"{store.url}/trial"]
    words += ["--endpoint", store.settings["endpoint"], "-o", "json"]
    code = run(words)
    rows = json.loads(capsys.readouterr().out)
    assert {row["service"] for row in rows} == {"database", "store"}
    assert all(row["verdict"] == "ok" for row in rows if row["service"] == "store"), rows
    assert code == (0 if all(row["verdict"] != "failed" for row in rows) else 1)
    assert run(["cluster", "check"]) == 1
    assert "give --config" in capsys.readouterr().err


def test_what_a_log_says_of_a_store_that_is_away_is_said() -> None:
    """Not as something unexpected. What an operating system says is named with its file by whoever calls."""

    async def away() -> None:
        raise OSError("shard 3: the store is away")

    with pytest.raises(CliError, match=r"^shard 3: the store is away$"):
        carried_out(ClusterSettings(), away)

    async def missing() -> None:
        raise FileNotFoundError(2, "No such file or directory", "/there")

    with pytest.raises(FileNotFoundError):
        carried_out(ClusterSettings(), missing)
