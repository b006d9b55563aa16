"""`halfmoon serve --workers N`: starts the workers, watches them, starts again who dies, and ends them all.

It has no part in what they do. The data directory is its, so that no other broker comes in; each shard in it is its
worker's. Ports are chosen here and kept, so that a worker that is started again is where it was. Each worker has a
*control* socket to here, and ends when that does. One more process stands by (`spare`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from halfmoon import __version__
from halfmoon.adapters.tcp.accepting import BACKLOG
from halfmoon.cluster.placement import owner_of
from halfmoon.cluster.sqlite_store import SqliteStore
from halfmoon.cluster.store import Cluster
from halfmoon.config.settings import Settings, load_settings
from halfmoon.config.units import Address
from halfmoon.core import identity
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.errors import HalfmoonError, StartError
from halfmoon.server import admin_socket, log_lines
from halfmoon.server.build import build
from halfmoon.server.workers import orders
from halfmoon.server.workers.orders import Orders, Report
from halfmoon.server.workers.plan import CATALOG, Plan
from halfmoon.server.workers.spare import Spare
from halfmoon.services.credentials.node_key import NodeKey
from halfmoon.uuids import new_uuid

logger = logging.getLogger("halfmoon.server")

QUICK_S = 2.0
"""A worker that was not ready for so long when it died is started again after a pause, …"""
LONGEST_PAUSE_S = 10.0
"""… which doubles up to this, until one has run for twice as long as the last pause took. So who is killed now and then
is back at once."""
FIRST_PAUSE_S = 0.1
STOPS_S = 60.0
"""A worker that has not ended so long after it was told is killed."""


def supervise(
    read: Callable[[], Settings],
    config: Path | None,
    flags: Mapping[str, str | None],
    unset_configs: Sequence[str],
) -> int:
    """Run until SIGTERM or SIGINT. Returns the exit code; 1 with a line if it cannot run. `read`, `config`,
    `unset_configs`: as of process.main; `flags`: by setting."""
    try:
        settings = read()
        log_lines.configure(settings)
        asyncio.run(_Supervisor(settings, config, flags, unset_configs).run())
    except HalfmoonError as error:
        print(f"halfmoon: {error}", file=sys.stderr)
        return 1
    return 0


def prepare(folder: Path, shards: int) -> Cluster:
    """The data directory's catalog, which is made where there is nothing. Raises StartError, OSError."""
    path = folder / CATALOG
    if not path.exists():
        if (folder / identity.PATH).exists() or (folder / "log").exists():
            raise StartError(
                f"{folder} is the data directory of one process: `halfmoon cluster import {folder}` makes one of "
                "several workers from it"
            )
        cluster_id = new_uuid(os.urandom)
        # First, so that all workers have the same: the catalog has what it protects.
        NodeKey(OsFileSystem(folder), os.urandom).make()
        SqliteStore.create(path, Cluster(cluster_id, shards))
    store = SqliteStore(path)
    try:
        return store.cluster
    finally:
        store.close()


class _Worker:
    """A place that a process has, one after the other."""

    def __init__(self, number: int, told: Orders, spare: Spare) -> None:
        """`told`: its orders."""
        self.number = number
        self._orders = told
        self._spare = spare
        self.process: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self.started_s = 0.0
        self.ready_s: float | None = None
        """Since when it is ready; None before."""
        self._owes_reload = False

    async def start(self) -> None:
        """Returns once it is ready. Raises StartError."""
        self.started_s = time.monotonic()
        self.ready_s = None
        self.process, ours = await self._spare.take()
        self.close()
        self._control = ours
        try:
            orders.send(ours, self._orders)
        except OSError as error:
            raise StartError(f"worker {self.number} ended before it was ready: {error}") from error
        ours.setblocking(False)
        reader, self._writer = await asyncio.open_connection(sock=ours)
        line = await reader.readline()
        if not line:
            raise StartError(f"worker {self.number} ended before it was ready")
        report = msgspec.json.decode(line, type=Report)
        if report.failed:
            await self.process.wait()
            raise StartError(report.failed)
        self.ready_s = time.monotonic()
        self._spare.prepare()
        if self._owes_reload:
            self.reload()

    def close(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None

    def reload(self, text: str | None = None) -> None:
        """Have it reload the settings, once it is ready: before, SIGHUP would end it. `text`: of broker.yaml, if that
        can be read."""
        if text is not None:
            self._orders = replace(self._orders, reloaded=text)
        self._owes_reload = self.ready_s is None
        if not self._owes_reload:
            self.signal(signal.SIGHUP)

    def signal(self, number: int) -> None:
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)

    async def stop(self) -> None:
        process = self.process
        if process is None or process.returncode is not None:
            return
        self.signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), STOPS_S)
        except TimeoutError:
            logger.error("event=worker_killed worker=%d reason=%s", self.number, "it does not stop")
            self.signal(signal.SIGKILL)
            await process.wait()


