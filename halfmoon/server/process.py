"""A broker as a process in the foreground: signals in, the lines of its start and its end out."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from halfmoon import __version__
from halfmoon.config.settings import Settings
from halfmoon.core.records.walk import FORM
from halfmoon.errors import HalfmoonError
from halfmoon.server import log_lines
from halfmoon.server.app import App
from halfmoon.server.build import build
from halfmoon.server.garbage import Garbage
from halfmoon.server.measured_loop import MeasuredLoop
from halfmoon.server.reload_signal import Reloaded, reload_when_told
from halfmoon.server.warming import Warming

if TYPE_CHECKING:
    from halfmoon.config.units import Address

logger = logging.getLogger("halfmoon.server")


class Broker(Reloaded, Protocol):
    """What is run: server/app.App, or a node of a cluster."""

    @property
    def settings(self) -> Settings: ...
    @property
    def kafka_address(self) -> Address | None: ...
    @property
    def rocketmq_address(self) -> Address | None: ...
    @property
    def namesrv_address(self) -> Address | None: ...
    @property
    def http_address(self) -> Address | None: ...
    async def start(self) -> None:
        """Raises HalfmoonError. Where it fails or is cancelled, everything is undone."""

    async def stop(self) -> None: ...


Make = Callable[[Settings, Collection[str], Callable[[Exception], None]], Broker]
"""Of the settings, the configurations to be unset, and who is told that the process must end."""


class _Process:
    """A broker in the foreground: signals in, the lines of its start and its end out."""

    def __init__(
        self, read: Callable[[], Settings], config: Path | None, unset_configs: Collection[str], make: Make
    ) -> None:
        self._read = read
        self._make = make
        self._config = config
        self._unset_configs = unset_configs
        self._stop = asyncio.Event()
        self._signal = "none"
        self._failed = False
        self._reload = asyncio.Event()

    async def run(self, settings: Settings) -> int:
        """The exit code."""
        begun_s = time.monotonic()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end, number)
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)
        app = self._make(settings, self._unset_configs, self._lost)
        if await self._started(app):
            await self._serve(app)
        logger.info("event=stopped signal=%s uptime_s=%.1f", self._signal, time.monotonic() - begun_s)
        return 1 if self._failed else 0

    async def _started(self, app: Broker) -> bool:
        """False: it was told to stop before, and what it had begun is undone. Raises what the start raises.

        The start of a node waits for its cluster's database, for as long as that takes."""
        loop = asyncio.get_running_loop()
        starting, told = loop.create_task(app.start()), loop.create_task(self._stop.wait())
        try:
            await asyncio.wait([starting, told], return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
            if not starting.done():
                logger.info("event=stopping signal=%s", self._signal)
                starting.cancel()
        await asyncio.wait([starting])
        if starting.cancelled():
            return False
        starting.result()
        return True

    async def _serve(self, app: Broker) -> None:
        """Until it is told to stop; then it has stopped."""
        loop = asyncio.get_running_loop()
        garbage = Garbage(loop)
        garbage.start()
        reloading = loop.create_task(reload_when_told(self._reload, self._read, app, log_lines.configure))
        warming = Warming(loop)
        try:
            self._say_start(app)
            warming.start()
            await self._stop.wait()
            logger.info("event=stopping signal=%s", self._signal)
        finally:
            warming.stop()
            reloading.cancel()
            garbage.stop()
            await app.stop()

    def _lost(self, error: Exception) -> None:
        logger.critical("event=node_lost error=%s", error)
        self._failed = True
        self._stop.set()

    def _end(self, number: int) -> None:
        self._signal = signal.Signals(number).name
        self._stop.set()

    def _say_start(self, app: Broker) -> None:
        data_dir = app.settings.node.data_dir
        doors = {"rocketmq": app.rocketmq_address, "namesrv": app.namesrv_address, "http": app.http_address}
        logger.info(
            "event=started version=%s build=%s validation=%s config=%s data=%s kafka=%s rocketmq=%s namesrv=%s http=%s",
            __version__, build(), FORM, self._config.absolute() if self._config else "none", Path(data_dir).absolute(),
            app.kafka_address, *(address or "off" for address in doors.values()),
        )  # fmt: skip
        others = "".join(f" {name}={address}" for name, address in doors.items() if address is not None)
        print(f"ready kafka={app.kafka_address} data={data_dir}{others}", flush=True)


def one_process(settings: Settings, unset_configs: Collection[str], _lost: Callable[[Exception], None]) -> Broker:
    return App(settings, unset_configs=unset_configs, environment=os.environ)


def main(
    read: Callable[[], Settings],
    *,
    config: Path | None = None,
    unset_configs: Collection[str] = (),
    make: Make = one_process,
) -> int:
    """Run a broker in the foreground until SIGTERM or SIGINT. Returns the exit code; 1 with a line if it cannot run.

    `read`: the settings as they are now, asked again on SIGHUP; raises HalfmoonError. `config`: the file among their
    layers. `unset_configs`: as of App. `make`: the broker.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the loop hears of it
    try:
        settings = read()
        log_lines.configure(settings)
        with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
            return runner.run(_Process(read, config, unset_configs, make).run(settings))
    except HalfmoonError as error:
        print(f"halfmoon: {error}", file=sys.stderr)
        return 1
