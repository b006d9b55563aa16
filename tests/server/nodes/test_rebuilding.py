"""The database is lost, and made anew of what is in the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halfmoon.cluster.backup import rebuilding
from halfmoon.cluster.backup.ports import EPOCHS
from halfmoon.cluster.backup.rebuilding import Rebuilding, Rebuilt
from halfmoon.cluster.engine import footer, merging, naming
from halfmoon.cluster.engine.database import Commit, DatabaseUnavailableError
from halfmoon.cluster.engine.objects import StoreUnavailableError
from halfmoon.cluster.engine.pieces import IN_DATABASE, Durability, Piece
from halfmoon.cluster.sqlite_store import SqliteStore
from halfmoon.cluster.store import Cluster
from halfmoon.core.crc import crc32c
from halfmoon.errors import StartError
from halfmoon.server.nodes import engine
from halfmoon.server.nodes.rebuilding import Reading, rebuild
from tests.cluster.backup.worlds import MemoryTables
from tests.cluster.engine.doubles import MemoryDatabase, MemoryStore
from tests.server.asking import NONE
from tests.server.nodes.cluster import World, stopped
from tests.server.server_rig import played

MIXED = [Durability.FAST] * 2 + [Durability.OBJECT] * 2
ON_OBJECTS = {"halfmoon.durability": "object"}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.setattr(merging, "ROW_COUNT", 1)  # rows go into objects at once
    monkeypatch.setattr(engine, "MOVE_S", 0.05)

    def play(story: Callable[[World], Any]) -> None:
        async def run() -> None:
            async with stopped(World(tmp_path, MIXED)) as world:
                for number in (1, 2):
                    await world.start(number)
                await world.shared_out()
                await story(world)

        played(run())

    return play


async def all_in_objects(world: World) -> None:
    def rows() -> list[Any]:
        shards = world.database.shards.values()
        return [piece for shard in shards for piece in shard.pieces.values() if piece.key == IN_DATABASE]

    await world.until(lambda: not rows())


async def commit(world: World, group: str, topic: str, partition: int, offset: int) -> None:
    """Its coordinator may just have got the shard."""
    async with asyncio.timeout(20):
        while await world.commit(1, group, topic, partition, offset) != NONE:
            await asyncio.sleep(0.02)


class NewTables(MemoryTables):
    """Of a world whose database is lost."""

    def __init__(self, world: World) -> None:
        super().__init__(None)
        self._world = world
        world.catalog = world.folder / "another.db"

    async def logs(self) -> MemoryDatabase:
        assert self.database is not None
        self._world.database = self.database
        return self.database

    async def finish(self, cluster: Cluster, version: int, snapshot: bytes, lineage: str) -> None:
        await super().finish(cluster, version, snapshot, lineage)
        SqliteStore.create(self._world.catalog, cluster)
        store = SqliteStore(self._world.catalog)
        store.keep(version, snapshot)
        store.close()


async def lose_the_database(world: World, tables: NewTables | None = None, fast: int = 2) -> Rebuilt:
    """And have another one, of the store alone."""
    for number in list(world.nodes):
        await world.stop(number)
    tables = tables or NewTables(world)
    found, _ = await rebuild(
        Rebuilding(world.store, fast, 4 - fast), tables, tables.logs, world.store, world.settings(1).cluster
    )
    return found


def test_messages_and_offsets_are_there_again(run: Any) -> None:
    async def story(world: World) -> None:
        assert await world.create("quick", 4) == NONE
        assert await world.create("cheap", 4, configs=ON_OBJECTS) == NONE
        assert await world.create("empty", 3) == NONE
        for number in range(3):
            for index in range(4):
                for name in ("quick", "cheap"):
                    await world.send(name, index, b"%d" % number)
        await world.stop(2)  # so that shards are taken by another
        await world.shared_out()
        groups = [f"g{number}" for number in range(6)]
        for group in groups:
            await commit(world, group, "cheap", 1, 2)
        for index in range(4):
            await world.send("quick", index, b"last")
            await world.send("cheap", index, b"last")
        epoch = (await world.leaders(1, "quick"))[0][1]
        before = world.nodes[1].worker.shards.shared
        placements = dict(before.placements)
        names = {number: (topic.name, topic.id, topic.configs) for number, topic in before.catalog.by_number.items()}
        queues = {
            (topic.number, each.index): each.queue_number
            for topic in before.catalog.by_number.values() for each in topic.partitions
        }  # fmt: skip
        await all_in_objects(world)
        found = await lose_the_database(world)
        assert [list(each.left_out) for each in found.chains.values()] == [[]] * 4
        for number in (1, 2):
            await world.start(number)
        await world.shared_out()
        await world.led("quick")
        shared = world.nodes[1].worker.shards.shared
        assert shared.placements == placements
        assert {
            number: (topic.name, topic.id, topic.configs) for number, topic in shared.catalog.by_number.items()
        } == names
        again = {
            (topic.number, each.index): each.queue_number
            for topic in shared.catalog.by_number.values() for each in topic.partitions
        }  # fmt: skip
        assert again == queues
        for index in range(4):
            for name in ("quick", "cheap"):
                assert await world.read(name, index) == [b"0", b"1", b"2", b"last"]
        assert (await world.leaders(1, "quick"))[0][1] > epoch + EPOCHS
        for group in groups:
            at = await world.coordinator(1, group)
            assert await world.committed(at, group, "cheap", 1) == 2
        assert await world.create("new", 4) == NONE
        assert min(shared.catalog.by_name["new"].number, 1_000) == 1_000
        for index in range(4):
            await world.send("new", index, b"v")
            await world.send("cheap", index, b"more")
            assert await world.read("new", index) == [b"v"]
            assert await world.read("cheap", index) == [b"0", b"1", b"2", b"last", b"more"]

    run(story)


def test_what_was_in_the_database_only_is_lost_and_nothing_else(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        assert await world.create("quick", 4) == NONE
        for index in range(4):
            await world.send("quick", index, b"in an object")
        await all_in_objects(world)
        monkeypatch.setattr(merging, "ROW_COUNT", 1 << 30)
        for index in range(4):
            await world.send("quick", index, b"in rows")
        assert await world.create("late", 4) == NONE
        await lose_the_database(world)
        for number in (1, 2):
            await world.start(number)
        await world.shared_out()
        await world.led("quick")
        for index in range(4):
            assert await world.read("quick", index) == [b"in an object"]
            await world.send("quick", index, b"new")
            assert await world.read("quick", index) == [b"in an object", b"new"]

    run(story)


def test_a_rebuild_that_was_interrupted_is_given_again(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        assert await world.create("quick", 4) == NONE
        for index in range(4):
            await world.send("quick", index, b"v")
        await all_in_objects(world)
        tables = NewTables(world)
        for dies in ("logs", "finish"):
            with monkeypatch.context() as patch:
                patch.setattr(tables, dies, interrupted)
                with pytest.raises(DatabaseUnavailableError):
                    await lose_the_database(world, tables)
            assert tables.database is not None
            assert not tables.is_cluster
            with pytest.raises(StartError):
                await world.start(1)
        await lose_the_database(world, tables)
        with pytest.raises(StartError, match="has a cluster already"):
            await lose_the_database(world, tables)
        await world.start(1)
        await world.shared_out()
        await world.led("quick")
        for index in range(4):
            assert await world.read("quick", index) == [b"v"]

    run(story)


def test_a_rebuild_whose_commit_was_not_answered_is_done(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        assert await world.create("quick", 4) == NONE
        await all_in_objects(world)
        tables = NewTables(world)
        finish = tables.finish

        async def without_an_answer(*arguments: Any) -> None:
            await finish(*arguments)
            raise DatabaseUnavailableError("no answer")

        monkeypatch.setattr(tables, "finish", without_an_answer)
        await lose_the_database(world, tables)
        await world.start(1)
        await world.shared_out()
        await world.led("quick")

    run(story)


@pytest.mark.parametrize("when", ["logs", "finish"])
def test_of_two_rebuilds_the_one_that_began_first_ends(run: Any, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """The other one has emptied its database."""

    async def story(world: World) -> None:
        assert await world.create("quick", 4) == NONE
        await all_in_objects(world)
        tables = NewTables(world)
        method = getattr(tables, when)
        seconds: list[Rebuilt] = []

        async def after_another(*arguments: Any) -> Any:
            database = await method(*arguments) if when == "logs" else None
            monkeypatch.setattr(tables, when, method)
            seconds.append(await lose_the_database(world, tables))
            if database is None:
                return await method(*arguments)
            return database

        monkeypatch.setattr(tables, when, after_another)
        with pytest.raises(StartError, match=r"has filled this database meanwhile|has a cluster already"):
            await lose_the_database(world, tables)
        assert seconds
        assert tables.is_cluster

    run(story)


def test_files_of_one_shard_are_on_the_disk_at_a_time(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All have 44 bytes for each batch of the whole cluster, and a folder for what is temporary may be memory."""
    seen: list[list[str]] = []
    opened = Reading._open

    def look(self: Reading, backing: Any, folder: Path) -> Any:
        known = opened(self, backing, folder)
        seen.append(sorted(path.name for path in folder.parent.iterdir()))
        return known

    monkeypatch.setattr(Reading, "_open", look)

    async def story(world: World) -> None:
        assert await world.create("quick", 4) == NONE
        await all_in_objects(world)
        await lose_the_database(world)
        assert seen == [["0"], ["1"], ["2"], ["3"]]

    run(story)


