"""The database as backups use it: the port. All raise DatabaseUnavailableError and StartError."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from halfmoon.cluster.backup.tables import Rows
from halfmoon.cluster.store import Cluster

EPOCHS: Final = 1 << 16
"""A log that is brought back goes on so many epochs later: it may have had others since, which clients have seen. They
take no lower one for true."""
PINNED_S: Final = 600.0
"""A pin that is not renewed for so long keeps nothing any more."""


FILLED_MEANWHILE: Final = "another rebuild or restore has filled this database meanwhile: wait until it has ended"


class Moment(NamedTuple):
    """What is being read."""

    at: str
    """By the database's clock, ISO 8601."""
    format: int
    """Of the tables."""


class Made(NamedTuple):
    """What `halfmoon cluster init` has made."""

    cluster_id: str
    shards: int
    fast: int


class Source(Protocol):
    async def pin(self) -> int:
        """No object that is needed now is deleted from now on, for PINNED_S; the pin's number."""
        ...

    async def keep_pinned(self, number: int) -> bool:
        """For PINNED_S more. False: it was too late, and something may have been deleted."""
        ...

    async def unpin(self, number: int) -> None: ...

    def read(self, told: list[Moment]) -> AsyncIterator[Rows]:
        """All rows, as of one moment, which is put into `told` before the first of them. Objects are those that are
        needed."""
        ...


class Target(Protocol):
    async def check_empty(self) -> None:
        """Raises StartError where the database has a cluster."""
        ...

    async def fill(self, rows: Iterator[Rows], columns: Mapping[str, Sequence[str]], told: list[str]) -> None:
        """Make the tables, and put these rows into them: all, or none. Each shard is in an epoch that is EPOCHS later
        than its row says, belongs to nobody, and was restored. The lineage that this is, which no other one has, is put
        into `told` before the commit. Without a row of `cluster` it is no cluster before `finish`: no node starts, and
        it may be filled anew. Raises StartError where the database has a cluster."""
        ...

    async def finish(self, cluster: Cluster, version: int, snapshot: bytes, lineage: str) -> None:
        """What was filled in as `lineage` is this cluster from now on, with this catalog; nobody owns a shard. Raises
        StartError where the database has a cluster, or was filled by another one since."""
        ...

    async def lineage(self) -> str:
        """Of the cluster, once everyone has ended who fills or finishes the database. Raises StartError where it has no
        cluster."""
        ...

    async def cluster_id(self) -> str:
        """Raises StartError where the database has no cluster."""
        ...

    async def needed(self) -> Mapping[str, int]:
        """Keys of the objects that are needed, with their sizes."""
        ...

    async def bring_back(self) -> int:
        """The database was brought back to an earlier moment: nobody is a node, and each shard is as after `fill`. How
        many shards. Raises StartError where a node lives."""
        ...


class Unused(Protocol):
    """A cluster that was made, and that no node has ever served."""

    async def check_unused(self) -> Made:
        """Raises StartError where it is not so."""
        ...

    async def fill_unused(self, rows: Iterator[Rows]) -> None:
        """Put these rows in it: all, or none. Those of `shard` are (shard, epoch, end position). Raises StartError
        where it is not unused any more."""
        ...

    async def names_object(self, key: str) -> bool:
        """Whether it needs this object, once everyone has ended who fills it."""
        ...
