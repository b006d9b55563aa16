"""Plugins in a running node: what they can do through their context, and which of their hooks are called."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from server_rig import batch, in_loop, node, until

from halfmoon.core.records.batches import iter_records
from halfmoon.errors import BrokerError, Fault
from halfmoon.plugin import Batch, Dispatcher, PluginContext, Service, hookimpl
from halfmoon.server import metrics, readings


class Plugin:
    """Writes down what it hears."""

    api_version = 1
    __name__ = "scribe"

    def __init__(self) -> None:
        self.ctx: Any = None
        self.heard: list[tuple[str, str]] = []
        self.order: list[str] = []

    @hookimpl
    def halfmoon_started(self, ctx: PluginContext) -> None:
        self.ctx = ctx
        self.order.append("started")

    @hookimpl
    def halfmoon_topic_changed(self, ctx: PluginContext, topic: str, change: str) -> None:
        self.heard.append((topic, change))

    @hookimpl
    def halfmoon_services(self, ctx: PluginContext) -> list[Service]:
        return [Service("scribbler", self.run)]

    async def run(self) -> None:
        self.order.append("run")
        try:
            await asyncio.Event().wait()
        finally:
            self.order.append("cancelled")

    @hookimpl
    def halfmoon_stopping(self, ctx: PluginContext) -> None:
        self.order.append("stopping")


@in_loop
async def test_append_and_read(tmp_path: Path) -> None:
    plugin = Plugin()
    async with node(tmp_path, plugin) as app:
        topic, _ = app.node.kernel.administration.create_topic("t", 1)
        assert plugin.ctx.append("t", 0, batch(b"a", b"b")) == 0
        assert plugin.ctx.append("t", 0, batch(b"c")) == 2
        await until(lambda: topic.partitions[0].high_watermark == 3)
        (second,) = plugin.ctx.read("t", 0, 2, 1)
        assert [record.value for record in iter_records(second)] == [b"c"]
        del second
        assert plugin.ctx.read("t", 0, 3, 1000) == []
        for partition, name in ((1, "t"), (-1, "t"), (0, "other")):
            with pytest.raises(BrokerError) as caught:
                plugin.ctx.append(name, partition, batch(b"x"))
            assert caught.value.fault is Fault.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(BrokerError) as caught:
            plugin.ctx.append("t", 0, b"no batch")
        assert caught.value.fault is Fault.INVALID_RECORD


@pytest.mark.pure
@in_loop
async def test_a_cold_read_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = Plugin()
    async with node(tmp_path, plugin, log={"segment_bytes": "1MiB", "flush": "interval", "hot_bytes": 0}) as app:
        topic, _ = app.node.kernel.administration.create_topic("t", 1)
        plugin.ctx.append("t", 0, batch(b"a"))
        await until(lambda: topic.partitions[0].high_watermark == 1)
        segment = app.node.kernel.log.segments[0]
        monkeypatch.setattr(type(segment.mapping), "in_memory", lambda mapping, start, end: False)
        monkeypatch.setattr(type(segment.file), "pread_cached_into", lambda file, buffer, position: False)
        (found,) = plugin.ctx.read("t", 0, 0, 1000)
        assert [record.value for record in iter_records(found)] == [b"a"]
        assert app.node.kernel.reader.cold_reads == 1


@in_loop
async def test_what_a_plugin_counts_is_exported(tmp_path: Path) -> None:
    plugin = Plugin()
    async with node(tmp_path, plugin) as app:
        plugin.ctx.count("seen")
        plugin.ctx.count("seen", 2)
        text = metrics.render(await readings.take(app)).decode()
        assert f'halfmoon_plugin_total{{name="seen",plugin="{plugin.ctx.name}"}} 3.0\n' in text
        assert 'halfmoon_service_failures_total{service="scribbler"} 0.0\n' in text


@in_loop
async def test_a_plugin_has_a_directory_of_its_own_inside_the_data_directory(tmp_path: Path) -> None:
    plugin = Plugin()
    async with node(tmp_path, plugin) as app:
        folder = plugin.ctx.state_dir
        assert folder.is_dir()
        assert folder == plugin.ctx.state_dir
        assert folder.parent == tmp_path / "plugins"
        names = ["..", ".", "../../etc", "a/b", "a%2Fb", "%2E."]
        folders = {app.plugin_host.state_dir(name) for name in names}
        assert len(folders) == len(names)
        assert {made.resolve().parent for made in folders} == {tmp_path / "plugins"}


@in_loop
async def test_topic_changes_are_heard_once_they_are_durable(tmp_path: Path) -> None:
    plugin = Plugin()
    async with node(tmp_path, plugin, log={"segment_bytes": "1MiB", "flush": "sync"}) as app:
        kernel = app.node.kernel
        topics = kernel.administration
        topics.create_topic("never", validate_only=True)
        topic, position = topics.create_topic("t", 1)
        assert plugin.heard == []
        await until(lambda: kernel.turn.durable_position >= position)
        assert plugin.heard == [("t", "created")]
        topics.add_partitions(topic, 3, validate_only=True)
        topics.add_partitions(topic, 2)
        topics.alter_configs(topic, {"retention.ms": "1"}, validate_only=True)
        topics.alter_configs(topic, {"retention.ms": "1000"})
        position = topics.delete_topic(topic)
        await until(lambda: kernel.turn.durable_position >= position)
        assert plugin.heard[1:] == [("t", "grown"), ("t", "configured"), ("t", "deleted")]


@in_loop
async def test_services_run_between_started_and_stopping(tmp_path: Path) -> None:
    plugin = Plugin()
    async with node(tmp_path, plugin):
        await until(lambda: "run" in plugin.order)
    assert plugin.order == ["started", "run", "cancelled", "stopping"]


@in_loop
async def test_a_service_that_keeps_failing_turns_health_red(tmp_path: Path) -> None:
    plugin = Plugin()

    async def run() -> None:
        raise OSError("no")

    plugin.run = run  # type: ignore[method-assign]
    async with node(tmp_path, plugin) as app:
        app.services._first_pause_s = 0
        await until(lambda: app.services.failures["scribbler"] >= 3)
        assert app.health()[0].startswith("service scribbler has failed")


class Ends:
    """Follows the log: where each partition ends."""

    api_version = 1
    name = "ends"

    def __init__(self) -> None:
        self.ends: dict[str, int] = {}
        self.batches = 0

    @hookimpl
    def halfmoon_dispatch(self, ctx: PluginContext) -> list[Dispatcher]:
        return [Dispatcher("ends", self.on_batches, lambda: json.dumps(self.ends).encode(), self.restore)]

    def on_batches(self, batches: Sequence[Batch]) -> None:
        for each in batches:
            self.batches += 1
            self.ends[f"{each.topic}-{each.partition}"] = each.end_offset

    def restore(self, state: bytes | None) -> None:
        self.ends = json.loads(state or b"{}")


@in_loop
async def test_a_plugin_follows_the_log_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    first, second = Ends(), Ends()
    async with node(tmp_path, first) as app:
        app.node.kernel.administration.create_topic("t", 1)
        app.plugin_host.append("t", 0, batch(b"a"))
        await until(lambda: first.ends == {"t-0": 1})
        app.plugin_host.append("t", 0, batch(b"b"))
    async with node(tmp_path, second) as app:
        app.plugin_host.append("t", 0, batch(b"c"))
        await until(lambda: second.ends == {"t-0": 3})
        assert app.health() == []
    assert first.batches + second.batches == 3
