"""What the shards of a node have in common: the database, the object store, and what writes to them.

Everything runs in the loop. What a shard waits for in a thread comes here by its Backing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from halfmoon.cluster.engine import naming
from halfmoon.cluster.engine.backing import Backing
from halfmoon.cluster.engine.caching import Cache
from halfmoon.cluster.engine.committing import Committer, ObjectCommitter, RowCommitter
from halfmoon.cluster.engine.moving import Mover
from halfmoon.cluster.engine.pieces import Durability, Head
from halfmoon.cluster.engine.store_watch import WatchedStore
from halfmoon.cluster.engine.sweeping import Sweeper
from halfmoon.cluster.engine.upkeep import Upkeep
from halfmoon.errors import LeaseLostError
from halfmoon.server.nodes.lost_commits import LostCommits

if TYPE_CHECKING:
    from halfmoon.cluster.engine.database import LogDatabase
    from halfmoon.cluster.engine.log import ShardLog
    from halfmoon.cluster.engine.objects import ObjectStore
    from halfmoon.config.cluster_settings import ClusterSettings

LOOK_BACK_S: Final = 1.0
"""It is looked so often whether the database has lost commits, …"""
MOVE_S: Final = 0.5
"""… whether something is to be brought into objects, …"""
LOOK_S: Final = 1.0
"""… whether the object store is reached, …"""
ROWS_S: Final = 1.0
"""… how much there is in the database that is not in objects, …"""
FORGET_S: Final = 2.0
"""… whether the cache is over its limit, …"""
SWEEP_S: Final = 300.0
"""… whether dead objects are to be deleted, …"""
LEFTOVERS_S: Final = 6 * 3600.0
"""… and whether leftovers are."""
MOST_ROW_BYTES: Final = 256 << 20
"""Where a node has so much in the database, its fast shards wait until some of it is in objects."""


class Engine:
    """Of one node. Create it in the loop, start and stop it once."""

    def __init__(
        self,
        database: LogDatabase,
        store: ObjectStore,
        cluster_id: str,
        node: int,
        settings: ClusterSettings,
        hot_bytes: int,
    ) -> None:
        """`hot_bytes`: of each shard, what its reader takes to be in memory."""
        self.database = database
        self.store = store = WatchedStore(store, f"{cluster_id}/probe/{node}")
        self._cluster_id = cluster_id
        self._node = node
        self._rows = RowCommitter(database)
        self._objects = ObjectCommitter(
            database,
            store,
            node,
            partial(self._key, naming.COMMITTED),
            settings.object_interval_ms / 1000,
            settings.object_bytes,
        )
        self._mover = Mover(database, store, node, self._key, settings.row_age_ms / 1000)
        self._sweeper = Sweeper(database, store, f"{cluster_id}/")
        self._keep_deleted_s = settings.keep_deleted_ms / 1000
        self._backings: dict[int, Backing] = {}
        self._abandoned: OSError | None = None
        """With which all of them are abandoned."""
        self._cache = Cache(settings.cache_bytes, hot_bytes)
        self.logs: Callable[[], Sequence[ShardLog]] = tuple
        """Of the shards that are open, or are being opened or closed."""
        self.row_bytes = 0
        """Of this node's shards, in the database; as of a moment ago."""
        self.lost_commits = LostCommits(database, lambda: self.logs(), self._freeze)
        self._upkeep = Upkeep()

    def _key(self, kind: str, file: naming.FileName | None = None) -> str:
        return naming.make(self._cluster_id, kind, self._node, file)

    def start(self) -> None:
        for step, interval_s in (
            (self._look_back, LOOK_BACK_S), (self._move, MOVE_S), (self._forget, FORGET_S),
            (self.store.probe, LOOK_S), (self._measure_rows, ROWS_S),
            (self._delete_dead, SWEEP_S), (self._delete_leftovers, LEFTOVERS_S),
        ):  # fmt: skip
            self._upkeep.go_on(step, interval_s)

    async def stop(self) -> None:
        """After the shards are closed."""
        await self._upkeep.stop()
        self._rows.close()
        self._objects.close()

    # -- shards ----------------------------------------------------------------------------------------------------

    async def open(self, head: Head) -> Backing:
        """Of a shard that is this node's in this epoch. Raises LeaseLostError where it is not any more, BrokenLogError,
        DatabaseUnavailableError."""
        self.lost_commits.owned(head)
        contents = await self.database.contents(head.shard)
        if contents.head.epoch != head.epoch:
            raise LeaseLostError(f"shard {head.shard} has epoch {contents.head.epoch}, and not {head.epoch}")
        committer: Committer = self._rows if head.durability is Durability.FAST else self._objects
        loop = asyncio.get_running_loop()
        backing = self._backings[head.shard] = Backing(
            loop, self.database, self.store, committer, contents,
            lambda path: self._key(naming.FILE, naming.FileName(head.shard, head.epoch, path)),
        )  # fmt: skip
        if self._abandoned is not None:
            backing.abandon(self._abandoned)
        return backing

    def closing(self, shard: int) -> None:
        """It is about to be closed: what it has is committed without waiting for others."""
        backing = self._backings.get(shard)
        if backing is not None:
            backing.closing()

    def abandon(self, shard: int, error: OSError) -> None:
        """Whoever waits for this shard's commits, or asks something of it, is told this error."""
        backing = self._backings.get(shard)
        if backing is not None:
            backing.abandon(error)

    def _freeze(self, shard: int, error: OSError) -> None:
        """Nothing is written to this shard any more."""
        backing = self._backings.get(shard)
        if backing is not None:
            backing.freeze(error)

    def abandon_all(self, error: OSError) -> None:
        """The node stops: as `abandon`, of all shards, also those that are opened from now on."""
        self._abandoned = error
        for shard in self._backings:
            self.abandon(shard, error)

    def closed(self, shard: int) -> None:
        """Who still reads from it, for a client, is told so: the store may not answer, and a process that ends waits
        for its threads."""
        self.abandon(shard, OSError(f"shard {shard} is closed"))
        self._backings.pop(shard, None)

    # -- counted -------------------------------------------------------------------------------------------------------

    def commits(self) -> tuple[int, int]:
        """So many statements have committed something: of fast shards, and of others."""
        return self._rows.statements, self._objects.objects

    @property
    def object_bytes(self) -> int:
        return self._objects.object_sizes

    @property
    def moved_bytes(self) -> int:
        return self._mover.moved_bytes

    @property
    def forgotten_bytes(self) -> int:
        return self._cache.forgotten_bytes

    # -- again and again -------------------------------------------------------------------------------------------

    async def _look_back(self) -> None:
        await self.lost_commits.look()
        await self.lost_commits.learn()

    async def _move(self) -> None:
        while await self._mover.turn(self._open()):
            pass

    def _open(self) -> list[ShardLog]:
        return [log for log in self._writable() if log.is_open]

    def _writable(self) -> list[ShardLog]:
        return [log for log in self.logs() if not log.backing.is_frozen]

    async def _measure_rows(self) -> None:
        """They wait for the object store, and must not fill the database's disk. Those of frozen shards stay for good:
        nobody is to wait for them."""
        self.row_bytes = sum(log.pieces.row_bytes for log in self.logs())
        self._rows.held = sum(log.pieces.row_bytes for log in self._writable()) >= MOST_ROW_BYTES

    async def _forget(self) -> None:
        """What the database has lost is nowhere else."""
        self._cache.turn(self._open())

    async def _delete_dead(self) -> None:
        await self._sweeper.delete_dead(self._keep_deleted_s)

    async def _delete_leftovers(self) -> None:
        await self._sweeper.delete_leftovers()
