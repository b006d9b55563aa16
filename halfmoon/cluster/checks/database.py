"""What is tried of a PostgreSQL. Everything stands in a schema of its own, which is dropped at the end."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg

from halfmoon.cluster.checks import Tried, Verdict
from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.postgres.connecting import POOL, Access, connected, translated

OLDEST, NEWEST = 15, 18
RACERS: Final = 16
RACES: Final = 3
WAITS_S: Final = 0.2
TIMED: Final = 50
SLOW_S: Final = 0.05
CLOCK_S: Final = 1.0
NODES: Final = 3
PER_NODE: Final = POOL + 3
"""Connections of one node: the pool, the session of its lock, and two of its copy of the catalog."""

Outcome = tuple[Verdict, str]


async def try_database(access: Access, schema: str) -> list[Tried]:
    """`schema`: of a name that nobody else uses."""
    found: list[Tried] = []
    try:
        async with _Trial(access, schema) as trial:
            for what, step in _STEPS:
                try:
                    with translated():
                        verdict, said = await step(trial)
                except (DatabaseUnavailableError, asyncpg.PostgresError) as error:
                    verdict, said = Verdict.FAILED, str(error)
                found.append(Tried(what, verdict, said))
    except (DatabaseUnavailableError, asyncpg.PostgresError) as error:
        found.append(Tried("it can be connected to, and written", Verdict.FAILED, str(error)))
    return found


class _Trial:
    def __init__(self, access: Access, schema: str) -> None:
        self._access = access
        self._schema = schema
        self.connection: Any = None

    async def __aenter__(self) -> _Trial:
        self.connection = await self._access.connect()
        try:
            with translated():
                await self.connection.execute(f"create schema {self._schema}")
                await self.connection.execute(f"set search_path to {self._schema}")
                await self.connection.execute("create table head (shard int primary key, epoch bigint, stop bigint)")
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """The connection may be lost, and the schema is to go all the same."""
        self.connection.terminate()
        with contextlib.suppress(DatabaseUnavailableError, asyncpg.PostgresError):
            async with connected(self._access) as connection:
                await connection.execute(f"drop schema if exists {self._schema} cascade")

    @asynccontextmanager
    async def another(self) -> AsyncIterator[Any]:
        async with connected(self._access) as connection:
            await connection.execute(f"set search_path to {self._schema}")
            yield connection

    async def setting(self, name: str) -> str:
        with translated():
            return str(await self.connection.fetchval("select current_setting($1)", name))


async def _version(trial: _Trial) -> Outcome:
    number = int(await trial.setting("server_version_num")) // 10_000
    said = f"PostgreSQL {number}"
    if number < OLDEST:
        return Verdict.FAILED, f"{said}: {OLDEST} is the oldest that works"
    return (Verdict.WARNING, f"{said}: not tried yet") if number > NEWEST else (Verdict.OK, said)


async def _durable(trial: _Trial) -> Outcome:
    for name, meaning in (
        ("fsync", "a power cut would lose acknowledged messages"),
        ("full_page_writes", "a power cut could damage its tables"),
        ("synchronous_commit", "acknowledged messages would not be durable"),
    ):
        if (value := await trial.setting(name)) == "off":
            return Verdict.FAILED, f"{name} is {value}: {meaning}"
    return Verdict.OK, "commits wait for the disk (fsync, full_page_writes, synchronous_commit)"


async def _standby(trial: _Trial) -> Outcome:
    """A commit that the standby does not have is gone with the primary."""
    waits = await trial.setting("synchronous_commit")
    if await trial.setting("synchronous_standby_names") and waits not in ("local",):
        return Verdict.OK, "commits wait for a standby"
    return Verdict.WARNING, (
        "commits wait for no standby: a failover to one may lose acknowledged messages, and shards that find that "
        "stop. A service that promises a synchronous standby does not say so here"
    )


async def _one_session(trial: _Trial) -> Outcome:
    """A pooler that gives each transaction another session would lose locks."""
    seen = {await trial.connection.fetchval("select pg_backend_pid()")}
    for _ in range(3):
        async with trial.another() as other, other.transaction():
            await other.fetchval("select pg_backend_pid()")  # it has the session, if sessions are given away
            seen.add(await trial.connection.fetchval("select pg_backend_pid()"))
    if len(seen) > 1:
        return Verdict.FAILED, "a connection is given several sessions: connect directly, or pool sessions"
    return Verdict.OK, "a connection is one session"


async def _rights(trial: _Trial) -> Outcome:
    """What nobody needs who has only tables; cluster/postgres/catalog.py does. The tables are the role's own."""
    try:
        await trial.connection.fetchval("select pg_logical_emit_message(true, 'halfmoon', '')")
    except asyncpg.InsufficientPrivilegeError as error:
        needed = "grant execute on function pg_logical_emit_message to it, or nodes wait for that when they start"
        return Verdict.FAILED, f"the role lacks a right ({error}): {needed}"
    return Verdict.OK, "the role may make tables, and call pg_logical_emit_message"


