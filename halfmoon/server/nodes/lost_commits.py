"""Whether the database still has what it has promised.

A standby that takes over without having been synchronous, or a backup that was restored, lacks commits that were
acknowledged. A commit finds that out for its shard (cluster/engine/committing.py); this finds it out for shards that
nobody writes to, and for epochs that nobody has any more.

A standby that is synchronous may lack what was seen at the primary, and promised to nobody: also that a shard was
taken. So an epoch counts once it is certain: something was committed in it here, or a commit that came after it was
seen has succeeded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halfmoon.cluster.engine.database import Commits
    from halfmoon.cluster.engine.log import ShardLog
    from halfmoon.cluster.engine.pieces import Head

logger = logging.getLogger("halfmoon.cluster")


class LostCommits:
    def __init__(
        self,
        database: Commits,
        logs: Callable[[], Sequence[ShardLog]],
        stop: Callable[[int, OSError], None],
    ) -> None:
        """`logs`: of the shards that are open here. `stop`: nothing is written to a shard any more, for this reason."""
        self._database = database
        self._logs = logs
        self._stop = stop
        self._told: dict[int, tuple[int, int | None]] = {}
        """Shard → the highest epoch that was certain, and whose it was: an epoch has one owner."""
        self._here: dict[int, Head] = {}
        """Of shards that were opened here, as they were then; …"""
        self._news: dict[int, Head] = {}
        """… and what the last look has seen that may not be certain."""
        self.problems: dict[int, str] = {}
        """By shard, a sentence each. They stay: an administrator decides what is true."""
        self.kept: dict[int, int] = {}
        """Those of them that were open here → in which epoch. They may have what the database has not."""

    def owned(self, head: Head) -> None:
        """It is about to be opened here."""
        self._here[head.shard] = head

    def _is_certain(self, head: Head) -> None:
        self._told[head.shard] = max((head.epoch, head.owner), self._told.get(head.shard, (0, None)), key=itemgetter(0))

    async def learn(self) -> None:
        """Make sure of what the last look has seen. Raises DatabaseUnavailableError."""
        if self._news:
            news, self._news = self._news, {}
            # What is told by it was seen at the server that made the commit; another one may lack what was seen before.
            for head in await self._database.all_certain_heads(min(news)):
                seen = news.get(head.shard)
                if seen is not None and (seen.epoch, seen.owner) == (head.epoch, head.owner):
                    self._is_certain(head)

    async def look(self) -> None:
        """Raises DatabaseUnavailableError."""
        before = {log.shard: (log.epoch, log.flushed) for log in self._logs()}
        used = {log.shard for log in self._logs() if log.flushed > log.backing.head.end}
        for shard in used & self._here.keys():
            if self._here[shard].epoch == before[shard][0]:
                self._is_certain(self._here[shard])
        told = dict(self._told)
        self._news = {}
        for head in await self._database.heads():
            shard = head.shard
            epoch, end = before[shard] if shard in used else (0, 0)
            was, owner = told.get(shard, (0, None))
            if head.epoch < max(was, epoch):
                found = f"shard {shard} has epoch {head.epoch} in the database, and had {max(was, epoch)}"
            elif head.epoch == was and head.owner != owner:
                # The taking of it was lost, and somebody else has taken the same again.
                found = f"shard {shard} is incarnation {head.owner}'s in the database, and was {owner}'s in epoch {was}"
            elif head.epoch == epoch and head.end < end:
                found = f"shard {shard} ends at {head.end} in the database, and {end} was committed"
            else:
                if head.epoch > was:
                    self._news[shard] = head
                continue
            if shard not in self.problems:
                self.problems[shard] = problem = f"{found}: the database has lost commits"
                logger.critical("event=commits_lost shard=%d error=%s", shard, problem)
                if shard in before:
                    self.kept[shard] = before[shard][0]
                    self._stop(shard, OSError(problem))
