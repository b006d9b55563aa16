"""`halfmoon cluster rebuild`: the catalog that all shards share, made of what their logs say of it.

First the database has what the objects say: then the logs can be opened. It is a cluster when it has the catalog, too;
before that no node starts, and the command is given again.

Each shard's log has all topics, with what was last known of them, and the partitions that are its own. So the topics
are those of the shard that heard of the catalog last, and each partition is where it is found. Users, access rules,
quotas and configurations of nodes stand in no log: they are lost.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from halfmoon.cluster.backup.committed import is_committed
from halfmoon.cluster.backup.ports import FILLED_MEANWHILE
from halfmoon.cluster.backup.tables import COLUMNS
from halfmoon.cluster.engine.cached_files import CachedFiles
from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.engine.storage import ShardStorage
from halfmoon.cluster.placement import Layout, is_aligned, place_named
from halfmoon.cluster.shared import SharedCatalog, bare, differences
from halfmoon.config.settings import Settings
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import RemotePartition
from halfmoon.core.kernel import Kernel
from halfmoon.core.storage.files import FileSystem, OsFileSystem
from halfmoon.core.storage.local import read_memory
from halfmoon.errors import LeaseLostError, StartError
from halfmoon.hooks.plugins import load_plugins
from halfmoon.plugins import BUILT_IN
from halfmoon.schema.durability import DURABILITY, FAST
from halfmoon.schema.group_topics import retrying_group
from halfmoon.server.clock import SystemClock
from halfmoon.server.common import CommonSections
from halfmoon.server.nodes.engine import Engine
from halfmoon.services.topic_configs import topic_configs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from halfmoon.cluster.backup.ports import Target
    from halfmoon.cluster.backup.rebuilding import Rebuilding, Rebuilt
    from halfmoon.cluster.engine.backing import Backing
    from halfmoon.cluster.engine.database import LogDatabase
    from halfmoon.cluster.engine.objects import ObjectStore
    from halfmoon.config.cluster_settings import ClusterSettings
    from halfmoon.config.topic_configs import TopicConfigs
    from halfmoon.schema.snapshot import TopicState

SKIPPED = 1_000
"""Numbers of topics and of partitions that may have been given out, of which no log knows."""

_quiet = logging.getLogger("halfmoon.rebuild")


class Known(NamedTuple):
    """What one shard's log says of the catalog."""

    shard: int
    version: int
    next_topic: int
    next_queue: int
    topics: dict[int, TopicState]
    """By number; those that are shared."""
    own: dict[tuple[int, int], int]
    """The partitions that lie there: topic number and index → broker-wide number."""
    deleted: dict[int, str]


class Reading:
    """Opens shards one after the other, as a node would, and gives none of them out."""

    def __init__(self, database: LogDatabase, store: ObjectStore, cluster_id: str, settings: ClusterSettings) -> None:
        self._database = database
        self._engine = Engine(database, store, cluster_id, 0, settings, 0)
        self._settings = Settings()
        self.table: TopicConfigs = topic_configs((), load_plugins(self._settings, BUILT_IN).topic_configs)

    async def read(self, shards: Iterable[int]) -> list[Known]:
        """Raises StartError, BrokenLogError, OSError, DatabaseUnavailableError."""
        me = await self._database.register(0, "", 0, "")
        try:
            with tempfile.TemporaryDirectory(prefix="halfmoon-rebuild-") as folder:
                return [await self._read(shard, me, Path(folder) / f"{shard}") for shard in shards]
        finally:
            await self._database.leave(me)
            await self._engine.stop()

    async def _read(self, shard: int, me: int, folder: Path) -> Known:
        await self._database.renew(me)
        epochs = {head.shard: head.epoch for head in await self._database.heads()}
        head = await self._database.take(shard, epochs[shard], me)
        if head is None:
            raise StartError(f"shard {shard} is another node's: stop the nodes")
        backing = await self._engine.open(head)
        try:
            return await asyncio.to_thread(self._open, backing, folder)
        finally:
            self._engine.closed(shard)
            shutil.rmtree(folder, ignore_errors=True)  # of all shards together they may be more than the disk has

    def _open(self, backing: Backing, folder: Path) -> Known:
        files = CachedFiles(OsFileSystem(folder), backing)
        node = msgspec.structs.replace(self._settings.node, id=backing.shard, data_dir=str(folder))
        settings = msgspec.structs.replace(self._settings, node=node)

        def storage(_fs: FileSystem, settings: Settings) -> ShardStorage:
            return ShardStorage(files, settings, backing, read_memory(settings, 1, 1))

        kernel = Kernel(
            files, settings, SystemClock(), os.urandom, logger=_quiet, topic_configs=self.table, storage=storage
        )
        try:
            kernel.open()
            return _known(backing.shard, kernel.catalog)
        finally:
            kernel.log.close()


