"""The catalog in a SQLite file."""

from __future__ import annotations

import contextlib
import sqlite3
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from halfmoon.cluster import sqlite_store
from halfmoon.cluster.sqlite_store import SqliteStore
from halfmoon.cluster.store import CatalogUnavailableError, Cluster
from halfmoon.errors import StartError
from tests.cluster.catalog_contract import FORGET, CatalogContract, Open, change


class TestSqliteStore(CatalogContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Open:
        SqliteStore.create(tmp_path / "catalog", Cluster("a-cluster", 16))
        return partial(SqliteStore, tmp_path / "catalog")

    @pytest.fixture
    def go_back(self, tmp_path: Path) -> Callable[[], None]:
        def forget() -> None:
            with contextlib.closing(sqlite3.connect(tmp_path / "catalog")) as database, database:
                database.execute(FORGET)

        return forget


def test_what_never_changes_is_said_when_it_is_made(tmp_path: Path) -> None:
    SqliteStore.create(tmp_path / "catalog", Cluster("x", 3))
    assert SqliteStore(tmp_path / "catalog").cluster == Cluster("x", 3)
    with pytest.raises(StartError, match="exists"):
        SqliteStore.create(tmp_path / "catalog", Cluster("y", 3))
    for shards in (0, 257):
        with pytest.raises(StartError, match="from 1 to 256"):
            SqliteStore.create(tmp_path / "other", Cluster("y", shards))


def test_nobody_else_may_read_the_credentials_in_it(tmp_path: Path) -> None:
    SqliteStore.create(tmp_path / "catalog", Cluster("x", 3))
    store = SqliteStore(tmp_path / "catalog")
    change(store, b"a")
    assert {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()} == {0o600}


def test_one_that_was_not_made_to_its_end_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(sqlite_store, "_TABLES", f"{sqlite_store._TABLES} create nonsense")
        with pytest.raises(sqlite3.Error):
            SqliteStore.create(tmp_path / "catalog", Cluster("x", 3))
    with pytest.raises(StartError, match="no such catalog"):
        SqliteStore(tmp_path / "catalog")
    SqliteStore.create(tmp_path / "catalog", Cluster("x", 3))
    assert SqliteStore(tmp_path / "catalog").read(0).version is None


def test_other_files_are_no_catalogs(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("Halfmoon" * 1_000)
    with pytest.raises(StartError, match="not a catalog"):
        SqliteStore(tmp_path / "text")
    with sqlite3.connect(tmp_path / "database") as database:
        database.execute("create table cluster (id text, format integer, shards integer)")
    with pytest.raises(StartError, match="not made to its end"):
        SqliteStore(tmp_path / "database")
    with sqlite3.connect(tmp_path / "database") as database:
        database.execute("insert into cluster values ('x', 2, 16)")
    with pytest.raises(StartError, match="has format 2; this program knows 1"):
        SqliteStore(tmp_path / "database")


def test_who_holds_it_too_long_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "WAIT_S", 0.1)
    SqliteStore.create(tmp_path / "catalog", Cluster("x", 3))
    store, other = SqliteStore(tmp_path / "catalog"), SqliteStore(tmp_path / "catalog")
    store.begin(0)
    with pytest.raises(CatalogUnavailableError, match="locked"):
        other.begin(0)
    assert store.commit([b"a"]) == 1
    assert other.begin(0).version == 1


def test_a_hole_in_the_changes_is_found(tmp_path: Path) -> None:
    SqliteStore.create(tmp_path / "catalog", Cluster("x", 3))
    store = SqliteStore(tmp_path / "catalog")
    for record in (b"a", b"b", b"c"):
        change(store, record)
    with sqlite3.connect(tmp_path / "catalog") as database:
        database.execute("delete from change where version = 2")
    with pytest.raises(CatalogUnavailableError, match="missing behind version 0"):
        store.read(0)
    with pytest.raises(CatalogUnavailableError, match="missing behind version 1"):
        store.begin(1)
    assert store.begin(2).version == 3
    store.abandon()


def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    SqliteStore.create(tmp_path / "catalog", Cluster("x", 3))
    store = SqliteStore(tmp_path / "catalog")
    store._connection.execute("pragma max_page_count = 8")
    store.begin(0)
    with pytest.raises(CatalogUnavailableError, match="full"):
        store.commit([bytes(1 << 20)])
    assert store.read(0).version is None
    assert change(store, b"small") == 1
