"""Whether the database still has what it has promised.

A standby that takes over without having been synchronous, or a backup that was restored, lacks commits that were
acknowledged. A commit finds that out for its shard (cluster/engine/committing.py); this finds it out for shards that
nobody writes to, and for epochs that nobody has any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halfmoon.cluster.engine.database import Heads
    from halfmoon.cluster.engine.log import ShardLog
    from halfmoon.cluster.engine.pieces import Head

logger = logging.getLogger("halfmoon.cluster")


class LostCommits:
    def __init__(
        self,
        database: Heads,
        logs: Callable[[], Sequence[ShardLog]],
        stop: Callable[[int, OSError], None],
    ) -> None:
        """`logs`: of the shards that are open here. `stop`: nothing is written to a shard any more, for this reason."""
        self._database = database
        self._logs = logs
        self._stop = stop
        self._told: dict[int, tuple[int, int | None]] = {}
        """Shard → the highest epoch that the database ever told, and whose it was: an epoch has one owner."""
        self.problems: dict[int, str] = {}
        """By shard, a sentence each. They stay: an administrator decides what is true."""
        self.kept: dict[int, int] = {}
        """Those of them that were open here → in which epoch. They may have what the database has not."""

    def owned(self, head: Head) -> None:
        """The database has told this of a shard."""
        self._told[head.shard] = max((head.epoch, head.owner), self._told.get(head.shard, (0, None)), key=itemgetter(0))

    async def look(self) -> None:
        """Raises DatabaseUnavailableError."""
        before = {log.shard: (log.epoch, log.flushed) for log in self._logs()}
        told = dict(self._told)
        for head in await self._database.heads():
            shard = head.shard
            epoch, end = before.get(shard, (0, 0))
            was, owner = told.get(shard, (0, None))
            if head.epoch < max(was, epoch):
                found = f"shard {shard} has epoch {head.epoch} in the database, and had {max(was, epoch)}"
            elif head.epoch == was and head.owner != owner:
                # The taking of it was lost, and somebody else has taken the same again.
                found = f"shard {shard} is incarnation {head.owner}'s in the database, and was {owner}'s in epoch {was}"
            elif head.epoch == epoch and head.end < end:
                found = f"shard {shard} ends at {head.end} in the database, and {end} was committed"
            else:
                self.owned(head)
                continue
            if shard not in self.problems:
                self.problems[shard] = problem = f"{found}: the database has lost commits"
                logger.critical("event=commits_lost shard=%d error=%s", shard, problem)
                if shard in before:
                    self.kept[shard] = epoch
                    self._stop(shard, OSError(problem))
