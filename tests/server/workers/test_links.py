"""A link to another process is made again, whatever a try has come to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from halfmoon.cluster.messages import Ping
from halfmoon.cluster.receiving import Codec
from halfmoon.errors import BrokerError
from halfmoon.server.workers import links
from halfmoon.server.workers.links import Link
from tests.cluster.engine.virtual import play


class Transport:
    def __init__(self) -> None:
        self.is_closed = False

    def write(self, data: bytes) -> None:
        pass

    def abort(self) -> None:
        self.is_closed = True


class Routes:
    """Each try does what is next in `does`; what comes after that is connected."""

    def __init__(self, *does: Any) -> None:
        self.does = list(does)
        self.made: list[Transport] = []

    async def connect(self, process: int, make: Any) -> None:
        if self.does:
            await self.does.pop(0)(make)
        else:
            self.connected(make)

    def connected(self, make: Any) -> Any:
        """The protocol of what is connected."""
        transport = Transport()
        self.made.append(transport)
        protocol = make()
        protocol.connection_made(transport)
        return protocol


def link(routes: Any) -> Link:
    return Link(asyncio.get_running_loop(), 1, 2, routes, Codec(), lambda: None)


@pytest.mark.parametrize("error", [OSError("refused"), UnicodeError("label too long"), TimeoutError()])
def test_a_try_that_fails_is_followed_by_another(error: Exception) -> None:
    async def fails(_make: Any) -> None:
        raise error

    async def story() -> None:
        routes = Routes(fails, fails)
        found = link(routes)
        found.start()
        async with asyncio.timeout(1):
            await found.up.wait()
        assert len(routes.made) == 1
        found.stop()

    play(story())


@pytest.mark.parametrize("waits", [False, True])
def test_a_try_whose_time_ends_when_it_has_just_succeeded_is_followed_by_one(waits: bool) -> None:
    async def story() -> None:
        async def late(make: Any) -> None:
            """As asyncio's create_connection where the wait is over: it closes what was made, and the end is told."""
            protocol = routes.connected(make)
            routes.made[-1].is_closed = True
            asyncio.get_running_loop().call_soon(protocol.connection_lost, None)
            if waits:
                await asyncio.sleep(0)
            raise TimeoutError

        routes = Routes(late)
        found = link(routes)
        found.start()
        await asyncio.sleep(links.LONGEST_PAUSE_S * 5)
        assert [made.is_closed for made in routes.made] == [True, False]
        assert found.is_up
        found.stop()

    play(story())


@pytest.mark.parametrize("told_later", [False, True])
def test_a_try_whose_end_is_not_told_is_followed_by_another(told_later: bool) -> None:
    """As uvloop's create_connection with TLS where the wait is over."""

    async def story() -> None:
        protocols = []

        async def late(make: Any) -> None:
            protocols.append(routes.connected(make))
            raise TimeoutError

        answers: list[object] = []
        routes = Routes(late)
        found = link(routes)
        found.start()
        await asyncio.sleep(links.LONGEST_PAUSE_S * 5)
        assert [made.is_closed for made in routes.made] == [True, False]
        if told_later:
            protocols[0].data_received(b"rest of what came")
            protocols[0].connection_lost(None)
        found.ask(3, Ping(), answers.append)
        assert found.is_up
        assert len(routes.made) == 2
        assert answers == []
        found.stop()
        assert routes.made[1].is_closed
        assert len(answers) == 1

    play(story())


def test_a_connection_that_is_silent_is_left_though_nothing_tells_its_end() -> None:
    async def story() -> None:
        answers: list[object] = []
        routes = Routes()
        found = link(routes)
        found.start()
        await found.up.wait()
        found.ask(3, Ping(), answers.append)
        await asyncio.sleep(2 * links.SILENCE_S)
        assert [made.is_closed for made in routes.made[:2]] == [True, False]
        assert isinstance(answers[0], BrokerError)
        found.stop()

    play(story())
