"""Who has changed the shared catalog answers when the others know it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from halfmoon.cluster.messages import CatalogChanged, Done
from halfmoon.server.workers import catalog_news
from halfmoon.server.workers.catalog_news import CatalogNews


class Links:
    def __init__(self, **up: bool) -> None:
        self.up = {int(process[1:]): is_up for process, is_up in up.items()}
        self.asked: list[tuple[int, Any, Any]] = []

    def others(self) -> dict[int, bool]:
        return dict(self.up)

    def ask_process(self, process: int, question: Any, told: Any) -> None:
        self.asked.append((process, question, told))


class World:
    def __init__(self, **up: bool) -> None:
        self.links = Links(**up)
        self.driver = SimpleNamespace(tell=None)
        made: Any = CatalogNews
        self.news = made(SimpleNamespace(version=5), self.driver, self.links, pytest.fail)

    async def __aenter__(self) -> World:
        self.news.start()
        self.told = asyncio.ensure_future(self.driver.tell(5))
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.told.cancel()
        self.news.stop()

    async def knows(self) -> bool:
        await asyncio.sleep(0.01)
        return self.told.done()


def test_it_waits_for_all_that_can_be_reached() -> None:
    async def run() -> None:
        async with World(p1=True, p2=True) as world:
            assert [(process, question) for process, question, _ in world.links.asked] == [
                (1, CatalogChanged(5)), (2, CatalogChanged(5)),
            ]  # fmt: skip
            world.links.asked[0][2](Done())
            assert not await world.knows()
            world.links.asked[1][2](Done())
            assert await world.knows()

    asyncio.run(run())


def test_it_waits_for_one_that_is_connected_soon() -> None:
    """As after a start: its clients would not know a user that somebody was told to be there."""

    async def run() -> None:
        async with World(p1=False) as world:
            assert not await world.knows()
            world.links.up[1] = True
            world.news.connected(1)
            assert not await world.knows()
            ((process, question, told),) = world.links.asked
            assert (process, question) == (1, CatalogChanged(5))
            told(Done())
            assert await world.knows()

    asyncio.run(run())


def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_news, "TOLD_S", 0.05)

    async def run() -> None:
        async with World(p1=False, p2=True) as world:
            world.links.asked[0][2](Done())
            assert not await world.knows()
            await asyncio.sleep(0.1)
            assert await world.knows()
            again = asyncio.ensure_future(world.driver.tell(5))
            await asyncio.sleep(0)
            world.news.connected(1)
            for _, _, told in world.links.asked:
                told(Done())
            await asyncio.wait_for(again, 1)

    asyncio.run(run())


def test_nobody_else_is_there() -> None:
    async def run() -> None:
        async with World() as world:
            assert await world.knows()

    asyncio.run(run())
