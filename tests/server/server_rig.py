"""A node in a test's own event loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from halfmoon.config.settings import load_settings
from halfmoon.core.records.batches import build_batch
from halfmoon.server.app import App
from halfmoon.server.measured_loop import MeasuredLoop

T = TypeVar("T")


def played(story: Coroutine[Any, Any, T]) -> T:
    """What it returns, in a loop of the kind that brokers run in."""
    with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
        return runner.run(story)


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Runs an async test in the kind of loop that brokers run in; it may take 10 s."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        played(asyncio.wait_for(test(**fixtures), 10))

    return run


@asynccontextmanager
async def node(data_dir: Path, *plugins: object, **sections: Any) -> AsyncIterator[App]:
    """A started node, with listeners at free ports."""
    config = {
        "node": {"data_dir": str(data_dir)},
        "listeners": {"kafka": {"bind": "127.0.0.1:0"}, "http": {"bind": "127.0.0.1:0"}},
        "log": {"segment_bytes": "1MiB", "flush": "interval"},
        "topics": {"partitions": 2},
        **sections,
    }
    app = App(load_settings(config, {}, {}), plugins=plugins)
    await app.start()
    try:
        yield app
    finally:
        await app.stop()


def batch(*values: bytes) -> bytes:
    """A record batch without keys, as a client would send it."""
    return bytes(build_batch([(None, value, 1_000, ()) for value in values]))


async def until(condition: Callable[[], object]) -> None:
    """Let the loop turn until the condition holds."""
    while not condition():
        await asyncio.sleep(0)
