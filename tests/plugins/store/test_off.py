"""Each plugin that moves messages off, alone and with the others, and on again: nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halfmoon.core.records.batches import build_batch, iter_records
from halfmoon.errors import BrokerError, Fault
from halfmoon.plugins.store.retry.state import NackedState
from halfmoon.server.app import App
from tests.server.server_rig import in_loop, node

ALL = ("delay", "retry", "transaction", "view")
DUE_MS = 300
PLUGINS: dict[str, Any] = {"transaction": {"timeout": f"{DUE_MS}ms", "check_interval": "60s"}}
VIEW = {"halfmoon.view.source": "orders", "halfmoon.view.tag": "a"}
A = {"TAGS": "a"}


def broker(data_dir: Path, *off: str) -> Any:
    plugins = PLUGINS | dict.fromkeys(off, False)
    return node(data_dir, plugins=plugins, log={"segment_bytes": "1MiB", "flush": "sync"}, topics={"partitions": 1})


async def send(app: App, topic: str, value: bytes, **headers: str) -> None:
    """Returns when it is acknowledged."""
    kernel = app.node.kernel
    found = kernel.catalog.topic(topic)
    assert found is not None
    batch = build_batch([(None, value, 1_000, tuple((name, text.encode()) for name, text in headers.items()))])
    end = kernel.append(found.partitions[0], memoryview(bytearray(batch)), kernel.clock.wall_ms()).position
    durable = asyncio.get_running_loop().create_future()
    kernel.when_durable(end, durable.set_result)
    assert await durable is None


def values(app: App, topic: str) -> list[bytes]:
    if app.plugin_host.topic_configs(topic) is None:
        return []
    batches = app.plugin_host.read(topic, 0, 0, 1 << 20)
    return [record.value or b"" for batch in batches for record in iter_records(batch)]


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def half(key: str) -> dict[str, str]:
    return {"TRAN_MSG": "true", "PGROUP": "shop", "UNIQ_KEY": key}


async def send_all(app: App) -> None:
    """A message for each feature, and a cancel that is acknowledged and whose message is not found."""
    host, relays = app.plugin_host, app.node.kernel.relays
    for topic in ("orders", "retry.billing"):
        host.create_topic(topic, {}, 1)
    host.create_topic("orders.a", VIEW, -1)
    await send(app, "orders", b"first", **A)
    await until(lambda: values(app, "orders.a") == [b"first"])
    relays.remove(next(key for key in relays._turns if str(key) == "cancelling"))
    await send(app, "orders", b"delayed", UNIQ_KEY="d", TIMER_DELAY_MS=str(DUE_MS))
    await send(app, "orders", b"cancelled", UNIQ_KEY="c", TIMER_DELAY_MS=str(DUE_MS))
    await send(app, "orders", b"", TIMER_DEL_UNIQKEY="c")
    await send(app, "orders", b"committed", **half("1"))
    await send(app, "orders", b"not ended", **half("2"))
    await send(app, "retry.billing", b"nacked", RETRY_OF="orders/0/0", TIMER_DELAY_MS=str(DUE_MS))


async def look_while_off(app: App, off: tuple[str, ...]) -> None:
    await send(app, "orders", b"second", **A)
    retried = [] if "delay" in off else [b"nacked"]
    filled = [b"first"] if "view" in off else [b"first", b"second"]
    await until(lambda: (b"delayed" in values(app, "orders")) == ("delay" not in off))
    await until(lambda: (b"not ended" in values(app, "check.shop")) == ("transaction" not in off))
    await until(lambda: values(app, "retry.billing") == retried and values(app, "orders.a") == filled)
    await asyncio.sleep(2 * DUE_MS / 1_000)  # nothing else comes
    there = values(app, "orders")
    assert b"cancelled" not in there
    assert b"committed" not in there
    assert b"not ended" not in there
    assert (b"delayed" in there) == ("delay" not in off)
    assert values(app, "retry.billing") == retried
    assert (b"not ended" in values(app, "check.shop")) == ("transaction" not in off)
    assert values(app, "orders.a") == filled
    nacked = app.node.state.nacked
    assert isinstance(nacked, NackedState)
    assert list(nacked.nacked) == ["billing"]
    assert {place: runs.numbers() for place, runs in nacked.nacked["billing"].items()} == {(0, 0): [0]}
    assert app.warnings() == [
        *(["3 scheduled messages in topic halfmoon.timers wait for a plugin that is off"] if "delay" in off else []),
        *(
            ["2 scheduled messages in topic RMQ_SYS_TRANS_HALF_TOPIC wait for a plugin that is off"]
            if "transaction" in off
            else []
        ),
    ]
    families = {family.name for family in app.node.kernel.features.families}
    assert ("halfmoon_view_lag" in families) == ("view" not in off)
    assert ("halfmoon_cancelled_messages_total" in families) == ("delay" not in off)
    if "view" in off:
        look_without_views(app)


def look_without_views(app: App) -> None:
    host, kernel = app.plugin_host, app.node.kernel
    for configs in (VIEW, {"halfmoon.view.source": "orders"}):
        with pytest.raises(BrokerError, match="view is off") as refused:
            host.create_topic("more", configs, -1)
        assert refused.value.fault is Fault.INVALID_CONFIG
    source, view = kernel.catalog.topic("orders"), kernel.catalog.topic("orders.a")
    assert source is not None
    assert view is not None
    with pytest.raises(BrokerError, match=r"is the source of the view 'orders\.a'"):
        kernel.administration.delete_topic(source)
    kernel.administration.alter_configs(view, {"retention.ms": "-1"})
    assert view.configs == VIEW | {"retention.ms": "-1"}
    with pytest.raises(BrokerError) as refused:
        host.append("orders.a", 0, build_batch([(None, b"x", 0, ())]))
    assert refused.value.fault is Fault.POLICY_VIOLATION


async def look_on_again(app: App) -> None:
    await send(app, "retry.billing", b"nacked", RETRY_OF="orders/0/0", TIMER_DELAY_MS="0")
    await send(app, "halfmoon.transactions", b"", PGROUP="shop", UNIQ_KEY="1", TRAN_STATE="commit")
    await until(lambda: len(values(app, "orders")) == 4 and not app.node.state.cancels.cancels)
    await until(lambda: b"not ended" in values(app, "check.shop"))
    await until(lambda: values(app, "retry.billing"))
    await until(lambda: app.node.waiting.waiting() == 1)
    assert sorted(values(app, "orders")) == [b"committed", b"delayed", b"first", b"second"]
    assert values(app, "retry.billing") == [b"nacked"]
    assert values(app, "orders.a") == [b"first", b"second"]
    assert values(app, "check.shop").count(b"not ended") == 1
    assert app.warnings() == []


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("off", [*[(each,) for each in ALL], ALL], ids="-".join)
@in_loop
async def test_off_and_on_again_loses_nothing(tmp_path: Path, off: tuple[str, ...], end: str) -> None:
    """`kill`: the next broker has what a kill -9 would have left."""
    last = tmp_path / "0"
    async with broker(last) as app:
        await send_all(app)
        last = left_by(last, end)
    async with broker(last, *off) as app:
        await look_while_off(app, off)
        last = left_by(last, end)
    async with broker(last, *off):
        last = left_by(last, end)
    async with broker(last) as app:
        await look_on_again(app)


def left_by(data_dir: Path, end: str) -> Path:
    if end == "stop":
        return data_dir
    # The broker goes on meanwhile: a file that is being written may get its name before it is copied.
    unfinished = shutil.ignore_patterns("*.new")
    return Path(shutil.copytree(data_dir, data_dir.with_name(f"{data_dir.name}k"), ignore=unfinished))
