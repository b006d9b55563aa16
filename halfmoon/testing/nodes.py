"""A broker for tests of several nodes (docs/cluster.md): `halfmoon serve` as children, over a PostgreSQL and an object
store that all such brokers of this process share. They are started with the first one, and end with the process.

Each data directory is a cluster of its own: what its nodes have written is there when they are started again.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import copy
import json
import os
import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from halfmoon.server import admin_socket
from halfmoon.server.nodes import keys
from halfmoon.testing.object_store import StoreServer
from halfmoon.testing.ports import choose
from halfmoon.testing.postgres import PostgresServer
from halfmoon.testing.serving_process import START_TIMEOUT_S, ServingProcess
from halfmoon.testing.state import State
from halfmoon.uuids import new_uuid

SHARDS: Final = 16
"""All fast: an object shard answers after up to 200 ms, which tests would wait for."""
_STATE: Final = "cluster.json"


class Services:
    """The database and the store."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="halfmoon-services-"))
        self._folder.chmod(0o755)  # root's PostgreSQL is another user's
        self.database = PostgresServer(self._folder / "postgres", durable=False, more="max_connections = 300")
        self.store = StoreServer(self._folder / "store")
        self.secret = self._folder / "secret"
        self.secret.write_text(self.store.settings["secret_access_key"])
        self.secret.chmod(0o600)
        try:
            self.database.__enter__()
            self.store.__enter__()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.store.stop()
        if self.database.port:
            self.database.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def make(self, folder: Path, nodes: int) -> str:
        """A cluster whose keys are in this folder; the name of its database."""
        name = f"cluster_{uuid.uuid4().hex}"
        keys.make_common(folder, os.urandom)
        for number in range(1, nodes + 1):
            keys.make_node(folder, number)
        asyncio.run(self._make(name))
        return name

    async def _make(self, name: str) -> None:
        import asyncpg

        from halfmoon.cluster.postgres import schema
        from halfmoon.cluster.postgres.connecting import Access

        connection = await asyncpg.connect(self.database.dsn())
        try:
            await connection.execute(f"create database {name}")
        finally:
            await connection.close()
        cluster_id = new_uuid(os.urandom)
        await schema.create(Access(self.database.dsn(name)), cluster_id, SHARDS, 0)


_services: Services | None = None


def services() -> Services:
    global _services
    if _services is None:
        _services = Services()
        atexit.register(_services.close)
    return _services


