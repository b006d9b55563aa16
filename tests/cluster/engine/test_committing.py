"""Whatever fails, at whatever step: what was acknowledged is in the log once, and a node that has lost a shard
acknowledges nothing."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import pytest

from halfmoon.cluster.engine import committing, footer
from halfmoon.cluster.engine.backing import Backing
from halfmoon.cluster.engine.committing import LARGE_STATEMENTS, ROW_STATEMENTS, ObjectCommitter, RowCommitter, Taken
from halfmoon.cluster.engine.database import Commit, CondemnedError, Contents, DatabaseUnavailableError
from halfmoon.cluster.engine.objects import ObjectExistsError
from halfmoon.cluster.engine.pieces import IN_DATABASE, BrokenLogError, Durability, Head, Piece, check_whole
from halfmoon.core.crc import crc32c
from halfmoon.errors import LeaseLostError
from tests.cluster.engine.doubles import MemoryDatabase, MemoryStore, unsure_database, unsure_store
from tests.cluster.engine.standby import WithStandby
from tests.torture.loop import VirtualLoop

T = TypeVar("T")
SHARDS = 4
OBJECT_BYTES = 4000
INTERVAL_S = 0.2


class Log:
    """A shard's writer: it appends records with increasing numbers, and knows which were acknowledged."""

    def __init__(self, shard: int, epoch: int, end: int, numbers: Any, committer: Any) -> None:
        self.shard = shard
        self.epoch = epoch
        self._committer = committer
        self._numbers = numbers
        self._written: list[bytes] = []
        self._at = end
        self._taken: list[bytes] | None = None
        self.acknowledged: list[bytes] = []
        self.error: OSError | None = None

    def append(self, size: int) -> None:
        if self.error is not None:
            return
        record = b"%d-%d-%d;" % (self.shard, self.epoch, next(self._numbers)) + b"x" * size + b"\n"
        self._written.append(record)
        if self._taken is None and len(self._written) == 1:
            self._committer.wants(self)
        self._committer.written(len(record))

    def take(self) -> Taken:
        assert self._taken is None
        assert self._written
        self._taken, self._written = self._written, []
        pieces, frames, at = [], [], self._at
        middle = len(self._taken) // 2
        for part in (self._taken[:middle], self._taken[middle:]):
            data = b"".join(part)
            if data:
                pieces.append(Piece(at, at + len(data), crc32c(data), 0))
                frames.append(data)
                at += len(data)
        return Taken(Commit(self.shard, self.epoch, tuple(pieces)), frames)

    def failed(self, error: OSError) -> None:
        self.error = error

    def committed(self, commit: Commit) -> None:
        assert self._taken is not None
        taken, self._taken = self._taken, None
        self.acknowledged += taken
        self._at += sum(map(len, taken))
        if self._written:
            self._committer.wants(self)


async def stored(database: MemoryDatabase, store: MemoryStore, shard: int) -> bytes:
    """The log, as whoever takes the shard over reads it."""
    head, pieces, _ = await database.contents(shard)
    check_whole(head, pieces)
    found = b""
    for piece in pieces:
        if piece.key == IN_DATABASE:
            ((same, data),) = await database.frames(shard, piece.start, piece.end)
            assert same == piece
        else:
            data = await store.get(piece.key, piece.at, piece.at + piece.size)
        assert len(data) == piece.size
        assert crc32c(data) == piece.crc
        found += data
    return found


