"""One broker process: settings in, a running node out, and everything stopped again in the right order.

Up:   data directory → recovery → plugins → loop driver → listeners → `ready`
Down: listeners (let answers out) → plugins → loop driver → broker (flush, checkpoint, clean mark) → lock
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import uvloop

from halfmoon.adapters.kafka.server import Server
from halfmoon.core import crc
from halfmoon.core.broker import Broker
from halfmoon.core.config import Settings
from halfmoon.core.errors import HalfmoonError, StartError
from halfmoon.core.files import OsFileSystem
from halfmoon.core.plugins import Plugins, load_plugins
from halfmoon.core.units import Address
from halfmoon.plugins import BUILT_IN
from halfmoon.server.clock import SystemClock
from halfmoon.server.tick import Ticker

logger = logging.getLogger("halfmoon.server")

CALLED_HOOKS = ("halfmoon_allocators", "halfmoon_config", "halfmoon_started", "halfmoon_stopping")
"""Hooks that this broker calls today; a plugin with another one is refused rather than ignored."""


class Listener(Protocol):
    async def start(self, bind: Address) -> tuple[str, int]: ...
    async def stop(self) -> None: ...


class App:
    """A node in the running event loop. `start` and `stop` once each."""

    def __init__(self, settings: Settings, *, plugins: Sequence[object] = ()) -> None:
        """`plugins`: plugin objects that are on whatever the settings say (the testing kit's way)."""
        self.settings = settings
        self._extra_plugins = plugins
        self.kafka_address: Address | None = None
        self.http_address: Address | None = None
        self._undo: list[Callable[[], object]] = []

    async def start(self) -> None:
        """Raises HalfmoonError (StartError mostly) with everything undone."""
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        settings = self.settings
        loop = asyncio.get_running_loop()
        warning = crc.fallback_warning(time.perf_counter)
        if warning is not None:
            logger.warning("event=slow_checksums %s", warning)
        self.plugins: Plugins = load_plugins(settings, BUILT_IN, called=CALLED_HOOKS, extra=self._extra_plugins)
        fs = OsFileSystem(settings.node.data_dir)
        fs.lock()
        self._undo.append(fs.unlock)
        self.broker = broker = Broker(fs, settings, SystemClock(), os.urandom)
        try:
            report = broker.open(_log_progress)
        except OSError as error:
            raise StartError(f"data directory {fs.root}: {error.strerror or error}") from error
        self._undo.append(broker.close)
        if not report.clean and report.snapshot_position + report.end:
            logger.info(
                "event=recovered frames=%d end=%d torn_bytes=%d damaged=%s",
                report.frames, report.end, report.torn_bytes, report.damaged,
            )  # fmt: skip
        self.ticker = Ticker(broker, loop)
        self.ticker.start()
        self._undo.append(self.ticker.stop)
        self._undo.append(self.plugins.stopping)
        self.plugins.started()
        self.kafka = Server(broker, settings, loop)
        self.kafka_address = await self._listen(self.kafka, settings.listeners.kafka.bind)
        if settings.listeners.http is not None:
            from halfmoon.server.http import HttpServer  # prometheus-client costs start-up time, and few need it

            self.http = HttpServer(self)
            self.http_address = await self._listen(self.http, settings.listeners.http.bind)

    async def _listen(self, server: Listener, bind: Address) -> Address:
        try:
            host, port = await server.start(bind)
        except OSError as error:
            raise StartError(f"cannot listen on {bind}: {os.strerror(error.errno) if error.errno else error}") from error
        self._undo.append(server.stop)
        return Address(host, port)

    async def stop(self) -> None:
        """Undo what `start` did, last first. Whatever one step raises is logged and does not keep the next from running."""
        while self._undo:
            step = self._undo.pop()
            try:
                result = step()
                if asyncio.iscoroutine(result):
                    await result
            except Exception:
                logger.exception("event=stop_failed step=%s", getattr(step, "__qualname__", step))


def _log_progress(position: int, end: int) -> None:
    logger.info("event=recovering position=%d of=%d", position, end)


async def _serve(settings: Settings) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    app = App(settings)
    await app.start()
    try:
        http = f" http={app.http_address}" if app.http_address is not None else ""
        print(f"ready kafka={app.kafka_address} data={settings.node.data_dir}{http}", flush=True)
        await stop.wait()
    finally:
        await app.stop()


def main(settings: Settings) -> int:
    """Run a broker in the foreground until SIGTERM or SIGINT. Returns the exit code; 1 with one line where it cannot run."""
    logging.basicConfig(
        stream=sys.stderr,
        level=os.environ.get("HALFMOON_LOGLEVEL", "INFO").upper(),
        format="%(asctime)s level=%(levelname)s logger=%(name)s %(message)s",
    )
    try:
        uvloop.run(_serve(settings))
    except HalfmoonError as error:
        print(f"halfmoon: {error}", file=sys.stderr)
        return 1
    return 0
