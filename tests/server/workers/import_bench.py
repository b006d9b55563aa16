"""A data directory of one process that has everything in it, and the shards that an import makes of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from halfmoon.cluster.owners import ShardOwners
from halfmoon.cluster.placement import Layout, coordinator_of
from halfmoon.cluster.shared import SharedCatalog, tell
from halfmoon.cluster.sqlite_store import SqliteStore
from halfmoon.cluster.store import Cluster, News
from halfmoon.config.settings import Settings, load_settings
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.owners import OtherNode
from halfmoon.core.hold import HoldService
from halfmoon.core.identity import Identity
from halfmoon.core.kernel import Shard
from halfmoon.core.live import Live
from halfmoon.core.storage.files import FileSystem, OsFileSystem
from halfmoon.core.storage.local import shard_storage
from halfmoon.core.storage.storage import MakeStorage
from halfmoon.hooks.context import PluginContext
from halfmoon.plugins.store.delay import plugin as delay
from halfmoon.plugins.store.delay.plugin import DelaySettings
from halfmoon.plugins.store.transaction import plugin as transaction
from halfmoon.plugins.store.transaction.plugin import TransactionSettings
from halfmoon.schema import control
from halfmoon.server.common import CommonSections
from halfmoon.server.plugin_host import Host
from halfmoon.server.workers.plan import CATALOG, shard_folder
from halfmoon.services.topic_configs import topic_configs
from halfmoon.testing.node import BareNode
from tests.core.bench import LANGUAGES, VirtualClock, open_broker, read_all, relay

SHARDS = 4
ME = OtherNode(7, ("me.example", 9_092), "", ("me.example", 0))
SMALL = {"segment_bytes": 64 << 10, "index_checkpoint_bytes": 16 << 10, "low_disk_bytes": 0}
Record = tuple[int, bytes]
Records = dict[tuple[str, int], list[Record]]
"""By topic and partition."""


def name_in(shard: int, prefix: str = "g") -> str:
    """A name that this shard coordinates."""
    return next(name for at in range(100) if coordinator_of(name := f"{prefix}{at}", SHARDS) == shard)


class _Plugins:
    """Delays and half messages."""

    def __init__(self) -> None:
        self.contexts = [
            PluginContext("delay", DelaySettings()),
            PluginContext("transaction", TransactionSettings(timeout_ms=10**9, max_age_ms=10**10)),
        ]
        of_delay, of_transaction = self.contexts
        self.interceptors = [*transaction.halfmoon_commitlog(of_transaction), *delay.halfmoon_commitlog(of_delay)]
        self.relays = transaction.halfmoon_relays(of_transaction)

    def attach(self, node: BareNode) -> None:
        for context in self.contexts:
            context.attach(Host(node, Path("unused")))


def open_one(folder: Path, clock: VirtualClock, **log: Any) -> BareNode:
    """The broker of one process."""
    plugins = _Plugins()
    broker = open_broker(
        OsFileSystem(folder), clock, interceptors=plugins.interceptors, relays=plugins.relays, **log
    )  # fmt: skip
    plugins.attach(broker)
    return broker


def records_of(nodes: dict[int, BareNode]) -> Records:
    """Of all topics that clients read, each partition in the one shard where it is."""
    found: Records = {}
    for node in nodes.values():
        for topic in node.catalog.topics():
            for partition in () if topic.hidden else topic.here():
                if partition.high_watermark:
                    assert (topic.name, partition.index) not in found, "it is in two shards"
                    found[topic.name, partition.index] = read_all(node, topic.name, partition.index)
    return found


class Shards:
    """All of a data directory, open in one process."""

    def __init__(self, folder: Path, clock: VirtualClock, shards: int = SHARDS) -> None:
        store = SqliteStore(folder / CATALOG)
        self._folder = folder
        try:
            self._open_all(clock, store.cluster, store.read(0), shards)
        finally:
            store.close()

    def _open_all(self, clock: VirtualClock, cluster: Cluster, news: News, shards: int) -> None:
        self.clock = clock
        self.cluster = cluster
        self.settings: Settings = load_settings({"log": SMALL}, {}, {})
        table = topic_configs(())
        self.common = CommonSections(table)
        catalog = Catalog(self.settings, table)
        catalog.register(self.common.all)
        self.shared = SharedCatalog(catalog)
        self.shared.take(news)
        self.hold = HoldService(self.settings.hold)
        self.owners = ShardOwners(self.shared, {0: ME}, [0] * shards, 0, Layout.of_workers(shards))
        self._storage = shard_storage(self.settings, shards)
        self.nodes = {number: self._open(number) for number in range(shards)}
        for number, node in self.nodes.items():
            self.shared.apply(control.ShardStarted(number, node.generation))

    def _place(self, number: int) -> tuple[FileSystem, MakeStorage]:
        return OsFileSystem(shard_folder(self._folder, number)), self._storage

    def _open(self, number: int) -> BareNode:
        identity = Identity(1, self.cluster.id, ME.node_id)
        shard = Shard(number, identity, self.owners, self.hold, Live(self.settings))
        fs, storage = self._place(number)
        node = BareNode(fs, self.settings, self.clock, os.urandom, storage=storage, shard=shard)
        node.open()
        plugins = _Plugins()
        for record in tell(self.shared, node.catalog):
            node.append_control(record)
        node.use(LANGUAGES, plugins.interceptors, plugins.relays)
        plugins.attach(node)
        node.start()
        return node

    def relay(self) -> None:
        for node in self.nodes.values():
            relay(node)

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()

    def placements_of(self, topic: str) -> bytes:
        found = self.shared.catalog.topic(topic)
        assert found is not None
        return self.shared.placements[found.number]

    def placed(self, topic: str, index: int) -> int:
        return self.placements_of(topic)[index]

    def at(self, topic: str, index: int) -> BareNode:
        return self.nodes[self.placed(topic, index)]

    def holders(self, name: str) -> Iterator[tuple[int, BareNode]]:
        """Shards that have a hidden topic of this name."""
        for number, node in self.nodes.items():
            if node.topic(name) is not None:
                yield number, node
