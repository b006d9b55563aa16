"""The brokers that are measured, each a subprocess: a Kafka as it comes and one that flushes each message, a RocketMQ,
Halfmoon in its two flush modes, and the least that a broker can be."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks import readings
from benchmarks.clients import wire
from benchmarks.peer import ROOT, Peer
from benchmarks.rocketmq_peer import RocketmqPeer

KAFKA = "kafka"
KAFKA_SYNC = "kafka_sync"
"""With log.flush.interval.messages=1: what it has answered is on the disk, as with Halfmoon's `flush: sync`."""
ROCKETMQ = "rocketmq"
INTERVAL = "interval"
SYNC = "sync"
BARE = "bare"
"""benchmarks/bare_loop.py, and bare_rocketmq.py for RocketMQ's clients."""
FLUSHES_EACH_MESSAGE = "log.flush.interval.messages=1\n"
START_LIMIT_S = 30.0
STOP_LIMIT_S = 60.0


@dataclass(slots=True)
class Broker:
    """A running broker. `name`: one of those above."""

    name: str
    bootstrap: str
    pid: int
    ready_ms: float
    """From the start of its process to the first Metadata answer that names a broker."""
    idle_mb: float = 0.0
    """Anonymous memory before its first work."""
    namesrv: str = ""
    """HOST:PORT for RocketMQ's clients, where there is one."""
    beside_pid: int | None = None
    """RocketMQ's name server: a process that the broker needs."""
    http: str | None = None
    """HOST:PORT of /metrics, where one was asked for."""
    process: subprocess.Popen[str] | None = None
    data: Path | None = None

    @property
    def is_halfmoon(self) -> bool:
        return self.name in (INTERVAL, SYNC)

    def anonymous_mb(self) -> float:
        beside_mb = 0.0 if self.beside_pid is None else readings.anonymous_mb(self.beside_pid)
        return readings.anonymous_mb(self.pid) + beside_mb

    def cpu_s(self) -> float:
        return readings.cpu_s(self.pid)