class Nodes:
    """Use it as often as it is to start, one after the other: it is at the same addresses each time."""

    def __init__(self, count: int, config: Mapping[str, Any]) -> None:
        """`config`: sections as in broker.yaml. Ports that are 0 are chosen here."""
        self._configs = [_of_node(number, config) for number in range(1, count + 1)]
        self._processes: list[ServingProcess] = []
        self._killed: set[int] = set()
        """Those that run no more, by node id."""
        self._data_dir = ""
        self.addresses: dict[str, str] = {}
        """`host:port` of kafka, namesrv and http of the first node, and rocketmq of that which has the first shard when
        all are ready, as far as they are on."""

    def start(self, data_dir: str, state: State) -> None:
        """Returns when all are ready. Raises StartError, TimeoutError."""
        found = services()
        self._data_dir = data_dir
        folder = Path(data_dir)
        kept = folder / _STATE
        if not kept.exists():
            kept.write_text(json.dumps({"database": found.make(folder / "keys", len(self._configs))}))
        try:
            for number in range(1, 1 + len(self._configs)):
                process = self._process(number, state)
                self._processes.append(process)
                process.begin()
            for process in self._processes:
                process.wait_until_ready()
        except BaseException:
            self._kill()
            raise
        self.addresses = dict(self._processes[0].addresses)
        if "rocketmq" in self.addresses:
            self.addresses["rocketmq"] = _first_shards(self.of("rocketmq"))

    def _process(self, number: int, state: State) -> ServingProcess:
        found, folder, config = services(), Path(self._data_dir), self._configs[number - 1]
        database = json.loads((folder / _STATE).read_text())["database"]
        cluster = {
            "database": found.database.dsn(database), "store": f"{found.store.url}/{database}",
            "store_endpoint": found.store.settings["endpoint"],
            "store_access_key": found.store.settings["access_key_id"], "store_secret": str(found.secret),
            "keys": str(folder / "keys"), "bind": config["cluster"]["bind"],
        }  # fmt: skip
        node = {"id": number, "data_dir": str(self.folder_of(self._data_dir, number))}
        return ServingProcess({**config, "node": node, "cluster": cluster}, state=state)

    def start_again(self, node: int, state: State) -> None:
        """One that was killed. Raises StartError, TimeoutError."""
        if node not in self._killed:
            raise ValueError(f"node {node} was not killed")
        process = self._processes[node - 1] = self._process(node, state)
        process.start()
        self._killed.discard(node)

    def kill(self, node: int | None = None) -> None:
        """All of them, or one by its id."""
        if node is None:
            self._kill()
        elif node in range(1, 1 + len(self._processes)):
            self._processes[node - 1].kill()
            self._killed.add(node)
        else:
            raise ValueError(f"there is no node {node}: {len(self._configs)} nodes, from 1 on")

    @property
    def instruments(self) -> list[tuple[Path, int]]:
        """Of all that run (`asked.ask_all`)."""
        return [(process.folder, number) for number, process in self._running()]

    def write_state(self, state: State) -> None:
        for _, process in self._running():
            process.write_state(state)

    def _running(self) -> list[tuple[int, ServingProcess]]:
        return [each for each in enumerate(self._processes, 1) if each[0] not in self._killed]

    def stop(self) -> None:
        """Stop cleanly. Raises RuntimeError where one has ended otherwise."""
        with ThreadPoolExecutor(len(self._processes) or 1) as pool:
            problems = [problem for problem in pool.map(_stopped, [each for _, each in self._running()]) if problem]
        self._processes = []
        self._killed.clear()
        if problems:
            raise RuntimeError("; ".join(problems))

    def of(self, listener: str) -> list[str]:
        """`host:port` of a listener of all nodes."""
        return [process.addresses[listener] for process in self._processes]

    def admin_sockets(self, data_dir: str) -> list[Path]:
        """The administrator's, of all processes."""
        numbers = range(1, 1 + len(self._configs))
        return [admin_socket.path_of(self.folder_of(data_dir, number)) for number in numbers]

    def _kill(self) -> None:
        for process in self._processes:
            process.kill()
        self._processes = []
        self._killed.clear()

    @staticmethod
    def folder_of(data_dir: str, number: int) -> Path:
        return Path(data_dir) / f"node-{number}"


def _first_shards(doors: Sequence[str]) -> str:
    """Of the nodes' doors for the first shard the one that is open: which node has it depends on who was the first to
    start. It stays there, since nodes give away their last ones. Raises TimeoutError."""
    until_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < until_s:
        for door in doors:
            host, _, port = door.rpartition(":")
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection((host, int(port)), timeout=5):
                return door
        time.sleep(0.05)
    raise TimeoutError(f"no node opened the first shard for RocketMQ within {START_TIMEOUT_S} s")


def _stopped(process: ServingProcess) -> str:
    """What was wrong, if anything."""
    try:
        process.stop()
    except RuntimeError as error:
        return str(error)
    return ""


def _of_node(number: int, config: Mapping[str, Any]) -> dict[str, Any]:
    """Ports that are given are the first node's."""
    made = copy.deepcopy(dict(config))
    if made.get("log", {}).get("flush") not in (None, "sync"):
        made["log"] = {**made["log"], "flush": "sync"}
    listeners = made.get("listeners") or {}
    kafka = listeners.get("kafka") or []
    made["cluster"] = {"bind": "127.0.0.1:0"}
    doors = [*(kafka if isinstance(kafka, list) else [kafka]), made["cluster"]]
    ports: list[tuple[dict[str, Any], str, int]] = [(each, "bind", 1) for each in doors]
    for name, counts in (("rocketmq", {"bind": SHARDS, "namesrv": 1}), ("http", {"bind": 1})):
        ports += [(listeners.get(name) or {}, key, count) for key, count in counts.items()]
    for section, key, count in ports:
        if number > 1 and key in section:
            section[key] = f"{str(section[key]).rpartition(':')[0]}:0"
        choose(section, key, count)
    return made
