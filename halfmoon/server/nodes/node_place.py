"""A node's place: machines that share a database and an object store. Who is there changes, and so does who has what.

A node has one shard of its own, with the number behind the last: what is about no shard is answered with its services.
It has none of the topics' partitions, and begins anew with each start.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from halfmoon.cluster.engine.cached_files import CachedFiles
from halfmoon.cluster.engine.storage import ShardStorage
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.core.storage.local import LocalStorage, read_memory
from halfmoon.server import admin_socket
from halfmoon.server.descriptors import HELD_BACK
from halfmoon.server.nodes.known_nodes import KnownNodes
from halfmoon.server.nodes.leaders import Leaders
from halfmoon.server.running import to_its_end
from halfmoon.server.workers.place import ShardFiles

if TYPE_CHECKING:
    from halfmoon.cluster.engine.backing import Backing
    from halfmoon.cluster.engine.log import ShardLog
    from halfmoon.cluster.placement import Layout
    from halfmoon.cluster.store import CatalogStore
    from halfmoon.config.listener_settings import KafkaListener
    from halfmoon.config.settings import Settings
    from halfmoon.config.units import Address
    from halfmoon.core.catalog.owners import Leader, OtherNode
    from halfmoon.core.clock import Clock
    from halfmoon.core.storage.files import FileSystem
    from halfmoon.server.nodes.confirming import Confirming
    from halfmoon.server.workers.routes import Routes

T = TypeVar("T")

CACHE, OWN = "cache", "own"
"""Folders in the data directory: of the shards, and of the node's own."""


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
        self.nodes = KnownNodes(settings, self.me)
        self.nodes.on_change = self._node_changed
        self.leaders = Leaders(layout.shards, self.nodes)
        self.open_store = open_store
        self._routes = routes
        self._rocketmq: dict[int, tuple[str, int]] = {}
        """By shard."""
        self._backings: dict[int, Backing] = {}
        self._memory = read_memory(settings, layout.shards, 1)
        self.confirming: Confirming | None = None
        self.hot_bytes = self._memory.hot_bytes
        self.logs: dict[int, ShardLog] = {}
        """Of the shards that are open here."""

    @property
    def members(self) -> Mapping[int, OtherNode]:
        return self.nodes.living

    @property
    def owners(self) -> Sequence[int]:
        return self.leaders.owners

    def rack_of(self, node: int) -> str | None:
        """None: it has not said, or nobody knows of it."""
        found = self.members.get(node)
        return None if found is None else found.rack

    def owns(self, shard: int) -> bool:
        return shard < self.shards

    def confirm(self, told: Callable[[bool], None]) -> None:
        if self.confirming is None:
            told(False)
        else:
            self.confirming.ask(told)

    # -- who has what ------------------------------------------------------------------------------------------------

    def started(self, shard: int, node: int) -> None:
        self.leaders.owned(shard, node)
        self._reached_at(shard)

    moved = started

    def told_leader(self, shard: int, epoch: int) -> Leader | None:
        return self.leaders.told(shard, epoch)

    def just_gone(self) -> Sequence[OtherNode]:
        return self.leaders.just_gone()

    def _node_changed(self, number: int) -> None:
        for shard, owner in enumerate(self.owners):
            if owner == number:
                self.leaders.look_at(shard)
                self._reached_at(shard)

    def _reached_at(self, shard: int) -> None:
        base = self.nodes.rocketmq(self.owners[shard])
        if base is None:
            self._rocketmq.pop(shard, None)
        else:
            host, port = base
            self._rocketmq[shard] = host, port + shard

    # -- shards ------------------------------------------------------------------------------------------------------

    async def clear(self) -> None:
        """What is left in the cache from before."""
        await _in_thread(partial(shutil.rmtree, self.folder / CACHE, ignore_errors=True))

    def takes(self, backing: Backing) -> None:
        """This shard is about to be opened."""
        self._backings[backing.shard] = backing

    async def files(self, shard: int) -> ShardFiles:
        if not self.owns(shard):
            folder = await _in_thread(partial(_emptied, self.folder / OWN))
            own = OsFileSystem(folder)
            own.held_back.hold(HELD_BACK)
            return ShardFiles(own, partial(LocalStorage, memory=self._memory), folder, True, own.held_back.release)
        backing = self._backings.pop(shard)
        folder = await _in_thread(partial(_emptied, self.folder / CACHE / f"shard-{shard:02}"))
        files = CachedFiles(OsFileSystem(folder), backing)

        def storage(_fs: FileSystem, settings: Settings) -> ShardStorage:
            made = ShardStorage(files, settings, backing, self._memory)
            self.logs[shard] = made.log
            return made

        async def closed() -> None:
            self.logs.pop(shard, None)
            await _in_thread(partial(shutil.rmtree, folder, ignore_errors=True))

        return ShardFiles(files, storage, folder, False, closed, backing.head.restored)

    # -- addresses ---------------------------------------------------------------------------------------------------

    def routes(self, loop: asyncio.AbstractEventLoop) -> Routes:
        return self._routes(loop, self.nodes.link)

    def kafka_binds(self, listener: KafkaListener) -> Sequence[Address]:
        return [listener.bind]

    def kafka_addresses(self, listener: KafkaListener) -> Mapping[int, tuple[str, int]]:
        return self.nodes.kafka(listener.name)

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


async def _in_thread(work: Callable[[], T]) -> T:
    """A node that is told to stop while it starts lets go of its directory when nobody changes anything there."""
    return await to_its_end(asyncio.to_thread(work))


def _emptied(folder: Path) -> Path:
    """What is in it is left from before, and can be had again."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)
    return folder
