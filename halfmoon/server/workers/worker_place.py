"""A worker's place: processes of one machine, which share a data directory. Its plan says where everything is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from halfmoon.cluster.placement import Layout
from halfmoon.cluster.sqlite_store import SqliteStore
from halfmoon.core.catalog.owners import OtherNode
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.core.storage.local import shard_storage
from halfmoon.server.clock import SystemClock
from halfmoon.server.descriptors import HELD_BACK
from halfmoon.server.instruments import clock_over
from halfmoon.server.workers.place import ShardFiles
from halfmoon.server.workers.plan import CATALOG, Plan
from halfmoon.server.workers.routes import SocketRoutes

if TYPE_CHECKING:
    from halfmoon.config.listener_settings import KafkaListener
    from halfmoon.config.settings import Settings
    from halfmoon.config.units import Address


class WorkerPlace:
    """See Place."""

    is_cluster = False
    confirm = None

    def __init__(self, settings: Settings, plan: Plan) -> None:
        self._settings = settings
        self._plan = plan
        self.clock = clock_over(SystemClock())
        self.me, self.shards, self.here = plan.worker, plan.shards, plan.workers
        self.layout = Layout.of_workers(plan.shards)
        self.folder = self.secrets = plan.path
        kafka = settings.listeners.kafka
        host, ports = (kafka.advertise or kafka.bind).host, plan.kafka[kafka.name]
        self.members: Mapping[int, OtherNode] = {
            worker: OtherNode(plan.node_id(worker), (host, port), "", (host, 0)) for worker, port in enumerate(ports)
        }
        self.owners = plan.owners()
        self.begins_with: Sequence[int] = plan.owned()
        self._storage = shard_storage(settings, plan.shards, plan.workers)

    def owns(self, shard: int) -> bool:
        return True

    def started(self, shard: int, process: int) -> None:
        """Who has what is planned: the catalog may speak of a time when there were more workers, or fewer."""

    def moved(self, shard: int, process: int) -> None:
        self.owners[shard] = process

    def just_gone(self) -> Sequence[OtherNode]:
        return ()

    def told_leader(self, shard: int, epoch: int) -> None:
        return None

    def open_store(self) -> SqliteStore:
        return SqliteStore(self._plan.path / CATALOG)

    async def files(self, shard: int) -> ShardFiles:
        fs = OsFileSystem(self._plan.shard_folder(shard))
        fs.lock()
        if shard == self.begins_with[0]:
            fs.held_back.hold(HELD_BACK)
        return ShardFiles(fs, self._storage, fs.root, True, fs.unlock)

    def routes(self, loop: asyncio.AbstractEventLoop) -> SocketRoutes:
        return SocketRoutes(loop, self.me, [self._plan.link(worker) for worker in self.members])

    def kafka_binds(self, listener: KafkaListener) -> Sequence[Address]:
        plan = self._plan
        ports = plan.kafka[listener.name][self.me], plan.bootstrap[listener.name]
        return [listener.bind._replace(port=port) for port in ports]

    def kafka_addresses(self, listener: KafkaListener) -> Mapping[int, tuple[str, int]]:
        host = "" if listener.advertise is None else listener.advertise.host
        plan = self._plan
        return {plan.node_id(worker): (host, port) for worker, port in enumerate(plan.kafka[listener.name])}

    def local_socket(self) -> Path:
        return self._plan.socket(self.me)

    def local_addresses(self) -> Mapping[int, str]:
        return {self._plan.node_id(worker): str(self._plan.socket(worker)) for worker in self.members}

    def http_bind(self) -> Address:
        listener = self._settings.listeners.http
        assert listener is not None
        return listener.bind._replace(port=self._plan.http)

    def namesrv_bind(self) -> Address:
        listener = self._settings.listeners.rocketmq
        assert listener is not None
        return listener.namesrv._replace(port=self._plan.namesrv)

    def rocketmq_bind(self, shard: int) -> Address:
        listener = self._settings.listeners.rocketmq
        assert listener is not None
        return listener.bind._replace(port=self._plan.rocketmq[shard])

    def rocketmq_addresses(self) -> Mapping[int, tuple[str, int]]:
        listener = self._settings.listeners.rocketmq
        host = "" if listener is None or listener.advertise is None else listener.advertise.host
        return {shard: (host, port) for shard, port in enumerate(self._plan.rocketmq)}
