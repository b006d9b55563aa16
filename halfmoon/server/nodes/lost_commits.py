"""Whether the database still has what it has promised.

A standby that takes over without having been synchronous, or a backup that was restored, lacks commits that were
acknowledged. A commit finds that out for its shard (cluster/engine/committing.py); this finds it out for shards that
nobody writes to, and for epochs that nobody has any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halfmoon.cluster.engine.database import LogDatabase
    from halfmoon.cluster.engine.log import ShardLog

logger = logging.getLogger("halfmoon.cluster")


class LostCommits:
    def __init__(
        self,
        database: LogDatabase,
        logs: Callable[[], Sequence[ShardLog]],
        stop: Callable[[int, OSError], None],
    ) -> None:
        """`logs`: of the shards that are open here. `stop`: nothing is written to a shard any more, for this reason."""
        self._database = database
        self._logs = logs
        self._stop = stop
        self._epochs: dict[int, int] = {}
        """Shard → the highest that the database ever told."""
        self.problems: dict[int, str] = {}
        """By shard, a sentence each. They stay: an administrator decides what is true."""

    async def look(self) -> None:
        """Raises DatabaseUnavailableError."""
        before = {log.shard: (log.epoch, log.flushed) for log in self._logs()}
        epochs = dict(self._epochs)
        for head in await self._database.heads():
            shard = head.shard
            epoch, end = before.get(shard, (0, 0))
            if head.epoch < max(epochs.get(shard, 0), epoch):
                told = (
                    f"shard {shard} has epoch {head.epoch} in the database, and had {max(epochs.get(shard, 0), epoch)}"
                )
            elif head.epoch == epoch and head.end < end:
                told = f"shard {shard} ends at {head.end} in the database, and {end} was committed"
            else:
                self._epochs[shard] = max(head.epoch, self._epochs.get(shard, 0))
                continue
            if shard not in self.problems:
                self.problems[shard] = problem = f"{told}: the database has lost commits"
                logger.critical("event=commits_lost shard=%d error=%s", shard, problem)
                if shard in before:
                    self._stop(shard, OSError(problem))
