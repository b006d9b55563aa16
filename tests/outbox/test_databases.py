"""Outbox and inbox against databases: SQLAlchemy with PostgreSQL and SQLite, psycopg with PostgreSQL; the channel to
the broker is made up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from halfmoon.outbox import State, inbox_sql, outbox_sql
from tests.outbox.fakes import FakeChannel, Steps
from tests.outbox.servers import for_sqlalchemy, new_database

sqlalchemy = pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed: pip install 'halfmoon[outbox]'")

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class World:
    """One library with one database, behind the same words."""

    outbox: Any
    inbox: Any
    errors: type[Exception]
    unique: type[Exception]

    def __init__(self) -> None:
        self.steps = Steps()
        self.channel = FakeChannel(self.steps)
        self.now = NOW

    def make(self, outbox: Callable[..., Any], inbox: Callable[..., Any], bind: Any) -> None:
        producer = SimpleNamespace(outbox_channel=lambda group: self.channel)
        self.outbox = outbox("shop", producer, bind, commit_within_s=30, now=lambda: self.now)
        self.inbox = inbox("billing", bind, now=lambda: self.now)
        self.outbox.create_table()
        self.inbox.create_table()

    def execute(self, handle: Any, statement: str) -> Any:
        raise NotImplementedError

    def handle_of(self, tx: Any) -> Any:
        raise NotImplementedError

    def opened(self) -> AbstractContextManager[Any]:
        """A connection in a transaction, which is committed at the end."""
        raise NotImplementedError

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        with self.opened() as handle:
            return [tuple(row) for row in self.execute(handle, statement)]

    def rows(self) -> list[tuple[Any, ...]]:
        return self.ask("SELECT transaction_id, state FROM halfmoon_outbox ORDER BY 1")

    def close(self) -> None:
        pass


class SqlAlchemy(World):
    errors, unique = sqlalchemy.exc.SQLAlchemyError, sqlalchemy.exc.IntegrityError

    def __init__(self, url: str, **options: Any) -> None:
        from halfmoon.outbox.sqlalchemy import Inbox, Outbox

        super().__init__()
        self.engine = sqlalchemy.create_engine(url, **options)
        self.make(Outbox, Inbox, self.engine)

    def execute(self, handle: Any, statement: str) -> Any:
        found = handle.execute(sqlalchemy.text(statement))
        return found.fetchall() if found.returns_rows else []

    def handle_of(self, tx: Any) -> Any:
        return tx.session

    def opened(self) -> AbstractContextManager[Any]:
        connection: AbstractContextManager[Any] = self.engine.begin()
        return connection

    def close(self) -> None:
        self.engine.dispose()


class Psycopg(World):
    def __init__(self, dsn: str) -> None:
        import psycopg

        from halfmoon.outbox.psycopg import Inbox, Outbox

        super().__init__()
        self.errors, self.unique = psycopg.Error, psycopg.errors.UniqueViolation
        self.connect = lambda: psycopg.connect(dsn)
        self.make(Outbox, Inbox, dsn)

    def execute(self, handle: Any, statement: str) -> Any:
        found = handle.execute(statement)
        return found.fetchall() if found.description else []

    def handle_of(self, tx: Any) -> Any:
        return tx.connection

    def opened(self) -> AbstractContextManager[Any]:
        connection: AbstractContextManager[Any] = self.connect()
        return connection


@pytest.fixture(params=["sqlalchemy-postgresql", "sqlalchemy-sqlite", "psycopg"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made: World
    if request.param == "sqlalchemy-sqlite":
        made = SqlAlchemy(f"sqlite:///{tmp_path / 'shop.sqlite'}", connect_args={"timeout": 0.5})
    elif request.param == "psycopg":
        made = Psycopg(new_database())
    else:
        made = SqlAlchemy(for_sqlalchemy(new_database()))
    with made.opened() as handle:
        made.execute(handle, "CREATE TABLE orders (number INTEGER PRIMARY KEY)")
    yield made
    made.close()


def message(offset: int, timestamp: int = 1_000) -> Any:
    return SimpleNamespace(
        topic="orders", partition=0, offset=offset, key=None, value=b"v", headers=[], timestamp=timestamp
    )


class TestOutbox:
    def test_row_and_work_are_one_transaction(self, world: World) -> None:
        seen: list[list[Any]] = []
        world.steps.before["half messages"] = lambda: seen.append(world.ask("SELECT * FROM orders"))
        with world.outbox.transaction(transaction_id="t") as tx:
            world.execute(world.handle_of(tx), "INSERT INTO orders VALUES (7)")
            tx.send("orders", b"7")
        assert seen == [[]]
        assert world.ask("SELECT number FROM orders") == [(7,)]
        assert world.rows() == [("t", "committed")]
        assert [each.value for each in world.channel.delivered] == [b"7"]

    def test_what_the_database_refuses(self, world: World) -> None:
        with pytest.raises(world.unique), world.outbox.transaction() as tx:
            tx.send("orders", b"7")
            for _ in range(2):
                world.execute(world.handle_of(tx), "INSERT INTO orders VALUES (7)")
        assert (world.rows(), world.ask("SELECT * FROM orders"), world.steps.taken) == ([], [], [])

    def test_half_messages_that_are_not_stored(self, world: World) -> None:
        world.steps.failures["half messages"] = RuntimeError("refused")
        with pytest.raises(RuntimeError, match="refused"), world.outbox.transaction() as tx:
            world.execute(world.handle_of(tx), "INSERT INTO orders VALUES (7)")
            tx.send("orders", b"7")
        assert (world.rows(), world.ask("SELECT * FROM orders")) == ([], [])

    def test_an_id_is_used_once(self, world: World) -> None:
        for expected in (1, 1):
            try:
                with world.outbox.transaction(transaction_id="t") as tx:
                    tx.send("orders", b"7")
            except world.unique:
                pass
            assert len(world.channel.delivered) == expected

    def test_a_check_back_of_an_unknown_one_makes_it_abandoned(self, world: World) -> None:
        assert world.outbox.answer("late#0") is State.ABANDONED
        assert world.outbox.answer("late#1") is State.ABANDONED
        with pytest.raises(world.unique), world.outbox.transaction(transaction_id="late") as tx:
            world.execute(world.handle_of(tx), "INSERT INTO orders VALUES (7)")
            tx.send("orders", b"7")
        assert (world.channel.delivered, world.ask("SELECT * FROM orders")) == ([], [])
        assert world.rows() == [("late", "abandoned")]

    def test_a_check_back_while_it_is_open_is_not_answered(self, world: World, monkeypatch: Any) -> None:
        for module in ("statements", "psycopg_statements"):
            monkeypatch.setattr(f"halfmoon.outbox.{module}.BRIEF_WAIT_MS", 100)
        answers: list[State | None] = []
        world.steps.before["half messages"] = lambda: answers.append(world.outbox.answer("t#0"))
        with world.outbox.transaction(transaction_id="t") as tx:
            tx.send("orders", b"7")
        answers.append(world.outbox.answer("t#0"))
        assert answers == [None, State.COMMITTED]

    def test_a_check_back_waits_a_moment_for_the_commit(self, world: World) -> None:
        if "sqlite" in str(getattr(world, "engine", "")):
            pytest.skip("SQLite has one writer: the insert waits for the file, as long as the driver says")
        answers: list[State | None] = []
        asking = threading.Thread(target=lambda: answers.append(world.outbox.answer("t#0")))

        def ask() -> None:
            asking.start()
            deadline = time.monotonic() + 30
            while not world.ask("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):
                assert time.monotonic() < deadline

        world.steps.before["half messages"] = ask
        with world.outbox.transaction(transaction_id="t") as tx:
            tx.send("orders", b"7")
        asking.join(30)
        assert answers == [State.COMMITTED]

    def test_the_database_ends_a_transaction_that_stands_still(self, world: World) -> None:
        if "sqlite" in str(getattr(world, "engine", "")):
            pytest.skip("SQLite has no such limit")
        world.outbox._commit_within_s = 0.2
        world.outbox._clock = lambda: 0.0  # it is this process that stands still

        def pause() -> None:
            deadline = time.monotonic() + 30
            while world.outbox.answer("t#0") is None:
                assert time.monotonic() < deadline

        world.steps.before["half messages"] = pause
        with pytest.raises(world.errors), world.outbox.transaction(transaction_id="t") as tx:
            world.execute(world.handle_of(tx), "INSERT INTO orders VALUES (7)")
            tx.send("orders", b"7")
        assert world.channel.delivered == []
        assert world.rows() == [("t", "abandoned")]
        assert world.ask("SELECT * FROM orders") == []

    def test_old_rows_are_removed(self, world: World, monkeypatch: Any) -> None:
        monkeypatch.setattr("halfmoon.outbox.outbox.SLICE_ROWS", 2)
        for day in range(7):
            world.now = NOW + timedelta(days=day)
            world.outbox.answer(f"day {day}#0")
        world.now = NOW + timedelta(days=7)
        assert world.outbox.clean(timedelta(days=2)) == 5
        assert [name for name, _ in world.rows()] == ["day 5", "day 6"]
        assert world.outbox.clean() == 0

    def test_tables_may_be_made_by_hand(self, world: World) -> None:
        with world.opened() as handle:
            for statement in [*outbox_sql("by_hand").split(";"), *inbox_sql("by_hand_too").split(";")]:
                if statement.strip():
                    world.execute(handle, statement)
        if isinstance(world, SqlAlchemy):
            from halfmoon.outbox.statements import inbox_table, outbox_table

            inspector = sqlalchemy.inspect(world.engine)
            for made, name in (
                (outbox_table(sqlalchemy.MetaData(), "by_hand"), "by_hand"),
                (inbox_table(sqlalchemy.MetaData(), "by_hand_too"), "by_hand_too"),
            ):
                found = {column["name"]: column for column in inspector.get_columns(name)}
                assert {column.name: column.nullable for column in made.columns} == {
                    column: about["nullable"] for column, about in found.items()
                }
                assert [
                    str(column.type.compile(world.engine.dialect))
                    for column in made.columns
                    if column.name[-3:] != "_at"
                ] == [str(about["type"]) for column, about in found.items() if column[-3:] != "_at"]
                assert inspector.get_pk_constraint(name)["constrained_columns"] == [
                    column.name for column in made.primary_key
                ]
                assert [index["name"] for index in inspector.get_indexes(name)] == [
                    index.name for index in made.indexes
                ]


class TestInbox:
    def test_a_message_is_handled_once(self, world: World) -> None:
        for expected in (True, False, False):
            with world.opened() as handle:
                assert world.inbox.once(handle, message(7)) is expected
        with world.opened() as handle:
            assert world.inbox.once(handle, message(8))

    def test_one_whose_handling_was_rolled_back_is_new(self, world: World) -> None:
        with pytest.raises(RuntimeError), world.opened() as handle:
            assert world.inbox.once(handle, message(7))
            raise RuntimeError
        with world.opened() as handle:
            assert world.inbox.once(handle, message(7))

    def test_the_handler(self, world: World) -> None:
        def pay(handle: Any, record: Any) -> None:
            world.execute(handle, f"INSERT INTO orders VALUES ({record.offset})")
            if record.offset == 9:
                raise RuntimeError("not now")

        handle = world.inbox.handler(pay)
        handle(message(7))
        handle(message(7))
        for _ in range(2):
            with pytest.raises(RuntimeError, match="not now"):
                handle(message(9))
        assert world.ask("SELECT number FROM orders") == [(7,)]

    def test_another_topic_of_the_same_name(self, world: World) -> None:
        for timestamp, expected in ((1_000, True), (2_000, True), (2_000, False), (1_000, True)):
            with world.opened() as handle:
                assert world.inbox.once(handle, message(7, timestamp)) is expected, timestamp

    def test_a_redelivery_of_the_same_record_knows_no_timestamp(self, world: World) -> None:
        again = SimpleNamespace(
            topic="retry.billing", partition=0, offset=0, key=None, value=b"", timestamp=9_000,
            headers=[("ORIGIN_MESSAGE_ID", b"orders/0/7")],
        )  # fmt: skip
        for record, expected in ((again, True), (again, False), (message(7), False)):
            with world.opened() as handle:
                assert world.inbox.once(handle, record) is expected

    def test_groups_are_apart(self, world: World) -> None:
        other = type(world.inbox)("shipping", world.engine if isinstance(world, SqlAlchemy) else world.connect)  # type: ignore[attr-defined]
        for inbox in (world.inbox, other):
            with world.opened() as handle:
                assert inbox.once(handle, message(7))

    def test_two_at_once(self, world: World) -> None:
        """The second waits for the first, and sees what became of it."""
        if "sqlite" in str(getattr(world, "engine", "")):
            pytest.skip("SQLite has one writer")
        found: list[bool] = []

        def second() -> None:
            with world.opened() as handle:
                found.append(world.inbox.once(handle, message(7)))

        thread = threading.Thread(target=second)
        with world.opened() as handle:
            assert world.inbox.once(handle, message(7))
            thread.start()
            deadline = time.monotonic() + 30
            while not world.ask("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):
                assert time.monotonic() < deadline
            assert found == []
        thread.join(30)
        assert found == [False]

    def test_old_rows_are_removed(self, world: World, monkeypatch: Any) -> None:
        for module in ("sqlalchemy", "psycopg"):
            monkeypatch.setattr(f"halfmoon.outbox.{module}.SLICE_ROWS", 2)
        for day in range(7):
            world.now = NOW + timedelta(days=day)
            with world.opened() as handle:
                world.inbox.once(handle, message(day))
        world.now = NOW + timedelta(days=7)
        assert world.inbox.clean(timedelta(days=2)) == 5
        assert world.ask("SELECT message_id FROM halfmoon_inbox ORDER BY 1") == [("orders/0/5",), ("orders/0/6",)]


class TestSqlAlchemy:
    @pytest.fixture
    def world(self, tmp_path: Path) -> Iterator[SqlAlchemy]:
        made = SqlAlchemy(f"sqlite:///{tmp_path / 'shop.sqlite'}")
        with made.opened() as handle:
            made.execute(handle, "CREATE TABLE orders (number INTEGER PRIMARY KEY)")
        yield made
        made.close()

    def test_a_session_of_ones_own(self, world: SqlAlchemy) -> None:
        from sqlalchemy.orm import Session, scoped_session, sessionmaker

        scoped = scoped_session(sessionmaker(world.engine))
        with Session(world.engine) as session, world.engine.connect() as connection:
            for number, using in enumerate((session, scoped)):
                using.execute(sqlalchemy.text(f"INSERT INTO orders VALUES ({number})"))
                with world.outbox.transaction(using) as tx:
                    assert tx.session is (session if number == 0 else scoped())
                    tx.send("orders", b"7")
            with world.outbox.transaction(connection) as tx:
                assert tx.connection is connection
                with pytest.raises(AttributeError, match="no session"):
                    _ = tx.session
                tx.connection.execute(sqlalchemy.text("INSERT INTO orders VALUES (2)"))
                tx.send("orders", b"7")
        scoped.remove()
        assert len(world.ask("SELECT * FROM orders")) == len(world.rows()) == 3

    def test_objects_are_flushed_before_anything_is_sent(self, world: SqlAlchemy) -> None:
        from sqlalchemy.orm import DeclarativeBase

        class Base(DeclarativeBase):
            pass

        class Order(Base):
            __tablename__ = "orders"
            number = sqlalchemy.Column(sqlalchemy.Integer, primary_key=True)

        with pytest.raises(sqlalchemy.exc.IntegrityError), world.outbox.transaction() as tx:
            tx.session.execute(sqlalchemy.text("INSERT INTO orders VALUES (7)"))
            tx.session.add(Order(number=7))
            tx.send("orders", b"7")
        assert world.steps.taken == []

    def test_a_sessionmaker(self, world: SqlAlchemy) -> None:
        from sqlalchemy.orm import Session, sessionmaker

        from halfmoon.outbox.sqlalchemy import Inbox, Outbox

        class Mine(Session):
            pass

        producer = SimpleNamespace(outbox_channel=lambda group: world.channel)
        maker = sessionmaker(world.engine, class_=Mine)
        with Outbox("shop", producer, maker).transaction() as tx:
            assert isinstance(tx.session, Mine)
        for wrong in (sessionmaker(), "sqlite://"):
            with pytest.raises(TypeError, match="expected an Engine"):
                Outbox("shop", producer, wrong)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="expected an Engine"):
                Inbox("shop", wrong)  # type: ignore[arg-type]

    def test_a_connection_without_transactions_is_refused(self, world: SqlAlchemy) -> None:
        with (
            world.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
            pytest.raises(ValueError, match="AUTOCOMMIT"),
            world.outbox.transaction(connection) as tx,
        ):
            tx.send("orders", b"7")
        assert world.steps.taken == []

    def test_a_database_whose_inserts_cannot_skip_what_is_there(self, world: SqlAlchemy, monkeypatch: Any) -> None:
        monkeypatch.setattr("halfmoon.outbox.statements.InboxTable.insert_new", lambda *_: None)
        for expected in (True, False):
            with world.opened() as handle:
                assert world.inbox.once(handle, message(7)) is expected

    def test_a_sessions_inbox(self, world: SqlAlchemy) -> None:
        from sqlalchemy.orm import Session, scoped_session, sessionmaker

        with Session(world.engine) as session, session.begin():
            assert world.inbox.once(session, message(7))
        scoped = scoped_session(sessionmaker(world.engine))
        assert not world.inbox.once(scoped, message(7))
        scoped.remove()


class TestPsycopg:
    @pytest.fixture
    def world(self) -> Psycopg:
        made = Psycopg(new_database())
        with made.opened() as handle:
            made.execute(handle, "CREATE TABLE orders (number INTEGER PRIMARY KEY)")
        return made

    def test_a_connection_of_ones_own(self, world: Psycopg) -> None:
        with world.connect() as connection:
            connection.execute("INSERT INTO orders VALUES (1)")
            with world.outbox.transaction(connection) as tx:
                assert tx.connection is connection
                tx.send("orders", b"1")
            assert world.ask("SELECT number FROM orders") == [(1,)]

    def test_a_connection_that_commits_each_statement_gets_a_transaction(self, world: Psycopg) -> None:
        with world.connect() as connection:
            connection.autocommit = True
            with world.outbox.transaction(connection) as tx:
                tx.connection.execute("INSERT INTO orders VALUES (1)")
                tx.send("orders", b"1")
            with pytest.raises(RuntimeError), world.outbox.transaction(connection) as tx:
                tx.connection.execute("INSERT INTO orders VALUES (2)")
                raise RuntimeError
            assert connection.autocommit
        assert world.ask("SELECT number FROM orders") == [(1,)]

    def test_what_could_not_be_committed_is_refused_at_once(self, world: Psycopg) -> None:
        with world.connect() as connection:
            with (
                connection.transaction(),
                pytest.raises(ValueError, match=r"in a block of connection\.transaction"),
                world.outbox.transaction(connection),
            ):
                raise AssertionError
            with pytest.raises(world.errors):
                connection.execute("SELECT nothing")
            with pytest.raises(ValueError, match="has failed"), world.outbox.transaction(connection):
                raise AssertionError

    def test_an_inbox_needs_a_transaction(self, world: Psycopg) -> None:
        with world.connect() as connection:
            connection.autocommit = True
            with pytest.raises(ValueError, match="commits each statement"):
                world.inbox.once(connection, message(7))
            with connection.transaction():
                assert world.inbox.once(connection, message(7))

    def test_a_pool(self, world: Psycopg) -> None:
        from halfmoon.outbox.psycopg import Inbox, Outbox

        class Pool:
            """Of psycopg_pool's, what is used."""

            lent = 0

            @contextmanager
            def connection(self) -> Iterator[Any]:
                self.lent += 1
                with world.connect() as connection:
                    yield connection

        pool = Pool()
        producer = SimpleNamespace(outbox_channel=lambda group: world.channel)
        with Outbox("shop", producer, pool).transaction() as tx:
            tx.send("orders", b"1")
        Inbox("billing", pool).handler(lambda connection, record: None)(message(7))
        assert pool.lent == 2
        assert (len(world.rows()), world.ask("SELECT count(*) FROM halfmoon_inbox")) == (1, [(1,)])

    def test_rows_of_another_shape(self, world: Psycopg) -> None:
        from psycopg.rows import dict_row

        from halfmoon.outbox.psycopg import Outbox

        def connect() -> Any:
            connection = world.connect()
            connection.row_factory = dict_row
            return connection

        producer = SimpleNamespace(outbox_channel=lambda group: world.channel)
        outbox = Outbox("shop", producer, connect)
        with outbox.transaction(transaction_id="t") as tx:
            tx.send("orders", b"1")
        assert outbox.answer("t#0") is State.COMMITTED
        with pytest.raises(TypeError, match="expected a connection string"):
            Outbox("shop", producer, 7)

    def test_a_schema(self, world: Psycopg) -> None:
        from halfmoon.outbox.psycopg import Inbox, Outbox

        with world.connect() as connection:
            connection.execute("CREATE SCHEMA apart")
        producer = SimpleNamespace(outbox_channel=lambda group: world.channel)
        outbox = Outbox("shop", producer, world.connect, table="apart.outcomes")
        inbox = Inbox("billing", world.connect, table="apart.handled")
        outbox.create_table()
        inbox.create_table()
        with outbox.transaction(transaction_id="t") as tx:
            tx.send("orders", b"1")
            assert inbox.once(tx.connection, message(7))
        assert world.ask("SELECT transaction_id FROM apart.outcomes") == [("t",)]
        assert world.ask("SELECT message_id FROM apart.handled") == [("orders/0/7",)]


def test_producers_that_are_awaited_are_refused() -> None:
    from halfmoon.outbox.sqlalchemy import Outbox

    class Awaited:
        async def send(self) -> None: ...

    engine = sqlalchemy.create_engine("sqlite://")
    with pytest.raises(TypeError, match=r"halfmoon\.outbox\.aio"):
        Outbox("shop", Awaited(), engine)
    engine.dispose()
