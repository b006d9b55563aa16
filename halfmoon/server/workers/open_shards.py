"""The shards of one process, opened: the shared catalog, what all have in common, and the front before them.

Nothing here runs yet, and nobody is listened to. `worker` drives it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from halfmoon.cluster.changes import Changes
from halfmoon.cluster.owners import ShardOwners
from halfmoon.cluster.shared import SharedCatalog, check_version
from halfmoon.cluster.sqlite_store import SqliteStore
from halfmoon.cluster.store import CatalogUnavailableError
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.hold import HoldService
from halfmoon.core.identity import FORMAT, Identity
from halfmoon.core.kernel import Shard
from halfmoon.core.live import Live
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.core.storage.local import shard_storage
from halfmoon.core.timers import Timers
from halfmoon.errors import StartError
from halfmoon.schema import control
from halfmoon.server.assembly import Node
from halfmoon.server.clock import SystemClock
from halfmoon.server.common import Common, CommonSections
from halfmoon.server.running import OnStop, open_node, undo
from halfmoon.server.workers.common_changes import CommonChanges
from halfmoon.server.workers.front import Front
from halfmoon.server.workers.plan import CATALOG, Plan
from halfmoon.server.workers.transactions import TransactionShards
from halfmoon.server.workers.wanted import WantedTopics
from halfmoon.services.topic_configs import topic_configs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from halfmoon.cluster.asking import Asking
    from halfmoon.config.settings import Settings
    from halfmoon.config.topic_configs import OfFeature
    from halfmoon.core.catalog.owners import OtherNode

logger = logging.getLogger("halfmoon.server")


class OpenShards:
    def __init__(
        self,
        settings: Settings,
        plan: Plan,
        members: Sequence[OtherNode],
        off: Collection[str],
        more_topic_configs: Sequence[OfFeature],
        asking: Asking,
        on_stop: OnStop,
    ) -> None:
        """`members`: all processes, as clients reach them. `off`, `more_topic_configs`: as of Node. `asking`: how the
        shards ask each other. How it is undone is told to `on_stop`. Raises StartError."""
        self.plan = plan
        self.clock = SystemClock()
        self.store = SqliteStore(plan.path / CATALOG)
        me = members[plan.worker].node_id
        self.identity = Identity(FORMAT, self.store.cluster.id, me)
        settings = msgspec.structs.replace(settings, node=msgspec.structs.replace(settings.node, id=me))
        self.live = Live(settings)
        table = topic_configs({*off, *settings.services.off()}, more_topic_configs)
        state, self._follower = CommonSections(table), CommonChanges()
        catalog = Catalog(settings, table)
        catalog.register((*state.all, self._follower))
        catalog.topic_defaults = state.configs.topic_defaults
        state.configs.on_topic_defaults.append(catalog.resolve_topics)
        self.shared = SharedCatalog(catalog)
        self.changes = Changes(self.shared, plan.shards)
        try:
            self.shared.take(self.store.read(0))
        except CatalogUnavailableError as error:
            raise StartError(str(error)) from error
        self.common_timers = Timers()
        """Of what is changed in the shared catalog when its time has come."""
        self.common = Common(
            state, self.changes, self.live, table, self.clock, self.common_timers, OsFileSystem(plan.folder),
            os.urandom, logger, off,
        )  # fmt: skip
        for feature in self.common.features():
            if feature.restore is not None:
                feature.restore()
        self._follower.bind(self.common)
        self.shared.on_restore = self._follower.restoring
        self.hold = HoldService(settings.hold)
        self.owners = ShardOwners(self.shared, members, plan.worker, plan.shards)
        self.wanted = WantedTopics(plan.shards)
        self.file_systems: dict[int, OsFileSystem] = {}
        self.nodes: dict[int, Node] = {}
        """Those that are open. The first stays."""
        self._asking = asking
        self._undo: dict[int, list[Callable[[], object]]] = {}
        self._make = partial(
            Node, settings=settings, clock=self.clock, random_bytes=os.urandom, off=off,
            more_topic_configs=more_topic_configs, storage=shard_storage(settings, plan.shards, len(members)),
            common=self.common,
        )  # fmt: skip
        on_stop(self._close_all)
        for number in plan.owned():
            self.open(number)
        first = next(iter(self.nodes))
        self.front = Front(
            self.shared, self.changes, [node.kernel for node in self.nodes.values()], self._shard(first), plan.shards,
            self.clock, os.urandom,
        )  # fmt: skip
        self.front.apply({*catalog.by_number, *self._known_to_shards()})

    def open(self, number: int) -> Node:
        """Recover a shard. Nothing runs it yet, and nobody is told of it. Raises StartError."""
        on_stop = self._undo.setdefault(number, []).append
        fs = self.file_systems[number] = OsFileSystem(self.plan.shard_folder(number))
        fs.lock()
        on_stop(fs.unlock)
        node = self._make(fs, shard=self._shard(number))
        node.transactions.use(TransactionShards(number, self.plan.shards, self.shared, self._asking))
        open_node(node, fs, on_stop)
        self.nodes[number] = node
        check_version(self.shared, node.kernel.catalog)
        return node

    async def close(self, number: int) -> None:
        """Nothing runs it any more."""
        self.nodes.pop(number, None)
        await undo(self._undo.pop(number))
        self.file_systems.pop(number, None)  # a folder that cannot be used has none

    async def _close_all(self) -> None:
        for number in reversed(list(self._undo)):
            await self.close(number)

    def _shard(self, number: int) -> Shard:
        return Shard(number, self.identity, self.owners, self.hold, self.live, self.wanted, self.plan.shards)

    def _known_to_shards(self) -> set[int]:
        return {number for node in self.nodes.values() for number in node.kernel.catalog.by_number}

    def started(self, unset_configs: Collection[str], more: Callable[[], object]) -> None:
        """The first change of this process: which generations its shards have; what was set at run time holds."""
        for number in self.nodes:
            self.began(number)
        self.common.dynamic_configs.opened(unset_configs)
        more()

    def began(self, number: int) -> None:
        """In a change: a shard has begun a generation in this process."""
        self.changes.append_control(control.ShardStarted(number, self.nodes[number].kernel.generation))

    def every_node(self, call: Callable[[Node], object]) -> Callable[[], None]:
        return partial(_each, self.nodes, call)


def _each(nodes: dict[int, Node], call: Callable[[Node], object]) -> None:
    for node in nodes.values():
        call(node)