class World:
    """Nodes over one database and one store, in virtual time."""

    def __init__(self, kind: Durability, dice: random.Random) -> None:
        self.kind = kind
        self.dice = dice
        self.database = MemoryDatabase([kind] * SHARDS)
        self.store = MemoryStore()
        self.unsure_database = unsure_database(self.database, dice)
        self.unsure_store = unsure_store(self.store, dice)
        self.numbers = itertools.count()
        self.keys = itertools.count()
        self.logs: list[Log] = []
        self.committers: list[Any] = []

    def committer(self) -> Any:
        if self.kind is Durability.FAST:
            made: Any = RowCommitter(self.unsure_database)
        else:
            made = ObjectCommitter(
                self.unsure_database, self.unsure_store, 1, lambda: f"o/{next(self.keys)}", INTERVAL_S, OBJECT_BYTES
            )
        self.committers.append(made)
        return made

    async def node(self) -> dict[int, Log]:
        """A new one, that takes all shards from whoever has them."""
        committer = self.committer()
        incarnation = await self.database.register(1, "host", 1, "")
        logs = {}
        for head in await self.database.heads():
            if head.owner is not None:
                self.database.die(head.owner)
            await asyncio.sleep(3)  # and is not young any more
            await self.database.renew(incarnation)
            owned = await self.database.take(head.shard, head.epoch, incarnation)
            assert owned is not None
            logs[head.shard] = Log(head.shard, owned.epoch, owned.end, self.numbers, committer)
        self.logs += logs.values()
        return logs

    async def check(self) -> None:
        for shard in range(SHARDS):
            lines = (await stored(self.database, self.store, shard)).splitlines(keepends=True)
            assert len(set(lines)) == len(lines)
            of_shard = [log for log in self.logs if log.shard == shard]
            for log in of_shard:
                mine = [line for line in lines if line.startswith(b"%d-%d-" % (shard, log.epoch))]
                assert mine[: len(log.acknowledged)] == log.acknowledged
                order = [int(line.split(b";")[0].split(b"-")[2]) for line in mine]
                assert order == sorted(order)
            epochs = [int(line.split(b"-")[1]) for line in lines]
            assert epochs == sorted(epochs)


def run(seed: int, play: Callable[[World], Any], kind: Durability) -> World:
    dice = random.Random(seed)
    loop = VirtualLoop(dice)
    try:
        asyncio.set_event_loop(loop)
        world = World(kind, dice)
        loop.run_until_complete(play(world))
        loop.run_until_complete(world.check())
        for committer in world.committers:
            committer.close()
        loop.run_until_complete(asyncio.sleep(1))
        return world
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def produce(world: World, logs: dict[int, Log], seconds: float) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while loop.time() < until:
        logs[world.dice.randrange(SHARDS)].append(world.dice.choice((10, 10, 100, 1000)))
        await asyncio.sleep(world.dice.expovariate(200))


@pytest.mark.parametrize("kind", list(Durability))
def test_all_is_committed_in_order(kind: Durability) -> None:
    async def play(world: World) -> None:
        await produce(world, await world.node(), 5)
        await asyncio.sleep(1)

    world = run(1, play, kind)
    for log in world.logs:
        assert log.error is None
        assert log.acknowledged
    committed = sum(len(log.acknowledged) for log in world.logs)
    assert committed == next(world.numbers)
    if kind is Durability.OBJECT:
        assert len(world.store.objects) < committed / 4
        for key, data in world.store.objects.items():
            at = len(data) - footer.TRAILER_BYTES
            begin = at - footer.footer_bytes(data[at:])
            node, commits = footer.read(data[begin:], key)
            assert node == 1
            assert {piece for commit in commits for piece in commit.pieces} == {
                piece for shard in world.database.shards.values() for piece in shard.pieces.values() if piece.key == key
            }


@pytest.mark.parametrize("kind", list(Durability))
@pytest.mark.parametrize("seed", range(40))
def test_calls_fail_before_and_after_their_effect(seed: int, kind: Durability) -> None:
    async def play(world: World) -> None:
        logs = await world.node()
        world.unsure_database.share = world.unsure_store.share = 0.3
        await produce(world, logs, 5)
        world.unsure_database.share = world.unsure_store.share = 0.0
        await asyncio.sleep(5)

    world = run(seed, play, kind)
    assert world.unsure_database.failed_after
    assert world.unsure_database.failed_before
    assert sum(len(log.acknowledged) for log in world.logs) == next(world.numbers)


@pytest.mark.parametrize("kind", list(Durability))
@pytest.mark.parametrize("seed", range(40))
def test_who_has_lost_a_shard_acknowledges_nothing(seed: int, kind: Durability) -> None:
    """Nodes go on writing, and do not know that another one has taken their shards."""

    async def play(world: World) -> None:
        world.unsure_database.share = world.unsure_store.share = 0.2
        nodes: list[dict[int, Log]] = []
        for _ in range(3):
            nodes.append(await world.node())
            before = [(log, list(log.acknowledged)) for node in nodes[:-1] for log in node.values()]
            await asyncio.gather(*(produce(world, node, 2) for node in nodes))
            world.unsure_database.share = world.unsure_store.share = 0.0
            await asyncio.sleep(5)
            world.unsure_database.share = world.unsure_store.share = 0.2
            for log, acknowledged in before:
                assert log.acknowledged == acknowledged
                assert isinstance(log.error, LeaseLostError)

    world = run(seed, play, kind)
    assert all(log.acknowledged for log in world.logs[-SHARDS:])


