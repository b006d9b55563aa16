"""A real node: its scrubber runs in a thread, driven by the loop, and /metrics and /healthz say what it finds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from server_rig import batch, in_loop, node

from halfmoon.core.storage.log_files import segment_path
from halfmoon.server import readings
from halfmoon.server.app import App
from halfmoon.services.scrubber import service


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "QUIET_MS", 1)


async def value_of(app: App, name: str) -> float:
    ((_, value),) = (await readings.take(app)).samples[name]
    return value


async def waited_for(app: App, name: str, least: float = 1) -> None:
    while await value_of(app, name) < least:
        await asyncio.sleep(0)


async def fill(app: App) -> None:
    kernel = app.node.kernel
    partition = kernel.administration.create_topic("t", 1)[0].partitions[0]
    for number in range(30):
        kernel.append(partition, memoryview(bytearray(batch(b"%d" % number + b"x" * 100_000))), 1_000)
    kernel.write()
    kernel.housekeeping.freeze()


@in_loop
async def test_rot_is_found_and_shown(tmp_path: Path) -> None:
    async with node(tmp_path, services={"scrubber": False}) as app:
        await fill(app)
        log = app.node.kernel.log
    second = log.segments[1]
    with (tmp_path / segment_path(second.start)).open("r+b") as file:
        file.seek(300_000)
        file.write(b"rot")
    async with node(tmp_path, log={"segment_bytes": "1MiB", "scrubber": {"bytes_per_second": "1GiB"}}) as app:
        await waited_for(app, "halfmoon_scrubber_passes_total")
        assert await value_of(app, "halfmoon_scrubber_corrupt_stretches") == 1
        assert await value_of(app, "halfmoon_scrubber_read_bytes_total") > 2_900_000
        assert await value_of(app, "halfmoon_scrubber_last_pass_timestamp_seconds") > 1_700_000_000
        assert await value_of(app, "halfmoon_healthy") == 0
        assert any(f"{segment_path(second.start)} is corrupt" in problem for problem in app.health())
        assert await value_of(app, "halfmoon_log_gaps") == 0


@in_loop
async def test_gaps_are_counted(tmp_path: Path) -> None:
    async with node(tmp_path, services={"scrubber": False}) as app:
        await fill(app)
        log = app.node.kernel.log
    (tmp_path / segment_path(log.segments[1].start)).unlink()
    async with node(tmp_path, log={"segment_bytes": "1MiB", "scrubber": {"bytes_per_second": "1GiB"}}) as app:
        assert await value_of(app, "halfmoon_log_gaps") == 1
        assert await value_of(app, "halfmoon_log_gap_bytes") == log.segments[1].size
        await waited_for(app, "halfmoon_scrubber_passes_total")
        assert await value_of(app, "halfmoon_scrubber_corrupt_stretches") == 0, "a gap is told already"


@in_loop
async def test_off_it_has_neither_metrics_nor_a_thread(tmp_path: Path) -> None:
    async with node(tmp_path, services={"scrubber": False}) as app:
        assert not any(name.startswith("halfmoon_scrubber") for name in (await readings.take(app)).samples)
        assert len(app.ticker._background) == 1
