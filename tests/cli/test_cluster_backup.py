"""`halfmoon cluster backup|restore|resume|rebuild|import`, as a user gives them; what they do: tests/cluster/backup
and tests/server/nodes. On a real PostgreSQL and a real object store, where they are installed."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halfmoon.cli.cluster_common import settings_of
from halfmoon.cli.cluster_import import _Key
from halfmoon.cli.main import run
from halfmoon.cluster.engine import footer, naming
from halfmoon.cluster.engine.database import Commit
from halfmoon.cluster.engine.pieces import Piece
from halfmoon.cluster.postgres.tables import PostgresTables
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.errors import StartError
from halfmoon.offline.key_protected import KeyProtected
from halfmoon.server.nodes import engines, keys
from halfmoon.services.credentials.node_key import NodeKey
from halfmoon.testing import Broker
from tests.cluster.servers import object_store, postgres
from tests.several_workers import of_one_data_directory

Say = Callable[..., Any]
_prefixes = itertools.count()


def config(folder: Path, name: str) -> Path:
    """Of a cluster of its own, which is not made yet."""
    store = object_store()
    secret = folder / "secret"
    secret.write_text(store.settings["secret_access_key"])
    sections = {
        "node": {"id": 1},
        "cluster": {
            "database": asyncio.run(postgres().new_database()), "store": f"{store.url}/backup-{next(_prefixes)}",
            "store_endpoint": store.settings["endpoint"], "store_access_key": store.settings["access_key_id"],
            "store_secret": str(secret), "keys": str(folder / f"{name}-keys"),
        },
    }  # fmt: skip
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(sections))
    return path


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    def say(*words: str | Path, code: int = 0) -> tuple[str, str]:
        assert run(["cluster", *map(str, words)]) == code
        said = capsys.readouterr()
        return said.out, said.err

    return say


def test_a_cluster_is_copied_and_restored(tmp_path: Path, say: Say) -> None:
    first, second, saved = config(tmp_path, "first"), config(tmp_path, "second"), tmp_path / "saved"
    _, error = say("backup", saved, "--config", first, code=1)
    assert "halfmoon cluster init" in error
    say("init", "--config", first, "--fast", 2, "--objects", 1)
    said, _ = say("backup", saved, "--config", first)
    assert said.splitlines()[-1] == "whole"
    found = json.loads(say("backup", tmp_path / "again", "--base", saved, "--config", first, "-o", "json")[0])
    assert (found["shards"], found["objects"], found["linked"]) == (3, 0, 0)
    _, error = say("backup", saved, "--config", first, code=1)
    assert "exists already" in error
    _, error = say("backup", tmp_path / "third", "--base", tmp_path, "--config", first, code=1)
    assert "is no backup of a cluster" in error
    _, error = say("restore", saved, "--config", first, code=1)
    assert "has a cluster already" in error
    (tmp_path / "second-keys").write_text("no folder")
    _, error = say("restore", saved, "--config", second, code=1)
    assert "second-keys" in error
    (tmp_path / "second-keys").unlink()  # without keys the database has no cluster either
    _, error = say("restore", saved, "--config", second)
    assert "there was no ca.crt" in error
    assert "there was no node.key" in error
    assert (tmp_path / "second-keys" / keys.CA).exists()
    assert (tmp_path / "second-keys" / keys.SECRETS_KEY).exists()
    say("certificate", 2, "--config", second)
    said, _ = say("status", "--config", second)
    assert said.count("\n") == 1
    said, _ = say("resume", "--config", second)
    assert said == "all 0 objects are there; 3 shards begin anew when a node opens them\n"
    say("shards", "--config", second, code=1)  # nobody has them


def test_keys_that_are_there_stay(tmp_path: Path, say: Say) -> None:
    first, second, saved = config(tmp_path, "first"), config(tmp_path, "second"), tmp_path / "saved"
    say("init", "--config", first, "--fast", 1, "--objects", 0)
    say("backup", saved, "--config", first)
    shutil.copytree(tmp_path / "first-keys", tmp_path / "second-keys")
    before = {path.name: path.read_bytes() for path in (tmp_path / "second-keys").iterdir()}
    said, error = say("restore", saved, "--config", second, "-o", "json")
    assert error == ""
    assert json.loads(said)["shards"] == 1
    assert {path.name: path.read_bytes() for path in (tmp_path / "second-keys").iterdir()} == before


@pytest.mark.parametrize("missing", [keys.CA, keys.SECRETS_KEY])
def test_a_restore_says_which_keys_it_has_made(tmp_path: Path, say: Say, missing: str) -> None:
    first, second, saved = config(tmp_path, "first"), config(tmp_path, "second"), tmp_path / "saved"
    say("init", "--config", first, "--fast", 1, "--objects", 0)
    say("backup", saved, "--config", first)
    shutil.copytree(tmp_path / "first-keys", tmp_path / "second-keys")
    (tmp_path / "second-keys" / missing).unlink()
    _, error = say("restore", saved, "--config", second)
    assert re.findall(r"there was no (\S+) in", error) == [missing]
    for name in (keys.CA, keys.SECRETS_KEY):
        of_first, of_second = ((tmp_path / f"{each}-keys" / name).read_bytes() for each in ("first", "second"))
        assert (of_first == of_second) is (name != missing)


def test_a_rebuild_makes_keys_where_they_are_lost_too(tmp_path: Path, say: Say) -> None:
    first = config(tmp_path, "first")
    store = engines.object_store(settings_of(first))
    commit = Commit(0, 1, (Piece(0, 10, 0, 5),))  # without the head of its segment: the shard is empty
    key = naming.make("a-cluster", naming.MERGED, 1)
    asyncio.run(store.put(key, footer.build(1, key, [commit], [[bytes(10)]])[0]))
    said, error = say("rebuild", "--fast", 2, "--objects", 0, "--config", first, "-o", "json", code=1)
    assert json.loads(said)["shards"][0] == {"shard": 0, "start": 0, "end": 0, "left_out": ["0-10"], "expired": []}
    assert re.findall(r"there was no (\S+) in", error) == [keys.CA, keys.SECRETS_KEY]
    say("certificate", 1, "--config", first)
    assert {path.name for path in (tmp_path / "first-keys").iterdir()} == {
        keys.CA, keys.CA_KEY, keys.SECRETS_KEY, "node-1.crt", "node-1.key"
    }  # fmt: skip
    said, _ = say("status", "--config", first)
    assert said.count("\n") == 1


@of_one_data_directory
def test_a_directory_is_brought_in_once(tmp_path: Path, say: Say) -> None:
    folder, into = tmp_path / "data", config(tmp_path, "first")
    with Broker(data_dir=str(folder)):
        pass
    _, error = say("import", folder, "--config", into, code=1)
    assert "halfmoon cluster init" in error
    say("init", "--config", into, "--fast", 2, "--objects", 1)
    _, error = say("import", tmp_path / "nowhere", "--config", into, code=1)
    assert "no such directory" in error
    said, error = say("import", folder, "--config", into, "-o", "json")
    assert json.loads(said)["shards"] == 3
    assert "Do not start a broker" in error
    _, error = say("import", folder, "--config", into, code=1)
    assert "the cluster is not empty" in error
    _, error = say("import", folder, "--object", "t", code=1)
    assert "give --config" in error
    _, error = say("import", folder, "--config", into, "--shards", 4, code=1)
    assert "--shards is for workers" in error


def test_a_store_in_which_nothing_is_makes_no_database(tmp_path: Path, say: Say) -> None:
    into = config(tmp_path, "first")
    _, error = say("rebuild", "--fast", 2, "--objects", 1, "--config", into, code=1)
    assert "objects of no cluster" in error
    say("init", "--config", into, "--fast", 2, "--objects", 1)
    _, error = say("rebuild", "--fast", 2, "--objects", 1, "--config", into, code=1)
    assert "has a cluster already" in error


def test_the_key_of_the_directory_becomes_the_clusters_where_secrets_need_it(tmp_path: Path) -> None:
    folder, common = tmp_path / "data", tmp_path / "keys"
    folder.mkdir()
    common.mkdir()
    own, there = folder / keys.SECRETS_KEY, common / keys.SECRETS_KEY
    there.write_bytes(b"the cluster's")
    needs = KeyProtected(["alice"], {})
    missing = _Key(folder, common)
    missing.bring(needs)
    assert "have to be set anew" in missing.said
    own.write_bytes(b"the directory's")
    useless = _Key(folder, common)
    useless.bring(KeyProtected([], {}))
    assert (useless.said, there.read_bytes()) == ("", b"the cluster's")
    key = _Key(folder, common)
    key.bring(needs)
    assert "copy it to all nodes" in key.said
    assert there.read_bytes() == b"the directory's"
    assert there.stat().st_mode & 0o777 == 0o600
    kept = common / keys.SECRETS_KEY_BEFORE
    assert (kept.read_bytes(), kept.stat().st_mode & 0o777) == (b"the cluster's", 0o600)
    again = _Key(folder, common)
    again.bring(needs)
    assert "copy it to all nodes" in again.said
    assert kept.read_bytes() == b"the cluster's"
    own.write_bytes(b"another directory's")
    with pytest.raises(StartError, match=r"node\.key\.before"):
        _Key(folder, common).bring(needs)
    assert (kept.read_bytes(), there.read_bytes()) == (b"the cluster's", b"the directory's")


@of_one_data_directory
def test_an_import_that_fails_says_that_the_key_is_another_one_now(
    tmp_path: Path, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, into = tmp_path / "data", config(tmp_path, "first")
    with Broker(data_dir=str(folder)):
        pass
    say("init", "--config", into, "--fast", 2, "--objects", 1)
    NodeKey(OsFileSystem(folder), os.urandom).make()
    needs = KeyProtected(["alice"], {})
    monkeypatch.setattr("halfmoon.server.nodes.importing.protected", lambda *_: needs)

    async def refused(*_: object) -> None:
        raise StartError("a node lives")

    with monkeypatch.context() as patch:
        patch.setattr(PostgresTables, "fill_unused", refused)
        for _ in range(2):
            _, error = say("import", folder, "--config", into, code=1)
            assert "a node lives" in error
            assert "copy it to all nodes" in error
    _, error = say("import", folder, "--config", into)
    assert "copy it to all nodes" in error
