"""What a commit has come to, for certain.

A call that fails says nothing about what it did. So the heads are asked for, by a commit, until that succeeds:

    epoch and end are the commit's      it was committed
    epoch is, end is its start          it was not: the very same again
    another epoch                       lost
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

from halfmoon.cluster.engine.database import Commit, Commits, CondemnedError
from halfmoon.cluster.engine.insisting import Pauses, insist
from halfmoon.cluster.engine.pieces import Head
from halfmoon.errors import LeaseLostError

Apply = Callable[[Sequence[Commit]], Awaitable[set[int]]]
"""Commit these; the shards of which that was done."""


class Ends(Protocol):
    """Is told of each."""

    def committed(self, commit: Commit) -> None: ...
    def failed(self, shard: int, error: OSError) -> None: ...
    def without(self, commits: Sequence[Commit]) -> list[Commit]:
        """Those that have not ended."""
        ...


async def decide(database: Commits, commits: Sequence[Commit], apply: Apply, ended: Ends) -> None:
    """Until the end of each is certain. Raises CondemnedError."""
    pauses = Pauses()
    while not await try_once(database, commits, apply, ended, pauses):
        pass


async def try_once(database: Commits, commits: Sequence[Commit], apply: Apply, ended: Ends, pauses: Pauses) -> bool:
    """Whether the end of each is certain; if not, there was a pause, and nothing is on its way any more. Raises
    CondemnedError."""
    left = ended.without(commits)
    if not left:
        return True
    condemned: CondemnedError | None = None
    try:
        done = await apply(left)
        for commit in left:
            if commit.shard in done:
                ended.committed(commit)
    except CondemnedError as error:
        condemned = error
    except Exception as error:
        await pauses.wait("commit", error)
    left = ended.without(left)
    if not left:
        return True
    shards = [commit.shard for commit in left]
    heads = {head.shard: head for head in await insist("heads_read", partial(database.certain_heads, shards))}
    for commit in left:
        found = _end_of(commit, heads.get(commit.shard))
        if isinstance(found, OSError):
            ended.failed(commit.shard, found)
        elif found:
            ended.committed(commit)
    left = ended.without(left)
    if condemned is not None and left:
        raise condemned
    return not left


def _end_of(commit: Commit, head: Head | None) -> bool | OSError:
    """Whether it was committed; an error: nobody will ever be told so."""
    if head is None or head.epoch < commit.epoch:
        epoch = "is gone" if head is None else f"has epoch {head.epoch}"
        return _lost_commits(f"shard {commit.shard} {epoch} in the database, and epoch {commit.epoch} here")
    if head.epoch > commit.epoch:
        return LeaseLostError(f"shard {commit.shard} has epoch {head.epoch}, and not {commit.epoch}")
    if head.end in (commit.start, commit.end):
        return head.end == commit.end
    return _lost_commits(f"shard {commit.shard} ends at {head.end} in the database, and at {commit.start} here")


def _lost_commits(found: str) -> OSError:
    """Nobody else writes in this epoch: the database forgot what it had promised, or was restored."""
    return OSError(f"{found}: the database has lost commits")
