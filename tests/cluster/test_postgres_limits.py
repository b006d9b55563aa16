"""What the driver never answers is an unavailable database, sooner or later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("asyncpg", reason="asyncpg is not installed: pip install 'halfmoon[cluster]'")

from halfmoon.cluster.engine import committing
from halfmoon.cluster.engine.database import Commit, DatabaseUnavailableError
from halfmoon.cluster.engine.pieces import Piece
from halfmoon.cluster.postgres import connecting, logs, looking, schema, statements


class Mute:
    """A pool, its connections and their transactions: nothing of it ever ends."""

    @asynccontextmanager
    async def acquire(self, timeout: float) -> AsyncIterator[Any]:
        yield self

    @asynccontextmanager
    async def transaction(self, isolation: str) -> AsyncIterator[Any]:
        yield self

    async def fetch(self, *_: object, **__: object) -> Any:
        await asyncio.get_running_loop().create_future()

    fetchrow = fetch


def test_a_call_that_the_driver_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LIMIT_S", 0.01)
    monkeypatch.setattr(connecting, "LIMIT_S", 0.01)

    async def story() -> None:
        database = logs.PostgresLogs(None, Mute())  # type: ignore[arg-type]
        async with asyncio.timeout(5):
            with pytest.raises(DatabaseUnavailableError):
                await database.heads()
            with pytest.raises(DatabaseUnavailableError):
                await database.contents(0)

    asyncio.run(story())


def test_a_connection_that_does_not_answer_is_not_waited_for_at_its_end() -> None:
    """What its end says would take the place of the error by which a backup knows that it may go on."""
    pytest.importorskip("asyncpg")
    from halfmoon.cluster.postgres.tables import PostgresTables

    class Gone:
        terminated = False

        async def fetchval(self, *_: object) -> Any:
            raise TimeoutError

        fetch = execute = fetchval

        @asynccontextmanager
        async def transaction(self) -> AsyncIterator[None]:
            yield

        async def close(self) -> None:
            raise TimeoutError

        def terminate(self) -> None:
            self.terminated = True

    gone = Gone()

    async def connect(*_: object) -> Any:
        return gone

    access: Any = SimpleNamespace(connect=connect)
    for call in (
        PostgresTables(access).keep_pinned(1), looking.look_at_shards(access), schema.check(access),
        schema.create(access, "a-cluster", 1, 0), schema._upgrade(access),
    ):  # fmt: skip
        gone.terminated = False
        with pytest.raises(DatabaseUnavailableError, match="no answer in time"):
            asyncio.run(call)
        assert gone.terminated


class Noting:
    """A pool, its connections and their transactions, which note what is asked, and for how long it may take."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, float | None]] = []
        self.removed = 1, 1
        """Rows, and pieces in objects."""

    @asynccontextmanager
    async def acquire(self, timeout: float) -> AsyncIterator[Any]:
        yield self

    @asynccontextmanager
    async def transaction(self, isolation: str = "") -> AsyncIterator[Any]:
        self.asked.append(("begin", None))
        yield self
        self.asked.append(("commit", None))

    async def execute(self, statement: str, *_: object, timeout: float | None = None) -> str:
        self.asked.append((statement, timeout))
        return f"DELETE {self.removed[statement == statements.REMOVE_PIECES]}"

    async def fetchrow(self, *_: object) -> Any:
        return ()

    async def executemany(self, *_: object) -> None:
        pass

    async def fetch(self, statement: str, *_: object, timeout: float | None = None) -> list[Any]:
        self.asked.append((statement, timeout))
        return []


def test_commits_of_rows_leave_a_connection_for_others() -> None:
    assert committing.ROW_STATEMENTS + committing.LARGE_STATEMENTS < connecting.POOL


@pytest.mark.parametrize(("size", "limit_s"), [(100, 3.0), (4 << 20, 7.0), (32 << 20, 35.0)])
def test_a_commit_has_the_longer_the_more_it_is(size: int, limit_s: float) -> None:
    """One that is given up too early is made again for ever: it does not get smaller."""
    pool = Noting()
    database = logs.PostgresLogs(None, pool)  # type: ignore[arg-type]
    commit = Commit(0, 1, (Piece(0, size, 0, 0),))
    asyncio.run(database.commit_rows([commit], [[bytes(size)]]))
    (found,) = [asked for asked in pool.asked if asked[0] == statements.COMMIT_ROWS]
    assert found[1] == pytest.approx(limit_s, abs=0.01)
    if size > logs.LARGE_BYTES:  # the server has limits, too
        begin, limits, _, commit_ = (asked[0] for asked in pool.asked)
        assert (begin, commit_) == ("begin", "commit")
        assert limits == "set local statement_timeout = 35000; set local idle_in_transaction_session_timeout = 0"


@pytest.mark.parametrize(("size", "limit_s"), [(100, 3.0), (4 << 20, 7.0), (32 << 20, 35.0)])
def test_an_exchange_has_the_longer_the_larger_a_row_is(size: int, limit_s: float) -> None:
    """The server deletes all of it."""
    pool = Noting()
    database = logs.PostgresLogs(None, pool)  # type: ignore[arg-type]
    row = Piece(0, size, 0, 0)
    assert asyncio.run(database.replace(0, 1, [row], [row._replace(key="g/1")], [("g/1", size)]))
    assert dict(pool.asked)[statements.REMOVE_ROWS] == pytest.approx(limit_s, abs=0.01)
    limits = f"set local statement_timeout = {limit_s:.0f}000; set local idle_in_transaction_session_timeout = 0"
    assert (pool.asked[1][0] == limits) == (size >= logs.SENT_BYTES_S), "the server has a limit, too"


def test_an_exchange_has_the_longer_the_more_pieces_it_is_of() -> None:
    pool = Noting()
    database = logs.PostgresLogs(None, pool)  # type: ignore[arg-type]
    rows = [Piece(at, at + 1, 0, 0) for at in range(500)]
    pieces = [Piece(at, at + 1, 0, 0, f"o/{at}") for at in range(500, 10_000)]
    pool.removed = 500, 9_500
    new = Piece(0, 10_000, 0, 0, "g/1")
    assert asyncio.run(database.replace(0, 1, [*rows, *pieces], [new], [("g/1", 10_000)]))
    asked = dict(pool.asked)
    assert pool.asked[1][0] == "set local statement_timeout = 13000; set local idle_in_transaction_session_timeout = 0"
    for statement in (statements.LOCK_OBJECTS, statements.REMOVE_PIECES, statements.REMOVE_ROWS, statements.MARK_DEAD):
        assert asked[statement] == pytest.approx(13.0, abs=0.01)
