"""A node's place: machines that share a database and an object store. Who is there changes, and so does who has what.

A node has one shard of its own, with the number behind the last: what is about no shard is answered with its services.
It has none of the topics' partitions, and begins anew with each start.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from halfmoon.cluster.engine.cached_files import CachedFiles
from halfmoon.cluster.engine.storage import ShardStorage
from halfmoon.core.catalog.owners import Leader, OtherNode
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.core.storage.local import LocalStorage, read_memory
from halfmoon.server import admin_socket
from halfmoon.server.descriptors import HELD_BACK
from halfmoon.server.workers.place import ShardFiles

if TYPE_CHECKING:
    from halfmoon.cluster.engine.backing import Backing
    from halfmoon.cluster.engine.database import Node
    from halfmoon.cluster.engine.log import ShardLog
    from halfmoon.cluster.placement import Layout
    from halfmoon.cluster.store import CatalogStore
    from halfmoon.config.listener_settings import KafkaListener
    from halfmoon.config.settings import Settings
    from halfmoon.config.units import Address
    from halfmoon.core.clock import Clock
    from halfmoon.core.storage.files import FileSystem
    from halfmoon.server.nodes.confirming import Confirming
    from halfmoon.server.workers.routes import Routes

TAKEOVER_S = 10.0
"""So long clients are told of a node that is gone as the leader of what it had and nobody has taken yet, and as a
broker; Kafka tells of one until its session is over (broker.session.timeout.ms, 9 s). Decision 0176. One that dies is
followed within 5 s (docs/cluster.md); with this, also where machines are slow."""
CACHE, OWN = "cache", "own"
"""Folders in the data directory: of the shards, and of the node's own."""


class Doors(msgspec.Struct):
    """Where clients reach a node, as it tells the others through the database."""

    kafka: dict[str, tuple[str, int]]
    """By listener."""
    rocketmq: tuple[str, int] | None = None
    """Of the first shard's broker; the others' ports follow."""


_doors = msgspec.json.Decoder(Doors)


class _Gone(NamedTuple):
    node: OtherNode
    since_s: float
    """By the monotonic clock."""
    in_order: bool