async def interrupted(*_: Any) -> Any:
    raise DatabaseUnavailableError("no answer")


@pytest.mark.parametrize(("fast", "said"), [(3, "'cheap' is on objects .* shard 2"), (1, "'quick' is fast .* shard 1")])
def test_other_numbers_of_shards_than_the_cluster_had_are_refused(run: Any, fast: int, said: str) -> None:
    async def story(world: World) -> None:
        assert await world.create("quick", 4) == NONE
        assert await world.create("cheap", 4, configs=ON_OBJECTS) == NONE
        for index in range(4):
            await world.send("quick", index, b"v")
            await world.send("cheap", index, b"v")
        await all_in_objects(world)
        tables = NewTables(world)
        with pytest.raises(StartError, match=said):
            await lose_the_database(world, tables, fast)
        assert not tables.is_cluster

    run(story)


def test_more_shards_than_can_be_are_refused() -> None:
    for fast, objects in ((0, 4), (1, 256), (257, 0)):
        with pytest.raises(StartError, match="from 1 fast one to 256 together are possible"):
            Rebuilding(MemoryStore(), fast, objects)


def test_a_store_that_does_not_answer_at_times_is_asked_again(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        assert await world.create("quick", 4) == NONE
        for index in range(4):
            await world.send("quick", index, b"v")
        await all_in_objects(world)
        monkeypatch.setattr(rebuilding, "PAUSE_S", 0)
        expected = await Rebuilding(world.store, 2, 2).look()
        failed = [fails_once(world.store, name) for name in ("get", "put", "list")]
        assert await Rebuilding(world.store, 2, 2).look() == expected
        assert all(failed)

    run(story)


def fails_once(store: MemoryStore, name: str) -> set[str]:
    """A method, for each key or prefix; those for which it has."""
    method, failed = getattr(store, name), set[str]()

    def fail(key: str) -> None:
        if key not in failed:
            failed.add(key)
            raise StoreUnavailableError("no answer")

    async def call(key: str, *more: Any) -> Any:
        fail(key)
        return await method(key, *more)

    async def parts(prefix: str) -> Any:
        async for part in method(prefix):
            yield part
            fail(prefix)

    setattr(store, name, parts if name == "list" else call)
    return failed


async def bytes_of(world: World, pieces: Any) -> bytes:
    data = b""
    for piece in pieces:
        data += await world.store.get(piece.key, piece.at, piece.at + piece.size)
    return data


def test_whatever_happened_to_nodes_and_services_the_log_of_a_shard_of_objects_is_found(run: Any) -> None:
    """Objects were stored and not committed, or late; nodes were cut off, and others went on."""

    async def story(world: World) -> None:
        assert await world.create("cheap", 4, configs=ON_OBJECTS) == NONE
        sent: list[int] = []
        sending = asyncio.ensure_future(keep_sending(world, sent))
        for round_ in range(2):
            for engines in world.engines.values():
                engines.store.share = engines.database.share = 0.2
            goal = len(sent) + 5
            await world.until(lambda goal=goal: len(sent) >= goal)
            gone = 1 + round_ % 2
            world.cut_off(gone)
            world.database.die(world.nodes[gone].member.incarnation)
            await world.until(lambda gone=gone: len(world.holders()[3 - gone]) == 4)
            engines = world.engines[gone]
            engines.database.down = engines.store.down = False
        for engines in world.engines.values():
            engines.store.share = engines.database.share = 0
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await world.until(lambda: all(len(found) == 2 for found in world.holders().values()))
        assert any(engines.store.late for engines in world.engines.values())
        heads = [world.database.shards[shard] for shard in (2, 3)]
        pieces = [[piece for _, piece in sorted(each.pieces.items())] for each in heads]
        truth = [await bytes_of(world, each) for each in pieces]
        stored = set(world.store.objects)
        assert stored - set(world.database.objects), "nothing was fenced off"
        found = await Rebuilding(world.store, 2, 2).look()
        for shard, known in zip((2, 3), truth, strict=True):
            chain = found.chains[shard]
            assert chain.start == 0
            assert (await bytes_of(world, chain.pieces))[: len(known)] == known

    run(story)


async def keep_sending(world: World, sent: list[int]) -> None:
    while True:
        for index in range(4):
            await world.send("cheap", index, b"%d" % len(sent))
        sent.append(len(sent))


def test_files_beside_the_log_are_found_by_their_names() -> None:
    """Compacted messages, and indexes of what is in the log; of two of one name, that of the later epoch."""

    async def story() -> None:
        store = MemoryStore()
        data = bytes(200)
        commit = Commit(1, 4, (Piece(0, 200, crc32c(data), 0),))
        key = naming.make("a-cluster", naming.MERGED, 1)
        await store.put(key, footer.build(1, key, [commit], [[data]])[0])
        names = [naming.FileName(1, epoch, "cleaned/07") for epoch in (3, 5, 4)]
        names += [naming.FileName(1, 9, "checkpoint"), naming.FileName(naming.ALL_SHARDS, 0, "cleaned/08")]
        names += [naming.FileName(1, 4, f"{folder}/{stretch}")
                  for folder in ("index", "keys") for stretch in ("0-100", "100-200", "0-201", "200-300")]  # fmt: skip
        for name in names:
            await store.put(naming.make("a-cluster", naming.FILE, 1, name), f"{name}".encode())
        await store.put(naming.make("a-cluster", naming.FILE, 1), b"of a version that named no files")
        found_again = Rebuilding(store, 3, 0)
        assert (await found_again.look()).chains.keys() == {0, 1, 2}
        rows = [row for rows in found_again.rows() if rows.table == "file" for row in rows.rows]
        assert sorted((row[0], row[1]) for row in rows) == [
            (0, "cleaned/08"), (1, "cleaned/07"), (1, "cleaned/08"), (1, "index/0-100"), (1, "index/100-200"),
            (1, "keys/0-100"), (1, "keys/100-200"), (1, "meta.json"), (2, "cleaned/08"),
        ]  # fmt: skip
        (found,) = (row for row in rows if row[1] == "cleaned/07")
        assert store.objects[found[2]] == f"{names[1]}".encode()

    asyncio.run(story())


def test_a_log_does_not_end_with_what_is_in_the_store_for_other_shards_only() -> None:
    """Retention of one shard has dropped it; the objects of its own from after that are deleted."""

    async def story() -> None:
        store = MemoryStore()
        for commits in (
            [Commit(0, 1, (Piece(0, 3_000, 0, 0),)), Commit(1, 1, (Piece(0, 10, 0, 0),))],
            [Commit(0, 2, (Piece(9_000, 9_100, 0, 9_000),))],
            [Commit(1, 2, (Piece(10, 20, 0, 0),))],
        ):
            key = naming.make("a-cluster", naming.MERGED, 1)
            data = [[bytes(piece.size) for piece in commit.pieces] for commit in commits]
            await store.put(key, footer.build(1, key, commits, data)[0])
        found = (await Rebuilding(store, 2, 0).look()).chains
        assert (found[0].start, found[0].end, found[0].left_out) == (9_000, 9_100, [])
        assert found[0].expired == [(0, 3_000)]
        assert (found[1].start, found[1].end, found[1].left_out, found[1].expired) == (0, 20, [], [])

    asyncio.run(story())


def test_a_store_of_something_else_is_refused() -> None:
    async def story() -> None:
        store = MemoryStore()
        with pytest.raises(StartError, match="objects of no cluster"):
            await Rebuilding(store, 1, 0).look()
        await store.put(naming.make("one", naming.MERGED, 1), b"no footer")
        assert (await Rebuilding(store, 1, 0).look()).unread == 1
        await store.put(naming.make("other", naming.MERGED, 1), b"no footer")
        with pytest.raises(StartError, match="objects of 2 clusters under this prefix, one, other"):
            await Rebuilding(store, 1, 0).look()
        assert (await Rebuilding(store, 1, 0, "other").look()).cluster.id == "other"
        with pytest.raises(StartError, match="no objects of cluster third"):
            await Rebuilding(store, 1, 0, "third").look()
        await store.put("one/probe/1", b"is not part of a log")
        assert (await Rebuilding(store, 1, 0, "one").look()).unread == 1

    asyncio.run(story())