@pytest.mark.parametrize("kind", list(Durability))
def test_an_idle_shard_that_was_lost_is_found_by_its_epoch(kind: Durability) -> None:
    """Its end has not moved since: the position alone would let the old owner commit."""

    async def play(world: World) -> None:
        old = await world.node()
        await world.node()
        old[0].append(10)
        await asyncio.sleep(1)
        assert isinstance(old[0].error, LeaseLostError)
        assert not old[0].acknowledged

    run(1, play, kind)


@pytest.mark.parametrize("kind", list(Durability))
def test_a_database_that_has_lost_commits_stops_the_shard(kind: Durability) -> None:
    async def play(world: World) -> None:
        logs = await world.node()
        logs[0].append(10)
        await asyncio.sleep(1)
        shard = world.database.shards[0]
        shard.head = shard.head._replace(end=0)
        shard.pieces.clear()
        shard.frames.clear()
        logs[0].append(10)
        logs[1].append(10)
        await asyncio.sleep(1)
        assert "lost commits" in str(logs[0].error)
        assert not isinstance(logs[0].error, LeaseLostError)
        assert logs[1].error is None
        assert logs[1].acknowledged
        logs[0].acknowledged.clear()

    run(1, play, kind)


@pytest.mark.parametrize("kind", list(Durability))
def test_what_a_synchronous_standby_lacks_is_not_acknowledged(
    monkeypatch: pytest.MonkeyPatch, kind: Durability
) -> None:
    """It is at the primary, where a look finds it, and would be lost if the standby took over."""
    monkeypatch.setattr(f"{__name__}.MemoryDatabase", WithStandby)

    async def play(world: World) -> None:
        logs = await world.node()
        database: Any = world.database
        database.stuck = True
        logs[0].append(10)
        await asyncio.sleep(30)
        assert (await database.heads())[0].end
        assert not logs[0].acknowledged
        assert logs[0].error is None
        database.stuck = False
        await asyncio.sleep(10)
        assert logs[0].acknowledged

    run(1, play, kind)


@pytest.mark.parametrize("kind", list(Durability))
def test_an_error_that_nobody_expects_holds_commits_up_and_loses_no_shard(
    kind: Durability, caplog: pytest.LogCaptureFixture
) -> None:
    """A shard that gives up what it has written could not be written any more."""

    async def play(world: World) -> None:
        logs = await world.node()
        world.unsure_database._error = world.unsure_store._error = RuntimeError
        world.unsure_database.down = world.unsure_store.down = True
        logs[0].append(10)
        await asyncio.sleep(5)
        assert not logs[0].acknowledged
        world.unsure_database.down = world.unsure_store.down = False
        await asyncio.sleep(5)
        assert logs[0].acknowledged
        assert logs[0].error is None

    run(1, play, kind)
    assert "RuntimeError" in caplog.text


def test_an_object_that_is_there_and_then_is_not_is_stored_again() -> None:
    """S3 answers 409 where another request was in the way, too."""

    async def play(world: World) -> None:
        logs = await world.node()
        put, conflicts = world.store.put, 3

        async def conflicting(key: str, data: bytes) -> None:
            nonlocal conflicts
            conflicts -= 1
            if conflicts >= 0:
                raise ObjectExistsError(key)
            await put(key, data)

        world.store.put = conflicting  # type: ignore[method-assign]
        logs[0].append(10)
        await asyncio.sleep(5)
        assert logs[0].acknowledged
        assert logs[0].error is None

    run(1, play, Durability.OBJECT)


class Narrow(MemoryDatabase):
    """A thousand bytes a second get there."""

    async def commit_rows(self, commits: Sequence[Commit], frames: Sequence[Sequence[bytes]]) -> set[int]:
        await asyncio.sleep(sum(len(data) for datas in frames for data in datas) / 1_000)
        return await super().commit_rows(commits, frames)


def test_a_batch_that_takes_long_holds_up_its_shard_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.MemoryDatabase", Narrow)
    monkeypatch.setattr(committing, "ROWS_BYTES", 5_000)

    async def play(world: World) -> None:
        logs = await world.node()
        logs[1].append(10)
        logs[0].append(20_000)
        logs[2].append(10)
        await asyncio.sleep(1)
        assert logs[1].acknowledged
        assert logs[2].acknowledged
        assert not logs[0].acknowledged
        logs[1].append(10)
        await asyncio.sleep(1)
        assert len(logs[1].acknowledged) == 2
        await asyncio.sleep(25)
        assert logs[0].acknowledged

    run(1, play, Durability.FAST)


