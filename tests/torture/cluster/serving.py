"""Three nodes as processes over a PostgreSQL and a versitygw, with a proxy in front of whatever a node talks to."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from halfmoon.config.units import Address
from halfmoon.server import admin_socket
from halfmoon.testing.cluster import ClusterProcesses
from halfmoon.testing.ports import ports_in_a_row
from halfmoon.testing.proxies import Proxies
from tests.crash.serving import wait_until
from tests.torture.cluster.roles import FAST_SHARDS, OBJECT_SHARDS
from tests.torture.cluster.tables import Tables

NODES = 3
PROGRAM = "-m", "tests.torture.cluster.observed"
STARTS_S = 60.0
RACKS = "abc"
"""Of the nodes, in their order."""
_records = msgspec.msgpack.Decoder(tuple[bytes, ...])
TEST_ROOT = Path(__file__).parents[3]


class ServingCluster(ClusterProcesses):
    """Its nodes are started again by whoever calls `revive`, as a supervisor would."""

    def __init__(
        self,
        folder: Path,
        *,
        program: Sequence[str] = PROGRAM,
        clocks: Mapping[int, Mapping[str, str]] | None = None,
        more: Mapping[str, Any] | None = None,
        settings: Mapping[str, str] | None = None,
        rocketmq: bool = False,
    ) -> None:
        """`program`: what the nodes run. `clocks`: more of their environments. `settings`: of broker.yaml, as in the
        environment. `rocketmq`: they serve RocketMQ's clients, too."""
        super().__init__(
            folder, NODES, fast=FAST_SHARDS, objects=OBJECT_SHARDS, more=more, durable=False,
        )  # fmt: skip
        self.proxies = Proxies()
        self._program = program
        self._clocks = clocks or {}
        self._settings = settings or {}
        self._rocketmq = rocketmq
        self._names: list[str] = []
        self.away: dict[int, float] = {}
        """Nodes that are not to run before this time (monotonic, s)."""
        self.stopping: set[int] = set()
        """Nodes that were told to stop, and run yet, perhaps."""

    def __enter__(self) -> ServingCluster:
        self.proxies.__enter__()
        try:
            super().__enter__()
        except BaseException:
            self.proxies.__exit__()
            raise
        self.tables = Tables(self.database.dsn())
        return self

    def __exit__(self, *error: Any) -> None:
        for node in self.nodes.values():
            node.signal(signal.SIGCONT)
        super().__exit__(*error)
        self.proxies.__exit__()

    def reached(self, number: int, link: int) -> dict[str, Any]:
        database = self.proxies.add(f"database-{number}", self.database.port)
        store = self.proxies.add(f"store-{number}", self.store.port)
        others = self.proxies.add(f"others-{number}", link)
        return {
            "database": f"postgresql://halfmoon@127.0.0.1:{database}/postgres",
            "store_endpoint": f"http://127.0.0.1:{store}",
            "advertise": str(Address("127.0.0.1", others)),
            "row_age": "3s",
            "rack": RACKS[number - 1],
        }

    def listeners_of(self, number: int) -> dict[str, Any]:
        if not self._rocketmq:
            return {}
        # A broker of RocketMQ's is a shard. The name service follows them.
        brokers = ports_in_a_row("127.0.0.1", FAST_SHARDS + OBJECT_SHARDS + 1)
        self._names.append(name := str(Address("127.0.0.1", brokers + FAST_SHARDS + OBJECT_SHARDS)))
        return {"rocketmq": {"bind": str(Address("127.0.0.1", brokers)), "namesrv": name}}

    @property
    def namesrv(self) -> str:
        """As in RocketMQ's NAMESRV_ADDR; empty without RocketMQ."""
        return ";".join(self._names)

    def program_of(self, number: int) -> Sequence[str]:
        return self._program

    def environment_of(self, number: int) -> Mapping[str, str]:
        settings = {f"HALFMOON_{name.upper()}": value for name, value in self._settings.items()}
        return {"PYTHONPATH": str(TEST_ROOT), **settings, **self._clocks.get(number, {})}

    # -- nodes -------------------------------------------------------------------------------------------------------

    def revive(self, *, at_once: bool = False) -> None:
        """Nodes that have ended start again, but for those that are to be away."""
        now_s = time.monotonic()
        for number, node in self.nodes.items():
            if not node.is_running and (at_once or self.away.get(number, 0.0) <= now_s):
                node.begin()
                self.stopping.discard(number)

    def running(self) -> list[int]:
        return [number for number, node in self.nodes.items() if node.is_running]

    def is_whole(self) -> bool:
        """All nodes live, and have all shards."""
        self.revive(at_once=True)
        if self.stopping or not all(map(_answers, self.admin_sockets())):
            return False
        try:
            return len(self.tables.alive()) == len(self.nodes) and self.tables.all_owned()
        except OSError:
            return False

    def admin_sockets(self) -> list[Path]:
        return [admin_socket.path_of(self.folder / f"node-{number}" / "data") for number in self.nodes]

    def catalog(self) -> list[tuple[int, tuple[bytes, ...]]]:
        """Its changes: version, and control records."""
        rows = self.tables.ask("select version, records from change order by version")
        return [(row[0], _records.decode(row[1])) for row in rows]

    def kill(self, numbers: Iterable[int], away_s: float = 0.0) -> None:
        """kill −9, at the same time."""
        numbers = list(numbers)
        for number in numbers:
            self.nodes[number].signal(signal.SIGKILL)
            self.away[number] = time.monotonic() + away_s
        for number in numbers:
            self.nodes[number].kill()

    def stop_all(self) -> list[str]:
        """In good order; what is wrong with that."""
        for node in self.nodes.values():
            node.signal(signal.SIGTERM)
        found = []
        for number, node in self.nodes.items():
            try:
                code = node.wait()
            except subprocess.TimeoutExpired:
                found.append(f"node {number} does not stop")
                node.kill()
            else:
                if code:
                    found.append(f"node {number} ended with {code}")
        return found

    def start_all(self) -> None:
        """Returns when all are ready."""
        started = [node for node in self.nodes.values() if not node.is_running]
        self.revive(at_once=True)
        for node in started:
            node.wait_until_ready()
        wait_until(self.is_whole, STARTS_S, "all nodes run, and have all shards")

    def log_of(self, number: int) -> str:
        path = self.folder / f"node-{number}" / "log"
        return path.read_text(errors="replace") if path.exists() else ""


def _answers(path: Path) -> bool:
    """An administrator's socket stays in the file system when its node dies, and nobody listens."""
    with socket.socket(socket.AF_UNIX) as asked:
        return asked.connect_ex(str(path)) == 0
