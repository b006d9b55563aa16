"""A data directory is brought into a cluster: no byte is sent twice, and it is all there or nothing is.

What is in the shards then: tests/server/workers/test_importing.py, which looks at those of a cluster, too.
"""

from __future__ import annotations

import asyncio
import random
import re
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from halfmoon.cluster.backup.tables import Rows
from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.engine.objects import StoreUnavailableError
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.core.storage.log_files import list_segments
from halfmoon.errors import StartError
from halfmoon.schema.durability import DURABILITY
from halfmoon.schema.readable_topics import AUDIT_TOPIC
from halfmoon.server.nodes.importing import MADE, Imported, Importing
from halfmoon.server.workers.importing import import_directory
from halfmoon.server.workers.plan import CATALOG, shard_folder
from halfmoon.server.workers.staging import Staging
from tests.core.bench import VirtualClock, send, turn
from tests.core.relay_bench import relay
from tests.server.nodes.unused import ClusterShards, MemoryUnused
from tests.server.workers.import_bench import SHARDS, Shards, name_in, open_one, records_of
from tests.server.workers.test_importing import OFFSETS_TOPIC, PRODUCERS, Before, fill, let_expire


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def before(folder: Path, clock: VirtualClock) -> Before:
    broker = open_one(folder, clock)
    found = fill(broker, clock)
    broker.close()
    return found


def bring_in(folder: Path, unused: MemoryUnused, clock: VirtualClock, on_objects: Sequence[str] = ()) -> Imported:
    return asyncio.run(Importing(folder, unused, unused.store, on_objects=on_objects, clock=clock).run())


def test_a_file_of_all_shards_is_one_object(folder: Path, before: Before, clock: VirtualClock, tmp_path: Path) -> None:
    unused = MemoryUnused(SHARDS)
    done: list[tuple[int, int]] = []
    importing = Importing(folder, unused, unused.store, clock=clock, progress=lambda *pair: done.append(pair))
    made = asyncio.run(importing.run())
    segments = list_segments(OsFileSystem(folder))
    assert made.objects == len(unused.store.objects)
    by_key: dict[str, list[int]] = {}
    for number, shard in unused.database.shards.items():
        for piece in shard.pieces.values():
            by_key.setdefault(piece.key, []).append(number)
    shared = [key for key, holders in by_key.items() if len(holders) == SHARDS]
    assert len(shared) == len(segments)
    assert all(len(holders) in (1, SHARDS) for holders in by_key.values())
    on_disk = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert made.bytes < on_disk + SHARDS * (64 << 10)
    assert done[-1] == (made.bytes, made.bytes)
    with ClusterShards(unused, tmp_path / "cache", clock) as shards:
        for number, node in shards.nodes.items():
            assert all(unused.database.objects[key].dead_s is None for key in shared)
            let_expire(node)
            if number == SHARDS - 1:
                assert any(unused.database.objects[key].dead_s is not None for key in shared)


