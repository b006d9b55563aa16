"""Rows become objects and small pieces become few, whatever fails, and no log ever reads differently."""

from __future__ import annotations

import asyncio
import copy
import itertools
import random
from typing import Any

import pytest

from halfmoon.cluster.engine import merging, moving
from halfmoon.cluster.engine.database import Commit, DatabaseUnavailableError
from halfmoon.cluster.engine.moving import LEFT_OUT_S, PATIENCE_S, Mover
from halfmoon.cluster.engine.piece_list import PieceList
from halfmoon.cluster.engine.pieces import IN_DATABASE, Durability, Piece
from halfmoon.core.crc import crc32c
from halfmoon.server.nodes.engine import MOVE_S
from tests.cluster.engine.doubles import MemoryDatabase, MemoryStore, unsure_database, unsure_store
from tests.cluster.engine.standby import WithStandby
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


class CountingStore(MemoryStore):
    puts = 0

    async def put(self, key: str, data: bytes) -> None:
        self.puts += 1
        await super().put(key, data)


class World:
    def __init__(self, seed: int, kinds: list[Durability], database: MemoryDatabase | None = None) -> None:
        self.dice = random.Random(seed)
        self.database = database or MemoryDatabase(kinds)
        self.store = CountingStore()
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

    async def move_for(self, mover: Mover, seconds: float) -> None:
        """As an engine does it."""
        end_s = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end_s:
            while await mover.turn(self.shards):
                pass
            await asyncio.sleep(MOVE_S)

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


