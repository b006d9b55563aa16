"""A running node whose reads always come late: nothing waits for one in the loop's thread, where every client would."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path
from typing import Any

import pytest
from server_rig import batch, in_loop, node, until

from halfmoon.core.records.batches import build_batch, iter_records
from halfmoon.errors import BrokerError, Fault
from halfmoon.plugin import Batch, Dispatcher, PluginContext, hookimpl
from halfmoon.server import app as app_module
from halfmoon.server.assembly import Node
from halfmoon.testing.storages import BlockedError, LateReader, late


class Plugin:
    api_version = 1
    __name__ = "scribe"

    def __init__(self) -> None:
        self.ctx: Any = None
        self.shown: list[str] = []

    @hookimpl
    def halfmoon_started(self, ctx: PluginContext) -> None:
        self.ctx = ctx

    @hookimpl
    def halfmoon_dispatch(self, ctx: PluginContext) -> list[Dispatcher]:
        return [Dispatcher("notes", self.on_batches, lambda: b"", lambda state: None)]

    def on_batches(self, batches: list[Batch]) -> None:
        self.shown += [f"{each.topic}@{each.base_offset}" for each in batches]


@pytest.fixture
def late_node(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = late(lambda: 0.001, strict=True)
    monkeypatch.setattr(app_module, "Node", functools.partial(Node, storage=storage))


def reader_of(app: Any) -> LateReader:
    found = app.node.kernel.reader
    assert isinstance(found, LateReader)
    return found


def values(batches: Any) -> list[bytes | None]:
    return [record.value for piece in batches for record in iter_records(piece)]


def headed(value: bytes, **headers: str) -> bytes:
    return bytes(build_batch([(None, value, 1, tuple((n, v.encode()) for n, v in headers.items()))]))


@in_loop
async def test_a_plugin_reads_without_holding_up_anybody(tmp_path: Path, late_node: None) -> None:
    plugin = Plugin()
    async with node(tmp_path, plugin) as app:
        app.node.kernel.administration.create_topic("t", 1)
        for value in (b"a", b"b"):
            plugin.ctx.append("t", 0, batch(value))
        partition = app.node.kernel.catalog.topic("t").partitions[0]
        await until(lambda: partition.high_watermark == 2)
        assert values(await plugin.ctx.read_async("t", 0, 0, 1 << 20)) == [b"a", b"b"]
        assert values(await plugin.ctx.read_async("t", 0, 1, 1)) == [b"b"]
        assert list(await plugin.ctx.read_async("t", 0, 2, 1)) == []
        with pytest.raises(BrokerError) as refused:
            await plugin.ctx.read_async("nowhere", 0, 0, 1)
        assert refused.value.fault is Fault.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(BlockedError):  # the one that says that it waits
            plugin.ctx.read("t", 0, 0, 1 << 20)
        reader_of(app).strict = False
        assert values(plugin.ctx.read("t", 0, 0, 1 << 20)) == [b"a", b"b"]


@in_loop
async def test_what_moves_messages_and_follows_the_log_waits_in_threads(tmp_path: Path, late_node: None) -> None:
    plugin = Plugin()
    async with node(tmp_path, plugin, log={"segment_bytes": "1MiB", "flush_interval": "1ms"}) as app:
        topics, catalog = app.node.kernel.administration, app.node.kernel.catalog
        topics.create_topic("t", 1)
        topics.create_topic("v", 1, {"halfmoon.view.source": "t", "halfmoon.view.tag": "a"})
        plugin.ctx.append("t", 0, headed(b"tagged", TAGS="a"))
        plugin.ctx.append("t", 0, headed(b"later", TIMER_DELAY_MS="20", TAGS="a"))
        partition, view = (catalog.topic(name).partitions[0] for name in ("t", "v"))
        await until(lambda: partition.high_watermark == 2)
        await until(lambda: view.high_watermark == 2)
        await until(lambda: {"t@0", "t@1", "v@0", "v@1"} <= set(plugin.shown))
        assert reader_of(app).cold_reads > 0
        assert app.node.health() == []
        await asyncio.sleep(0)
        reader_of(app).strict = False  # a stop may wait
