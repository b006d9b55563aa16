"""A node's session with PostgreSQL, whose lock says that the node lives."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import pytest

from halfmoon.errors import LeaseLostError
from tests.cluster.servers import postgres

BORN_S = 2.0
"""So long a node needs no lock."""
SESSION_S = 1.0
"""So long its session may take to answer."""


class Relay:
    """A way to a server on which connections can go dumb: the server sees their end, and the client hears nothing; or
    what is sent on them gets lost, and neither side is told."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._open: list[tuple[asyncio.StreamWriter, list[asyncio.Task[None]]]] = []
        self._clients: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Relay:
        self._server = await asyncio.start_server(self._met, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self.go_dumb()
        for each in self._clients:
            each.close()
        await asyncio.sleep(0.01)  # transports close in the loop

    async def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up, down = await asyncio.open_connection("127.0.0.1", self._to)
        pumps = [asyncio.ensure_future(_pump(reader, down)), asyncio.ensure_future(_pump(up, writer))]
        self._open.append((down, pumps))
        self._clients.append(writer)
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*pumps)

    async def swallow(self) -> None:
        """Whatever is sent on the connections that are open now."""
        for _, pumps in self._open:
            for pump in pumps:
                pump.cancel()
        await asyncio.sleep(0)

    async def go_dumb(self) -> None:
        for to_server, pumps in self._open:
            for pump in pumps:
                pump.cancel()
            to_server.close()
        self._open.clear()
        await asyncio.sleep(0)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
    writer.close()


@pytest.fixture
def databases() -> Any:
    return postgres()


def test_a_session_that_the_server_has_ended_unheard_is_made_anew(databases: Any) -> None:
    from halfmoon.cluster.postgres.connecting import Access
    from halfmoon.cluster.postgres.logs import PostgresLogs
    from halfmoon.cluster.postgres.schema import create

    async def run() -> None:
        dsn = await databases.new_database()
        await create(Access(dsn), "a-cluster", 1, 0)
        watch = await PostgresLogs.open(Access(dsn))
        port = urlsplit(dsn).port
        assert port is not None
        async with Relay(port) as relay:
            logs = await PostgresLogs.open(Access(dsn.replace(str(port), str(relay.port))))
            incarnation = await logs.register(1, "host", 7, "")
            await asyncio.sleep(BORN_S)
            await logs.renew(incarnation)
            (node,) = await watch.nodes()
            assert node.alive
            await relay.go_dumb()
            await logs._pool.expire_connections()
            async with asyncio.timeout(10):
                while (await watch.nodes())[0].alive:  # its lock has gone
                    await asyncio.sleep(0.01)
                await logs.renew(incarnation)
                (node,) = await watch.nodes()
                assert node.alive
            await logs.nodes()  # by a connection that is good
            await logs.close()
        await watch.close()

    asyncio.run(run())


KEEPALIVES_S = 4.0
"""After so long a server gives a session up of which it hears nothing."""


class Watch:
    """Another node, which looks all the time."""

    def __init__(self, logs: Any) -> None:
        self._logs = logs
        self.dead_at_s: list[float] = []

    async def __aenter__(self) -> Watch:
        self._begun_s = asyncio.get_running_loop().time()
        self._looking = asyncio.ensure_future(self._look())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._looking.cancel()
        with suppress(asyncio.CancelledError):
            await self._looking

    async def _look(self) -> None:
        while True:
            if not all(node.alive for node in await self._logs.nodes()):
                self.dead_at_s.append(round(asyncio.get_running_loop().time() - self._begun_s, 2))
            await asyncio.sleep(0.01)


def test_a_node_lives_on_for_others_while_its_session_is_replaced(databases: Any) -> None:
    """The path of its connection is lost. The server goes on to hold the lock for a session that is no use, and lets
    go of it when nobody expects it."""
    from halfmoon.cluster.postgres.connecting import Access
    from halfmoon.cluster.postgres.logs import PostgresLogs
    from halfmoon.cluster.postgres.schema import create

    async def run() -> None:
        dsn = await databases.new_database()
        await create(Access(dsn), "a-cluster", 1, 0)
        watch = await PostgresLogs.open(Access(dsn))
        port = urlsplit(dsn).port
        assert port is not None
        async with Relay(port) as relay:
            logs = await PostgresLogs.open(Access(dsn.replace(str(port), str(relay.port))))
            incarnation = await logs.register(1, "host", 7, "")
            await asyncio.sleep(BORN_S)
            await logs.renew(incarnation)
            async with Watch(watch) as seen:
                await relay.swallow()
                await logs._pool.expire_connections()
                lost = list(relay._open)
                asyncio.get_running_loop().call_later(KEEPALIVES_S, lambda: [server.close() for server, _ in lost])
                for _ in range(8):
                    await asyncio.gather(logs.renew(incarnation), asyncio.sleep(1))
            assert seen.dead_at_s == []
            await logs.nodes()  # by a connection that is good
            await logs.close()
        await watch.close()

    asyncio.run(run())


