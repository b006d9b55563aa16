"""A node that stops, or whose start is cancelled, comes to an end, whatever it waits for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from halfmoon.cluster.engine.pieces import Durability
from halfmoon.cluster.engine.sharing import Move
from halfmoon.cluster.postgres.connecting import translated
from halfmoon.cluster.store import CatalogUnavailableError
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.errors import StartError
from halfmoon.server.nodes.node import ClusterNode
from tests.server.nodes.cluster import MemoryEngines, World, cluster
from tests.server.server_rig import played

FAST = [Durability.FAST] * 4


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., None]:
    def play(story: Callable[[World], Any], nodes: int = 2) -> None:
        async def run() -> None:
            async with cluster(tmp_path, nodes, FAST) as world:
                await story(world)

        played(run())

    return play


def test_a_node_that_cannot_say_that_it_leaves_stops_all_the_same_and_others_have_its_shards_at_once(
    run: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """For a reason that nobody has thought of."""

    async def fails(*_: object) -> None:
        raise ValueError("a wrong statement")

    async def story(world: World) -> None:
        await world.until(lambda: sorted(map(len, world.holders().values())) == [2, 2])
        node = world.nodes[2]
        monkeypatch.setattr(world.engines[2].database, "drain", fails, raising=False)
        await world.stop(2)
        assert not node.held.open
        assert [one.number for one in await world.database.nodes() if one.alive] == [1]
        await world.shared_out()

    run(story)
    assert "event=not_left\n" in caplog.text
    assert "event=stop_failed" not in caplog.text


def test_who_still_reads_from_a_shard_is_told_when_it_is_closed(run: Any) -> None:
    """Else it would wait for a store that does not answer, and with it a process that ends."""

    async def story(world: World) -> None:
        await world.until(lambda: len(world.holders()[1]) == 4)
        backing = world.nodes[1].place.logs[0].backing
        waits = asyncio.Event()

        async def no_answer() -> None:
            waits.set()
            await asyncio.Event().wait()

        reading = asyncio.ensure_future(asyncio.to_thread(backing.wait, no_answer))
        await waits.wait()
        await world.stop(1)
        async with asyncio.timeout(5):
            with pytest.raises(OSError, match="shard 0 is abandoned"):
                await reading

    run(story, 1)


async def by_a_connection(node: ClusterNode, work: Callable[[], object]) -> None:
    await asyncio.get_running_loop().run_in_executor(node.worker.kafka.executor, work)


async def by_another_node(node: ClusterNode, work: Callable[[], object]) -> None:
    done = asyncio.Event()
    node.worker.in_thread(work, lambda *_: done.set())
    await done.wait()


async def by_a_plugin(node: ClusterNode, work: Callable[[], object]) -> None:
    def steps(*_: object) -> Generator[Callable[[], object], object, list[bytes]]:
        yield work
        return []

    host = node.worker.running.host._first
    host._read = steps  # type: ignore[method-assign, assignment]
    await host.read_async("t", 0, 0, 1)


@pytest.mark.parametrize("read", [by_a_connection, by_another_node, by_a_plugin])
def test_shards_are_given_away_though_reads_wait_for_a_store_that_does_not_answer(run: Any, read: Any) -> None:
    goes_on = threading.Event()

    async def story(world: World) -> None:
        await world.until(lambda: sorted(map(len, world.holders().values())) == [2, 2])
        node = world.nodes[2]
        reads = [asyncio.ensure_future(read(node, partial(goes_on.wait, 40))) for _ in range(100)]
        try:
            await asyncio.sleep(0)  # all of them are begun
            async with asyncio.timeout(20):
                for shard in list(node.held.open):
                    head = world.database.shards[shard].head
                    await node.held.give(Move(head, world.nodes[1].member.incarnation))
                await asyncio.to_thread(int)
        finally:
            goes_on.set()
        await asyncio.gather(*reads)

    run(story)


class GoingAway(MemoryEngines):
    """Whose database goes away while a node starts, and does not come back."""

    def __init__(self, world: World, when: str) -> None:
        super().__init__(world, 1)
        self._when = when
        self.is_gone = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._register = self.database.register
        self.database.register = self.register

    async def open(self) -> None:
        await super().open()
        if self._when == "its first change":
            self.commit_no_more()

    async def register(self, *who: Any) -> int:
        if self._when == "a shard's change":
            self.commit_no_more()
        else:
            self.database.down = True
            self.is_gone.set()
        return int(await self._register(*who))

    def commit_no_more(self) -> None:
        def gone(*_: object) -> None:
            raise CatalogUnavailableError("no answer")

        def commit(_records: object) -> None:
            self.catalog.abandon()
            self.catalog.begin = gone  # type: ignore[method-assign, assignment]
            self._loop.call_soon_threadsafe(self.is_gone.set)
            gone()

        self.catalog.commit = commit  # type: ignore[method-assign, assignment]

    async def close(self) -> None:
        with translated():
            raise TimeoutError


@pytest.mark.parametrize("when", ["its first change", "it registers", "a shard's change"])
def test_a_start_that_waits_for_the_database_is_undone_when_it_is_cancelled(
    tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halfmoon.server.nodes.node.LEAVE_S", 0.5)

    async def story() -> None:
        world = World(tmp_path, FAST)
        settings, engines = world.settings(1), GoingAway(world, when)
        node = ClusterNode(settings, engines, on_lost=world.lost.append)
        starting = asyncio.ensure_future(node.start())
        await engines.is_gone.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        again = OsFileSystem(Path(settings.node.data_dir))
        again.lock()
        again.unlock()

    played(story())


def test_the_data_directory_of_a_start_that_is_cancelled_is_let_go_when_no_thread_changes_it_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()

    async def story() -> None:
        world, loop, removes = World(tmp_path, FAST), asyncio.get_running_loop(), asyncio.Event()

        def remove(*_: object, **__: object) -> None:
            loop.call_soon_threadsafe(removes.set)
            goes_on.wait(20)

        monkeypatch.setattr("halfmoon.server.nodes.node_place.shutil.rmtree", remove)
        settings = world.settings(1)
        node = ClusterNode(settings, MemoryEngines(world, 1), on_lost=world.lost.append)
        starting = asyncio.ensure_future(node.start())
        await removes.wait()
        starting.cancel()
        await asyncio.wait([starting], timeout=0.2)
        again = OsFileSystem(Path(settings.node.data_dir))
        with pytest.raises(StartError, match="in use"):
            again.lock()
        goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await starting
        again.lock()
        again.unlock()

    try:
        played(story())
    finally:
        goes_on.set()
