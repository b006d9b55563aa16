"""The awaited outbox and inbox against PostgreSQL, with SQLAlchemy and psycopg; the channel is made up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from halfmoon.outbox import State
from tests.outbox.fakes import AwaitedChannel, FakeChannel, Steps
from tests.outbox.servers import for_sqlalchemy, new_database

sqlalchemy = pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed: pip install 'halfmoon[outbox]'")

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class World:
    """One library, behind the same words. Made inside of an event loop."""

    def __init__(self, library: str, dsn: str) -> None:
        import psycopg
        from sqlalchemy.ext.asyncio import create_async_engine

        from halfmoon.outbox.aio import psycopg as by_psycopg
        from halfmoon.outbox.aio import sqlalchemy as by_sqlalchemy

        self.dsn = dsn
        self.is_sqlalchemy = library == "sqlalchemy"
        self.module: Any = by_sqlalchemy if self.is_sqlalchemy else by_psycopg
        self.engine = create_async_engine(for_sqlalchemy(dsn))
        self.bind: Any = self.engine if self.is_sqlalchemy else dsn
        self.unique = sqlalchemy.exc.IntegrityError if self.is_sqlalchemy else psycopg.errors.UniqueViolation
        self.steps = Steps()
        self.channel = FakeChannel(self.steps)
        self.producer = SimpleNamespace(outbox_channel=lambda group: AwaitedChannel(self.channel))
        self.now = NOW
        self.outbox = self.module.Outbox("shop", self.producer, self.bind, commit_within_s=30, now=lambda: self.now)
        self.inbox = self.module.Inbox("billing", self.bind, now=lambda: self.now)

    async def execute(self, handle: Any, statement: str) -> list[tuple[Any, ...]]:
        if self.is_sqlalchemy:
            found = await handle.execute(sqlalchemy.text(statement))
            return [tuple(row) for row in found] if found.returns_rows else []
        found = await handle.execute(statement)
        return list(await found.fetchall()) if found.description else []

    def handle_of(self, tx: Any) -> Any:
        return tx.session if self.is_sqlalchemy else tx.connection

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Any]:
        """A connection in a transaction, which is committed at the end."""
        import psycopg

        if self.is_sqlalchemy:
            async with self.engine.begin() as connection:
                yield connection
        else:
            async with await psycopg.AsyncConnection.connect(self.dsn) as connection:
                yield connection

    async def ask(self, statement: str) -> list[tuple[Any, ...]]:
        async with self.opened() as handle:
            return await self.execute(handle, statement)


Body = Callable[[World], Awaitable[None]]


@pytest.fixture(params=["sqlalchemy", "psycopg"])
def run(request: pytest.FixtureRequest) -> Callable[[Body], None]:
    dsn = new_database()

    async def running(body: Body) -> None:
        world = World(request.param, dsn)
        await world.outbox.create_table()
        await world.inbox.create_table()
        await world.outbox.create_table()
        async with world.opened() as handle:
            await world.execute(handle, "CREATE TABLE orders (number INTEGER PRIMARY KEY)")
        try:
            await body(world)
        finally:
            await world.engine.dispose()

    return lambda body: asyncio.run(running(body))


def message(offset: int, timestamp: int = 1_000) -> Any:
    return SimpleNamespace(
        topic="orders", partition=0, offset=offset, key=None, value=b"v", headers=[], timestamp=timestamp
    )


def test_row_and_work_are_one_transaction(run: Callable[[Body], None]) -> None:
    async def body(world: World) -> None:
        async with world.outbox.transaction(transaction_id="t") as tx:
            await world.execute(world.handle_of(tx), "INSERT INTO orders VALUES (7)")
            tx.send("orders", b"7")
        with pytest.raises(world.unique):
            async with world.outbox.transaction() as tx:
                tx.send("orders", b"8")
                await world.execute(world.handle_of(tx), "INSERT INTO orders VALUES (8)")
                await world.execute(world.handle_of(tx), "INSERT INTO orders VALUES (7)")
        world.steps.failures["half messages"] = RuntimeError("refused")
        with pytest.raises(RuntimeError, match="refused"):
            async with world.outbox.transaction() as tx:
                await world.execute(world.handle_of(tx), "INSERT INTO orders VALUES (9)")
                tx.send("orders", b"9")
        assert await world.ask("SELECT number FROM orders") == [(7,)]
        assert await world.ask("SELECT transaction_id, state FROM halfmoon_outbox") == [("t", "committed")]
        assert [each.value for each in world.channel.delivered] == [b"7"]

    run(body)


def test_check_backs(run: Callable[[Body], None], monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("statements", "psycopg_statements"):
        monkeypatch.setattr(f"halfmoon.outbox.{module}.BRIEF_WAIT_MS", 100)

    async def body(world: World) -> None:
        assert await world.outbox.answer("late#0") is State.ABANDONED
        with pytest.raises(world.unique):
            async with world.outbox.transaction(transaction_id="late") as tx:
                tx.send("orders", b"7")
        async with world.outbox._database.local(None) as local:
            await local.insert("shop", "t", NOW, 30)
            assert await world.outbox.answer("t#0") is None  # it is still open
            await local.commit()
        assert await world.outbox.answer("t#0") is State.COMMITTED
        assert not await world.outbox._database.abandon("shop", "t", NOW)
        world.now = NOW + timedelta(days=8)
        assert await world.outbox.clean() == 2

    run(body)


def test_the_inbox(run: Callable[[Body], None]) -> None:
    async def body(world: World) -> None:
        for timestamp, expected in ((1, True), (1, False), (2, True), (2, False)):
            async with world.opened() as handle:
                assert await world.inbox.once(handle, message(7, timestamp)) is expected

        async def pay(handle: Any, record: Any) -> None:
            await world.execute(handle, f"INSERT INTO orders VALUES ({record.offset})")
            if record.offset == 9:
                raise RuntimeError("not now")

        handle_once = world.inbox.handler(pay)
        await handle_once(message(8))
        await handle_once(message(8))
        for _ in range(2):
            with pytest.raises(RuntimeError, match="not now"):
                await handle_once(message(9))
        assert await world.ask("SELECT number FROM orders") == [(8,)]
        world.now = NOW + timedelta(days=8)
        assert await world.inbox.clean() == 2

    run(body)


def test_sessions_and_connections_of_ones_own() -> None:
    from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine

    dsn = new_database()

    async def body() -> None:
        world = World("sqlalchemy", dsn)
        await world.outbox.create_table()
        await world.inbox.create_table()
        scoped = async_scoped_session(async_sessionmaker(world.engine), asyncio.current_task)
        async with AsyncSession(world.engine) as session, world.engine.connect() as connection:
            for number, using in enumerate((session, scoped, connection)):
                async with world.outbox.transaction(using) as tx:
                    assert (tx.connection if using is connection else tx.session) is (
                        scoped() if number == 1 else using
                    )
                    with pytest.raises(AttributeError, match="this transaction was begun with a"):
                        _ = tx.session if using is connection else tx.connection
                    assert await world.inbox.once(using, message(number))
                    tx.send("orders", b"7")
            automatic = await connection.execution_options(isolation_level="AUTOCOMMIT")
            with pytest.raises(ValueError, match="AUTOCOMMIT"):
                async with world.outbox.transaction(automatic) as tx:
                    tx.send("orders", b"7")
        await scoped.remove()
        assert await world.ask("SELECT count(*) FROM halfmoon_outbox") == [(3,)]
        assert await world.ask("SELECT count(*) FROM halfmoon_inbox") == [(3,)]
        world.module.Outbox("shop", world.producer, async_sessionmaker(world.engine))
        for wrong in (async_sessionmaker(), dsn):
            with pytest.raises(TypeError, match="expected an AsyncEngine"):
                world.module.Inbox("shop", wrong)
        await world.engine.dispose()
        await create_async_engine(for_sqlalchemy(dsn)).dispose()

    asyncio.run(body())


def test_connections_and_pools_of_psycopg() -> None:
    import psycopg

    dsn = new_database()

    class Pool:
        """Of psycopg_pool's, what is used."""

        lent = 0

        @asynccontextmanager
        async def connection(self) -> AsyncIterator[Any]:
            self.lent += 1
            async with await psycopg.AsyncConnection.connect(dsn) as connection:
                yield connection

    async def body() -> None:
        world, pool = World("psycopg", dsn), Pool()
        for bind in (pool, lambda: psycopg.AsyncConnection.connect(dsn), lambda: pool.connection()):
            outbox, inbox = world.module.Outbox("shop", world.producer, bind), world.module.Inbox("billing", bind)
            await outbox.create_table()
            await inbox.create_table()
            async with outbox.transaction() as tx:
                tx.send("orders", b"1")
        assert pool.lent == 6
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            async with outbox.transaction(connection) as tx:
                assert tx.connection is connection
                assert await inbox.once(connection, message(1))
                tx.send("orders", b"1")
            with pytest.raises(ValueError, match="commits each statement"):
                await inbox.once(connection, message(2))
            async with connection.transaction():
                with pytest.raises(ValueError, match=r"in a block of connection\.transaction"):
                    async with outbox.transaction(connection):
                        raise AssertionError
        assert await world.ask("SELECT count(*) FROM halfmoon_outbox") == [(4,)]
        with pytest.raises(TypeError, match="expected a connection string"):
            world.module.Outbox("shop", world.producer, 7)
        await world.engine.dispose()

    asyncio.run(body())
