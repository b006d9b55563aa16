"""Rows become objects and small pieces become few, whatever fails, and no log ever reads differently."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest

from halfmoon.cluster.engine import merging, moving
from halfmoon.cluster.engine.database import Commit
from halfmoon.cluster.engine.moving import Mover
from halfmoon.cluster.engine.piece_list import PieceList
from halfmoon.cluster.engine.pieces import IN_DATABASE, Durability, Piece
from halfmoon.core.crc import crc32c
from tests.cluster.engine.doubles import MemoryDatabase, MemoryStore, unsure_database, unsure_store
from tests.cluster.engine.test_committing import stored
from tests.cluster.engine.virtual import play

SEGMENT = 5_000
ROW_AGE_S = 30.0


class Shard:
    """A log with its cache."""

    def __init__(self, shard: int, epoch: int) -> None:
        self.shard = shard
        self.epoch = epoch
        self.pieces = PieceList()
        self.data = b""

    def active_segment(self) -> int:
        return len(self.data) // SEGMENT * SEGMENT

    def bytes_of(self, start: int, end: int) -> bytes:
        return self.data[start:end]

    def append(self, data: bytes) -> tuple[Commit, list[bytes]]:
        """A commit that may reach over a segment's end."""
        pieces, frames, start = [], [], len(self.data)
        while data:
            segment = start // SEGMENT * SEGMENT
            part, data = data[: segment + SEGMENT - start], data[segment + SEGMENT - start :]
            pieces.append(Piece(start, start + len(part), crc32c(part), segment))
            frames.append(part)
            start += len(part)
        return Commit(self.shard, self.epoch, tuple(pieces)), frames


class World:
    def __init__(self, seed: int, kinds: list[Durability]) -> None:
        self.dice = random.Random(seed)
        self.database = MemoryDatabase(kinds)
        self.store = MemoryStore()
        self.unsure_database = unsure_database(self.database, self.dice)
        self.unsure_store = unsure_store(self.store, self.dice)
        self.keys = itertools.count()
        self.shards: list[Shard] = []

    async def take(self) -> None:
        incarnation = await self.database.register(1, "host", 1, "")
        for head in await self.database.heads():
            taken = await self.database.take(head.shard, head.epoch, incarnation)
            assert taken is not None
            self.shards.append(Shard(head.shard, taken.epoch))

    async def write(self, shard: Shard, size: int) -> None:
        commit, frames = shard.append(self.dice.randbytes(size))
        if self.database.shards[shard.shard].head.durability is Durability.FAST:
            assert await self.database.commit_rows([commit], [frames])
        else:
            key = f"o/{next(self.keys)}"
            await self.store.put(key, b"".join(frames))
            pieces = tuple(piece._replace(key=key, at=piece.start - commit.start) for piece in commit.pieces)
            commit = commit._replace(pieces=pieces)
            assert await self.database.commit_object(key, size, [commit])
        shard.data += b"".join(frames)
        shard.pieces.add(commit.pieces)

    def mover(self) -> Mover:
        return Mover(self.unsure_database, self.unsure_store, 1, lambda what: f"{what}/{next(self.keys)}", ROW_AGE_S)

    async def check(self) -> None:
        for shard in self.shards:
            assert await stored(self.database, self.store, shard.shard) == shard.data
            assert list((await self.database.contents(shard.shard)).pieces) == list(shard.pieces)

    def objects_alive(self) -> set[str]:
        return {key for key, found in self.database.objects.items() if found.dead_s is None}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "ROW_BYTES", 4_000)
    monkeypatch.setattr(merging, "ROW_COUNT", 20)
    monkeypatch.setattr(merging, "SMALL_BYTES", 1_000)
    monkeypatch.setattr(merging, "SMALL_COUNT", 8)
    monkeypatch.setattr(moving, "OBJECT_BYTES", 20_000)


def test_rows_wait_until_there_are_many_or_they_are_old() -> None:
    async def run() -> None:
        world = World(1, [Durability.FAST] * 2)
        await world.take()
        mover = world.mover()
        await world.write(world.shards[0], 100)
        assert not await mover.turn(world.shards)
        await asyncio.sleep(ROW_AGE_S + 1)
        await world.write(world.shards[1], 50)
        assert await mover.turn(world.shards)  # with it those of the other shard
        assert [piece.key for shard in world.shards for piece in shard.pieces] == ["g/0", "g/0"]
        assert not await mover.turn(world.shards)
        for _ in range(20):
            await world.write(world.shards[1], 10)
        assert await mover.turn(world.shards)
        assert len(world.shards[1].pieces) == 2
        await world.write(world.shards[0], 4_000)
        assert await mover.turn(world.shards)
        await world.check()

    play(run())


def test_small_pieces_become_one_of_each_segment_and_sealed_segments_one_object() -> None:
    async def run() -> None:
        world = World(1, [Durability.OBJECT])
        await world.take()
        mover = world.mover()
        (shard,) = world.shards
        for _ in range(5):
            await world.write(shard, 900)
        assert not await mover.turn(world.shards)  # too few
        for _ in range(3):
            await world.write(shard, 900)
        while await mover.turn(world.shards):
            pass
        assert [(piece.start, piece.end) for piece in shard.pieces] == [(0, 5_000), (5_000, 7_200)]
        await world.check()
        assert world.objects_alive() == {piece.key for piece in shard.pieces}

    play(run())


