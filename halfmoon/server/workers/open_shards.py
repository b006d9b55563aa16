"""The shards of one process, opened: the shared catalog, what all have in common, and the front before them.

Nothing here runs yet, and nobody is listened to. `worker` drives it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from halfmoon.cluster.changes import Changes
from halfmoon.cluster.owners import ShardOwners
from halfmoon.cluster.shared import SharedCatalog, check_version
from halfmoon.cluster.store import CatalogDamagedError, CatalogUnavailableError
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.hold import HoldService
from halfmoon.core.identity import FORMAT, Identity
from halfmoon.core.kernel import Shard
from halfmoon.core.live import Live
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.core.timers import Timers
from halfmoon.errors import BrokerError, LeaseLostError, StartError, StorageError
from halfmoon.schema import control
from halfmoon.server.assembly import Node
from halfmoon.server.common import Common, CommonSections
from halfmoon.server.running import OnStop, open_node, to_its_end, undo
from halfmoon.server.workers.common_changes import CommonChanges
from halfmoon.server.workers.front import Front
from halfmoon.server.workers.transactions import TransactionShards
from halfmoon.server.workers.wanted import WantedTopics
from halfmoon.services.topic_configs import topic_configs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from halfmoon.cluster.asking import Asking
    from halfmoon.cluster.store import CatalogStore, News
    from halfmoon.config.settings import Settings
    from halfmoon.config.topic_configs import OfFeature
    from halfmoon.server.workers.place import Place, ShardFiles
    from halfmoon.services.configs.group_configs import GroupConfig

logger = logging.getLogger("halfmoon.server")

AGAIN_S = 1.0
AT_ONCE = 8
"""So many shards are opened or closed at once."""


async def read_all(place: Place) -> tuple[CatalogStore, News]:
    """The shared catalog, and all that is in it. A node waits until its database answers. Raises StartError."""
    store = await to_its_end(asyncio.to_thread(place.open_store))
    try:
        while True:
            try:
                return store, await to_its_end(asyncio.to_thread(store.read, 0))
            except CatalogUnavailableError as error:
                if not place.is_cluster or isinstance(error, CatalogDamagedError):
                    raise StartError(str(error)) from error
                logger.warning("event=catalog_unavailable again_s=%g error=%s", AGAIN_S, error)
            await asyncio.sleep(AGAIN_S)
    except BaseException:
        await to_its_end(asyncio.to_thread(store.close))
        raise


class OpenShards:
    front: Front
    """From `open_first` on."""

    def __init__(
        self,
        settings: Settings,
        place: Place,
        store: CatalogStore,
        news: News,
        off: Collection[str],
        more_topic_configs: Sequence[OfFeature],
        more_group_configs: Sequence[GroupConfig],
        asking: Asking,
        on_stop: OnStop,
    ) -> None:
        """`news`: all that is in the store. `off`, `more_topic_configs`, `more_group_configs`: as of Node.
        `asking`: how the shards ask each other. How it is undone is told to `on_stop`."""
        self.place = place
        self.clock = place.clock
        self.store = store
        me = place.members[place.me].node_id
        self.identity = Identity(FORMAT, store.cluster.id, me)
        settings = msgspec.structs.replace(settings, node=msgspec.structs.replace(settings.node, id=me))
        self.live = Live(settings)
        table = topic_configs({*off, *settings.services.off()}, more_topic_configs)
        state, self._follower = CommonSections(table), CommonChanges()
        catalog = Catalog(settings, table)
        catalog.register((*state.all, self._follower))
        catalog.topic_defaults = state.configs.topic_defaults
        state.configs.on_topic_defaults.append(catalog.resolve_topics)
        self.shared = SharedCatalog(catalog)
        self.shared.on_started = place.started
        self.changes = Changes(self.shared, place.layout)
        self.shared.take(news)
        self.common_timers = Timers()
        """Of what is changed in the shared catalog when its time has come."""
        self.common = Common(
            state, self.changes, self.live, table, self.clock, self.common_timers, OsFileSystem(place.secrets),
            os.urandom, logger, off, more_group_configs,
        )  # fmt: skip
        for feature in self.common.features():
            if feature.restore is not None:
                feature.restore()
        self._follower.bind(self.common)
        self.shared.on_restore = self._follower.restoring
        self.hold = HoldService(settings.hold)
        self.owners = ShardOwners(
            self.shared,
            place.members,
            place.owners,
            place.me,
            place.layout,
            place.told_leader,
            place.just_gone,
            place.is_cluster,
        )
        self.wanted = WantedTopics(place.shards)
        self.files: dict[int, ShardFiles] = {}
        self.nodes: dict[int, Node] = {}
        """Those that are open. The first stays."""
        self._asking = asking
        self._undo: dict[int, list[Callable[[], object]]] = {}
        self._make = partial(
            Node, clock=self.clock, random_bytes=os.urandom, off=off,
            more_topic_configs=more_topic_configs, common=self.common,
        )  # fmt: skip
        self._threads = ThreadPoolExecutor(AT_ONCE, "halfmoon-shards")
        on_stop(self._threads.shutdown)
        self.client_threads = ThreadPoolExecutor(thread_name_prefix="halfmoon-clients")
        """For requests of clients and plugins: they read here, and may wait for an object store that does not answer.
        Nothing else is to wait behind them."""
        on_stop(partial(asyncio.to_thread, self.client_threads.shutdown, cancel_futures=True))
        on_stop(self._close_all)

    async def open_first(self) -> None:
        """Those that this process begins with. Raises StartError, LeaseLostError."""
        for number in self.place.begins_with:
            await self.open(number)
        self.front = Front(
            self.shared, self.changes, [node.kernel for node in self.nodes.values()], self._shard(self.first),
            self.place.layout, self.clock, os.urandom,
        )  # fmt: skip
        self.front.apply({*self.shared.catalog.by_number, *self._known_to_shards()})

    async def open(self, number: int) -> Node:
        """Recover a shard, in a thread. Nothing runs it yet, and nobody is told of it. Raises StartError,
        LeaseLostError."""
        on_stop = self._undo.setdefault(number, []).append
        files = self.files[number] = await self.place.files(number)
        on_stop(files.close)
        settings, defaults = self.live.current, self.common.state.configs.topic_defaults()
        node = self._make(files.fs, settings, shard=self._shard(number), storage=files.storage)
        on_stop(node.leave)
        node.transactions.use(TransactionShards(number, self.place.layout, self.shared, self._asking))
        await self._in_thread(partial(open_node, node, files.root))
        on_stop(partial(self._close_node, node))
        if files.was_brought_back:
            await self._in_thread(partial(_begin_anew, node))
        node.follow_defaults()
        if self.live.current is not settings or self.common.state.configs.topic_defaults() is not defaults:
            node.kernel.catalog.reconfigure(self.live.current)  # they have changed while a thread was at work
        self.nodes[number] = node
        check_version(self.shared, node.kernel.catalog)
        return node

    async def _close_node(self, node: Node) -> None:
        """What closes it waits for the disk, or for the others' answers: no request of another shard is to. So that is
        done in a thread. Who waits for the last of what was written is answered before, in the loop: a connection is
        the loop's. Who comes while it is closed, or afterwards, is told that the shard is not here."""
        turn = node.kernel.turn
        node.kernel.appender.leaves = True  # also where the process ends: an answer of another one may come late
        try:
            try:
                await self._sync_last(node)
            finally:
                turn.begin_closing()
                await self._in_thread(partial(_close, node))
        finally:
            turn.closed(LeaseLostError("the shard is closed here"))

    async def _sync_last(self, node: Node) -> None:
        """Once more where something has come meanwhile: what another shard has answered. The thread that closes the
        shard could not make it visible, since those who wait for it may wait for other shards' messages, too."""
        turn, log = node.kernel.turn, node.kernel.log
        while True:
            turn.write()
            job = log.sync_job() if turn.waiting_answers or turn.unseen else None
            if job is not None:
                error: OSError | None = None
                try:
                    await self._in_thread(job.run)
                except OSError as failure:
                    error = failure
                except (Exception, asyncio.CancelledError) as failure:  # the next job would not sync what this one had
                    error = OSError(repr(failure))
                turn.finish_sync(job, error)
            left = 0
            while left != (left := turn.waiting_answers):
                turn.answer_late()
            if job is None and not turn.dirty:
                return

    async def _in_thread(self, work: Callable[[], object]) -> None:
        """In one of their own: who waits there may need what the loop's other threads do. No other thread closes a log
        in which one still works."""
        await to_its_end(asyncio.get_running_loop().run_in_executor(self._threads, work))

    async def close(self, number: int) -> None:
        """Nothing runs it any more."""
        self.nodes.pop(number, None)
        await undo(self._undo.pop(number, []))
        self.files.pop(number, None)  # a folder that cannot be used has none

    async def _close_all(self) -> None:
        for number in reversed(list(self._undo)):
            await self.close(number)

    @property
    def first(self) -> int:
        """The shard that stays."""
        return self.place.begins_with[0]

    def _shard(self, number: int) -> Shard:
        return Shard(number, self.identity, self.owners, self.hold, self.live, self.wanted, self.place.shards)

    def _known_to_shards(self) -> set[int]:
        return {number for node in self.nodes.values() for number in node.kernel.catalog.by_number}

    def started(self, unset_configs: Collection[str], more: Callable[[], object]) -> None:
        """The first change of this process: which generations its shards have; what was set at run time holds."""
        self.began(filter(self.place.owns, self.nodes))
        self.common.dynamic_configs.opened(unset_configs)
        more()

    def began(self, numbers: Iterable[int]) -> None:
        """In a change: these shards have begun a generation in this process; but for those that are closed again."""
        for number in sorted(self.nodes.keys() & numbers):
            generation = self.nodes[number].kernel.generation
            self.changes.append_control(control.ShardStarted(number, generation, self.place.me))

    def every_node(self, call: Callable[[Node], object]) -> Callable[[], None]:
        return partial(_each, self.nodes, call)


def _close(node: Node) -> None:
    node.kernel.turn.closes_here()
    node.close()


def _begin_anew(node: Node) -> None:
    """Raises StartError."""
    try:
        node.brought_back()
    except (OSError, BrokerError, StorageError) as error:
        raise StartError(f"producers could not be fenced: {error}") from error


def _each(nodes: dict[int, Node], call: Callable[[Node], object]) -> None:
    for node in nodes.values():
        call(node)