class Counting(Narrow):
    """How many statements are on their way."""

    now = most = 0

    async def commit_rows(self, commits: Sequence[Commit], frames: Sequence[Sequence[bytes]]) -> set[int]:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            return await super().commit_rows(commits, frames)
        finally:
            self.now -= 1


def test_many_large_batches_leave_connections_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node has few, and each of these takes one for long; heads and leases are asked for meanwhile."""
    monkeypatch.setattr(f"{__name__}.MemoryDatabase", Counting)
    monkeypatch.setattr(committing, "ROWS_BYTES", 5_000)
    monkeypatch.setattr(f"{__name__}.SHARDS", 8)

    async def play(world: World) -> None:
        logs = await world.node()
        database: Any = world.database
        for shard in range(6):
            logs[shard].append(20_000)
            await asyncio.sleep(0.1)
        logs[6].append(10)
        await asyncio.sleep(1)
        assert logs[6].acknowledged, "nor do they hold up what is small"
        await until(lambda: all(logs[shard].acknowledged for shard in range(6)))
        assert database.most == 1 + LARGE_STATEMENTS

    run(1, play, Durability.FAST)


class Refusing(MemoryDatabase):
    """What is larger does not get there in time."""

    most_bytes = 15_000
    refused = 0

    async def commit_rows(self, commits: Sequence[Commit], frames: Sequence[Sequence[bytes]]) -> set[int]:
        if sum(len(data) for datas in frames for data in datas) > self.most_bytes:
            self.refused += 1
            raise DatabaseUnavailableError("no answer in time")
        return await super().commit_rows(commits, frames)


def test_a_batch_that_is_too_large_to_be_sent_holds_up_no_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.MemoryDatabase", Refusing)
    monkeypatch.setattr(committing, "ROWS_BYTES", 5_000)
    monkeypatch.setattr(f"{__name__}.SHARDS", 3)

    async def play(world: World) -> None:
        logs = await world.node()
        database: Any = world.database
        logs[0].append(20_000)
        await until(lambda: database.refused)
        for shard in (1, 2):
            logs[shard].append(10_000)
        await until(lambda: all(logs[shard].acknowledged for shard in (1, 2)))
        assert not logs[0].acknowledged
        before = database.refused
        await asyncio.sleep(60)
        assert 30 < database.refused - before < 70, "it is tried on, with pauses"
        database.most_bytes = 30_000
        await until(lambda: bool(logs[0].acknowledged))

    run(1, play, Durability.FAST)


def test_who_hurries_begins_no_more_statements_than_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.MemoryDatabase", Counting)

    async def play(world: World) -> None:
        logs = await world.node()
        committer, database = world.committers[-1], cast("Any", world.database)
        committer.held = True
        for log in logs.values():
            log.append(3_000)
            committer.hurry()
            await asyncio.sleep(0.1)
        await until(lambda: all(log.acknowledged for log in logs.values()))
        assert database.most == ROW_STATEMENTS

    run(1, play, Durability.FAST)


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_of_one_statement_is_told_to_its_shards_alone(
    failing: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A large batch and small ones, which were taken together."""
    monkeypatch.setattr(f"{__name__}.MemoryDatabase", Narrow)
    monkeypatch.setattr(committing, "ROWS_BYTES", 5_000)

    def odd(tried: Any) -> Any:
        async def try_it(database: Any, commits: Sequence[Commit], *given: Any) -> Any:
            if commits[0].shard == failing:
                raise RuntimeError("odd")
            return await tried(database, commits, *given)

        return try_it

    for name in ("decide", "try_once"):  # of small ones, and of large ones
        monkeypatch.setattr(committing, name, odd(getattr(committing, name)))

    async def play(world: World) -> None:
        logs = await world.node()
        logs[1].append(10)
        logs[0].append(20_000)
        await asyncio.sleep(30)
        assert "odd" in str(logs[failing].error)
        assert logs[1 - failing].error is None
        assert logs[1 - failing].acknowledged

    run(1, play, Durability.FAST)
    assert "event=commit_failed" in caplog.text