async def _lock(trial: _Trial) -> Outcome:
    async with trial.another() as other:
        await other.execute("select pg_advisory_lock_shared(77, 2147483647)")
        if not await trial.connection.fetchval("select pg_try_advisory_lock_shared(77, 2147483647)"):
            return Verdict.FAILED, "a shared lock is not shared: a node could not replace its session while it lives"
        await trial.connection.execute("select pg_advisory_unlock_shared(77, 2147483647)")
        if await trial.connection.fetchval("select pg_try_advisory_lock(77, 2147483647)"):
            return Verdict.FAILED, "two have one lock"
        held = await trial.connection.fetchval(
            "select count(*) from pg_locks "
            "where locktype = 'advisory' and classid = 77 and objid = 2147483647 and granted"
        )
        if held != 1:
            return (
                Verdict.FAILED,
                "a lock that is held is not in pg_locks: dead nodes would not be told from living ones",
            )
        other.terminate()
    for _ in range(200):
        if await trial.connection.fetchval("select pg_try_advisory_lock(77, 2147483647)"):
            await trial.connection.execute("select pg_advisory_unlock(77, 2147483647)")
            return Verdict.OK, "a lock goes with its session"
        await asyncio.sleep(0.01)
    return Verdict.FAILED, "a lock stays after its session has ended: a dead node would be noticed late"


async def _races(trial: _Trial) -> Outcome:
    await trial.connection.execute("insert into head values (1, 1, 0)")

    async def commit(connection: Any, stop: int) -> bool:
        sql = "update head set stop = stop + 1 where shard = 1 and epoch = 1 and stop = $1"
        return bool(await connection.execute(sql, stop) == "UPDATE 1")

    async with trial.another() as second:
        async with trial.connection.transaction():
            first = await commit(trial.connection, 0)
            waiting = asyncio.ensure_future(commit(second, 0))
            await asyncio.wait([waiting], timeout=WAITS_S)
            if waiting.done():
                waiting.exception()
                return Verdict.FAILED, "a commit does not wait for another one of the same row"
        if (first, await waiting) != (True, False):
            return Verdict.FAILED, "a commit does not see the one that it has waited for"
    for race in range(1, 1 + RACES):

        async def race_for_it(stop: int = race) -> bool:
            async with trial.another() as connection:
                return await commit(connection, stop)

        won = (await asyncio.gather(*(race_for_it() for _ in range(RACERS)))).count(True)
        if won != 1:
            return Verdict.FAILED, f"{won} of {RACERS} who committed at the same time succeeded"
    return Verdict.OK, f"a commit waits for the one before it, and one of {RACERS} succeeds, {RACES} times"


async def _clock(trial: _Trial) -> Outcome:
    before = time.time()
    there = float(await trial.connection.fetchval("select extract(epoch from clock_timestamp())"))
    ahead = there - (before + time.time()) / 2
    said = f"its clock is {abs(ahead):.3f} s {'ahead of' if ahead > 0 else 'behind'} this machine's"
    return (Verdict.WARNING, f"{said}: timestamps of messages differ as much") if abs(ahead) > CLOCK_S else (
        Verdict.OK, said,
    )  # fmt: skip


async def _connections(trial: _Trial) -> Outcome:
    most = int(await trial.setting("max_connections"))
    said = f"{most} connections at most; {NODES} nodes use {NODES * PER_NODE}"
    return (Verdict.OK, said) if most >= 2 * NODES * PER_NODE else (Verdict.WARNING, said)


async def _timed(trial: _Trial) -> Outcome:
    await trial.connection.execute("insert into head values (2, 1, 0)")
    took = []
    for number in range(TIMED):
        begun = time.perf_counter()
        await trial.connection.execute("update head set stop = stop + 1 where shard = 2 and stop = $1", number)
        took.append(time.perf_counter() - begun)
    took.sort()
    median, longest = took[TIMED // 2], took[-1]
    said = f"a commit takes {median * 1000:.1f} ms, at most {longest * 1000:.1f}"
    return (Verdict.WARNING, f"{said}: acknowledgements of fast topics take longer") if median > SLOW_S else (
        Verdict.OK, said,
    )  # fmt: skip


_STEPS: Final = (
    ("version", _version),
    ("commits are durable", _durable),
    ("failover", _standby),
    ("sessions", _one_session),
    ("rights", _rights),
    ("locks", _lock),
    ("of many commits one succeeds", _races),
    ("clock", _clock),
    ("connections", _connections),
    ("how long a commit takes", _timed),
)