def _known(shard: int, catalog: Catalog) -> Known:
    """Raises StartError."""
    state = catalog.shard
    if state is None or state.number != shard:
        raise StartError(f"shard {shard}: its log does not say that it is that shard's")
    topics = {number: topic for number, topic in catalog.by_number.items() if not state.owns(number)}
    own = {
        (number, partition.index): partition.queue_number
        for number, topic in topics.items()
        for partition in topic.partitions
        if not isinstance(partition, RemotePartition)
    }
    return Known(
        shard, state.catalog_version, catalog.next_topic_number, catalog.next_queue_number,
        {number: bare(topic) for number, topic in topics.items()}, own, dict(catalog.deleted),
    )  # fmt: skip


def shared_catalog(known: list[Known], layout: Layout, table: TopicConfigs, epochs: dict[int, int]) -> SharedCatalog:
    """What all shards agree on again. `epochs`: of the shards. Raises StartError where a topic is in shards of another
    durability."""
    catalog, common = Catalog(Settings(), table), CommonSections(table)
    catalog.register(common.all)
    shared = SharedCatalog(catalog)
    shared.epochs.update(epochs)
    shared.starters.update(dict.fromkeys(epochs, -1))
    if not known:
        return shared
    newest = max(known, key=lambda each: each.version)
    where = {place: each.shard for each in known for place in each.own}
    numbers = {place: number for each in known for place, number in each.own.items()}
    next_queue = SKIPPED + max(each.next_queue for each in known)

    def number_of(place: tuple[int, int]) -> int:
        nonlocal next_queue
        if place not in numbers:
            numbers[place] = next_queue
            next_queue += 1
        return numbers[place]

    for number in sorted(newest.topics):
        topic = newest.topics[number]
        for index, partition in enumerate(topic.partitions):
            partition.queue_number = number_of((number, index))
        for record in differences(topic, catalog):
            catalog.apply(record)
    for number in sorted(newest.topics):
        shared.placements[number] = _placement(newest.topics[number], newest.topics, where, layout)
    catalog.next_topic_number = SKIPPED + max(each.next_topic for each in known)
    catalog.next_queue_number = max(catalog.next_queue_number, next_queue)
    catalog.deleted = dict(newest.deleted)
    shared.version = newest.version + 1
    return shared


def _placement(
    topic: TopicState, topics: dict[int, TopicState], where: dict[tuple[int, int], int], layout: Layout
) -> bytes:
    """Where each partition was found; those that nobody has are where they were placed. Raises StartError."""
    placed = topic if topic.view is None else topics.get(topic.view.source_number, topic)
    fast = placed.configs.get(DURABILITY, FAST) == FAST
    made = place_named(placed.name, placed.id, 0, len(topic.partitions), layout, fast=fast)
    found = bytes([where.get((topic.number, index), shard) for index, shard in enumerate(made)])
    if retrying_group(placed.name) is None and not is_aligned(placed.name):
        among = layout.group_of(fast=fast) or made  # without shards of its durability it lies in others
        elsewhere = set(found).difference(among)
        if elsewhere:
            raise StartError(
                f"topic '{topic.name}' is {'fast' if fast else 'on objects'} and has partitions in shard "
                f"{min(elsewhere)}: the cluster had other numbers of shards than you say"
            )
    return found


async def rebuild(
    rebuilding: Rebuilding,
    target: Target,
    logs: Callable[[], Awaitable[LogDatabase]],
    store: ObjectStore,
    settings: ClusterSettings,
    ready: Callable[[], None] = lambda: None,
) -> tuple[Rebuilt, int]:
    """What was found, and how many topics there are. `logs` opens the database that was filled. `ready`: called when
    all is well, before it is a cluster. Raises StartError, StoreUnavailableError, and as of Reading: no cluster is
    there then, and the next try begins anew."""
    await target.check_empty()
    found = await rebuilding.look()
    told: list[str] = []
    await target.fill(rebuilding.rows(), COLUMNS, told)
    (lineage,) = told
    database = await logs()
    try:
        reading = Reading(database, store, found.cluster.id, settings)
        known = await reading.read([head.shard for head in await database.heads() if head.end])
        epochs = {head.shard: head.epoch for head in await database.heads()}
    except LeaseLostError:  # nobody else removes a node that lives
        raise StartError(FILLED_MEANWHILE) from None
    finally:
        await database.close()
    shared = shared_catalog(known, rebuilding.layout, reading.table, epochs)

    ready()

    async def is_there() -> bool:
        return await target.lineage() == lineage

    try:
        await target.finish(found.cluster, max(1, shared.version), shared.save(), lineage)
    except DatabaseUnavailableError as error:
        if not await is_committed(error, is_there, "there is one already"):
            raise
    return found, len(shared.catalog.by_number)