class WithoutEpoch(MemoryDatabase):
    def _moves(self, commit: Commit) -> bool:
        return self.shards[commit.shard].head.end == commit.start


class WithoutEnd(MemoryDatabase):
    def _moves(self, commit: Commit) -> bool:
        return self.shards[commit.shard].head.epoch == commit.epoch


# An object's name can be committed once: so the end is guarded twice there.
@pytest.mark.parametrize(
    ("broken", "kind"),
    [(WithoutEpoch, Durability.FAST), (WithoutEpoch, Durability.OBJECT), (WithoutEnd, Durability.FAST)],
)
def test_these_tests_find_a_database_that_compares_less(
    monkeypatch: pytest.MonkeyPatch, broken: type[MemoryDatabase], kind: Durability
) -> None:
    def look() -> None:
        if broken is WithoutEpoch:
            test_an_idle_shard_that_was_lost_is_found_by_its_epoch(kind)
        else:
            for seed in range(10):
                test_calls_fail_before_and_after_their_effect(seed, kind)

    monkeypatch.setattr(f"{__name__}.MemoryDatabase", broken)
    with pytest.raises((AssertionError, BrokenLogError)):
        look()


def test_an_object_that_was_taken_for_a_leftover_is_stored_anew() -> None:
    async def play(world: World) -> None:
        logs = await world.node()
        logs[0].append(10)
        logs[1].append(10)
        await world.database.condemn(["o/0"])
        await asyncio.sleep(1)
        assert logs[0].acknowledged
        assert logs[1].acknowledged
        assert set(world.store.objects) == {"o/0", "o/1"}
        with pytest.raises(CondemnedError):
            await world.database.commit_object("o/0", 1, [Commit(0, 1, (Piece(logs[0]._at, 99, 0, 0),))])

    run(1, play, Durability.OBJECT)


def test_another_object_of_the_same_name_is_never_taken_for_ours() -> None:
    async def play(world: World) -> None:
        logs = await world.node()
        await world.store.put("o/0", b"something else, which is long enough for a footer")
        logs[0].append(10)
        await asyncio.sleep(1)
        assert "another one" in str(logs[0].error)
        assert not logs[0].acknowledged

    run(1, play, Durability.OBJECT)


async def until(is_so: Callable[[], object]) -> None:
    while not is_so():
        await asyncio.sleep(0.001)


