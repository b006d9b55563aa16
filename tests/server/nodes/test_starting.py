"""A node may be started before its database answers: it waits for it."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.engine.pieces import Durability
from halfmoon.cluster.store import CatalogDamagedError, CatalogUnavailableError
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.errors import StartError
from halfmoon.server.nodes.node import ClusterNode
from halfmoon.testing.cluster import ClusterProcesses
from tests.crash.serving import wait_until
from tests.server.nodes.cluster import MemoryEngines, World
from tests.server.nodes.load import need_services
from tests.server.server_rig import played

FAST = [Durability.FAST] * 4
TIMES = 3
CALLS = ["heads", "now_ms", "nodes", "read", "begin", "lineage", "register"]
"""Of a start, in their order."""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    for name in (
        "server.nodes.patience.AGAIN_S", "server.workers.open_shards.AGAIN_S", "server.workers.catalog.LONGEST_PAUSE_S",
        "cluster.engine.membership.RENEW_S",
    ):  # fmt: skip
        monkeypatch.setattr(f"halfmoon.{name}", 0.01)


class Late(MemoryEngines):
    """One call fails, as often as is said."""

    def __init__(self, world: World, call: str, times: float, error: type[Exception] | None = None) -> None:
        super().__init__(world, 1)
        self.left = times
        self.has_failed = asyncio.Event()
        self._call, self._error, self._loop = call, error, asyncio.get_running_loop()

    async def open(self) -> None:
        await super().open()
        if self._call in ("read", "begin"):
            self._spoil(self.catalog, self._error or CatalogUnavailableError)
        else:
            self._spoil(self.database, self._error or DatabaseUnavailableError)

    def _spoil(self, port: Any, error: type[Exception]) -> None:
        ask = getattr(port, self._call)

        def late(*arguments: Any) -> Any:
            if self.left > 0:
                self.left -= 1
                self._loop.call_soon_threadsafe(self.has_failed.set)
                raise error("no answer in time")
            return ask(*arguments)

        async def late_too(*arguments: Any) -> Any:
            return await late(*arguments)

        setattr(port, self._call, late if port is self.catalog else late_too)


@pytest.mark.parametrize("call", CALLS)
def test_whatever_a_start_asks_of_the_database_is_asked_until_it_answers(
    tmp_path: Path, call: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        world = World(tmp_path, FAST)
        engines = Late(world, call, TIMES)
        node = ClusterNode(world.settings(1), engines, on_lost=world.lost.append)
        with caplog.at_level(logging.WARNING, "halfmoon"):
            await node.start()
        said = [each.message for each in caplog.records if "no answer in time" in each.message]
        assert len(said) >= TIMES
        assert all("unavailable" in each or "event=not_registered" in each for each in said)
        assert engines.left == 0
        assert sorted(node.held.open) == [0, 1, 2, 3]
        await node.stop()
        assert world.lost == []

    played(story())


@pytest.mark.parametrize("call", CALLS)
def test_a_start_that_waits_for_an_answer_can_be_cancelled(tmp_path: Path, call: str) -> None:
    async def story() -> None:
        world = World(tmp_path, FAST)
        settings, engines = world.settings(1), Late(world, call, float("inf"))
        starting = asyncio.ensure_future(ClusterNode(settings, engines, on_lost=world.lost.append).start())
        await engines.has_failed.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(starting, 10)
        again = OsFileSystem(Path(settings.node.data_dir))
        again.lock()
        again.unlock()

    played(story())


@pytest.mark.parametrize("call", ["read", "begin"])
def test_what_cannot_get_better_ends_a_start(tmp_path: Path, call: str) -> None:
    async def story() -> None:
        world = World(tmp_path, FAST)
        engines = Late(world, call, float("inf"), CatalogDamagedError)
        with pytest.raises((StartError, CatalogDamagedError), match="no answer in time"):
            await ClusterNode(world.settings(1), engines, on_lost=world.lost.append).start()

    played(story())


@pytest.mark.parametrize(
    "dsn", [f"postgresql://127.0.0.1:{end}" for end in ("1/x?sslmode=nonsense", "port/x", "99999999/x")]
)
def test_an_address_that_means_nothing_ends_a_start(dsn: str) -> None:
    pytest.importorskip("asyncpg", reason="asyncpg is not installed: pip install 'halfmoon[cluster]'")
    from halfmoon.cluster.postgres.catalog import read_cluster
    from halfmoon.cluster.postgres.connecting import Access

    with pytest.raises(StartError, match=r"\$\.cluster\.database: "):
        asyncio.run(read_cluster(Access(dsn)))


@pytest.mark.timeout(120)
def test_a_process_waits_for_its_database_and_ends_at_once_where_it_is_told_to(tmp_path: Path) -> None:
    need_services()
    with ClusterProcesses(tmp_path / "cluster", 1, fast=1, objects=1, durable=False) as cluster:
        (node,) = cluster.nodes.values()
        assert node.stop() == 0

        def said(event: str) -> Callable[[], bool]:
            return lambda: (node.folder / "log").read_text().count(event) >= TIMES

        for comes in (False, True):
            (node.folder / "log").unlink()
            cluster.database.stop()
            node.begin()
            wait_until(said("event=database_unavailable"), 30, "it has asked several times")
            if comes:
                with pytest.raises(StartError, match=r"the database \(127.0.0.1:\d+/postgres\)"):
                    cluster.cluster("status")
            else:
                assert node.is_running
                node.signal(signal.SIGTERM)
                assert node.process is not None
                assert node.process.wait(5) == 0
                node.wait()
            cluster.database.start()
        node.wait_until_ready()
        cluster.wait_until_shared()
