"""`halfmoon cluster import --config`: the data directory of one process, or of several workers, brought into a cluster.

The log of one process is divided first, in a folder of the directory, by links (server/workers/staging). Shards of
workers are taken as they are: the cluster has as many fast ones. The directory stays what it was.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from halfmoon.cluster.backup.parallel import Progress
from halfmoon.cluster.backup.ports import Made, Unused
from halfmoon.cluster.changes import Changes
from halfmoon.cluster.engine.objects import ObjectStore
from halfmoon.cluster.placement import Layout
from halfmoon.cluster.shared import SharedCatalog
from halfmoon.cluster.sqlite_store import SqliteStore
from halfmoon.cluster.store import CatalogUnavailableError
from halfmoon.config.settings import Settings
from halfmoon.core import clean_mark
from halfmoon.core.catalog import snapshot
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.clock import Clock
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.errors import StartError
from halfmoon.hooks.plugins import load_plugins
from halfmoon.offline.key_protected import KeyProtected, protected
from halfmoon.plugins import BUILT_IN
from halfmoon.schema import control
from halfmoon.schema.readable_topics import READABLE
from halfmoon.server.clock import SystemClock
from halfmoon.server.common import CommonSections
from halfmoon.server.nodes.bringing_in import BringingIn, Stopped
from halfmoon.server.workers.plan import CATALOG, shard_folder
from halfmoon.server.workers.staging import Staging
from halfmoon.services.topic_configs import topic_configs

T = TypeVar("T")

MADE: Final = "cluster-import.new"
"""The folder of the shards that are made; removed at the end, and by the next import."""


class Imported(NamedTuple):
    shards: int
    topics: int
    """That the shards share."""
    objects: int
    bytes: int
    """That were sent."""
    transactions: int
    """That were not ended, and are aborted."""
    transactional_ids: int
    """That are forgotten: their producers get new ids."""


class _Found(NamedTuple):
    shards: list[Stopped]
    shared: SharedCatalog
    transactions: int
    transactional_ids: int
    key_protected: KeyProtected


class Importing:
    def __init__(
        self,
        directory: Path,
        unused: Unused,
        store: ObjectStore,
        *,
        on_objects: Sequence[str] = (),
        before_last: Callable[[KeyProtected], None] = lambda _protected: None,
        progress: Progress | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`on_objects`: as of Staging. `before_last`: called before the cluster has anything of the directory, with
        what is worth nothing without the directory's key. `progress`: counts bytes that are sent."""
        self._directory = directory
        self._unused = unused
        self._store = store
        self._on_objects = on_objects
        self._before_last = before_last
        self._progress = progress
        self._clock = clock or SystemClock()

    async def run(self) -> Imported:
        """Raises StartError, OSError, DatabaseUnavailableError, StoreUnavailableError: the cluster is empty then, as
        before."""
        if not self._directory.is_dir():
            raise StartError(f"{self._directory}: there is no such directory")
        made = await self._unused.check_unused()
        if self._on_objects and made.shards == made.fast:
            raise StartError("the cluster has no shards of objects: `halfmoon cluster init --objects N` makes some")
        fs = OsFileSystem(self._directory)
        fs.lock()
        try:
            found = await _to_its_end(asyncio.to_thread(self._find, fs, Layout(made.shards, made.fast)))
            return await self._bring_in(found, made)
        finally:
            shutil.rmtree(self._directory / MADE, ignore_errors=True)
            fs.unlock()

    def _find(self, fs: OsFileSystem, layout: Layout) -> _Found:
        try:
            if (self._directory / CATALOG).is_file():
                if self._on_objects:
                    raise StartError(
                        "no topic can go to shards of objects: shards of workers are brought in as they are"
                    )
                return self._of_workers(layout)
            return self._of_one_process(fs, layout)
        except (StartError, CatalogUnavailableError) as error:  # the latter of the workers' catalog
            raise StartError(f"{self._directory}: {error}") from error

    async def _bring_in(self, found: _Found, made: Made) -> Imported:
        self._before_last(found.key_protected)
        bringing = BringingIn(self._unused, self._store, made, self._progress)
        sent = await bringing.run(found.shards, (found.shared.version, found.shared.save()))
        topics = len(found.shared.catalog.by_number)
        return Imported(made.shards, topics, *sent, found.transactions, found.transactional_ids)

    # -- one process -----------------------------------------------------------------------------------------------

    def _of_one_process(self, fs: OsFileSystem, layout: Layout) -> _Found:
        shutil.rmtree(self._directory / MADE, ignore_errors=True)
        staging = Staging(fs, MADE, layout, lambda _done, _all: None, self._clock, self._on_objects)
        staging.check_links()
        prepared = staging.prepare()
        staging.make(prepared)
        folder, division = self._directory / MADE, prepared.division
        shards = [stopped(number, shard_folder(folder, number)) for number in range(layout.shards)]
        secrets = protected(division.common.credentials, self._clock.wall_ms())
        return _Found(shards, division.shared, prepared.transactions, prepared.transactional_ids, secrets)

    # -- workers ---------------------------------------------------------------------------------------------------

    def _of_workers(self, layout: Layout) -> _Found:
        shared, common, shards = self._catalog_of_workers(layout)
        changes = Changes(shared, layout)
        changes.begin()
        for name in sorted(READABLE & shared.catalog.by_name.keys()):  # each shard writes there
            topic = shared.catalog.by_name[name]
            if len(topic.partitions) < layout.shards:
                first = shared.catalog.next_queue()
                changes.append_control(control.PartitionsAdded(topic.number, layout.shards, first))
        if changes.records():
            shared.version += 1
        shared.starters.clear()  # no node is one of the workers
        found = [stopped(number, shard_folder(self._directory, number)) for number in range(shards)]
        return _Found(found, shared, 0, 0, protected(common.credentials, self._clock.wall_ms()))

    def _catalog_of_workers(self, layout: Layout) -> tuple[SharedCatalog, CommonSections, int]:
        settings = Settings()
        table = topic_configs((), load_plugins(settings, BUILT_IN).topic_configs)
        catalog, common = Catalog(settings, table), CommonSections(table)
        catalog.register(common.all)
        shared = SharedCatalog(catalog)
        store = SqliteStore(self._directory / CATALOG)
        try:
            shards = store.cluster.shards
            if shards != layout.fast:
                raise StartError(
                    f"it has {shards} shards, and the cluster {layout.fast} fast ones: make a cluster by "
                    f"`halfmoon cluster init --fast {shards}`"
                )
            shared.take(store.read(0))
        finally:
            store.close()
        return shared, common, shards


async def _to_its_end(work: Awaitable[T]) -> T:
    """A thread is not ended by a cancellation: it would go on in a directory that nobody has locked, and that another
    broker may have opened."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # nobody else asks for it
        raise


def stopped(number: int, folder: Path) -> Stopped:
    """Raises StartError where it is not as after a clean stop."""
    fs = OsFileSystem(folder, read_only=True)
    saved = snapshot.load(fs)
    if saved is None or clean_mark.read(fs) != saved.position:
        raise StartError(
            f"shard {number} was not stopped in good order: start the broker once more, and stop it by SIGTERM"
        )
    return Stopped(number, folder, saved.position, saved.generation)