def test_a_row_that_cannot_be_read_does_not_have_those_of_others_moved_one_by_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is older than rows may be, and stays so."""
    seconds, each_s = 90, 0.1

    async def run() -> None:
        world = World(1, [Durability.FAST] * 2)
        await world.take()
        shard, other = world.shards
        await world.write(shard, 50)

        def unreadable(start: int, end: int) -> bytes:
            raise OSError("damaged")

        with monkeypatch.context() as damaged:
            damaged.setattr(shard, "bytes_of", unreadable)
            mover = world.mover()
            await world.move_for(mover, ROW_AGE_S + 1)
            before = world.store.puts
            moving = asyncio.ensure_future(world.move_for(mover, seconds))
            rows = int(seconds / each_s)
            for _ in range(rows):
                await world.write(other, 5)
                await asyncio.sleep(each_s)
            await moving
            assert 0 < world.store.puts - before <= rows / merging.ROW_COUNT + 10
            assert caplog.text.count("event=not_moved") == 2
        await world.move_for(mover, LEFT_OUT_S + ROW_AGE_S + 2)
        assert not shard.pieces.rows
        await world.check()

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


@pytest.mark.parametrize("is_made", [False, True])
def test_an_exchange_that_is_never_answered_holds_up_no_other_shard(is_made: bool) -> None:
    """The database may be too slow for it, and answers everything else."""

    class Slow(MemoryDatabase):
        calls = 0

        async def replace(self, shard: int, *given: Any) -> bool:
            if shard == 0:
                self.calls += 1
                if is_made:
                    await super().replace(shard, *given)
                raise DatabaseUnavailableError("no answer in time")
            return await super().replace(shard, *given)

    async def run() -> None:
        database = Slow([Durability.FAST] * 2)
        world = World(1, [Durability.FAST] * 2, database)
        await world.take()
        for shard in world.shards:
            for _ in range(30):
                await world.write(shard, 50)
        mover = world.mover()
        async with asyncio.timeout(2 * PATIENCE_S):
            while await mover.turn(world.shards):
                pass
        assert [len(shard.pieces) for shard in world.shards] == [1 if is_made else 30, 1]
        await world.check()
        calls = database.calls
        assert not await mover.turn(world.shards)
        assert database.calls == calls, "it is left alone for a while"

    play(run())


@pytest.mark.parametrize("takes_over", [True, False])
def test_an_exchange_that_the_standby_lacks_is_not_believed(takes_over: bool) -> None:
    """The list would name an object that the database does not know, and that is deleted after a while."""

    async def run() -> None:
        database = WithStandby([Durability.FAST])
        world = World(1, [Durability.FAST], database)
        await world.take()
        (shard,) = world.shards
        for _ in range(30):
            await world.write(shard, 50)
        database.stuck = True
        moving = asyncio.ensure_future(world.mover().turn(world.shards))
        while database.given_up < 3:
            await asyncio.sleep(1)
        assert [piece.key for piece in (await database.contents(0)).pieces] == ["g/0"], "all see it"
        assert len(shard.pieces) == 30
        if takes_over:
            database.fail_over()
            assert len((await database.contents(0)).pieces) == 30
        database.stuck = False
        assert await moving
        assert [piece.key for piece in shard.pieces] == ["g/0"]
        await world.check()
        assert world.objects_alive() == {"g/0"}
        assert world.store.puts == 1

    play(run())


def test_a_list_is_corrected_where_the_database_has_lost_an_exchange() -> None:
    """As after a failover to a standby that is not synchronous."""

    async def run() -> None:
        world = World(1, [Durability.FAST])
        await world.take()
        (shard,) = world.shards
        for _ in range(30):
            await world.write(shard, 50)
        before = copy.deepcopy((world.database.shards, world.database.objects))
        mover = world.mover()
        assert await mover.turn(world.shards)
        assert len(shard.pieces) == 1
        world.database.shards, world.database.objects = before
        for _ in range(9):
            await world.write(shard, 500)  # the segment with the exchange is sealed
        await world.move_for(mover, 2 * ROW_AGE_S)
        await world.check()
        assert [(piece.start, piece.end) for piece in shard.pieces] == [(0, SEGMENT), (SEGMENT, 6_000)]
        assert world.objects_alive() == {piece.key for piece in shard.pieces}
        assert world.store.puts < 8

    play(run())


class Refusing(MemoryDatabase):
    refuses = True

    async def replace(self, *given: Any) -> bool:
        return not self.refuses and await super().replace(*given)


def test_what_the_database_refuses_is_not_stored_again_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        database = Refusing([Durability.FAST] * 2)
        world = World(1, [Durability.FAST] * 2, database)
        await world.take()
        shard, other = world.shards
        for _ in range(30):
            await world.write(shard, 50)
        mover = world.mover()
        await world.move_for(mover, LEFT_OUT_S - 1)
        assert world.store.puts == 1
        assert caplog.text.count("event=not_exchanged shard=0 start=0") == 1
        database.refuses = False
        for _ in range(30):
            await world.write(other, 50)
        assert await mover.turn(world.shards), "it holds up no other"
        assert (len(shard.pieces), len(other.pieces)) == (30, 1)
        await world.move_for(mover, ROW_AGE_S + 2)
        assert len(shard.pieces) == 1
        await world.check()

    play(run())


def test_pieces_that_were_dropped_while_they_were_exchanged_are_not_waited_for() -> None:
    """The owner has asked the database, and has not told its list yet."""

    async def run() -> None:
        world = World(1, [Durability.FAST])
        await world.take()
        (shard,) = world.shards
        for _ in range(60):
            await world.write(shard, 100)
        replace = world.database.replace

        async def late(*given: Any) -> bool:
            await world.database.drop(0, shard.epoch, SEGMENT)
            return await replace(*given)

        world.database.replace = late  # type: ignore[assignment,method-assign]
        await world.mover().turn(world.shards)
        assert [(piece.start, piece.end) for piece in shard.pieces] == [(SEGMENT, 6_000)]
        assert list((await world.database.contents(0)).pieces) == list(shard.pieces)

    play(run())


class ReadOnly(MemoryDatabase):
    """As one whose disk is full."""

    is_full = True
    calls = 0

    async def replace(self, *given: Any) -> bool:
        self.calls += 1
        if self.is_full:
            raise DatabaseUnavailableError("DiskFullError")
        return await super().replace(*given)


def test_between_tries_of_an_exchange_there_are_pauses() -> None:
    async def run() -> None:
        database = ReadOnly([Durability.FAST])
        world = World(1, [Durability.FAST], database)
        await world.take()
        (shard,) = world.shards
        for _ in range(30):
            await world.write(shard, 50)
        moving = asyncio.ensure_future(world.mover().turn(world.shards))
        await asyncio.sleep(10)
        assert 10 <= database.calls <= 20
        database.is_full = False
        assert await moving
        assert len(shard.pieces) == 1
        assert world.store.puts == 1
        await world.check()

    play(run())


def test_an_exchange_that_fails_as_nobody_expects_is_looked_at(caplog: pytest.LogCaptureFixture) -> None:
    """It may have been made all the same."""

    async def run() -> None:
        world = World(1, [Durability.FAST] * 2)
        await world.take()
        for shard in world.shards:
            for _ in range(30):
                await world.write(shard, 50)
        replace = world.database.replace

        async def failing(shard: int, *given: Any) -> bool:
            done = await replace(shard, *given)
            if shard == 0:
                raise RuntimeError("odd")
            return done

        world.database.replace = failing  # type: ignore[assignment,method-assign]
        await world.move_for(world.mover(), 5)
        assert [len(shard.pieces) for shard in world.shards] == [1, 1]
        await world.check()

    play(run())
    assert "event=pieces_corrected shard=0" in caplog.text
