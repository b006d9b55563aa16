"""A cluster of one's own, for tests and demonstrations: PostgreSQL, an object store, and nodes, all as processes.

What they need: PostgreSQL and versitygw (`halfmoon.testing.postgres`, `halfmoon.testing.object_store` say how they are
installed), and `pip install 'halfmoon[cluster]'`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from halfmoon.errors import StartError
from halfmoon.testing.first_line import first_line
from halfmoon.testing.object_store import StoreServer
from halfmoon.testing.ports import ports_in_a_row
from halfmoon.testing.postgres import PostgresServer

PROGRAM: Final = ("-m", "halfmoon")
NEXT_VERSION: Final = ("-m", "halfmoon.testing.next_version")
"""What the interpreter may run: this version, and one that is as the next may be."""
START_S: Final = 60.0
STOP_S: Final = 60.0
COMMAND_S: Final = 60.0
"""For a command of the command line."""


class NodeProcess:
    """One node: `halfmoon serve`."""

    def __init__(
        self,
        number: int,
        folder: Path,
        kafka: int,
        environment: Mapping[str, str],
        program: Sequence[str] = PROGRAM,
        host: str = "127.0.0.1",
        prefix: Sequence[str] = (),
    ) -> None:
        """`program`: what the interpreter runs; `serve` follows it. `host`: where it listens. `prefix`: what stands
        before the command."""
        self._prefix = prefix
        self.number = number
        self.folder = folder
        self.bootstrap = f"{host}:{kafka}"
        self.http = ""
        """Where its /metrics and /healthz are."""
        self._environment = environment
        self.program = program
        """What its next start runs."""
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def config(self) -> Path:
        return self.folder / "broker.yaml"

    def start(self) -> None:
        """Returns once it is ready. Raises StartError, TimeoutError."""
        self.begin()
        self.wait_until_ready()

    def begin(self) -> None:
        """Nobody needs to wait until it is ready."""
        self.wait()
        command = [*self._prefix, sys.executable, *self.program, "serve", "--config", str(self.config)]
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                command, env=self._environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=log,
            )  # fmt: skip

    def wait_until_ready(self) -> None:
        """After `begin`, once. Raises StartError, TimeoutError."""
        assert self.process is not None and self.process.stdout is not None
        try:
            line = first_line(self.process.stdout, START_S)
        except TimeoutError:
            raise TimeoutError(f"node {self.number} did not start within {START_S:g} s: {self._said()}") from None
        if not line.startswith("ready "):
            raise StartError(f"node {self.number} ended with {self.process.wait(STOP_S)}: {self._said()}")

    def _said(self) -> str:
        return (self.folder / "log").read_text()[-2000:]

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def signal(self, number: int) -> None:
        """SIGKILL, SIGSTOP, SIGCONT, …"""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> int | None:
        """In good order; the exit code."""
        self.signal(signal.SIGTERM)
        try:
            return self.wait()
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def wait(self) -> int | None:
        """For its end; the exit code. Raises subprocess.TimeoutExpired."""
        process = self.process
        if process is None:
            return None
        code = process.wait(STOP_S)
        assert process.stdout is not None
        process.stdout.close()
        self.process = None
        return code


class ClusterProcesses:
    """A context manager: whoever enters it has a cluster whose nodes are ready."""

    def __init__(
        self,
        folder: Path,
        nodes: int = 3,
        *,
        fast: int = 16,
        objects: int = 16,
        more: Mapping[str, Any] | None = None,
        durable: bool = True,
        make: Callable[[ClusterProcesses], object] | None = None,
        postgres: str = "",
    ) -> None:
        """`fast`, `objects`: how many shards of either durability. `more`: sections of each node's broker.yaml.
        `durable`: False where a test has no power cut to survive. `make`: what makes the cluster, before its nodes
        start; None: `init`. `postgres`: lines of postgresql.conf."""
        self.folder = folder
        self._count = nodes
        self._shards = fast, objects
        self._more = more or {}
        self.apart = Path(tempfile.mkdtemp(prefix="halfmoon-postgres-"))
        """A folder of PostgreSQL's."""
        self.apart.chmod(0o755)  # where this process is root's, PostgreSQL is another user's
        self._make = make or ClusterProcesses.init
        self.database = PostgresServer(self.apart / "data", durable=durable, more=postgres)
        self.store = StoreServer(folder / "store")
        self._undo = ExitStack()
        self.nodes: dict[int, NodeProcess] = {}

    def __enter__(self) -> ClusterProcesses:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._undo.enter_context(self.database)
            self._undo.enter_context(self.store)
            for number in range(1, self._count + 1):
                self.add(number)
            self._make(self)
            for node in self.nodes.values():
                node.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def init(self) -> None:
        """Make the tables and the keys. Raises StartError."""
        fast, objects = self._shards
        nodes = str(max(3, self._count))
        self.cluster("init", "--fast", str(fast), "--objects", str(objects), "--nodes", nodes)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for node in self.nodes.values():
            node.kill()
        self._undo.close()
        shutil.rmtree(self.apart, ignore_errors=True)

    def add(self, number: int) -> NodeProcess:
        """One more, which is not started yet."""
        folder = self.folder / f"node-{number}"
        folder.mkdir()
        # No connection of others has one of these while the node is down.
        kafka = ports_in_a_row("127.0.0.1", 3)
        link, http = kafka + 1, kafka + 2
        host, prefix = self.machine_of(number)
        insecure = {} if host == "127.0.0.1" else {"allow_insecure": True}
        secret = self.folder / "store-secret"
        secret.write_text(self.store.settings["secret_access_key"])
        sections: dict[str, Any] = {
            "node": {"id": number, "data_dir": str(folder / "data")},
            "listeners": {
                "kafka": {"bind": f"{host}:{kafka}", **insecure},
                "http": {"bind": f"{host}:{http}", **insecure},
                **self.listeners_of(number),
            },
            "cluster": {
                "database": self.database.dsn(),
                "store": self.store.url,
                "store_endpoint": self.store.settings["endpoint"],
                "store_region": self.store.settings["region"],
                "store_access_key": self.store.settings["access_key_id"],
                "store_secret": str(secret),
                "keys": str(self.folder / "keys"),
                "bind": f"{host}:{link}",
                **self.reached(number, link),
            },
            **self._more,
        }
        (folder / "broker.yaml").write_text(json.dumps(sections, indent=2))
        environment = {**self.environment, **self.environment_of(number)}
        node = self.nodes[number] = NodeProcess(
            number, folder, kafka, environment, self.program_of(number), host, prefix
        )  # fmt: skip
        node.http = f"http://{host}:{http}"
        return node

    def reached(self, number: int, link: int) -> dict[str, Any]:
        """More of a node's section `cluster`. `link`: the port at which it listens for others. For those who put
        something between a node and what it talks to."""
        return {}

    def listeners_of(self, number: int) -> dict[str, Any]:
        """More of a node's section `listeners`."""
        return {}

    def machine_of(self, number: int) -> tuple[str, Sequence[str]]:
        """The host where a node listens, and what stands before its command. For those who have machines for them."""
        return "127.0.0.1", ()

    def program_of(self, number: int) -> Sequence[str]:
        """As of NodeProcess. For those who change what a node does."""
        return PROGRAM

    def environment_of(self, number: int) -> Mapping[str, str]:
        """More of a node's environment."""
        return {}

    @property
    def environment(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PG"))}

    def cluster(self, *arguments: str, program: Sequence[str] = PROGRAM) -> str:
        """What `halfmoon cluster …` prints, with the settings of the first node. Raises StartError."""
        return self.command("cluster", *arguments, "--config", str(self.nodes[1].config), program=program)

    def command(self, *arguments: str, program: Sequence[str] = PROGRAM) -> str:
        """What `halfmoon …` prints. Raises StartError."""
        done = subprocess.run(
            [sys.executable, *program, *arguments], env=self.environment, capture_output=True, text=True,
            check=False, timeout=COMMAND_S,
        )  # fmt: skip
        if done.returncode:
            raise StartError(f"halfmoon {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    @property
    def bootstrap(self) -> str:
        """Of all nodes."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    def state(self) -> Sequence[Mapping[str, Any]]:
        """Of the nodes, as `halfmoon cluster status` tells it."""
        said = self.cluster("status", "-o", "json")
        found: list[Mapping[str, Any]] = json.loads(said)
        return found

    def wait_until_shared(self, limit_s: float = 30.0) -> None:
        """Each living node has its part. Raises StartError."""
        until_s = time.monotonic() + limit_s
        total = sum(self._shards)
        while True:
            rows = [row for row in self.state() if row["state"] == "up"]
            counts = [row["fast"] + row["object"] for row in rows]
            alive = sum(node.is_running for node in self.nodes.values())
            if len(rows) == alive and sum(counts) == total and max(counts) - min(counts) <= 2:
                return
            if time.monotonic() > until_s:
                raise StartError(f"the shards are not shared out: {rows}")
            time.sleep(0.2)
