"""`halfmoon serve --workers N` as processes of its own, to be killed one by one or together."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterable
from pathlib import Path

from benchmarks import readings
from halfmoon.server import admin_socket
from halfmoon.testing.ports import ports_in_a_row
from tests.crash.serving import START_S, Serving, wait_until

HOST = "127.0.0.1"
MOST_WORKERS = 5
LISTENS = "0A"
SHARDS = 16


class ServingWorkers(Serving):
    """Clients' addresses stay the same, however many workers there are."""

    def __init__(self, folder: Path, *, rocketmq: bool = False, **settings: str) -> None:
        self._port = ports_in_a_row(HOST, 1 + MOST_WORKERS)
        self.namesrv = ""
        """The address of RocketMQ's name service, where that is on."""
        self._more: list[str] = []
        if rocketmq:
            port = ports_in_a_row(HOST, SHARDS + 1)
            self.namesrv = f"{HOST}:{port + SHARDS}"
            self._more = ["--rocketmq", f"{HOST}:{port}", "--namesrv", self.namesrv]
        super().__init__(folder, self._port, **settings)
        self.workers = 0

    def start_workers(self, count: int) -> None:
        """Returns when all are ready."""
        self.workers = count
        self.start("--workers", str(count), *self._more)

    def find(self) -> dict[int, int]:
        """Worker → process id, of those that run now. A worker listens at a port of its own, behind the shared one."""
        process = self._process
        assert process is not None
        listening = _listening()
        found: dict[int, int] = {}
        for pid in _children(process.pid):
            try:
                inodes = readings.sockets(pid)
            except FileNotFoundError:
                continue  # it has ended
            for worker in range(self.workers):
                if listening.get(self._port + 1 + worker, "") in inodes:
                    found[worker] = pid
        return found

    def find_ready(self) -> dict[int, int]:
        """As `find`, of those that serve clients, or will in a moment."""
        return {worker: pid for worker, pid in self.find().items() if self._answers(worker)}

    def admin_sockets(self) -> list[Path]:
        """The administrator's, of all workers."""
        return [admin_socket.path_of(self.folder / "data", f"worker-{worker}.sock") for worker in range(self.workers)]

    def _answers(self, worker: int) -> bool:
        """Its administrator's socket stays in the file system when it dies, and nobody listens."""
        with socket.socket(socket.AF_UNIX) as asked:
            return asked.connect_ex(str(self.folder / "data" / f"worker-{worker}.sock")) == 0

    def kill_all(self) -> None:
        """kill −9 of the supervisor, and of its workers before they hear of it."""
        process = self._process
        assert process is not None
        workers = _children(process.pid)
        for pid in (process.pid, *workers):
            send(pid, signal.SIGKILL)
        process.communicate()
        self._process = None
        wait_until(lambda: not any(map(_runs, workers)), START_S, "the workers are gone")

    def stop(self) -> None:
        """SIGTERM. All workers are gone then."""
        process = self._process
        workers = [] if process is None else _children(process.pid)
        super().stop()
        wait_until(lambda: not any(map(_runs, workers)), START_S, "the workers are gone")

    def is_whole(self) -> bool:
        """All workers run, and serve clients."""
        return len(self.find_ready()) == self.workers


def send(pid: int, number: signal.Signals) -> None:
    """To one that may be gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def pause(pids: Iterable[int], for_s: float) -> None:
    """Processes do nothing for so long, and do not know."""
    pids = list(pids)
    for pid in pids:
        send(pid, signal.SIGSTOP)
    time.sleep(for_s)
    for pid in pids:
        send(pid, signal.SIGCONT)


def _children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False


def _listening() -> dict[int, str]:
    """Port → inode of the socket that listens there."""
    found = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == LISTENS:
            found[int(fields[1].partition(":")[2], 16)] = fields[9]
    return found
