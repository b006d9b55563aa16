from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from halfmoon.cluster.backup.tables import COLUMNS, Rows
from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.store import CatalogStore, CatalogUnavailableError, Cluster
from halfmoon.errors import StartError
from tests.cluster.catalog_contract import FORGET, CatalogContract, Open
from tests.cluster.servers import of_poor_role, postgres


def _open(dsn: str) -> CatalogStore:
    from halfmoon.cluster.postgres.catalog import PostgresStore, read_cluster
    from halfmoon.cluster.postgres.connecting import Access

    access = Access(dsn)
    return PostgresStore(access, asyncio.run(read_cluster(access)))


@pytest.fixture
def dsn() -> str:
    return asyncio.run(postgres().new_database())


class TestPostgresStore(CatalogContract):
    @pytest.fixture
    def open_store(self, dsn: str) -> Open:
        from halfmoon.cluster.postgres.connecting import Access
        from halfmoon.cluster.postgres.schema import create

        asyncio.run(create(Access(dsn), "a-cluster", 2, 2))
        return partial(_open, dsn)

    @pytest.fixture
    def go_back(self, dsn: str) -> Callable[[], None]:
        async def forget() -> None:
            import asyncpg

            connection = await asyncpg.connect(dsn)
            await connection.execute(FORGET)
            await connection.close()

        return lambda: asyncio.run(forget())

    def test_it_knows_the_cluster(self, store: CatalogStore) -> None:
        assert store.cluster == ("a-cluster", 4)