def test_a_node_lives_on_for_others_where_the_database_was_slow(databases: Any) -> None:
    from halfmoon.cluster.postgres.connecting import Access
    from halfmoon.cluster.postgres.logs import PostgresLogs
    from halfmoon.cluster.postgres.schema import create

    async def run() -> None:
        dsn = await databases.new_database()
        await create(Access(dsn), "a-cluster", 1, 0)
        logs, watch = await PostgresLogs.open(Access(dsn)), await PostgresLogs.open(Access(dsn))
        incarnation = await logs.register(1, "host", 7, "")
        await asyncio.sleep(BORN_S)
        await logs.renew(incarnation)
        before = logs._lock
        async with Watch(watch) as seen:
            async with watch._pool.acquire() as slow, slow.transaction():
                await slow.fetch("select from node for update")
                renewing = asyncio.ensure_future(logs.renew(incarnation))
                await asyncio.sleep(SESSION_S + 0.2)
            await renewing
        assert seen.dead_at_s == []
        assert logs._lock is not before
        await logs.close()
        await watch.close()

    asyncio.run(run())


def test_a_node_of_the_version_before_lives_by_its_lock(databases: Any) -> None:
    """That takes it for itself alone."""
    from halfmoon.cluster.postgres.connecting import Access
    from halfmoon.cluster.postgres.logs import PostgresLogs
    from halfmoon.cluster.postgres.schema import create

    async def run() -> None:
        dsn = await databases.new_database()
        await create(Access(dsn), "a-cluster", 1, 0)
        watch, before = await PostgresLogs.open(Access(dsn)), await Access(dsn).connect()
        await before.execute(
            "insert into node (number, host, port, rack, doors, lease_until, born) "
            "values (1, 'host', 7, '', '', now() + interval '1 min', now() - interval '1 min')"
        )
        assert [node.alive for node in await watch.nodes()] == [False]
        assert await before.fetchval("select pg_try_advisory_lock(77, incarnation) from node")
        assert [node.alive for node in await watch.nodes()] == [True]
        await before.close()
        await watch.close()

    asyncio.run(run())


def test_a_node_hears_that_its_session_has_ended(databases: Any) -> None:
    from halfmoon.cluster.postgres.connecting import Access
    from halfmoon.cluster.postgres.logs import PostgresLogs
    from halfmoon.cluster.postgres.schema import create

    async def run() -> None:
        dsn = await databases.new_database()
        await create(Access(dsn), "a-cluster", 1, 0)
        logs = await PostgresLogs.open(Access(dsn))
        ended = asyncio.Queue[None]()
        logs.on_session_ended = lambda: ended.put_nowait(None)
        incarnation = await logs.register(1, "host", 7, "")
        before = logs._lock
        assert before is not None
        await logs._fetch("select pg_terminate_backend($1)", before.get_server_pid())
        async with asyncio.timeout(5):
            await ended.get()
        await logs.renew(incarnation)
        assert logs._lock is not before
        await logs.close()
        assert ended.empty(), "it has closed that one"

    asyncio.run(run())


def test_a_lease_is_renewed_while_other_calls_have_all_connections_of_the_pool(databases: Any) -> None:
    from halfmoon.cluster.postgres.connecting import POOL, Access
    from halfmoon.cluster.postgres.logs import PostgresLogs
    from halfmoon.cluster.postgres.schema import create

    async def run() -> None:
        dsn = await databases.new_database()
        await create(Access(dsn), "a-cluster", 1, 0)
        logs = await PostgresLogs.open(Access(dsn))
        incarnation = await logs.register(1, "host", 7, "")
        busy = [await logs._pool.acquire() for _ in range(POOL)]
        async with asyncio.timeout(2.0):
            assert await logs.renew(incarnation) == []
        for each in busy:
            await logs._pool.release(each)
        await logs.close()

    asyncio.run(run())


def test_a_node_that_was_forgotten_has_the_lock_of_its_new_incarnation(databases: Any) -> None:
    from halfmoon.cluster.postgres.connecting import Access
    from halfmoon.cluster.postgres.logs import PostgresLogs
    from halfmoon.cluster.postgres.schema import create

    async def run() -> None:
        dsn = await databases.new_database()
        await create(Access(dsn), "a-cluster", 1, 0)
        logs = await PostgresLogs.open(Access(dsn))
        before = await logs.register(1, "host", 7, "")
        await logs._fetch("delete from node")
        with pytest.raises(LeaseLostError):
            await logs.renew(before)
        now = await logs.register(1, "host", 7, "")
        await asyncio.sleep(BORN_S)
        await logs.renew(now)
        (node,) = await logs.nodes()
        assert (node.incarnation, node.alive) == (now, True)
        await logs.close()

    asyncio.run(run())
