"""A worker process: `python -m halfmoon.server.workers FD`, where FD is its control socket (`supervisor`)."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

import msgspec

from halfmoon.config.settings import Settings, load_settings
from halfmoon.errors import HalfmoonError
from halfmoon.plugins import BUILT_IN
from halfmoon.server import log_lines
from halfmoon.server.garbage import Garbage
from halfmoon.server.measured_loop import MeasuredLoop
from halfmoon.server.reload_signal import reload_when_told
from halfmoon.server.warming import Warming, pieces
from halfmoon.server.workers.orders import Orders, Report, receive
from halfmoon.server.workers.worker import Worker
from halfmoon.server.workers.worker_place import WorkerPlace

logger = logging.getLogger("halfmoon.server")

CONNECTED_S = 1.0
"""A worker is ready when it can ask the others, or after so long."""


class _Process:
    def __init__(self, control: socket.socket, orders: Orders) -> None:
        self._control = control
        self._orders = orders
        self._stop = asyncio.Event()
        self._reason = "none"
        self._reload = asyncio.Event()
        self._failed = False

    def read(self, text: str | None = None) -> Settings:
        """What broker.yaml says now, or has said. Raises HalfmoonError."""
        orders = self._orders
        return load_settings(orders.config and Path(orders.config), os.environ, orders.flags, text=text)

    async def run(self) -> int:
        begun_s = time.monotonic()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._end, "SIGTERM")
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)
        settings = self.read(self._orders.text)
        self._configure_log(settings)
        worker = Worker(
            settings, WorkerPlace(settings, self._orders.plan),
            unset_configs=self._orders.unset_configs, environment=os.environ,
            admin=socket.socket(fileno=self._orders.admin_fd),
            listening={(host, port): socket.socket(fileno=fd) for host, port, fd in self._orders.listening},
            on_lost=self._lost,
        )  # fmt: skip
        await worker.start()
        if self._orders.reloaded is not None:
            worker.reload(self.read(self._orders.reloaded))
        await worker.links.connected(CONNECTED_S)
        garbage, warming = Garbage(loop), Warming(loop)
        garbage.start()
        reloading = loop.create_task(reload_when_told(self._reload, self.read, worker, self._configure_log))
        try:
            self._control.sendall(msgspec.json.encode(Report()) + b"\n")
            self._control.setblocking(False)
            loop.add_reader(self._control, self._heard)
            warming.start()
            await self._stop.wait()
            logger.info("event=stopping reason=%s", self._reason)
        finally:
            loop.remove_reader(self._control)
            reloading.cancel()
            warming.stop()
            garbage.stop()
            await worker.stop()
        logger.info("event=stopped reason=%s uptime_s=%.1f", self._reason, time.monotonic() - begun_s)
        return 1 if self._failed else 0

    def _configure_log(self, settings: Settings) -> None:
        log_lines.configure(settings, self._orders.plan.worker)

    def _end(self, reason: str) -> None:
        self._reason = reason
        self._stop.set()

    def _lost(self, error: Exception) -> None:
        logger.critical("event=worker_lost error=%s", error)
        self._failed = True
        self._end("lost")

    def _heard(self) -> None:
        """The supervisor says nothing more: it is gone."""
        try:
            if self._control.recv(1024):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._end("supervisor_gone")


def _load_until_told(control: socket.socket) -> None:
    """While nobody has orders for this process, it gets ready for any."""
    loads: list[Callable[[], object]] = [partial(import_module, module) for module in BUILT_IN.values()]
    for load in (*loads, *pieces()):
        if select.select([control], [], [], 0)[0]:
            return
        load()


def main(fd: int) -> int:
    gc.disable()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the loop hears of it
    control = socket.socket(fileno=fd)
    _load_until_told(control)
    orders = receive(control)
    if orders is None:
        return 0
    try:
        with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
            return runner.run(_Process(control, orders).run())
    except HalfmoonError as error:
        control.setblocking(True)
        control.sendall(msgspec.json.encode(Report(str(error))) + b"\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
