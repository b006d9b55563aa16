"""What a synchronous standby may lack of the catalog is told to nobody, and nothing is deleted on its word."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.store import CatalogStore, CatalogUncertainError, Change, News
from halfmoon.testing.postgres import PostgresServer, programs
from halfmoon.testing.standby import Standby
from tests.cluster.catalog_contract import change

LOOKS = 2
WAITING = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'"


class Pair:
    def __init__(self) -> None:
        self._folder = folder = Path(tempfile.mkdtemp(prefix="halfmoon-postgres-"))
        folder.chmod(0o755)  # root's server is another user's
        self.primary = PostgresServer(folder / "primary", durable=False)
        self.standby = Standby(folder / "standby", durable=False)
        self._stores: list[CatalogStore] = []

    def make(self) -> None:
        from halfmoon.cluster.postgres.connecting import Access
        from halfmoon.cluster.postgres.schema import create

        self.primary.__enter__()
        asyncio.run(create(Access(self.primary.dsn()), "a-cluster", 1, 0))
        self.standby.follow(self.primary)

    def open(self, server: PostgresServer) -> CatalogStore:
        from halfmoon.cluster.postgres.catalog import PostgresStore, read_cluster
        from halfmoon.cluster.postgres.connecting import Access

        access = Access(server.dsn())
        self._stores.append(PostgresStore(access, asyncio.run(read_cluster(access))))
        return self._stores[-1]

    def end(self) -> None:
        for each in self._stores:
            each.close()
        for server in (self.standby, self.primary):
            if server.is_running:
                server.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def change_at_the_primary_alone(self, store: CatalogStore, version: int) -> None:
        """As where the client of a commit has stopped to wait for the standby."""
        self.primary.ask(
            "set synchronous_commit = local",
            f"insert into change (version, records, crc) select {version}, records, crc from change where version = 1",
        )


@pytest.fixture
def pair() -> Iterator[Pair]:
    pytest.importorskip("asyncpg", reason="asyncpg is not installed: pip install 'halfmoon[cluster]'")
    if programs() is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    made = Pair()
    try:
        made.make()
        yield made
    finally:
        made.end()


@pytest.mark.parametrize("takes_over", [False, True])
def test_news_that_a_standby_may_lack_is_told_to_nobody(pair: Pair, takes_over: bool) -> None:
    author, other = pair.open(pair.primary), pair.open(pair.primary)
    change(author, b"a")
    a = Change(1, (b"a",))
    assert other.read(0) == other.begin(0) == News(None, [a])
    other.abandon()
    pair.standby.stop()
    pair.change_at_the_primary_alone(author, 2)
    seen = News(None, [Change(2, (b"a",))])
    for _ in range(LOOKS):
        for ask in (other.read, other.begin):
            with pytest.raises(CatalogUncertainError, match="version 2 is not certain") as raised:
                ask(1)
            assert raised.value.news == seen
    assert author.read(2).version is None, "where there is no news, nothing waits for the standby"
    assert pair.primary.ask(WAITING) == "0", "no look goes on at the server"
    if takes_over:
        pair.primary.stop()
        pair.standby.start()
        pair.standby.promote()
        other = pair.open(pair.standby)
        assert other.read(0) == News(None, [a])
        assert change(other, b"b", after=1) == 2
    else:
        pair.standby.start()
        pair.primary.ask("set synchronous_commit = on", "create table is_back ()")  # returns when it follows
        assert other.read(1) == other.begin(1) == seen
        assert other.commit([b"c"]) == 3


def test_a_connection_that_has_ended_meanwhile_is_made_anew(pair: Pair) -> None:
    author, other = pair.open(pair.primary), pair.open(pair.primary)
    change(author, b"a")
    assert other.begin(0).version == 1
    other.abandon()
    change(author, b"b", after=1)
    ended = "select pg_terminate_backend(pid) from pg_stat_activity where query like '%emit%'"
    assert pair.primary.ask(f"{ended} and pid <> pg_backend_pid()") == "t"
    assert other.begin(1).version == 2
    assert other.commit([b"c"]) == 3


def test_who_holds_nothing_has_as_long_for_a_certain_commit_as_for_any(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where commits take long, news that is never certain would keep nodes from starting."""
    from halfmoon.cluster.postgres import catalog

    author, other = pair.open(pair.primary), pair.open(pair.primary)
    change(author, b"a")
    monkeypatch.setattr(catalog, "CERTAIN_S", 0.0)
    assert other.read(0).version == 1
    with pytest.raises(CatalogUncertainError):
        other.begin(0)


def test_whether_another_server_has_it_says_nothing(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that holds the catalog was replaced, and nobody has told it."""
    from halfmoon.cluster.postgres.connecting import Access

    author, other = pair.open(pair.primary), pair.open(pair.primary)
    change(author, b"a")
    pair.standby.promote()
    others = Access(pair.standby.dsn())
    other.read(1)  # it is connected
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(other, "_access", others)
        with pytest.raises(CatalogUncertainError, match="another server answers"):
            other.begin(0)


def test_an_object_whose_death_a_standby_may_lack_is_not_told_as_dead(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    from halfmoon.cluster.postgres import logs
    from halfmoon.cluster.postgres.connecting import Access

    monkeypatch.setattr(logs, "CALL_S", 0.3)
    dead = "select 'o/1', 7, clock_timestamp() - interval '1 h' union all select 'o/2', 0, clock_timestamp()"

    async def story() -> None:
        database = await logs.PostgresLogs.open(Access(pair.primary.dsn()))
        try:
            assert await database.dead_objects(60) == []
            pair.standby.stop()
            pair.primary.ask("set synchronous_commit = local", f"insert into object (key, size, dead) {dead}")
            for _ in range(LOOKS):
                with pytest.raises(DatabaseUnavailableError):
                    await database.dead_objects(60)
                with pytest.raises(DatabaseUnavailableError):
                    await database.condemned_among(["o/1", "o/2"])
            pair.standby.start()
            pair.primary.ask("create table is_back ()")  # returns when it follows
            assert await database.dead_objects(60) == ["o/1"]
            assert await database.condemned_among(["o/1", "o/2"]) == {"o/2"}
        finally:
            await database.close()

    asyncio.run(story())
