"""A backup on the disk: it is whole before it says so, nobody else may read it, and it is read as its manifest says."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from halfmoon.cluster.backup import tables
from halfmoon.cluster.backup.copied import MANIFEST, OBJECTS, TABLES, Copied, Objects, Part, Wanted
from halfmoon.cluster.backup.saving import Saving
from halfmoon.cluster.backup.tables import Rows
from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.errors import StartError
from tests.cluster.backup.worlds import memory, real
from tests.cluster.servers import postgres


def test_a_backup_is_on_the_disk_before_it_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[int] = set()
    before: list[set[int]] = []
    sync, rename = os.fsync, Path.rename

    def fsync(fd: int) -> None:
        synced.add(os.fstat(fd).st_ino)
        sync(fd)

    def renamed(path: Path, target: Path) -> Path:
        before.append(set(synced))
        return rename(path, target)

    saved = tmp_path / "new" / "saved"

    async def story() -> None:
        async with memory() as world:
            await world.fill()
            monkeypatch.setattr(os, "fsync", fsync)
            monkeypatch.setattr(Path, "rename", renamed)
            await Saving(world.source, world.store, saved).run()
            monkeypatch.undo()
            (known,) = before
            assert {path.stat().st_ino for path in saved.rglob("*")} <= known
            assert {tmp_path.stat().st_ino, saved.parent.stat().st_ino} <= known  # where it is found

    asyncio.run(story())


def test_rows_that_are_large_are_in_chunks_that_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch, or a change of the catalog, may be as large as a client is allowed to make it."""
    postgres()
    from halfmoon.cluster.postgres import tables as of_postgres

    monkeypatch.setattr(of_postgres, "PART_BYTES", 6_000)
    monkeypatch.setattr(tables, "_MOST", 10_000)

    async def story() -> None:
        async with real() as world:
            await world.own_all()
            for _ in range(9):
                await world.write(0, 3_000)
            manifest = (await Saving(world.source, world.store, tmp_path / "saved").run()).manifest
            counts = [len(rows.rows) for rows in Copied(tmp_path / "saved").rows(manifest) if rows.table == "wal"]
            assert counts == [2, 2, 2, 2, 1]
            await world.write(0, 12_000)
            with pytest.raises(StartError, match=r"rows of wal have 1\d{4} bytes, and fewer than 10000 can"):
                await Saving(world.source, world.store, tmp_path / "other").run()
            assert not (tmp_path / "other" / MANIFEST).exists()

    asyncio.run(story())


def test_nobody_else_may_read_a_backup(tmp_path: Path) -> None:
    saved = tmp_path / "saved"

    async def story() -> None:
        async with memory() as world:
            await world.fill()
            saved.mkdir(mode=0o755)
            await Saving(world.source, world.store, saved).run()
            assert saved.stat().st_mode & 0o777 == 0o700
            for path in (saved / TABLES, *(saved / OBJECTS).rglob("*")):
                assert path.is_dir() or path.stat().st_mode & 0o777 == 0o600

    asyncio.run(story())


def test_a_whole_backup_is_one_also_where_its_pin_cannot_be_taken_back(tmp_path: Path) -> None:
    saved = tmp_path / "saved"

    async def story() -> None:
        async with memory() as world:
            await world.fill()

            async def unreachable(number: int) -> None:
                raise DatabaseUnavailableError("no answer")

            world.tables.unpin = unreachable
            report = await Saving(world.source, world.store, saved).run()
            assert Copied(saved).manifest() == report.manifest

    asyncio.run(story())


def test_columns_are_those_of_the_backup() -> None:
    objects = Objects({
        "object": ("size", "since", "key"), "file": ("key", "shard", "crc", "size"),
        "piece": ("at", "key", "end_position", "crc", "start_position"),
    })  # fmt: skip
    objects.see(Rows("object", [(70, 0, "a"), (9, 0, "f")]))
    objects.see(Rows("piece", [(20, "a", 150, 7, 100)]))
    objects.see(Rows("file", [("f", shard, 5, 9) for shard in range(32)]))
    assert objects.by_key == {"a": Wanted("a", 70, {Part(20, 50, 7)}), "f": Wanted("f", 9, {Part(0, 9, 5)})}