def test_nobody_connects_while_the_catalog_is_held(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others wait, and the server ends a transaction that is idle for long."""
    from halfmoon.cluster.postgres.catalog import PostgresStore
    from halfmoon.cluster.postgres.connecting import Access
    from halfmoon.cluster.postgres.schema import create

    access = Access(dsn)
    asyncio.run(create(access, "a-cluster", 2, 2))
    store = PostgresStore(access, Cluster("a-cluster", 4))
    held: list[bool] = []

    async def connect() -> object:
        held.append(store._held is not None)
        return await Access(dsn).connect()

    monkeypatch.setattr(access, "connect", connect)
    try:
        for version in range(2):
            store.begin(0)
            store.commit([b"a"])
            assert held == [False, False], version
    finally:
        store.close()


def test_a_right_that_is_missing_is_said_and_may_come_back(dsn: str) -> None:
    """Nobody stops because an administrator has taken one away."""
    from halfmoon.cluster.postgres.connecting import Access
    from halfmoon.cluster.postgres.schema import create

    poor = asyncio.run(of_poor_role(dsn))
    asyncio.run(create(Access(poor), "a-cluster", 2, 2))
    store = _open(poor)
    try:
        store.begin(0)
        store.commit([b"a"])
        for ask in (store.read, store.begin):
            with pytest.raises(CatalogUnavailableError, match="permission denied for function pg_logical_emit"):
                ask(0)
    finally:
        store.close()


def test_a_table_that_the_role_may_not_read_is_said(dsn: str) -> None:
    from halfmoon.cluster.postgres.connecting import Access
    from halfmoon.cluster.postgres.schema import create

    asyncio.run(create(Access(dsn), "a-cluster", 2, 2))  # they are another role's
    with pytest.raises(DatabaseUnavailableError, match="permission denied for table"):
        _open(asyncio.run(of_poor_role(dsn)))


def test_a_database_without_a_cluster_is_refused(dsn: str) -> None:
    with pytest.raises(StartError, match="halfmoon cluster init"):
        _open(dsn)


def test_a_cluster_is_made_once(dsn: str) -> None:
    from halfmoon.cluster.postgres.connecting import Access
    from halfmoon.cluster.postgres.schema import NEWEST, create, upgrade

    access = Access(dsn)
    with pytest.raises(StartError, match="cluster init"):
        asyncio.run(upgrade(access))
    asyncio.run(create(access, "a-cluster", 1, 0))
    with pytest.raises(StartError, match="has a cluster"):
        asyncio.run(create(access, "another", 1, 0))
    assert asyncio.run(upgrade(access)) == (NEWEST, NEWEST)
    store = _open(dsn)
    assert store.cluster == ("a-cluster", 1)
    store.close()


def test_what_is_not_finished_is_no_cluster_and_is_made_anew(dsn: str) -> None:
    from halfmoon.cluster.postgres.connecting import Access
    from halfmoon.cluster.postgres.schema import upgrade
    from halfmoon.cluster.postgres.tables import PostgresTables

    access = Access(dsn)
    tables = PostgresTables(access)

    told: list[str] = []

    async def fill() -> None:
        rows = [Rows("shard", [(0, "fast", 3, 0)]), Rows("object", [("a-cluster/o/1", 7)])]
        await tables.fill(iter(rows), COLUMNS, told)

    for _ in range(2):
        asyncio.run(fill())
        for refused in (lambda: _open(dsn), lambda: asyncio.run(upgrade(access)), lambda: asyncio.run(tables.pin())):
            with pytest.raises(StartError, match="`halfmoon cluster rebuild` again"):
                refused()
    asyncio.run(tables.finish(Cluster("a-cluster", 1), 7, b"all", told[-1]))
    store = _open(dsn)
    assert (store.cluster, store.read(0).snapshot) == (("a-cluster", 1), (7, b"all"))
    store.close()
    for refused in (lambda: asyncio.run(fill()), lambda: asyncio.run(tables.finish(Cluster("b", 1), 1, b"", told[-1]))):
        with pytest.raises(StartError, match="has a cluster already"):
            refused()
    assert asyncio.run(tables.needed()) == {}


def test_what_is_begun_and_given_up_is_in_the_way_of_no_new_cluster(dsn: str) -> None:
    from halfmoon.cluster.postgres.connecting import Access
    from halfmoon.cluster.postgres.schema import create
    from halfmoon.cluster.postgres.tables import PostgresTables

    access = Access(dsn)
    asyncio.run(PostgresTables(access).fill(iter([Rows("shard", [(0, "fast", 3, 0)])]), COLUMNS, []))
    asyncio.run(create(access, "another", 2, 1))
    store = _open(dsn)
    assert store.cluster == ("another", 3)
    store.close()


def test_all_tables_are_emptied(dsn: str) -> None:
    """But for the one that says which they are."""
    import asyncpg

    from halfmoon.cluster.postgres import schema
    from halfmoon.cluster.postgres.connecting import Access

    async def names() -> set[str]:
        await schema.create(Access(dsn), "a-cluster", 1, 0)
        connection = await asyncpg.connect(dsn)
        rows = await connection.fetch("select tablename from pg_tables where schemaname = 'public'")
        await connection.close()
        return {row[0] for row in rows}

    emptied = schema._EMPTY.removeprefix("truncate ").removesuffix(" restart identity").split(", ")
    assert asyncio.run(names()) == {*emptied, "format"}


def test_a_newer_format_is_refused(dsn: str) -> None:
    import asyncpg

    from halfmoon.cluster.postgres.connecting import Access
    from halfmoon.cluster.postgres.schema import NEWEST, create

    async def make() -> None:
        await create(Access(dsn), "a-cluster", 1, 0)
        connection = await asyncpg.connect(dsn)
        await connection.execute(f"insert into format (number) values ({NEWEST + 2})")
        await connection.close()

    asyncio.run(make())
    with pytest.raises(StartError, match="install the version of the other nodes"):
        _open(dsn)


@pytest.mark.parametrize("kinds", [(0, 4), (1, 256), (257, 0)])
def test_numbers_of_shards_that_cannot_be(dsn: str, kinds: tuple[int, int]) -> None:
    from halfmoon.cluster.postgres.connecting import Access
    from halfmoon.cluster.postgres.schema import create

    with pytest.raises(StartError, match="shards"):
        asyncio.run(create(Access(dsn), "a-cluster", *kinds))


def test_a_change_sees_the_one_it_has_waited_for_whatever_the_database_s_isolation_is(dsn: str) -> None:
    from halfmoon.cluster.postgres.connecting import Access
    from halfmoon.cluster.postgres.schema import create

    asyncio.run(create(Access(dsn), "a-cluster", 1, 0))

    async def isolate() -> None:
        import asyncpg

        connection = await asyncpg.connect(dsn)
        name = await connection.fetchval("select current_database()")
        await connection.execute(f"alter database {name} set default_transaction_isolation = 'repeatable read'")
        await connection.close()

    asyncio.run(isolate())
    one, other = _open(dsn), _open(dsn)
    one.begin(0)
    with ThreadPoolExecutor(1) as thread:
        begun = thread.submit(other.begin, 0)
        with pytest.raises(TimeoutError):
            begun.result(0.5)
        assert one.commit([b"a"]) == 1
        assert begun.result(10).version == 1
    assert other.commit([b"b"]) == 2
    one.close()
    other.close()


def test_tables_get_no_further_than_the_nodes_that_live_can_do_with(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node knows its own format and the next one. Those that are dead, or whose lease is over, do not count."""
    import asyncpg

    from halfmoon.cluster.postgres import schema
    from halfmoon.cluster.postgres.connecting import Access
    from halfmoon.cluster.postgres.logs import PostgresLogs

    access = Access(dsn)
    asyncio.run(schema.create(access, "a-cluster", 1, 0))
    scripts = schema._scripts()

    def next_version() -> None:
        scripts.append((schema.NEWEST + 1, f"create table later_{len(scripts)} (number integer)"))
        monkeypatch.setattr(schema, "_scripts", lambda: scripts)
        monkeypatch.setattr(schema, "NEWEST", scripts[-1][0])

    async def story() -> None:
        logs = await PostgresLogs.open(access)
        await logs.register(7, "host", 1, "")
        before = schema.NEWEST
        next_version()
        assert await schema.upgrade(access) == (before, before + 1)
        next_version()
        with pytest.raises(StartError, match=rf"replace these nodes first, by ones of format {before + 1}: 7"):
            await schema.upgrade(access)
        connection = await asyncpg.connect(dsn)
        await connection.execute("update node set lease_until = clock_timestamp()")
        assert await schema.upgrade(access) == (before + 1, before + 2)
        await connection.close()
        await logs.close()

    asyncio.run(story())


def test_an_upgrade_waits_for_a_table_that_is_used(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncpg

    from halfmoon.cluster.postgres import schema
    from halfmoon.cluster.postgres.connecting import Access

    access = Access(dsn)
    asyncio.run(schema.create(access, "a-cluster", 1, 0))
    scripts = [*schema._scripts(), (schema.NEWEST + 1, "alter table shard add column later integer")]

    async def story() -> None:
        connection = await asyncpg.connect(dsn)
        using = connection.transaction()
        await using.start()
        await connection.execute("update shard set wanted = 1")
        tried = 0

        async def pause(seconds: float) -> None:
            nonlocal tried
            tried += 1
            await using.rollback()

        monkeypatch.setattr("halfmoon.cluster.postgres.schema.asyncio.sleep", pause)
        monkeypatch.setattr(schema, "_scripts", lambda: scripts)
        before = schema.NEWEST
        monkeypatch.setattr(schema, "NEWEST", before + 1)
        assert await schema.upgrade(access) == (before, before + 1)
        assert tried == 1
        await connection.close()

    asyncio.run(story())
