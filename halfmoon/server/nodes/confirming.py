"""Whether what this node has is still its own: asked of the database, for many requests at once.

Each request is answered by a look that was begun after it came. So whoever is answered hears what was true at that
time: a new owner can have changed something only later.

A look only reads. A primary in whose place a standby has come, and that nobody has told so, can be read, but with a
synchronous standby nothing can be committed there. So a look counts while the lease, which is a commit, is not over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Set
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.engine.membership import AWAY_S

if TYPE_CHECKING:
    from halfmoon.cluster.engine.database import Heads

logger = logging.getLogger("halfmoon.cluster")

APART_S: Final = 0.001
"""Looks begin so long after each other."""
AGAIN_S: Final = 0.1
LIMIT_S: Final = 5.0
"""Who is not answered after so long is told that it is not certain."""

Told = Callable[[bool], None]


class OpenShards(Protocol):
    """Of this node."""

    @property
    def served(self) -> Mapping[int, tuple[int, float]]:
        """Shard → the epoch in which questions about it may have been answered here, and since when, by the loop's
        clock: from before it is opened until it is closed, and whose it was then is known."""
        ...

    @property
    def leaving(self) -> Set[int]:
        """Those of them that are being handed over: whether they were is not known yet."""
        ...

    @property
    def renewed_s(self) -> float:
        """When the call began, by the loop's clock, that renewed the lease last."""
        ...

    @property
    def losses(self) -> int:
        """So many were found to be another node's, or may be. One that was handed over was this node's until then."""
        ...


class _Waiting(NamedTuple):
    since_s: float
    losses: int
    """At that time: what was lost since may have been lost before."""
    told: Told


class Confirming:
    def __init__(self, database: Heads, shards: OpenShards) -> None:
        self._database = database
        self._shards = shards
        self._waiting: list[_Waiting] = []
        self._task: asyncio.Task[None] | None = None

    def ask(self, told: Told) -> None:
        """`told` whether all shards that are open here were this node's at some time after now."""
        loop = asyncio.get_running_loop()
        self._waiting.append(_Waiting(loop.time(), self._shards.losses, told))
        if self._task is None:
            self._task = loop.create_task(self._look())

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                begun_s = loop.time()
                try:
                    epochs = {head.shard: head.epoch for head in await self._database.heads()}
                    if self._shards.served and loop.time() - self._shards.renewed_s > AWAY_S:
                        raise DatabaseUnavailableError("the lease was not renewed for a while")
                except Exception as error:  # whatever it is, nobody waits for ever
                    if not isinstance(error, DatabaseUnavailableError):
                        logger.exception("event=confirming_failed")
                    late = [one for one in waiting if begun_s - one.since_s > LIMIT_S]
                    self._waiting = [one for one in waiting if one not in late] + self._waiting
                    if late:
                        logger.warning("event=not_confirmed requests=%d error=%s", len(late), error)
                    for one in late:
                        _tell(one.told, False)
                    await asyncio.sleep(AGAIN_S)
                    continue
                # One that was opened meanwhile was taken meanwhile, too.
                others = {
                    shard
                    for shard, (epoch, since_s) in self._shards.served.items()
                    if epochs.get(shard) != epoch and since_s <= begun_s
                }
                if others and others <= self._shards.leaving:  # or is it the one that it was handed over to?
                    late = [one for one in waiting if begun_s - one.since_s > LIMIT_S]
                    self._waiting = [one for one in waiting if one not in late] + self._waiting
                    waiting = late
                for one in waiting:
                    _tell(one.told, not others and one.losses == self._shards.losses)
                await asyncio.sleep(APART_S)
        finally:
            self._task = None


def _tell(told: Told, certain: bool) -> None:
    try:
        told(certain)
    except Exception:
        logger.exception("event=callback_failed")
