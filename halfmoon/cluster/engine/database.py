"""The database that nodes share, as far as logs are concerned: the port.

Safety is the shard's row: (epoch, end). A commit moves `end` if both are what the committer believes. A takeover raises
the epoch. So two nodes that both believe they own a shard cannot both commit, and no clock is asked.

Liveness is the node's row: a lease that it renews, by the database's clock, and a lock that its session holds, which
goes with its process at once. Each start of a node is a new *incarnation*, so a quick restart does not own what the
process before it did.

Every change here may have been made although the call failed. A commit is decided by the head: whoever is not told the
outcome repeats the very same commit, or finds it done, or finds that the epoch is another one. That it is done is
certain only once something else was committed behind it: what a server shows may still be lacking at its standby.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from halfmoon.cluster.engine.pieces import Head, Piece
from halfmoon.errors import HalfmoonError

CONDEMNED_S: Final = 7 * 24 * 3600.0
"""So long nobody may use the name of a leftover."""


class DatabaseUnavailableError(HalfmoonError):
    """The database did not answer, or refused for now. What was to be changed may have been changed."""


class DatabaseReplacedError(HalfmoonError):
    """The database is another one than when this process began, or was brought back to an earlier moment."""


class CondemnedError(HalfmoonError):
    """The object was taken for a leftover of somebody who has died, and goes. Nothing was committed."""


class Commit(NamedTuple):
    """What a shard's owner has written behind the head's `end`: pieces that follow each other."""

    shard: int
    epoch: int
    pieces: tuple[Piece, ...]

    @property
    def start(self) -> int:
        return self.pieces[0].start

    @property
    def end(self) -> int:
        return self.pieces[-1].end


class SideFile(NamedTuple):
    """A file beside the log: an index, a checkpoint. It is kept as an object."""

    path: str
    """In the shard's directory."""
    key: str
    size: int
    crc: int


class Contents(NamedTuple):
    """What there is of a shard, as of one moment."""

    head: Head
    pieces: Sequence[Piece]
    """In order."""
    files: Sequence[SideFile]


class Node(NamedTuple):
    incarnation: int
    number: int
    """As its settings name it."""
    host: str
    port: int
    """Where other nodes reach it."""
    rack: str
    alive: bool
    draining: bool
    doors: str = ""
    """Where clients reach it, as its own program has written it."""
    format: int = 1
    """Of the tables that its program knows."""
    stores: bool = True
    """It reaches the object store."""
    lapsed: bool = False
    """Its lease ended within the last minute, and it did not leave in order. Its process may live: where the database
    was away, no lease could be renewed."""


class Heads(Protocol):
    """All calls of these ports raise DatabaseUnavailableError."""

    async def heads(self) -> Sequence[Head]:
        """Of all shards."""
        ...


class Commits(Heads, Protocol):
    """What makes something durable."""

    async def commit_rows(self, commits: Sequence[Commit], frames: Sequence[Sequence[bytes]]) -> set[int]:
        """Move the ends of these shards, which are different ones, and keep the frames of their pieces (one for each
        piece of each commit) in the database. Returns the shards that were committed; the others' heads are not as
        their commits assume."""
        ...

    async def certain_heads(self, shards: Sequence[int]) -> Sequence[Head]:
        """Of these shards, by a commit that changes nothing: what they say is as durable as that."""
        ...

    async def all_certain_heads(self, shard: int) -> Sequence[Head]:
        """Of all shards, as they were before a commit of the same server that changes nothing of this shard. What they
        say is as durable as that; they may have gone on since."""
        ...

    async def commit_object(self, key: str, size: int, commits: Sequence[Commit]) -> set[int]:
        """The same for pieces that an object has. It is known from now on, with `size` bytes. Raises CondemnedError."""
        ...


