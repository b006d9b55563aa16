"""What a cluster's database promises, over PostgreSQL and over the one in memory that other tests use."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from halfmoon.cluster.engine.database import Commit, CondemnedError, DatabaseUnavailableError, LogDatabase, SideFile
from halfmoon.cluster.engine.pieces import IN_DATABASE, Durability, Piece, check_whole
from halfmoon.errors import LeaseLostError
from tests.cluster.engine.doubles import MemoryDatabase
from tests.cluster.servers import postgres

KINDS = [Durability.FAST] * 3 + [Durability.OBJECT] * 3
Play = Callable[[LogDatabase], Awaitable[None]]


@pytest.fixture(params=["memory", "postgres"])
def run(request: pytest.FixtureRequest) -> Callable[[Play], None]:
    """Plays something with a new database."""
    if request.param == "memory":

        def play(what: Play) -> None:
            async def run() -> None:
                await what(MemoryDatabase(KINDS))

            asyncio.run(run())

    else:
        from halfmoon.cluster.postgres.connecting import Access
        from halfmoon.cluster.postgres.logs import PostgresLogs
        from halfmoon.cluster.postgres.schema import create

        server = postgres()

        def play(what: Play) -> None:
            async def run() -> None:
                access = Access(await server.new_database())
                await create(access, "a-cluster", 3, 3)
                logs = await PostgresLogs.open(access)
                try:
                    await what(logs)
                finally:
                    await logs.close()

            asyncio.run(run())

    return play


async def owner(database: LogDatabase, *shards: int) -> int:
    """A node that has taken these."""
    incarnation = await database.register(1, "host", 7, "rack")
    heads = {head.shard: head for head in await database.heads()}
    for shard in shards:
        assert await database.take(shard, heads[shard].epoch, incarnation) is not None
    return incarnation


def rows(shard: int, epoch: int, start: int, *sizes: int) -> tuple[Commit, list[bytes]]:
    pieces, frames = [], []
    for size in sizes:
        pieces.append(Piece(start, start + size, start % 97, 0))
        frames.append(bytes([start % 256]) * size)
        start += size
    return Commit(shard, epoch, tuple(pieces)), frames


def in_object(commit: Commit, key: str) -> Commit:
    return commit._replace(
        pieces=tuple(piece._replace(key=key, at=piece.start - commit.start) for piece in commit.pieces)
    )


def test_shards_are_there_and_nobody_has_them(run: Any) -> None:
    async def play(database: LogDatabase) -> None:
        heads = await database.heads()
        assert [head.durability for head in heads] == KINDS
        assert all((head.epoch, head.owner, head.end) == (0, None, 0) for head in heads)
        assert await database.contents(4) == (heads[4], [], [])

    run(play)


def test_commits_of_several_shards_stand_or_fall_one_by_one(run: Any) -> None:
    async def play(database: LogDatabase) -> None:
        await owner(database, 0, 1, 2)
        one, two, stale = rows(0, 1, 0, 10, 5), rows(1, 1, 0, 7), rows(2, 0, 0, 3)
        assert await database.commit_rows([one[0], two[0], stale[0]], [one[1], two[1], stale[1]]) == {0, 1}
        assert await database.commit_rows([one[0]], [one[1]]) == set()  # its end is another one now
        head, pieces, _ = await database.contents(0)
        check_whole(head, pieces)
        assert (head.end, list(pieces)) == (15, list(one[0].pieces))
        assert list(await database.frames(0, 0, 100)) == list(zip(one[0].pieces, one[1], strict=True))
        assert list(await database.frames(0, 10, 11)) == [(one[0].pieces[1], one[1][1])]
        assert (await database.contents(2)).head.end == 0

    run(play)


def test_an_object_is_known_with_its_first_commit(run: Any) -> None:
    async def play(database: LogDatabase) -> None:
        await owner(database, 3, 4)
        commits = [in_object(rows(shard, 1, 0, 10)[0], "o/1") for shard in (3, 4)]
        assert await database.known(["o/1"]) == set()
        stale = [commit._replace(epoch=0) for commit in commits]
        assert await database.commit_object("o/1", 99, stale) == set()
        assert await database.known(["o/1"]) == set()
        assert await database.commit_object("o/1", 99, commits) == {3, 4}
        assert await database.known(["o/1", "o/2"]) == {"o/1"}
        assert list((await database.contents(3)).pieces) == list(commits[0].pieces)
        assert await database.frames(3, 0, 100) == []

    run(play)


def test_a_condemned_object_is_never_committed(run: Any) -> None:
    async def play(database: LogDatabase) -> None:
        await owner(database, 0, 3)
        commit = in_object(rows(3, 1, 0, 10)[0], "o/1")
        await database.condemn(["o/1"])
        with pytest.raises(CondemnedError):
            await database.commit_object("o/1", 99, [commit])
        assert (await database.contents(3)).head.end == 0
        with pytest.raises(CondemnedError):
            await database.put_files(0, 1, [SideFile("a", "o/1", 3, 5)])
        row, frames = rows(0, 1, 0, 10)
        await database.commit_rows([row], [frames])
        with pytest.raises(CondemnedError):
            await database.replace(0, 1, row.pieces, in_object(row, "o/1").pieces, [("o/1", 99)])
        assert (await database.contents(0)).pieces == list(row.pieces)

    run(play)


def test_rows_become_pieces_of_an_object(run: Any) -> None:
    async def play(database: LogDatabase) -> None:
        await owner(database, 0, 1)
        (one, frames), (two, more) = rows(0, 1, 0, 10, 5, 4), rows(1, 1, 0, 8)
        await database.commit_rows([one, two], [frames, more])
        old = one.pieces[:2]
        new = Piece(0, 15, 3, 0, "g/1", 40)
        assert not await database.replace(0, 2, old, [new], [("g/1", 99)])
        assert await database.known(["g/1"]) == set()
        assert await database.replace(0, 1, old, [new], [("g/1", 99)])
        assert await database.replace(1, 1, two.pieces, [Piece(0, 8, 3, 0, "g/1", 0)], [("g/1", 99)])
        head, pieces, _ = await database.contents(0)
        check_whole(head, pieces)
        assert list(pieces) == [new, one.pieces[2]]
        assert [piece for piece, _ in await database.frames(0, 0, 100)] == [one.pieces[2]]
        # What is not there any more is not replaced again, and half of it neither.
        other = new._replace(key="g/2")
        assert not await database.replace(0, 1, old, [other], [("g/2", 99)])
        assert not await database.replace(0, 1, [new, one.pieces[1]], [other], [("g/2", 99)])
        assert await database.known(["g/2"]) == set()
        assert list((await database.contents(0)).pieces) == [new, one.pieces[2]]
        # Whoever was not told the outcome says it again.
        assert await database.replace(0, 1, old, [new], [("g/1", 99)])
        assert not await database.replace(0, 2, old, [new], [("g/1", 99)])
        assert not await database.replace(0, 1, old, [new, other], [("g/1", 99)])
        assert list((await database.contents(0)).pieces) == [new, one.pieces[2]]
        assert await database.certain_pieces(0, 1) == [new, one.pieces[2]]
        assert await database.certain_pieces(0, 2) is None

    run(play)


def test_objects_of_which_nothing_is_left_are_dead(run: Any) -> None:
    async def play(database: LogDatabase) -> None:
        await owner(database, 3, 4)
        await database.commit_object("o/1", 99, [in_object(rows(shard, 1, 0, 10)[0], "o/1") for shard in (3, 4)])
        await database.commit_object("o/2", 99, [in_object(rows(3, 1, 10, 10)[0], "o/2")])
        assert await database.drop(3, 1, 10)
        assert not await database.drop(3, 2, 20)
        assert await database.dead_objects(0) == []
        old = (await database.contents(4)).pieces
        assert await database.replace(4, 1, old, [old[0]._replace(key="g/1", at=0)], [("g/1", 9)])
        await asyncio.sleep(0.02)
        assert await database.dead_objects(0.01) == ["o/1"]
        assert await database.dead_objects(60) == []
        await database.condemn(["o/1", "o/2", "o/3"])
        assert await database.condemned_among(["o/1", "o/2", "o/3", "o/4"]) == {"o/3"}
        await database.forget_objects(["o/1", "o/2"])  # the second is not dead
        assert await database.known(["o/1", "o/2", "g/1"]) == {"o/2", "g/1"}
        assert [piece.key for piece in (await database.contents(3)).pieces] == ["o/2"]

    run(play)


def test_who_drops_pieces_sees_those_that_are_just_being_exchanged() -> None:
    """Else they would stay below the log's begin: the shard could not be opened any more."""
    from halfmoon.cluster.postgres import statements
    from halfmoon.cluster.postgres.connecting import Access
    from halfmoon.cluster.postgres.logs import PostgresLogs
    from halfmoon.cluster.postgres.schema import create

    server = postgres()
    waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"

    async def run() -> None:
        access = Access(await server.new_database())
        await create(access, "a-cluster", 3, 3)
        logs = await PostgresLogs.open(access)
        mover, watching = await access.connect(), await access.connect()
        try:
            await owner(logs, 0)
            commit, frames = rows(0, 1, 0, 10, 10)
            await logs.commit_rows([commit], [frames])
            exchange = mover.transaction()
            await exchange.start()
            assert await mover.fetchrow(statements.HOLD, 0, 1) is not None
            await mover.execute(statements.REMOVE_ROWS, 0, [0], [10])
            await mover.execute(statements.ADD_OBJECT, "g/1", 10)
            await mover.execute(statements.ADD_PIECE, 0, 0, 10, 3, 0, "g/1", 0)
            drop = asyncio.ensure_future(logs.drop(0, 1, 10))
            async with asyncio.timeout(10):
                while not await watching.fetchval(waiting):
                    await asyncio.sleep(0.01)
            await exchange.commit()
            assert await drop
            head, pieces, _ = await logs.contents(0)
            check_whole(head, pieces)
            assert [piece.start for piece in pieces] == [10]
            assert await logs.dead_objects(0) == ["g/1"]
        finally:
            await asyncio.gather(mover.close(), watching.close())
            await logs.close()

    asyncio.run(run())