def test_a_large_segment_becomes_several_objects(
    folder: Path, before: Before, clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A border may lie anywhere."""
    monkeypatch.setattr("halfmoon.server.nodes.bringing_in.MOST_BYTES", 10_007)
    unused = MemoryUnused(SHARDS)
    bring_in(folder, unused, clock)
    segments = list_segments(OsFileSystem(folder))
    pieces = unused.database.shards[0].pieces.values()
    assert len(pieces) > 3 * len(segments)
    assert max(piece.size for piece in pieces) == 10_007
    assert len({piece.segment for piece in pieces}) == len(segments) + 1
    with ClusterShards(unused, tmp_path / "cache", clock) as shards:
        found = records_of(shards.nodes)
        assert {place: rows[: len(before.records[place])] for place, rows in found.items()} == before.records


def test_topics_go_to_shards_of_objects_where_it_is_wanted(
    folder: Path, before: Before, clock: VirtualClock, tmp_path: Path
) -> None:
    unused = MemoryUnused(SHARDS, 2)
    bring_in(folder, unused, clock, ["[orh]*"])
    with ClusterShards(unused, tmp_path / "cache", clock) as shards:
        found = {name: set(shards.placements_of(name)) for name in ("orders", "orders.a", "keyed", "retry.g0")}
        assert found["orders"] == found["orders.a"] == {SHARDS, SHARDS + 1}
        assert found["keyed"] | found["retry.g0"] <= set(range(SHARDS))
        configs = {topic.name: topic.configs.get(DURABILITY) for topic in shards.shared.catalog.by_number.values()}
        assert configs["orders"] == "object"
        assert [name for name, said in configs.items() if said is not None] == ["orders"]
        assert len(shards.placements_of(AUDIT_TOPIC)) == SHARDS + 2
        read = records_of(shards.nodes)
        assert {place: rows[: len(before.records[place])] for place, rows in read.items()} == before.records
        for number, node in shards.nodes.items():
            assert set(node.state.groups.offsets) <= ({name_in(number), "left"} if number < SHARDS else set())


def test_what_cannot_go_to_shards_of_objects_is_refused_before_anything_is_sent(
    folder: Path, before: Before, clock: VirtualClock
) -> None:
    unused, none = MemoryUnused(SHARDS, 2), MemoryUnused(SHARDS)
    with pytest.raises(StartError, match=r"no shards of objects: .*--objects"):
        bring_in(folder, none, clock, ["orders"])
    for pattern in ("order", "retry.*", "orders.a"):  # of the last two, others say where they are
        with pytest.raises(StartError, match=f"'{re.escape(pattern)}' matches no topic"):
            bring_in(folder, unused, clock, ["orders", pattern])
    broker = open_one(folder, clock)
    assert set(broker.transactions.by_name) == set(PRODUCERS)
    broker.close()
    assert import_directory(folder, SHARDS, clock=clock) is not None
    with pytest.raises(StartError, match="shards of workers are brought in as they are"):
        bring_in(folder, unused, clock, ["orders"])
    assert not unused.store.objects
    assert not none.store.objects


def test_the_log_alone_says_all_of_it(folder: Path, before: Before, clock: VirtualClock, tmp_path: Path) -> None:
    unused = MemoryUnused(SHARDS)
    bring_in(folder, unused, clock)
    for shard in unused.database.shards.values():
        derived = [name for name in shard.files if name in ("checkpoint", "clean") or name.startswith("index/")]
        assert len(derived) > 3
        for name in derived:
            del shard.files[name]
    with ClusterShards(unused, tmp_path / "cache", clock) as shards:
        found = records_of(shards.nodes)
        assert {place: rows[: len(before.records[place])] for place, rows in found.items()} == before.records


def test_an_import_that_is_interrupted_leaves_the_cluster_empty_and_is_given_again(
    folder: Path, before: Before, clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halfmoon.cluster.backup.restoring.PAUSE_S", 0)
    unused = MemoryUnused(SHARDS)
    put, left = unused.store.put, 7

    async def dies(key: str, data: bytes) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise StoreUnavailableError("down")
        await put(key, data)

    unused.store.put = dies  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailableError):
        bring_in(folder, unused, clock)
    assert len(unused.store.objects) == 7
    assert not unused.database.objects
    assert not (folder / MADE).exists()
    (folder / MADE).mkdir()  # one that was killed leaves it
    (folder / MADE / "last").write_bytes(b"left")
    unused.store.put = put  # type: ignore[method-assign]
    unused.store.objects.clear()  # nodes delete what is left over
    bring_in(folder, unused, clock)
    with ClusterShards(unused, tmp_path / "cache", clock) as shards:
        found = records_of(shards.nodes)
        assert {place: rows[: len(before.records[place])] for place, rows in found.items()} == before.records
    with pytest.raises(StartError, match="the cluster is not empty"):
        bring_in(folder, unused, clock)


def test_the_directory_is_that_of_one_process_still(folder: Path, before: Before, clock: VirtualClock) -> None:
    bring_in(folder, MemoryUnused(SHARDS), clock)
    broker = open_one(folder, clock)
    send(broker, "orders", b"its own way")
    relay(broker)
    found = {place: rows for place, rows in records_of({0: broker}).items() if place[0] != OFFSETS_TOPIC}
    assert {place: rows[: len(before.records[place])] for place, rows in found.items()} == before.records
    broker.close()


def test_a_log_that_is_not_whole_is_refused(folder: Path, before: Before, clock: VirtualClock) -> None:
    unused = MemoryUnused(SHARDS)
    first = folder / list_segments(OsFileSystem(folder))[0][1]
    first.rename(folder / "away")
    with pytest.raises(StartError, match="halfmoon log verify"):
        bring_in(folder, unused, clock)
    assert not unused.store.objects
    with pytest.raises(StartError, match="no such directory"):
        bring_in(folder / "nowhere", unused, clock)


@pytest.mark.parametrize("committed", [True, False])
def test_the_database_is_asked_where_it_did_not_say_whether_it_has_committed(
    folder: Path, before: Before, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    unused = MemoryUnused(SHARDS)
    fill_unused = unused.fill_unused

    async def without_an_answer(rows: Iterator[Rows]) -> None:
        if committed:
            await fill_unused(rows)
        raise DatabaseUnavailableError("no answer")

    monkeypatch.setattr(unused, "fill_unused", without_an_answer)
    if committed:
        assert bring_in(folder, unused, clock).objects == len(unused.store.objects)
        unused.check()
        return
    with pytest.raises(DatabaseUnavailableError, match=r"^no answer$"):
        bring_in(folder, unused, clock)

    async def unreachable(_key: str) -> bool:
        raise DatabaseUnavailableError("down")

    monkeypatch.setattr(unused, "names_object", unreachable)
    monkeypatch.setattr("halfmoon.cluster.backup.committed.PAUSE_S", 0)
    with pytest.raises(DatabaseUnavailableError, match="If it says that the cluster is not empty, it is this one"):
        bring_in(folder, unused, clock)


def test_an_import_that_is_interrupted_keeps_the_directory_until_its_thread_has_ended(
    folder: Path, before: Before, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread works in the directory's log."""
    begun, go_on = threading.Event(), threading.Event()
    make = Staging.make

    def slowly(self: Staging, prepared: Any) -> None:
        begun.set()
        assert go_on.wait(20)
        make(self, prepared)

    monkeypatch.setattr(Staging, "make", slowly)

    async def interrupted() -> None:
        unused = MemoryUnused(SHARDS)
        importing = asyncio.ensure_future(Importing(folder, unused, unused.store, clock=clock).run())
        assert await asyncio.to_thread(begun.wait, 20)
        importing.cancel()
        await asyncio.wait([importing], timeout=0.1)
        with pytest.raises(StartError, match="in use by another broker"):
            OsFileSystem(folder).lock()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await importing

    asyncio.run(interrupted())
    assert not (folder / MADE).exists()
    fs = OsFileSystem(folder)
    fs.lock()
    fs.unlock()


# -- of several workers ------------------------------------------------------------------------------------------------


def test_shards_of_workers_are_taken_as_they_are(
    folder: Path, before: Before, clock: VirtualClock, tmp_path: Path
) -> None:
    assert import_directory(folder, SHARDS, clock=clock) is not None
    opened = Shards(folder, clock)
    dice = random.Random(3)
    for number, node in opened.nodes.items():
        for index in range(8):
            if opened.placed("orders", index) == number:
                send(node, "orders", b"by workers" + dice.randbytes(9), index=index)
        turn(node)
    opened.relay()
    found = records_of(opened.nodes)
    opened.close()
    unused = MemoryUnused(SHARDS, 2)
    made = bring_in(folder, unused, clock)
    assert (made.shards, made.transactions) == (SHARDS + 2, 0)
    assert [shard.head.end > 0 for shard in unused.database.shards.values()] == [True] * SHARDS + [False] * 2
    with ClusterShards(unused, tmp_path / "cache", clock) as shards:
        assert shards.shared.starters == dict.fromkeys(shards.nodes, -1)
        assert records_of(shards.nodes) == found
        assert len(shards.placements_of(AUDIT_TOPIC)) == SHARDS + 2
        for number, node in shards.nodes.items():
            assert [partition.index for partition in node.topic(AUDIT_TOPIC).here()] == [number]


def test_shards_of_workers_that_do_not_fit_are_refused(folder: Path, before: Before, clock: VirtualClock) -> None:
    assert import_directory(folder, SHARDS, clock=clock) is not None
    with pytest.raises(StartError, match=f"halfmoon cluster init --fast {SHARDS}"):
        bring_in(folder, MemoryUnused(SHARDS + 1), clock)
    (shard_folder(folder, 2) / "clean").unlink()
    with pytest.raises(StartError, match="shard 2 was not stopped in good order"):
        bring_in(folder, MemoryUnused(SHARDS), clock)


def test_a_damaged_catalog_of_workers_is_the_directorys(folder: Path, before: Before, clock: VirtualClock) -> None:
    """And no other database's."""
    assert import_directory(folder, SHARDS, clock=clock) is not None
    with sqlite3.connect(folder / CATALOG) as catalog:
        assert catalog.execute("update snapshot set crc = crc + 1").rowcount == 1
    with pytest.raises(StartError, match=f"^{folder}: .* is damaged$"):
        bring_in(folder, MemoryUnused(SHARDS), clock)