class LogContents(Protocol):
    """What the logs of shards consist of."""

    async def contents(self, shard: int) -> Contents: ...

    async def frames(self, shard: int, start: int, end: int) -> Sequence[tuple[Piece, bytes]]:
        """Pieces in the database that have a part of these positions, in order, with their frames."""
        ...

    async def replace(
        self, shard: int, epoch: int, old: Sequence[Piece], new: Sequence[Piece], objects: Sequence[tuple[str, int]]
    ) -> bool:
        """Put other pieces in the place of these, which stand for the same positions, if all of them are there and the
        shard has this epoch. `objects`: (key, size) of those that the new ones are in, which may be known already.
        True: that is so for certain; it may have been an earlier call that did it. False: nothing has changed. Raises
        CondemnedError."""
        ...

    async def certain_pieces(self, shard: int, epoch: int) -> Sequence[Piece] | None:
        """All there are, in order, by a commit that changes nothing. None: the epoch is another one."""
        ...

    async def drop(self, shard: int, epoch: int, before: int) -> bool:
        """Forget the pieces that end at or before this position. False: the epoch is another one."""
        ...

    async def put_files(self, shard: int, epoch: int, files: Sequence[SideFile]) -> bool:
        """Put each in the place of the one of its path; all or none. It may be called again with the same. False: the
        epoch is another one. Raises CondemnedError."""
        ...

    async def remove_files(self, shard: int, epoch: int, paths: Sequence[str]) -> bool: ...


class DeadObjects(Protocol):
    """Objects that nobody needs. What is told as dead or condemned is so for certain: it was told by a commit behind
    those by which it became so."""

    async def dead_objects(self, older_than_s: float) -> Sequence[str]:
        """Keys of some objects of which no piece and no file has been left for so long; of condemned ones, for
        CONDEMNED_S."""
        ...

    async def condemn(self, keys: Sequence[str]) -> None:
        """Nobody may commit objects of these names from now on: those that are not known are known as dead."""
        ...

    async def known(self, keys: Sequence[str]) -> set[str]:
        """Which of these are known, dead or not."""
        ...

    async def condemned_among(self, keys: Sequence[str]) -> set[str]:
        """Which of these are condemned: nobody has committed them, and nobody can."""
        ...

    async def forget_objects(self, keys: Sequence[str]) -> None:
        """They have been deleted from the store."""
        ...


class Leases(Heads, Protocol):
    """Who lives, and who has which shard."""

    on_session_ended: Callable[[], None]
    """Told that the session has ended that has the lock; the next `renew` makes another one."""

    async def lineage(self) -> str:
        """Another one where the database was filled anew or brought back since: what a process knows of it is not true
        any more."""
        ...

    async def register(self, number: int, host: str, port: int, rack: str, doors: str = "") -> int:
        """This process is a node; its incarnation. A lock is held from now on, as long as this process has its session
        with the database."""
        ...

    async def renew(self, incarnation: int) -> Sequence[Head]:
        """Have the lease last anew; the heads of what it owns. Raises LeaseLostError where it has been forgotten."""
        ...

    async def nodes(self) -> Sequence[Node]:
        """In the order of their starts: the last of a number is what that node is now."""
        ...

    async def take(self, shard: int, epoch: int, incarnation: int) -> Head | None:
        """Own a shard whose head has this epoch, and whose owner is dead, or gave it to nobody. None: it is not so."""
        ...

    async def hand_over(self, shard: int, epoch: int, incarnation: int) -> Head | None:
        """Give a shard of this epoch to a living node. None: the epoch is another one, or the node is dead."""
        ...

    async def begun_anew(self, shard: int, epoch: int) -> bool:
        """The owner has done what is to be done in a log that was brought back (`Head.restored`). False: the epoch is
        another one."""
        ...

    async def can_store(self, incarnation: int, stores: bool) -> None:
        """The node says whether it reaches the object store."""
        ...

    async def leave(self, incarnation: int) -> None:
        """The node ends: what it owns may be taken at once."""
        ...

    async def want(self, shard: int, number: int | None) -> bool:
        """Have a shard moved to the node of this number as soon as it lives; None: wherever. False: there is no such
        shard."""
        ...

    async def drain(self, number: int, draining: bool) -> bool:
        """Whether all shards of this node go to others, as long as it runs. False: no such node is alive."""
        ...


class LogDatabase(Commits, LogContents, DeadObjects, Leases, Protocol):
    """All of them."""

    async def now_ms(self) -> int:
        """By the database's clock: Unix ms."""
        ...

    async def close(self) -> None: ...