def pause_after(ran_s: float, pause_s: float) -> float:
    """Before a worker is started that died when it had been ready for so long. `pause_s`: before that start."""
    if ran_s >= max(QUICK_S, 2 * pause_s):
        return 0.0
    return min(max(2 * pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)


class _Supervisor:
    def __init__(
        self,
        settings: Settings,
        config: Path | None,
        flags: Mapping[str, str | None],
        unset_configs: Sequence[str],
    ) -> None:
        self._settings = settings
        self._config = config
        self._flags = dict(flags)
        self._unset_configs = list(unset_configs)
        self._stopping = asyncio.Event()
        self._signal = "none"
        self._reserved: list[socket.socket] = []
        self._workers: list[_Worker] = []
        self._spare = Spare()
        self._admin: socket.socket | None = None

    async def run(self) -> None:
        begun_s = time.monotonic()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        settings = self._settings
        folder = Path(settings.node.data_dir).absolute()
        fs = OsFileSystem(folder)
        fs.lock()
        watching: list[asyncio.Task[Any]] = []
        try:
            cluster = prepare(folder, settings.workers.shards)
            path = admin_socket.path_of(folder)
            self._admin = admin_socket.listening_at(path)
            self._admin.listen(BACKLOG)
            self._workers = self._planned(folder, cluster.shards)
            loop.add_signal_handler(signal.SIGHUP, self._reload)
            await self._start_all()
            if not self._stopping.is_set():
                self._say_start(folder)
            watching = [loop.create_task(self._watch(worker)) for worker in self._workers]
            await self._stopping.wait()
            logger.info("event=stopping signal=%s", self._signal)
        finally:
            self._stopping.set()
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)
            await asyncio.gather(self._spare.stop(), *(worker.stop() for worker in self._workers))
            for each in self._reserved:
                each.close()
            if self._admin is not None:
                self._admin.close()
                admin_socket.path_of(folder).unlink(missing_ok=True)
            if self._workers:
                for path in self._workers[0]._orders.plan.sockets():
                    path.unlink(missing_ok=True)
            fs.unlock()
        logger.info("event=stopped signal=%s uptime_s=%.1f", self._signal, time.monotonic() - begun_s)

    def _stop(self, number: int) -> None:
        self._signal = signal.Signals(number).name
        self._stopping.set()

    def _text(self) -> str | None:
        """Of broker.yaml. Raises StartError."""
        if self._config is None:
            return None
        from halfmoon.config.yaml_file import read_text  # where there is none, nobody needs YAML's parser

        return read_text(self._config)

    def _reload(self) -> None:
        """Workers say in the log what is wrong with it."""
        text = None
        if self._config is not None:
            with contextlib.suppress(HalfmoonError):
                found = self._text()
                load_settings(self._config, os.environ, self._flags, text=found)
                text = found
        for worker in self._workers:
            worker.reload(text)

    def _planned(self, folder: Path, shards: int) -> list[_Worker]:
        """Raises StartError."""
        settings = self._settings
        count = settings.workers.count or 1
        if count > shards:
            raise StartError(f"{count} workers share {shards} shards: at most {shards} workers have work")
        listeners = settings.listeners
        kafka: dict[str, list[int]] = {}
        bootstrap: dict[str, int] = {}
        listening: list[list[tuple[str, int, int]]] = [[] for _ in range(count)]
        for each in listeners.of_kafka:
            port = bootstrap[each.name] = self._reserve(each.bind).port
            # Behind the port that they share, or any.
            own = [each.bind._replace(port=port + 1 + worker if each.bind.port else 0) for worker in range(count)]
            found = [self._reserve(bind, listens=True) for bind in own]
            kafka[each.name] = [address.port for address in found]
            for worker, address in enumerate(found):
                listening[worker].append((*address, self._reserved[-count + worker].fileno()))
        rocketmq: list[int] = []
        namesrv = 0
        if listeners.rocketmq is not None:
            bind = listeners.rocketmq.bind
            namesrv = self._reserve(listeners.rocketmq.namesrv).port
            for shard in range(shards):
                address = self._reserve(bind._replace(port=bind.port + shard if bind.port else 0), listens=True)
                rocketmq.append(address.port)
                listening[owner_of(shard, count)].append((*address, self._reserved[-1].fileno()))
        http = 0 if listeners.http is None else self._reserve(listeners.http.bind).port
        plan = Plan(str(folder), 0, count, shards, kafka, bootstrap, rocketmq, namesrv, http)
        config = None if self._config is None else str(self._config.absolute())
        assert self._admin is not None
        text = self._text()
        told = Orders(plan, config, text, None, self._flags, self._unset_configs, self._admin.fileno(), [])
        return [
            _Worker(
                worker,
                replace(told, plan=replace(plan, worker=worker), listening=listening[worker]),
                self._spare,
            )
            for worker in range(count)
        ]

    def _reserve(self, bind: Address, *, listens: bool = False) -> Address:
        """This address, with a free port for 0: nobody but the workers gets it while we run. Where it does not listen,
        each worker does (SO_REUSEPORT), and a socket that is only bound gets no connections. Raises StartError."""
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                *bind, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            made = socket.socket(family, kind, protocol)
            self._reserved.append(made)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if not listens:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            made.bind(address)
            if listens:
                made.listen(BACKLOG)
        except OSError as error:
            raise StartError(f"cannot listen on {bind}: {error.strerror or error}") from error
        return bind._replace(port=made.getsockname()[1])

    async def _start_all(self) -> None:
        starting = [asyncio.ensure_future(worker.start()) for worker in self._workers]
        stopping = asyncio.ensure_future(self._stopping.wait())
        left: set[asyncio.Future[Any]] = set(starting)
        try:
            while left and not stopping.done():
                done, left = await asyncio.wait({*left, stopping}, return_when=asyncio.FIRST_COMPLETED)
                left.discard(stopping)
                for each in done - {stopping}:
                    await each
        finally:
            for each in (*starting, stopping):
                each.cancel()
            await asyncio.gather(*starting, stopping, return_exceptions=True)

    async def _watch(self, worker: _Worker) -> None:
        pause_s = 0.0
        while True:
            process = worker.process
            assert process is not None
            code = await process.wait()
            if self._stopping.is_set():
                return
            ran_s = 0.0 if worker.ready_s is None else time.monotonic() - worker.ready_s
            pause_s = pause_after(ran_s, pause_s)
            logger.error("event=worker_died worker=%d code=%d pause_s=%g", worker.number, code, pause_s)
            await asyncio.sleep(pause_s)
            try:
                await worker.start()
            except (StartError, OSError) as error:
                logger.error("event=worker_not_started worker=%d error=%s", worker.number, error)
            else:
                took_s = time.monotonic() - worker.started_s
                logger.info("event=worker_started worker=%d took_s=%.2f", worker.number, took_s)

    def _say_start(self, folder: Path) -> None:
        settings, plan = self._settings, self._workers[0]._orders.plan
        listeners = settings.listeners
        first = listeners.kafka
        kafka = Address((first.advertise or first.bind).host, plan.bootstrap[first.name])
        doors: dict[str, Address] = {}
        if listeners.rocketmq is not None:
            doors["rocketmq"] = Address(listeners.rocketmq.bind.host, plan.rocketmq[0])
            doors["namesrv"] = Address(listeners.rocketmq.namesrv.host, plan.namesrv)
        if listeners.http is not None:
            doors["http"] = Address(listeners.http.bind.host, plan.http)
        logger.info(
            "event=started version=%s build=%s workers=%d shards=%d config=%s data=%s kafka=%s",
            __version__, build(), plan.workers, plan.shards, self._config or "none", folder, kafka,
        )  # fmt: skip
        others = "".join(f" {name}={address}" for name, address in doors.items())
        print(f"ready kafka={kafka} data={settings.node.data_dir}{others} workers={plan.workers}", flush=True)