def test_rows_that_are_always_due_hold_up_nothing_else() -> None:
    """While a shard's rows are moved, as many come again."""

    async def run() -> None:
        world = World(1, [Durability.FAST, Durability.OBJECT, Durability.OBJECT])
        await world.take()
        rows, small, full = world.shards
        for _ in range(10):
            await world.write(small, 400)
            await world.write(full, 1_200)
        mover = world.mover()
        for _ in range(3):
            await world.write(rows, 4_000)
            assert await mover.turn(world.shards)
        assert len(small.pieces) == 1
        assert [(piece.start, piece.end) for piece in full.pieces][:2] == [(0, 5_000), (5_000, 6_000)]
        await world.check()

    play(run())


def test_a_shard_that_always_has_something_holds_up_no_other() -> None:
    async def run() -> None:
        world = World(1, [Durability.OBJECT] * 3)
        await world.take()
        busy, *others = world.shards
        for shard in others:
            await world.write(shard, 3_000)
            await world.write(shard, 3_000)
        mover = world.mover()
        for _ in range(3):
            await world.write(busy, 3_000)
            await world.write(busy, 3_000)
            assert await mover.turn(world.shards)
        assert all(next(iter(shard.pieces)).end == SEGMENT for shard in others)
        await world.check()

    play(run())


@pytest.mark.parametrize("seed", range(60))
def test_whatever_fails_the_log_reads_as_before(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a segment becomes several runs."""
    if is_small := seed % 2 == 1:
        monkeypatch.setattr(merging, "MOST_BYTES", 2_500)

    async def run() -> None:
        world = World(seed, [Durability.FAST, Durability.FAST, Durability.OBJECT])
        await world.take()
        mover = world.mover()
        world.unsure_database.share = world.unsure_store.share = 0.3
        for _ in range(150):
            await world.write(world.dice.choice(world.shards), world.dice.choice((10, 100, 900, 3_000)))
            if world.dice.random() < 0.3:
                await mover.turn(world.shards)
            await world.check()
        world.unsure_database.share = world.unsure_store.share = 0.0
        while await mover.turn(world.shards):
            pass
        await asyncio.sleep(ROW_AGE_S + 1)
        while await mover.turn(world.shards):
            pass
        await world.check()
        for shard in world.shards:
            assert len(shard.pieces) < (80 if is_small else 20)
            segments = {piece.segment for piece in shard.pieces}
            for one, other in itertools.pairwise(shard.pieces):
                if one.segment == other.segment != max(segments):
                    assert one.size + other.size > merging.MOST_BYTES
        used = {piece.key for shard in world.shards for piece in shard.pieces} - {IN_DATABASE}
        assert world.objects_alive() == used

    play(run())


@pytest.mark.parametrize("seed", range(20))
def test_whoever_has_lost_the_shard_exchanges_nothing(seed: int) -> None:
    async def run() -> None:
        world = World(seed, [Durability.FAST])
        await world.take()
        (shard,) = world.shards
        for _ in range(30):
            await world.write(shard, 50)
        other = await world.database.register(2, "host", 1, "")
        before = list(shard.pieces)
        assert await world.database.hand_over(0, shard.epoch, other) is not None
        world.unsure_database.share = 0.3
        await world.mover().turn(world.shards)
        assert list((await world.database.contents(0)).pieces) == before == list(shard.pieces)

    play(run())


@pytest.mark.parametrize("damaged", [True, False])
def test_a_damaged_cache_is_not_stored_and_holds_up_no_other_shard(
    damaged: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor does one that has expired meanwhile."""

    async def run() -> None:
        world = World(1, [Durability.FAST] * 2)
        await world.take()
        shard, other = world.shards
        for _ in range(30):
            await world.write(shard, 50)
        if damaged:
            shard.data = shard.data[:77] + b"?" + shard.data[78:]
        else:

            def gone(start: int, end: int) -> bytes:
                raise OSError("not here any more")

            monkeypatch.setattr(shard, "bytes_of", gone)
        mover = world.mover()
        assert not await mover.turn(world.shards)
        assert not world.store.objects
        assert ("damaged" if damaged else "not here") in caplog.text
        for _ in range(30):
            await world.write(other, 50)
        assert await mover.turn(world.shards)
        assert not await mover.turn(world.shards)
        assert len(other.pieces) == 1
        assert len(shard.pieces) == 30

    play(run())


def test_a_shard_whose_pieces_the_database_does_not_have_does_not_keep_the_mover_busy() -> None:
    """It has lost commits."""

    async def run() -> None:
        world = World(1, [Durability.FAST, Durability.OBJECT])
        await world.take()
        shard, other = world.shards
        for _ in range(30):
            await world.write(shard, 50)
        for _ in range(8):
            await world.write(other, 900)
        assert await world.database.drop(0, shard.epoch, len(shard.data))
        mover = world.mover()
        assert await mover.turn(world.shards)
        assert len(other.pieces) == 2
        assert not await mover.turn(world.shards)

    play(run())