def test_what_is_certain_waits_for_a_synchronous_standby(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is true of calls that only look, too; and of those that are made again."""
    from halfmoon.cluster.postgres import connecting, logs, schema

    server = postgres()
    for module in (connecting, logs):
        monkeypatch.setattr(module, "CALL_S", 0.5)

    async def set_standby(access: connecting.Access, name: str) -> None:
        asking = await access.connect()
        try:
            await asking.execute(f"alter system set synchronous_standby_names = '{name}'")
            await asking.execute("select pg_reload_conf()")
            async with asyncio.timeout(10):
                while await asking.fetchval("show synchronous_standby_names") != name:
                    await asyncio.sleep(0.01)
        finally:
            await asking.close()

    async def run() -> None:
        access = connecting.Access(await server.new_database())
        await schema.create(access, "a-cluster", 3, 3)
        database = await logs.PostgresLogs.open(access)
        file, new = SideFile("a", "f/1", 3, 5), Piece(0, 10, 3, 0, "g/1", 0)
        try:
            await owner(database, 0, 1, 2)
            rows_of = {shard: rows(shard, 1, 0, 10) for shard in range(3)}
            for commit, frames in rows_of.values():
                await database.commit_rows([commit], [frames])
            old = rows_of[0][0].pieces
            calls: list[Callable[[], Awaitable[Any]]] = [
                lambda: database.replace(0, 1, old, [new], [("g/1", 10)]),
                lambda: database.put_files(1, 1, [file]),
            ]
            await set_standby(access, "somebody")
            for _ in range(2):
                assert [type(each) for each in await all_of(calls)] == [DatabaseUnavailableError] * 2
                assert (await database.contents(0)).pieces == [new], "all see it"
                assert (await database.contents(1)).files == [file]
            looks: list[Callable[[], Awaitable[Any]]] = [
                lambda: database.certain_pieces(0, 1),
                lambda: database.certain_heads([1]),
                lambda: database.all_certain_heads(2),
            ]
            assert [type(each) for each in await all_of(looks)] == [DatabaseUnavailableError] * 3
            await set_standby(access, "")
            assert await all_of(calls) == [True, True]
            pieces, _, heads = await all_of(looks)
            assert pieces == [new]
            assert heads == await database.heads()
        finally:
            await set_standby(access, "")
            await database.close()

    asyncio.run(run())


async def all_of(calls: Sequence[Callable[[], Awaitable[Any]]]) -> list[Any]:
    return await asyncio.gather(*(call() for call in calls), return_exceptions=True)


def test_dropped_rows_are_gone(run: Any) -> None:
    async def play(database: LogDatabase) -> None:
        await owner(database, 0)
        commit, frames = rows(0, 1, 0, 10, 10, 10)
        await database.commit_rows([commit], [frames])
        assert await database.drop(0, 1, 25)
        head, pieces, _ = await database.contents(0)
        check_whole(head, pieces)
        assert [piece.start for piece in pieces] == [20]
        assert all(piece.key == IN_DATABASE for piece in pieces)

    run(play)


def test_files_beside_the_log(run: Any) -> None:
    async def play(database: LogDatabase) -> None:
        await owner(database, 0)
        first, second = SideFile("checkpoint", "s/1", 10, 1), SideFile("index/1", "s/2", 20, 2)
        assert await database.put_files(0, 1, [first])
        assert await database.put_files(0, 1, [second])
        assert not await database.put_files(0, 2, [second._replace(key="s/9")])
        newer = first._replace(key="s/3", crc=7)
        assert await database.put_files(0, 1, [newer])
        assert await database.put_files(0, 1, [newer])  # whoever was not told the outcome says it again
        assert list((await database.contents(0)).files) == [newer, second]
        await database.condemn(["s/5"])
        with pytest.raises(CondemnedError):
            await database.put_files(0, 1, [newer._replace(key="s/4"), second._replace(key="s/5")])
        assert list((await database.contents(0)).files) == [newer, second], "all or none"
        second = second._replace(key="s/6")
        assert await database.put_files(0, 1, [newer, second])
        assert list((await database.contents(0)).files) == [newer, second]
        assert await database.remove_files(0, 1, ["index/1", "unknown"])
        assert not await database.remove_files(0, 2, ["checkpoint"])
        assert list((await database.contents(0)).files) == [newer]
        await asyncio.sleep(0.02)
        assert sorted(await database.dead_objects(0.01)) == ["s/1", "s/2", "s/6"]

    run(play)


def test_an_epoch_is_raised_with_each_owner(run: Any) -> None:
    async def play(database: LogDatabase) -> None:
        one = await owner(database, 0)
        two = await database.register(2, "host", 8, "")
        assert await database.take(0, 1, two) is None  # it lives
        assert await database.take(1, 5, two) is None  # not its epoch
        found = await database.hand_over(0, 1, two)
        assert found is not None
        assert (found.epoch, found.owner) == (2, two)
        assert await database.hand_over(0, 1, one) is None
        assert await database.hand_over(0, 2, 12345) is None
        assert [head.shard for head in await database.renew(two)] == [0]
        assert await database.renew(one) == []
        await database.leave(two)
        found = await database.take(0, 2, one)
        assert found is not None
        assert (found.epoch, found.owner) == (3, one)
        assert await database.take(0, 3, two) is None  # it is dead itself

    run(play)


def test_nodes_are_told_with_whether_they_live(run: Any) -> None:
    async def play(database: LogDatabase) -> None:
        one = await database.register(1, "a", 7, "rack-1", "a's doors")
        two = await database.register(2, "b", 8, "")
        assert [node[:8] for node in await database.nodes()] == [
            (one, 1, "a", 7, "rack-1", True, False, "a's doors"),
            (two, 2, "b", 8, "", True, False, ""),
        ]
        await database.leave(one)
        assert [node.alive for node in await database.nodes()] == [False, True]
        await database.renew(one)
        assert [node.alive for node in await database.nodes()] == [True, True]
        with pytest.raises(LeaseLostError):
            await database.renew(999)

    run(play)


def test_a_node_whose_lease_has_just_ended_is_told_from_one_that_has_left(run: Any) -> None:
    async def play(database: LogDatabase) -> None:
        one, two, three = [await database.register(number, "a", 7, "") for number in (1, 2, 3)]
        assert [node.lapsed for node in await database.nodes()] == [False, False, False]
        await database.leave(one)
        assert [(node.alive, node.lapsed) for node in await database.nodes()] == [(False, False)] + [(True, False)] * 2
        await asyncio.sleep(2)
        await database.renew(three)
        await asyncio.sleep(1.5)
        found = {node.incarnation: (node.alive, node.lapsed) for node in await database.nodes()}
        assert found == {one: (False, False), two: (False, True), three: (True, False)}

    run(play)


def test_a_node_says_whether_it_reaches_the_store(run: Any) -> None:
    async def what(database: LogDatabase) -> None:
        one, two = await database.register(1, "a", 7, ""), await database.register(2, "b", 7, "")
        assert [node.stores for node in await database.nodes()] == [True, True]
        await database.can_store(two, False)
        assert {node.incarnation: node.stores for node in await database.nodes()} == {one: True, two: False}
        await database.can_store(two, True)
        assert [node.stores for node in await database.nodes()] == [True, True]

    run(what)


def test_it_has_a_clock(run: Any) -> None:
    async def what(database: LogDatabase) -> None:
        before_ms = time.time_ns() // 1_000_000
        said_ms = await database.now_ms()
        assert before_ms - 1 <= said_ms <= time.time_ns() // 1_000_000 + 1  # they are of one machine

    run(what)


def test_administrators_want_shards_elsewhere_and_nodes_drained(run: Any) -> None:
    async def play(database: LogDatabase) -> None:
        one = await database.register(7, "a", 1, "")
        two = await database.register(8, "b", 2, "")
        taken = await database.take(0, 0, one)
        assert taken is not None
        assert taken.wanted is None
        assert await database.want(0, 8)
        assert not await database.want(999, 8)
        assert [head.wanted for head in await database.heads() if head.shard == 0] == [8]
        assert [head.wanted for head in await database.renew(one)] == [8]
        given = await database.hand_over(0, taken.epoch, two)
        assert given is not None
        assert given.wanted is None
        assert await database.want(0, 7)
        assert await database.want(0, None)
        assert (await database.contents(0)).head.wanted is None
        assert await database.drain(8, True)
        assert [node.draining for node in await database.nodes()] == [False, True]
        assert await database.drain(8, False)
        assert not await database.drain(9, True)
        await database.leave(two)
        assert not await database.drain(8, True)
        assert [node.draining for node in await database.nodes()] == [False, False]

    run(play)


def test_a_log_that_was_brought_back_says_so_until_its_owner_has_seen_to_it(run: Callable[[Play], None]) -> None:
    async def play(database: LogDatabase) -> None:
        await owner(database, 0)
        assert not (await database.heads())[0].restored
        assert not await database.begun_anew(0, 2)
        assert await database.begun_anew(0, 1)

    run(play)
