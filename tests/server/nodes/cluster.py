"""Nodes of a cluster in one loop, over a database and a store in memory: what they do to each other, and clients see.

Their catalog is a SQLite file, their links sockets in the file system: the ports are the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from halfmoon.adapters.kafka.protocol import CreateTopicsRequest
from halfmoon.cluster.engine.pieces import Durability
from halfmoon.cluster.sqlite_store import SqliteStore
from halfmoon.cluster.store import Cluster
from halfmoon.config.settings import Settings, load_settings
from halfmoon.server.nodes.node import ClusterNode
from halfmoon.server.workers.routes import SocketRoutes
from halfmoon.testing.ports import free_ports
from tests.cluster.engine.doubles import MemoryDatabase, MemoryStore, unsure_database, unsure_store
from tests.server.asking import CREATE, NONE, Asking


class MemoryEngines:
    """See server/nodes/engines.Engines."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._number = number
        self.database = unsure_database(world.database, random.Random(number))
        self.store = unsure_store(world.store, random.Random(number))

    async def open(self) -> None:
        self.catalog = SqliteStore(self._world.catalog)
        self.cluster = self.catalog.cluster

    async def close(self) -> None:
        pass

    def routes(self, loop: asyncio.AbstractEventLoop, address_of: Callable[[int], Any]) -> SocketRoutes:
        return SocketRoutes(loop, self._number, [self._world.folder / f"link-{n}.sock" for n in range(10)])


class World(Asking):
    def __init__(self, folder: Path, shards: Sequence[Durability]) -> None:
        self.folder = folder
        self.database, self.store = MemoryDatabase(shards), MemoryStore()
        self.catalog = folder / "catalog.db"
        SqliteStore.create(self.catalog, Cluster("a-cluster", len(shards)))
        self.nodes: dict[int, ClusterNode] = {}
        self.engines: dict[int, MemoryEngines] = {}
        self.lost: list[Exception] = []
        self.racks: dict[int, str] = {}
        """By node; what its settings say when it starts."""
        (folder / "keys").mkdir()

    def settings(self, number: int, **more: Any) -> Settings:
        port, bind = free_ports(2)
        sections: dict[str, Any] = {
            "node": {"id": number, "data_dir": str(self.folder / f"node-{number}")},
            "listeners": {"kafka": {"bind": f"127.0.0.1:{port}"}},
            "cluster": {
                "database": "postgresql://in.memory/", "store": "s3://memory/", "bind": f"127.0.0.1:{bind}",
                "object_interval": "20ms", "keys": str(self.folder / "keys"), "rack": self.racks.get(number, ""),
            },
            "log": {"segment_bytes": "1MiB", "low_disk_bytes": 0},
        }  # fmt: skip
        return load_settings({**sections, **more}, {}, {})

    async def start(self, number: int, *, without_store: bool = False, **more: Any) -> ClusterNode:
        engines = self.engines[number] = MemoryEngines(self, number)
        engines.store.down = without_store
        node = self.nodes[number] = ClusterNode(self.settings(number, **more), engines, on_lost=self.lost.append)
        await node.start()
        return node

    async def stop(self, number: int) -> None:
        await self.nodes.pop(number).stop()

    async def stop_all(self) -> None:
        async with AsyncExitStack() as stack:  # each is stopped, also where another one cannot be
            for number in list(self.nodes):
                stack.push_async_callback(self.stop, number)

    def cut_off(self, number: int) -> None:
        """It reaches neither the database nor the store any more; its process goes on."""
        engines = self.engines[number]
        engines.database.down = engines.store.down = True

    def reach_all(self) -> None:
        """No node is cut off any more."""
        for engines in self.engines.values():
            engines.database.down = engines.store.down = False

    def holders(self) -> dict[int, list[int]]:
        """Node → the shards that are open there."""
        return {number: sorted(node.held.open) for number, node in self.nodes.items()}

    async def until(self, what: Callable[[], object], limit_s: float = 20.0) -> None:
        async with asyncio.timeout(limit_s):
            while not what():
                await asyncio.sleep(0.01)

    async def shared_out(self) -> None:
        """Each shard is open at one node."""
        shards = list(range(len(self.database.shards)))
        await self.until(lambda: sorted(one for found in self.holders().values() for one in found) == shards)

    # -- as a client -------------------------------------------------------------------------------------------------

    def address_of(self, number: int) -> tuple[str, int]:
        address = self.nodes[number].kafka_address
        return address.host, address.port

    async def create(
        self, name: str, partitions: int, number: int = 1, configs: dict[str, str] | None = None, replicas: int = 1
    ) -> int:
        """The error code."""
        kind = CreateTopicsRequest.CreatableTopic
        given = [kind.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
        topic = kind(name=name, num_partitions=partitions, replication_factor=replicas, assignments=[], configs=given)
        (found,) = (await self.ask(number, CREATE, 5, topics=[topic], timeout_ms=5000, validate_only=False)).topics
        return int(found.error_code)

    async def led(self, name: str) -> None:
        """All nodes know for each partition the one that has it."""

        async def is_led() -> bool:
            found = [await self.leaders(number, name) for number in self.nodes]
            return bool(found[0]) and all(
                each == found[0] and all(node in self.nodes for node, _ in each.values()) for each in found
            )

        async with asyncio.timeout(20):
            while not await is_led():
                await asyncio.sleep(0.02)

    async def send(self, name: str, partition: int, value: bytes) -> None:
        """To whoever has the partition, as often as it takes."""
        async with asyncio.timeout(20):
            while True:
                for number in list(self.nodes):
                    with contextlib.suppress(OSError):
                        node, _ = (await self.leaders(number, name)).get(partition, (-1, -1))
                        if node in self.nodes and await self.produce(node, name, partition, value) == NONE:
                            return
                await asyncio.sleep(0.02)

    async def read(self, name: str, partition: int) -> list[bytes]:
        """From whoever has it."""
        async with asyncio.timeout(20):
            while True:
                for number in list(self.nodes):
                    found = await self.values(number, name, partition)
                    if isinstance(found, list):
                        return found
                await asyncio.sleep(0.02)


@asynccontextmanager
async def stopped(world: World) -> AsyncIterator[World]:
    """At its end all of it is."""
    try:
        yield world
    finally:
        world.reach_all()  # a node that is cut off cannot stop in good order
        await world.stop_all()
    assert not world.lost


@asynccontextmanager
async def cluster(
    folder: Path, nodes: int, shards: Sequence[Durability], racks: Sequence[str] = ()
) -> AsyncIterator[World]:
    async with stopped(World(folder, shards)) as world:
        world.racks.update(enumerate(racks, 1))
        for number in range(1, nodes + 1):
            await world.start(number)
        yield world
