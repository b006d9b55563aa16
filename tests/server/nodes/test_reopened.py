"""A shard that is opened goes by the settings of now, and one that is closed leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from halfmoon.cluster.engine.pieces import Durability
from halfmoon.errors import StartError
from halfmoon.server.assembly import Node
from halfmoon.server.workers import open_shards
from halfmoon.server.workers.worker import Worker
from halfmoon.testing.ports import free_ports, ports_in_a_row
from tests.server.asking import NONE
from tests.server.nodes.cluster import World, stopped
from tests.server.server_rig import played

FAST = [Durability.FAST] * 2
DAY_MS = 24 * 3600 * 1000
LOG = {"segment_bytes": "1MiB", "low_disk_bytes": 0}


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., None]:
    def play(story: Callable[[World], Any], shards: Sequence[Durability] = FAST) -> None:
        async def run() -> None:
            async with stopped(World(tmp_path, shards)) as world:
                await story(world)

        played(run())

    return play


def retention(days: int) -> dict[str, Any]:
    return {"log": {**LOG, "retention": f"{days}d"}}


def kept_ms(node: Any) -> list[int | None]:
    """How long the topic `t` is kept, as the shared catalog says, and each shard."""
    catalogs = [node.worker.shards.front.catalog, *(each.kernel.catalog for each in node.worker.shards.nodes.values())]
    return [catalog.by_name["t"].rules.retention_ms for catalog in catalogs if "t" in catalog.by_name]


def test_a_shard_that_comes_after_a_reload_keeps_messages_for_as_long_as_the_others(run: Any) -> None:
    async def story(world: World) -> None:
        for number in (1, 2):
            await world.start(number, **retention(1))
        await world.until(lambda: sorted(map(len, world.holders().values())) == [1, 1])
        assert await world.create("t", 2) == NONE
        await world.led("t")
        for index in range(2):
            await world.send("t", index, b"v")
        node = world.nodes[1]
        assert set(kept_ms(node)) == {DAY_MS}
        node.reload(world.settings(1, **retention(30)))
        await world.stop(2)
        await world.shared_out()
        assert set(kept_ms(node)) == {30 * DAY_MS}

    run(story)


def test_settings_that_are_reloaded_while_a_shard_is_recovered_hold_there(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    recovers, goes_on = asyncio.Event(), asyncio.Event()
    in_thread = open_shards.OpenShards._in_thread

    async def slowly(self: Any, work: Callable[[], object]) -> None:
        await in_thread(self, work)
        recovers.set()
        await goes_on.wait()

    async def story(world: World) -> None:
        node = await world.start(1, **retention(1))
        await world.shared_out()
        assert await world.create("t", 2) == NONE
        for index in range(2):
            await world.send("t", index, b"v")
        head = node.held._wanted[0]
        await node.held._shut(0)
        monkeypatch.setattr(open_shards.OpenShards, "_in_thread", slowly)
        node.held.taken(head)
        await recovers.wait()
        node.reload(world.settings(1, **retention(30)))
        goes_on.set()
        await world.shared_out()
        assert set(kept_ms(node)) == {30 * DAY_MS}

    run(story)


def listening() -> dict[str, Any]:
    """All that takes part in a shard's life, with users."""
    kafka, names = free_ports(2)
    brokers = ports_in_a_row("127.0.0.1", len(FAST))
    rocketmq = {"bind": f"127.0.0.1:{brokers}", "namesrv": f"127.0.0.1:{names}", "auth": True}
    return {"kafka": {"bind": f"127.0.0.1:{kafka}"}, "rocketmq": rocketmq}


def listening_to_the_process(worker: Worker) -> tuple[int, int, int]:
    common = worker.shards.common
    return (
        len(worker.shards.live._subscribers), len(common.state.configs.on_topic_defaults), len(common.users.on_change)
    )  # fmt: skip


def test_a_shard_that_is_closed_leaves_nothing_behind(
    run: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "halfmoon.cluster")  # a record that pytest keeps knows where an error was raised
    monkeypatch.setattr("halfmoon.adapters.rocketmq.node.SWEEP_S", 0.05)  # the next turn after its end is the last
    opened: list[weakref.ref[Any]] = []
    open_node = open_shards.open_node

    def fails_now_and_then(node: Node, *given: Any, **more: Any) -> None:
        opened.append(weakref.ref(node))
        open_node(node, *given, **more)
        if len(opened) % 2:
            node.kernel.log.close()
            raise StartError("no luck")

    async def story(world: World) -> None:
        node = await world.start(1, listeners=listening(), security={"authorizer": "none"})
        await world.shared_out()
        assert await world.create("t", 2) == NONE
        before = listening_to_the_process(node.worker)
        monkeypatch.setattr(open_shards, "open_node", fails_now_and_then)
        for _ in range(3):
            head = node.held._wanted[0]
            await node.held._shut(0)
            node.held.taken(head)
            await world.shared_out()
            await world.send("t", 0, b"v")
        assert len(opened) == 6
        assert listening_to_the_process(node.worker) == before
        gc.collect()
        await world.until(lambda: gc.collect() >= 0 and sum(each() is not None for each in opened) == 1)
        assert opened[-1]() is node.worker.shards.nodes[0]

    run(story)
