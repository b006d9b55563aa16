"""Batches of other nodes' logs, read at the places that their owners tell."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from halfmoon.cluster.engine import footer
from halfmoon.cluster.engine.database import Commit
from halfmoon.cluster.engine.pieces import Durability, Piece
from halfmoon.cluster.engine.placed import BLOCK_BYTES, PieceGoneError, PlacedReads
from halfmoon.core.crc import crc32c
from tests.cluster.engine.doubles import MemoryDatabase, MemoryStore, unsure_database, unsure_store
from tests.cluster.engine.virtual import play


class Logs:
    """Shards 0 and 1, which somebody else owns, and who reads them."""

    def __init__(self, limit_bytes: int = 64 << 20) -> None:
        self.world, self.stored = MemoryDatabase([Durability.FAST] * 2), MemoryStore()
        self.database = unsure_database(self.world, random.Random(1))
        self.store = unsure_store(self.stored, random.Random(2))
        self.reads = PlacedReads(self.database, self.store, limit_bytes)
        self.bytes: dict[int, bytearray] = {0: bytearray(), 1: bytearray()}
        self.pieces: dict[int, list[Piece]] = {0: [], 1: []}
        self._dice = random.Random(3)
        self._keys = 0

    async def take(self) -> None:
        me = await self.world.register(1, "host", 1, "")
        for shard in (0, 1):
            head = self.world.shards[shard].head
            assert await self.world.take(shard, head.epoch, me) is not None

    def _frames(self, shard: int, size: int) -> tuple[Commit, bytes]:
        data, start = self._dice.randbytes(size), len(self.bytes[shard])
        self.bytes[shard] += data
        piece = Piece(start, start + size, crc32c(data), 0)
        return Commit(shard, self.world.shards[shard].head.epoch, (piece,)), data

    async def rows(self, shard: int, sizes: Sequence[int]) -> None:
        for size in sizes:
            commit, data = self._frames(shard, size)
            assert await self.world.commit_rows([commit], [[data]]) == {shard}
            self.pieces[shard] += commit.pieces

    async def object(self, sizes: dict[int, int]) -> str:
        """One object of both shards; its key."""
        made = [self._frames(shard, size) for shard, size in sizes.items()]
        self._keys += 1
        key = f"o/{self._keys}"
        data, placed = footer.build(1, key, [commit for commit, _ in made], [[frames] for _, frames in made])
        await self.stored.put(key, data)
        assert await self.world.commit_object(key, len(data), placed) == set(sizes)
        for commit in placed:
            self.pieces[commit.shard] += commit.pieces
        return key

    async def read(self, shard: int, places: Sequence[tuple[int, int]]) -> None:
        """It is what was written."""
        found = await self.reads.read(shard, self.pieces[shard], places, lambda size: memoryview(bytearray(size)))
        assert [bytes(each) for each in found] == [
            bytes(self.bytes[shard][position : position + length]) for position, length in places
        ]


def test_rows_and_objects_are_read_at_their_places() -> None:
    async def story() -> None:
        logs = Logs()
        await logs.take()
        await logs.rows(0, [100, 200, 300])
        await logs.object({1: 50, 0: 1_000})
        await logs.rows(0, [400])
        await logs.read(0, [(10, 20), (100, 200), (301, 299), (600, 1_000), (1_700, 300)])
        await logs.read(1, [(0, 50)])

    play(story())


def test_an_object_is_fetched_once_for_all_shards_and_readers() -> None:
    async def story() -> None:
        logs = Logs()
        await logs.take()
        await logs.object({0: 5_000, 1: 7_000})
        await asyncio.gather(*(logs.read(shard, [(at, 100)]) for shard in (0, 1) for at in range(0, 5_000, 500)))
        assert logs.reads.gets == 1
        await logs.read(1, [(6_900, 100)])
        assert logs.reads.gets == 1

    play(story())


def test_a_row_that_is_forgotten_for_a_block_that_has_just_come_is_read_all_the_same() -> None:
    async def story() -> None:
        logs = Logs(limit_bytes=150)
        await logs.take()
        await logs.rows(0, [100])
        key = await logs.object({1: 1_000})
        await logs.read(0, [(0, 100)])
        come = asyncio.Event()

        async def get(*_: object) -> bytes:
            await come.wait()
            return logs.stored.objects[key]

        logs.store.get = get  # type: ignore[method-assign]
        block = asyncio.ensure_future(logs.read(1, [(0, 1_000)]))
        await asyncio.sleep(1)
        come.set()
        await asyncio.sleep(0)  # it has come, and what is kept does not know yet
        await logs.read(0, [(0, 100)])
        await block

    play(story())


def test_rows_are_asked_for_once_and_together() -> None:
    async def story() -> None:
        logs = Logs()
        await logs.take()
        await logs.rows(0, [100] * 50)
        places = [(at * 100 + 10, 80) for at in range(50)]
        await asyncio.gather(*(logs.read(0, places) for _ in range(10)))
        assert logs.reads.queries == 1
        await logs.rows(0, [100])
        await logs.read(0, [(4_900, 100), (5_000, 100)])
        assert (logs.reads.queries, logs.reads.row_bytes) == (2, 5_100)

    play(story())


def test_a_large_object_is_read_in_blocks_and_batches_may_span_them() -> None:
    async def story() -> None:
        logs = Logs()
        await logs.take()
        await logs.object({1: 1_000, 0: 2 * BLOCK_BYTES})
        await logs.read(0, [(BLOCK_BYTES - 2_000, 3_000)])
        assert logs.reads.gets == 2
        await logs.read(0, [(0, 500), (2 * BLOCK_BYTES - 10, 10)])
        assert logs.reads.gets == 3

    play(story())


def test_what_is_kept_has_a_limit_and_what_was_used_last_stays() -> None:
    async def story() -> None:
        logs = Logs(limit_bytes=30_000)
        await logs.take()
        for _ in range(3):
            await logs.object({0: 12_000})
        await logs.read(0, [(0, 10)])
        await logs.read(0, [(12_000, 10)])
        await logs.read(0, [(20, 10)])
        await logs.read(0, [(24_000, 10)])
        assert logs.reads.gets == 3
        await logs.read(0, [(100, 10), (24_000, 50)])
        assert logs.reads.gets == 3
        await logs.read(0, [(12_100, 10)])
        assert logs.reads.gets == 4

    play(story())


@pytest.mark.parametrize("kind", ["row", "object"])
def test_a_piece_that_was_replaced_is_told_as_gone(kind: str) -> None:
    async def story() -> None:
        logs = Logs()
        await logs.take()
        if kind == "row":
            await logs.rows(0, [100, 100])
            epoch = logs.world.shards[0].head.epoch
            assert await logs.world.drop(0, epoch, 100)
        else:
            await logs.stored.delete([await logs.object({0: 100})])
        with pytest.raises(PieceGoneError):
            await logs.read(0, [(0, 10)])
        with pytest.raises(PieceGoneError):
            await logs.read(0, [(1_000, 10)])

    play(story())


@pytest.mark.parametrize("kind", ["row", "object"])
def test_what_is_damaged_is_handed_to_nobody(kind: str) -> None:
    async def story() -> None:
        logs = Logs()
        await logs.take()
        if kind == "row":
            await logs.rows(0, [100])
            frames = logs.world.shards[0].frames
            frames[0] = b"\0" + frames[0][1:]
        else:
            key = await logs.object({0: 100})
            logs.stored.objects[key] = b"\0" + logs.stored.objects[key][1:]
        for _ in range(2):
            with pytest.raises(OSError, match="damaged"):
                await logs.read(0, [(50, 10)])

    play(story())


def test_calls_that_fail_are_made_again_and_nothing_is_kept_of_those_that_fail_for_good() -> None:
    async def story() -> None:
        logs = Logs()
        await logs.take()
        await logs.rows(0, [100] * 30)
        await logs.object({0: 3_000})
        logs.database.down = logs.store.down = True
        for places in ([(0, 10)], [(3_000, 10)]):
            with pytest.raises(Exception, match="refused"):
                await logs.read(0, places)
        logs.database.down = logs.store.down = False
        logs.database.share = logs.store.share = 0.3
        await logs.read(0, [(at * 100, 100) for at in range(30)] + [(3_000, 3_000)])

    play(story())