class Brokers:
    """Starts and stops them; leaves nothing behind."""

    def __init__(self, work: Path, peer: Peer | None, rocketmq: RocketmqPeer | None = None, tree: Path = ROOT) -> None:
        """`tree`: where Halfmoon's modules are."""
        self.work = work
        self.tree = tree
        self.peer = peer
        self.rocketmq = rocketmq
        self._running: list[Broker] = []
        self._count = 0

    def start_kafka(self, properties: Callable[[int], str] = lambda port: "", name: str = KAFKA) -> Broker:
        """`properties` are more of the node's, where its port is this. Raises PeerError."""
        assert self.peer is not None
        self._count += 1
        folder = f"kafka-{self._count}"
        port = free_ports(3)  # its controller takes the next one, and another listener may take the third
        started = self.peer.up(folder, port, properties(port))
        broker = Broker(name, f"127.0.0.1:{port}", started.pid, started.ready_ms, data=self.work / folder)
        self._running.append(broker)
        return broker

    def start_kafka_that_flushes(self) -> Broker:
        """What it has answered is on the disk. Raises PeerError."""
        return self.start_kafka(lambda port: FLUSHES_EACH_MESSAGE, KAFKA_SYNC)

    def start_rocketmq(self) -> Broker:
        """Raises PeerError."""
        assert self.rocketmq is not None
        # The broker takes the next port too, and the second one before it.
        started = self.rocketmq.up(free_ports(1), free_ports(4) + 2)
        broker_pid, namesrv_pid = started.pids
        broker = Broker(ROCKETMQ, "", broker_pid, started.ready_ms, namesrv=started.namesrv, beside_pid=namesrv_pid)
        self._running.append(broker)
        return broker

    def start_halfmoon(
        self,
        flush: str,
        settings: dict[str, str] | None = None,
        data: Path | None = None,
        config: Path | None = None,
        tree: Path | None = None,
    ) -> Broker:
        """`settings`: environment variables HALFMOON_… on top of the defaults. `data`: a directory that is there, or a
        new one. `config`: a broker.yaml with listeners of its own, the first of which counts. `tree`: where its modules
        are, if not where all others' are. Raises RuntimeError."""
        self._count += 1
        data = data or self.work / f"halfmoon-{self._count}"
        # Python may keep its compiled modules, as it does for everybody who installs a package.
        unwanted = ("HALFMOON_", "PYTHONDONTWRITEBYTECODE")
        env = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
        env |= {"HALFMOON_LOG_FLUSH": flush, **(settings or {})}
        where = ["--kafka", "127.0.0.1:0"] if config is None else ["--config", str(config)]
        begun = time.perf_counter()
        log_path = self.work / f"halfmoon-{self._count}.log"
        with log_path.open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "halfmoon", "serve", "--data-dir", str(data), *where],
                cwd=tree or self.tree, env=env, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        broker = Broker(flush, "", process.pid, 0.0, process=process, data=data)
        self._running.append(broker)
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("ready kafka="):
            self.stop(broker)
            raise RuntimeError(f"halfmoon did not start: {log_path.read_text()[-400:]}")
        said = dict(word.split("=", 1) for word in line.split()[1:])
        broker.bootstrap, broker.http, broker.namesrv = said["kafka"], said.get("http"), said.get("namesrv", "")
        with wire.Connection(broker.bootstrap) as connection:
            assert wire.brokers_in(connection.ask(wire.metadata([]))) == int(said.get("workers", 1))
        broker.ready_ms = (time.perf_counter() - begun) * 1e3
        return broker

    def start_bare(self) -> Broker:
        """The bare loop, writing into a file of its own."""
        return self._start_bare("bare_loop")

    def start_bare_rocketmq(self) -> Broker:
        """The same for RocketMQ's clients."""
        broker = self._start_bare("bare_rocketmq")
        broker.namesrv = broker.bootstrap
        return broker

    def _start_bare(self, module: str) -> Broker:
        self._count += 1
        data = self.work / f"bare-{self._count}"
        data.mkdir()
        process = subprocess.Popen(
            [sys.executable, "-m", f"benchmarks.{module}", str(data / "file")], cwd=ROOT, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        )  # fmt: skip
        broker = Broker(BARE, "", process.pid, 0.0, process=process, data=data)
        self._running.append(broker)
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("ready "):
            self.stop(broker)
            raise RuntimeError("the bare loop did not start")
        broker.bootstrap = line.split()[1]
        return broker

    def kill(self, broker: Broker) -> None:
        """kill −9; its data stays."""
        self._running.remove(broker)
        assert broker.process is not None
        broker.process.kill()
        broker.process.wait()
        if broker.process.stdout is not None:
            broker.process.stdout.close()

    def stop(self, broker: Broker) -> None:
        """Stop it and remove its data."""
        self._running.remove(broker)
        if broker.process is not None:
            broker.process.send_signal(signal.SIGTERM)
            try:
                broker.process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                broker.process.kill()
                broker.process.wait()
            if broker.process.stdout is not None:
                broker.process.stdout.close()
        elif broker.name == ROCKETMQ:
            assert self.rocketmq is not None
            self.rocketmq.down()
        elif self.peer is not None and broker.data is not None:
            self.peer.down(broker.data.name)
        if broker.data is not None:
            shutil.rmtree(broker.data, ignore_errors=True)

    def stop_all(self) -> None:
        for broker in list(self._running):
            self.stop(broker)


def free_ports(count: int) -> int:
    """The first of so many ports in a row that are free."""
    while True:
        with ExitStack() as held:
            port = 0
            try:
                for number in range(count):
                    one = held.enter_context(socket.socket())
                    one.bind(("127.0.0.1", port + number if number else 0))
                    port = port or int(one.getsockname()[1])
            except (OSError, OverflowError):
                continue
            return port
