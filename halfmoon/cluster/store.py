"""The catalog that all processes agree on, as a sequence of changes: the port.

A *change* is what one administrative request does: control records that are true together, under a version that
follows the last. Whoever makes one holds the catalog meanwhile (`begin`), so that it decides on what is true: it is
given what it has not seen yet, applies that, and commits. Everybody else reads what is new (`read`) when it hears that
there is something.

What the first changes have come to may be kept as a snapshot in their place; whoever is behind it is given that. What
stands in a snapshot is the business of those who take it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from halfmoon.errors import HalfmoonError


class CatalogUnavailableError(HalfmoonError):
    """The catalog cannot be read or changed now, or nobody knows whether it was changed."""


class CatalogLostError(CatalogUnavailableError):
    """The catalog ends before a version that was there, or has another change under it: the database went back to an
    earlier moment."""


class Cluster(NamedTuple):
    """What never changes."""

    id: str
    shards: int


class Change(NamedTuple):
    version: int
    records: tuple[bytes, ...]
    """Control records, encoded."""


class News(NamedTuple):
    """What there is behind a version."""

    snapshot: tuple[int, bytes] | None
    """(version, what it was then), where changes before it are gone; `changes` go on from there."""
    changes: Sequence[Change]

    @property
    def version(self) -> int | None:
        """Of the last; None where there is nothing new."""
        if self.changes:
            return self.changes[-1].version
        return None if self.snapshot is None else self.snapshot[0]


class CatalogDamagedError(CatalogUnavailableError):
    """What is kept cannot be read: to ask again is no use."""


class CatalogUncertainError(CatalogUnavailableError):
    """There is news, and it may be lost yet."""

    def __init__(self, reason: str, news: News) -> None:
        super().__init__(reason)
        self.news = news


class CatalogStore(Protocol):
    """Everything here waits for a disk, or for other processes: one thread calls it. All raise
    CatalogUnavailableError. After one of `commit` the change may have been made: `begin` and `read` tell.

    What they tell is as durable as what was committed. Where that cannot be said they raise CatalogUncertainError."""

    cluster: Cluster

    def read(self, after: int) -> News:
        """What there is behind version `after`, which was there. Raises CatalogLostError, too."""
        ...

    def begin(self, after: int) -> News:
        """Hold the catalog, until `commit` or `abandon`; what there is behind version `after`, which was there. Raises
        CatalogLostError, too."""
        ...

    def commit(self, records: Sequence[bytes]) -> int:
        """Add a change, durably, and let go; its version. Whoever holds the catalog calls it."""
        ...

    def abandon(self) -> None:
        """Let go, and change nothing."""
        ...

    def keep(self, version: int, snapshot: bytes, behind: int = 0) -> None:
        """All changes up to `version` come to this. They go, but for the last so many: who lacks only these reads them
        one by one."""
        ...

    def close(self) -> None: ...