def test_rows_that_are_held_wait_but_for_a_shard_in_a_hurry() -> None:
    async def play(world: World) -> None:
        logs = await world.node()
        committer = world.committers[-1]
        committer.held = True
        logs[0].append(10)
        await asyncio.sleep(1)
        assert not logs[0].acknowledged
        committer.hurry()
        while not logs[0].acknowledged:
            await asyncio.sleep(0.001)
        logs[1].append(10)
        await asyncio.sleep(1)
        assert not logs[1].acknowledged
        committer.held = False
        while not logs[1].acknowledged:
            await asyncio.sleep(0.001)

    run(1, play, Durability.FAST)


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("kind", list(Durability))
def test_what_has_come_together_while_nothing_could_be_committed_is_committed_in_parts(
    kind: Durability, held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it may be more than can be sent in the time that a call has, and be tried for ever."""
    monkeypatch.setattr(committing, "ROWS_BYTES", 1_500)
    monkeypatch.setattr(committing, "OBJECT_MOST_BYTES", 1_500)
    sizes: list[int] = []

    async def play(world: World) -> None:
        logs = await world.node()
        database = world.unsure_database
        for name in ("commit_rows", "commit_object"):
            call = getattr(database, name)

            async def counted(*given: Any, call: Any = call) -> Any:
                (commits,) = (each for each in given if isinstance(each, list) and isinstance(each[0], Commit))
                sizes.append(sum(commit.end - commit.start for commit in commits))
                return await call(*given)

            setattr(database, name, counted)
        committer = world.committers[-1]
        if kind is Durability.FAST:
            committer.held = held
        for log in logs.values():
            log.append(1_000)
        if held:
            await asyncio.sleep(0)
            committer.hurry()
        await until(lambda: all(log.acknowledged for log in logs.values()))

    run(1, play, kind)
    assert len(sizes) == SHARDS // 2
    assert max(sizes) < 2_100


def test_an_object_comes_at_once_where_a_shard_is_in_a_hurry() -> None:
    async def play(world: World) -> None:
        loop = asyncio.get_running_loop()
        logs = await world.node()
        world.committers[-1].hurry()  # nothing waits
        logs[2].append(10)
        await until(lambda: logs[2].acknowledged)
        begun = loop.time()
        for shard in (0, 1):
            logs[shard].append(10)
        world.committers[-1].hurry()
        await until(lambda: logs[0].acknowledged and logs[1].acknowledged)
        assert loop.time() - begun < INTERVAL_S / 2
        logs[0].append(10)
        await until(lambda: len(logs[0].acknowledged) == 2)
        assert loop.time() - begun >= INTERVAL_S

    run(1, play, Durability.OBJECT)


def test_objects_come_by_time_and_by_size() -> None:
    async def play(world: World) -> None:
        loop = asyncio.get_running_loop()
        logs = await world.node()
        await asyncio.sleep(INTERVAL_S)
        begun = loop.time()
        logs[0].append(10)
        logs[1].append(10)  # in the same round, and in the same object
        await until(lambda: logs[0].acknowledged and logs[1].acknowledged)
        assert loop.time() - begun < INTERVAL_S / 2
        logs[1].append(10)
        await until(lambda: len(logs[1].acknowledged) == 2)
        assert INTERVAL_S <= loop.time() - begun < INTERVAL_S + 0.1, "it is counted from when the one before was begun"
        begun = loop.time()
        logs[1].append(OBJECT_BYTES)
        await until(lambda: len(logs[1].acknowledged) == 3)
        assert loop.time() - begun < INTERVAL_S / 2
        assert world.committers[-1].objects == 3

    run(1, play, Durability.OBJECT)


def test_a_shard_that_is_about_to_be_closed_waits_for_no_interval_any_more() -> None:
    """Neither with what waits, nor with what is written until it is closed."""

    async def play(world: World) -> None:
        loop = asyncio.get_running_loop()
        logs = await world.node()
        logs[1].append(10)
        await until(lambda: logs[1].acknowledged)
        backing = Backing(
            loop, world.database, world.store, world.committers[-1], await world.database.contents(0), lambda _: ""
        )
        log = Log(0, backing.epoch, backing.head.end, world.numbers, backing)
        begun = loop.time()
        log.append(10)
        backing.closing()
        for count in (1, 2, 3):
            await until(lambda count=count: len(log.acknowledged) == count)
            log.append(10)
        assert loop.time() - begun < INTERVAL_S / 2

    run(1, play, Durability.OBJECT)


def test_who_asks_just_when_a_shard_is_abandoned_is_told_so() -> None:
    class Between(set[Any]):
        """The shard is abandoned after it was looked at, and before who asks is known."""

        def add(self, asked: Any) -> None:
            backing.abandon(OSError("gone"))
            super().add(asked)

    async def story() -> None:
        nonlocal backing
        loop, contents = asyncio.get_running_loop(), Contents(Head(0, Durability.FAST, 1, 1, 0), [], [])
        database = MemoryDatabase([Durability.FAST])
        backing = Backing(loop, database, MemoryStore(), RowCommitter(database), contents, str)
        backing._waiting = Between()
        with pytest.raises(OSError, match="is abandoned"):
            await asyncio.to_thread(backing.wait, lambda: asyncio.sleep(60))

    backing: Backing
    asyncio.run(story())


def test_a_frozen_shard_is_read_and_not_written() -> None:
    async def story() -> None:
        database = MemoryDatabase([Durability.FAST])
        data = bytes(10)
        piece = Piece(0, 10, crc32c(data), 0)
        head = Head(0, Durability.FAST, 0, None, 0)
        await database.commit_rows([Commit(0, 0, (piece,))], [[data]])
        backing = Backing(
            asyncio.get_running_loop(), database, MemoryStore(), RowCommitter(database),
            Contents(head._replace(end=10), [piece], []), str,
        )  # fmt: skip
        backing.freeze(OSError("went back"))
        assert backing.is_frozen
        assert await asyncio.to_thread(backing.read, 0, 10) == [(0, data)]
        for write in (lambda: backing.drop(10), lambda: backing.put_files({"index": b""})):
            with pytest.raises(OSError, match="went back"):
                await asyncio.to_thread(write)
        assert await database.contents(0) == Contents(head._replace(end=10), [piece], [])
        backing.abandon(OSError("closed"))
        with pytest.raises(OSError, match="closed"):
            await asyncio.to_thread(backing.read, 0, 10)

    asyncio.run(story())
