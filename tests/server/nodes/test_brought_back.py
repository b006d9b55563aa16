"""A node that opens a log which was brought back to an earlier moment fences producers, once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from halfmoon.cluster.backup.ports import EPOCHS
from halfmoon.cluster.backup.tables import COLUMNS
from halfmoon.cluster.engine.database import DatabaseReplacedError, DatabaseUnavailableError
from halfmoon.cluster.engine.pieces import Durability
from halfmoon.services.transactions.fencing import SKIPPED
from tests.cluster.backup.worlds import MemoryTables
from tests.server.asking import NONE
from tests.server.nodes.cluster import World, stopped
from tests.server.server_rig import played

FAST = [Durability.FAST] * 3
INIT_PRODUCER = 22


async def producer(world: World, name: str | None) -> tuple[int, int]:
    """Id and epoch."""
    asked: dict[str, Any] = {"transactional_id": name, "transaction_timeout_ms": 60_000}
    async with asyncio.timeout(20):
        while True:
            found = await world.ask(1, INIT_PRODUCER, 1, **asked)
            if found.error_code == NONE:
                return found.producer_id, found.producer_epoch
            await asyncio.sleep(0.02)


def test_processes_of_before_end_where_the_database_is_another_one(tmp_path: Path) -> None:
    """They would go on under the prefix of the store, and with the catalog, that they know."""

    async def run() -> None:
        async with stopped(World(tmp_path, FAST)) as world:
            for number in (1, 2):
                await world.start(number)
            await world.shared_out()
            assert await world.create("t", 3) == NONE
            await world.send("t", 0, b"before")
            rows = [rows async for rows in MemoryTables(world.database).read([])]
            tables = MemoryTables(None)
            await tables.fill(iter(rows), COLUMNS, [])
            new = tables.database
            assert new is not None
            filled = await new.heads()
            other = await new.register(1, "another process", 1, "")  # of the same number
            for engines in world.engines.values():
                engines.database._inner = new
            await world.until(lambda: len(world.lost) == 2)
            await world.stop_all()
            assert await new.heads() == filled
            assert [(node.incarnation, node.draining) for node in await new.nodes()] == [(other, False)]
            assert {type(error) for error in world.lost} == {DatabaseReplacedError}
            world.lost.clear()
            await new.leave(other)
            world.database = new
            await world.start(1)
            await world.shared_out()
            assert await world.read("t", 0) == [b"before"]

    played(run())


def bring_back(world: World) -> None:
    for shard in world.database.shards.values():
        shard.head = shard.head._replace(epoch=shard.head.epoch + EPOCHS, owner=None, restored=True)


def test_identities_that_may_have_been_given_out_since_are_not_given_out_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with stopped(World(tmp_path, FAST)) as world:
            await world.start(1)
            await world.shared_out()
            assert await world.create("t", 3) == NONE
            await world.send("t", 0, b"before")
            assert await world.commit(1, "g", "t", 0, 1) == NONE
            names = ["a", "b", "c", "d"]
            before = [await producer(world, name) for name in names]
            _, epoch = (await world.leaders(1, "t"))[0]
            await world.stop(1)
            bring_back(world)
            await world.start(1)
            await world.shared_out()
            await world.until(lambda: not any(shard.head.restored for shard in world.database.shards.values()))
            after = [await producer(world, name) for name in names]
            for (old_id, _), (new_id, _) in zip(before, after, strict=True):
                assert new_id >= old_id + SKIPPED
            await world.led("t")
            assert (await world.leaders(1, "t"))[0][1] > epoch + EPOCHS
            assert await world.read("t", 0) == [b"before"]
            assert await world.committed(1, "g", "t", 0) == 1
            await world.send("t", 0, b"after")
            await world.stop(1)
            await world.start(1)
            await world.shared_out()
            again = [await producer(world, name) for name in names]
            assert again == [(new_id, new_epoch + 1) for new_id, new_epoch in after]
            assert await world.read("t", 0) == [b"before", b"after"]

    played(run())


def test_a_node_can_be_stopped_while_it_cannot_say_so(tmp_path: Path) -> None:
    async def run() -> None:
        async with stopped(World(tmp_path, FAST)) as world:
            await world.start(1)
            await world.shared_out()
            await world.stop(1)
            bring_back(world)
            tried = asyncio.Event()

            async def is_away(shard: int, epoch: int) -> bool:
                tried.set()
                raise DatabaseUnavailableError("no answer")

            world.database.begun_anew = is_away  # type: ignore[method-assign]
            await world.start(1)
            await tried.wait()
            await world.shared_out()
            async with asyncio.timeout(10):
                await world.stop(1)
            assert any(shard.head.restored for shard in world.database.shards.values())

    played(run())


def test_a_node_that_dies_before_it_could_say_so_fences_them_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with stopped(World(tmp_path, FAST)) as world:
            await world.start(1)
            await world.shared_out()
            first, _ = await producer(world, "a")
            await world.stop(1)
            bring_back(world)
            begun_anew, told = world.database.begun_anew, asyncio.Event()

            async def is_not_heard(shard: int, epoch: int) -> bool:
                told.set()
                return True

            world.database.begun_anew = is_not_heard  # type: ignore[method-assign]
            await world.start(1)
            await told.wait()
            await world.shared_out()
            second, _ = await producer(world, "a")
            await world.stop(1)
            assert all(shard.head.restored for shard in world.database.shards.values())
            world.database.begun_anew = begun_anew  # type: ignore[method-assign]
            await world.start(1)
            await world.shared_out()
            third, _ = await producer(world, "a")
            assert third >= second + SKIPPED
            assert second >= first + SKIPPED

    played(run())