class NodePlace:
    """See Place."""

    here, is_cluster = 1, True

    def __init__(
        self,
        settings: Settings,
        layout: Layout,
        open_store: Callable[[], CatalogStore],
        routes: Callable[[asyncio.AbstractEventLoop, Callable[[int], tuple[str, int] | None]], Routes],
        clock: Clock,
    ) -> None:
        """`routes`: made of the loop, and of how a node's host and port are found."""
        assert settings.node.id is not None
        self._settings = settings
        self.clock = clock
        self.me, self.layout, self.shards = settings.node.id, layout, layout.shards
        self.folder = Path(settings.node.data_dir).absolute()
        self.secrets = Path(settings.cluster.keys).absolute()
        self.begins_with: Sequence[int] = [layout.shards]
        self.owners = [-1] * layout.shards
        self._last_owners = [-1] * layout.shards
        self._owners_before = [-1] * layout.shards
        self._taken = [Leader(-1, -1)] * layout.shards
        self._without_s = dict.fromkeys(range(layout.shards), time.monotonic())
        """Shard that no living node has, as far as is known → since when."""
        self.open_store = open_store
        self._routes = routes
        self._links: dict[int, tuple[str, int]] = {}
        """Where nodes listen for each other."""
        self._kafka: dict[str, dict[int, tuple[str, int]]] = {}
        self._of_rocketmq: dict[int, tuple[str, int]] = {}
        self._rocketmq: dict[int, tuple[str, int]] = {}
        """By shard."""
        self._of_node: dict[int, OtherNode] = {}
        self._gone: dict[int, _Gone] = {}
        self._backings: dict[int, Backing] = {}
        self._memory = read_memory(settings, layout.shards, 1)
        self.confirming: Confirming | None = None
        self.hot_bytes = self._memory.hot_bytes
        self.logs: dict[int, ShardLog] = {}
        """Of the shards that are open here."""
        self._know(self.me, self.doors(), settings.cluster.rack)

    @property
    def members(self) -> Mapping[int, OtherNode]:
        return self._of_node

    def rack_of(self, node: int) -> str | None:
        """None: it has not said, or nobody knows of it."""
        found = self._of_node.get(node)
        return None if found is None else found.rack

    def owns(self, shard: int) -> bool:
        return shard < self.shards

    def confirm(self, told: Callable[[bool], None]) -> None:
        if self.confirming is None:
            told(False)
        else:
            self.confirming.ask(told)

    # -- who is there, and who has what ------------------------------------------------------------------------------

    def doors(self) -> Doors:
        """This node's."""
        listeners = self._settings.listeners
        rocketmq = listeners.rocketmq
        return Doors(
            {each.name: _pair(each.advertise or each.bind) for each in listeners.of_kafka},
            None if rocketmq is None else _pair(rocketmq.advertise or rocketmq.bind),
        )

    def nodes(self, found: Sequence[Node]) -> None:
        """These are all that the database knows of."""
        alive = {node.number: node for node in found if node.alive and node.number != self.me}
        # Its last start counts: rows of earlier ones stay for a while.
        left = {number for number, node in {node.number: node for node in found}.items() if node.draining}
        for number in [number for number in self._of_node if number not in alive and number != self.me]:
            self._gone[number] = _Gone(self._of_node[number], time.monotonic(), number in left)
            self._forget(number)
        for number, node in alive.items():
            self._links[number] = node.host, node.port
            self._know(number, _doors.decode(node.doors), node.rack)

    def _know(self, number: int, doors: Doors, rack: str) -> None:
        self._gone.pop(number, None)
        for name, address in doors.kafka.items():
            self._kafka.setdefault(name, {})[number] = address
        if doors.rocketmq is not None:
            self._of_rocketmq[number] = doors.rocketmq
        kafka = doors.kafka.get(self._settings.listeners.kafka.name) or next(iter(doors.kafka.values()))
        self._of_node[number] = OtherNode(number, kafka, "", doors.rocketmq or (kafka[0], 0), rack or None)
        for shard, owner in enumerate(self.owners):
            if owner == number:
                self._has_owner(shard)

    def _forget(self, number: int) -> None:
        self._of_node.pop(number, None)
        self._links.pop(number, None)
        self._of_rocketmq.pop(number, None)
        for shard, owner in enumerate(self.owners):
            if owner == number:
                self._has_owner(shard)

    def started(self, shard: int, node: int) -> None:
        if node >= 0 and node != self._last_owners[shard]:
            self._owners_before[shard], self._last_owners[shard] = self._last_owners[shard], node
        self.owners[shard] = node
        self._has_owner(shard)

    moved = started

    def told_leader(self, shard: int, epoch: int) -> Leader | None:
        taken = self._taken[shard]
        if taken.epoch > epoch and taken.node_id in self._of_node:
            return taken  # it refuses until it has opened the shard, and clients ask it again soon
        since_s = self._without_s.get(shard)
        if since_s is None:
            return None
        if time.monotonic() < since_s + TAKEOVER_S:
            # The last one may have come a moment ago, and not be known here yet.
            for ago, node in enumerate((self._last_owners[shard], self._owners_before[shard])):
                if node in self._of_node or node in self._gone:
                    return Leader(node, epoch - ago)
        return Leader(-1, epoch)

    def taken(self, shard: int, epoch: int, node: int) -> None:
        """The database says that this node owns the shard since this epoch; it may not have opened it yet."""
        if epoch > self._taken[shard].epoch:
            self._taken[shard] = Leader(node, epoch)

    def just_gone(self) -> Sequence[OtherNode]:
        """One that left in good order only if it is named as a leader yet."""
        after_s = time.monotonic() - TAKEOVER_S
        named = {self._last_owners[shard] for shard, since_s in self._without_s.items() if since_s > after_s}
        return [
            gone.node
            for number, gone in self._gone.items()
            if number in named or (gone.since_s > after_s and not gone.in_order)
        ]

    def _has_owner(self, shard: int) -> None:
        """Or has none: something has changed."""
        if self.owners[shard] in self._of_node:
            self._without_s.pop(shard, None)
        else:
            self._without_s.setdefault(shard, time.monotonic())
        base = self._of_rocketmq.get(self.owners[shard])
        if base is None:
            self._rocketmq.pop(shard, None)
        else:
            host, port = base
            self._rocketmq[shard] = host, port + shard

    # -- shards ------------------------------------------------------------------------------------------------------

    async def clear(self) -> None:
        """What is left in the cache from before."""
        await asyncio.to_thread(shutil.rmtree, self.folder / CACHE, ignore_errors=True)

    def takes(self, backing: Backing) -> None:
        """This shard is about to be opened."""
        self._backings[backing.shard] = backing

    async def files(self, shard: int) -> ShardFiles:
        if not self.owns(shard):
            folder = await asyncio.to_thread(_emptied, self.folder / OWN)
            own = OsFileSystem(folder)
            own.held_back.hold(HELD_BACK)
            return ShardFiles(own, partial(LocalStorage, memory=self._memory), folder, True, _nothing)
        backing = self._backings.pop(shard)
        folder = await asyncio.to_thread(_emptied, self.folder / CACHE / f"shard-{shard:02}")
        files = CachedFiles(OsFileSystem(folder), backing)

        def storage(_fs: FileSystem, settings: Settings) -> ShardStorage:
            made = ShardStorage(files, settings, backing, self._memory)
            self.logs[shard] = made.log
            return made

        async def closed() -> None:
            self.logs.pop(shard, None)
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

        return ShardFiles(files, storage, folder, False, closed, backing.head.restored)

    # -- addresses ---------------------------------------------------------------------------------------------------

    def routes(self, loop: asyncio.AbstractEventLoop) -> Routes:
        return self._routes(loop, self._links.get)

    def kafka_binds(self, listener: KafkaListener) -> Sequence[Address]:
        return [listener.bind]

    def kafka_addresses(self, listener: KafkaListener) -> Mapping[int, tuple[str, int]]:
        return self._kafka[listener.name]

    def local_socket(self) -> Path:
        return admin_socket.path_of(self.folder)

    def local_addresses(self) -> Mapping[int, str]:
        return {self.me: str(self.local_socket())}

    def http_bind(self) -> Address:
        listener = self._settings.listeners.http
        assert listener is not None
        return listener.bind

    def namesrv_bind(self) -> Address:
        listener = self._settings.listeners.rocketmq
        assert listener is not None
        return listener.namesrv

    def rocketmq_bind(self, shard: int) -> Address:
        listener = self._settings.listeners.rocketmq
        assert listener is not None
        return listener.bind._replace(port=listener.bind.port + shard)

    def rocketmq_addresses(self) -> Mapping[int, tuple[str, int]]:
        return self._rocketmq


def _emptied(folder: Path) -> Path:
    """What is in it is left from before, and can be had again."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)
    return folder


def _pair(address: Address) -> tuple[str, int]:
    return address.host, address.port


def _nothing() -> None: ...
