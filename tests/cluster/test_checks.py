"""`cluster.checks` finds what a service does not promise."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from halfmoon.cluster.checks import Tried, Verdict, is_well
from halfmoon.cluster.checks import store as of_store
from halfmoon.cluster.checks.store import try_store
from halfmoon.cluster.engine.objects import ObjectExistsError, Stored, StoreUnavailableError
from halfmoon.testing.postgres import PostgresServer
from tests.cluster.engine.doubles import MemoryStore
from tests.cluster.servers import object_store, of_poor_role, postgres


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_store, "LARGE_BYTES", 2 << 20)


def tried(store: MemoryStore) -> dict[str, Tried]:
    found = asyncio.run(try_store(store, "check"))
    assert not store.objects, "it leaves something behind"
    return {one.what: one for one in found}


def failed(found: dict[str, Tried]) -> set[str]:
    return {what for what, one in found.items() if one.verdict is Verdict.FAILED}


def test_a_store_that_does_all_is_well() -> None:
    found = tried(MemoryStore())
    assert failed(found) == set()
    assert len(found) == 8
    assert is_well(list(found.values()))


class WritesTwice(MemoryStore):
    async def put(self, key: str, data: bytes) -> None:
        self.objects[key] = data


class LetsAllWin(MemoryStore):
    """As a store that looks first and writes then."""

    async def put(self, key: str, data: bytes) -> None:
        if key in self.objects:
            raise ObjectExistsError(key)
        await asyncio.sleep(0.001)
        self.objects[key] = data


class ReadsStale(MemoryStore):
    async def get(self, key: str, start: int, end: int) -> bytes:
        return (await super().get(key, start, end)).replace(b"\0", b"\1")


class ListsLate(MemoryStore):
    """The newest is not listed yet."""

    async def list(self, prefix: str, after: str = "") -> AsyncIterator[Sequence[Stored]]:
        async for part in super().list(prefix, after):
            yield [one for one in part if one.key != list(self.objects)[-1]]


class KeepsDeleted(MemoryStore):
    async def delete(self, keys: Sequence[str]) -> None:
        if len(keys) > 20:  # the end
            await super().delete(keys)


class Down(MemoryStore):
    async def put(self, key: str, data: bytes) -> None:
        raise StoreUnavailableError("403 Forbidden")


@pytest.mark.parametrize(
    ("store", "what"),
    [
        (WritesTwice(), {"objects are written once", "of many writers one succeeds"}),
        (LetsAllWin(), {"of many writers one succeeds"}),
        (ReadsStale(), {"reads after writes", "large objects"}),
        (ListsLate(), {"listings after writes"}),
        (KeepsDeleted(), {"deletions"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_store_does_not_promise_is_found(store: MemoryStore, what: set[str]) -> None:
    found = tried(store)
    assert failed(found) == what
    assert not is_well(list(found.values()))


def test_a_store_that_refuses_is_tried_no_further() -> None:
    found = tried(Down())
    assert [one.said for one in found.values()] == ["StoreUnavailableError: 403 Forbidden"]


def test_a_real_store_is_well() -> None:
    from halfmoon.cluster.s3 import S3

    server = object_store()
    found = asyncio.run(try_store(S3.open(server.url, server.settings), "check"))
    assert is_well(found), found


def of_database(dsn: str) -> dict[str, Tried]:
    from halfmoon.cluster.checks.database import try_database
    from halfmoon.cluster.postgres.connecting import Access

    return {one.what: one for one in asyncio.run(try_database(Access(dsn), "halfmoon_check"))}


def test_a_database_whose_commits_are_not_durable_is_found() -> None:
    """As that of these tests is."""
    dsn = asyncio.run(postgres().new_database())
    found = of_database(dsn)
    assert failed(found) == {"commits are durable"}
    assert "fsync is off" in found["commits are durable"].said
    assert found["failover"].verdict is Verdict.WARNING
    assert len(found) == 10
    assert of_database(dsn).keys() == found.keys()  # nothing is left


def test_a_database_that_is_not_there_is_said() -> None:
    pytest.importorskip("asyncpg", reason="asyncpg is not installed: pip install 'halfmoon[cluster]'")
    (only,) = of_database("postgresql://halfmoon@127.0.0.1:1/none").values()
    assert only.verdict is Verdict.FAILED
    assert "refused" in only.said.lower()


def test_a_database_that_stops_answering_fails_what_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found before is said, and nothing is left behind."""
    dsn = asyncio.run(postgres().new_database())
    from halfmoon.cluster.checks import database

    async def without_an_answer(trial: Any) -> Any:
        trial.connection.terminate()
        await trial.connection.fetchval("select 1")

    async def too_late(_trial: Any) -> Any:
        raise TimeoutError

    for step in (without_an_answer, too_late):
        monkeypatch.setattr(database, "_STEPS", (*database._STEPS[:1], ("slow", step), database._STEPS[-1]))
        found = of_database(dsn)
        assert list(found) == ["version", "slow", "how long a commit takes"]
        assert found["version"].verdict is Verdict.OK
        assert failed(found) >= {"slow"}
    monkeypatch.undo()
    assert len(of_database(dsn)) == 10


def test_a_trial_that_cannot_begin_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    dsn = asyncio.run(postgres().new_database())
    import asyncpg

    execute = asyncpg.Connection.execute

    async def refused(self: Any, query: str, *more: Any) -> Any:
        if query.startswith("create table"):
            raise TimeoutError
        return await execute(self, query, *more)

    with monkeypatch.context() as patch:
        patch.setattr(asyncpg.Connection, "execute", refused)
        (only,) = of_database(dsn).values()
    assert only.verdict is Verdict.FAILED
    assert "no answer in time" in only.said
    assert len(of_database(dsn)) == 10


def test_a_right_that_is_missing_is_said() -> None:
    dsn = asyncio.run(postgres().new_database())
    found = of_database(asyncio.run(of_poor_role(dsn)))
    assert "rights" in failed(found)
    assert "grant execute on function pg_logical_emit_message" in found["rights"].said


def test_a_durable_database_is_well() -> None:
    postgres()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with PostgresServer(Path(folder) / "data") as server:
            found = of_database(server.dsn())
    assert is_well(list(found.values())), found
