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


class Relay:
    """A way to a server on which connections can go dumb: the server sees their end, and the client hears nothing."""

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
            await logs.close()
        await watch.close()

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
