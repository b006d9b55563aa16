"""Deletes objects that nobody needs any more: those of which no piece and no file is left, and leftovers.

An object that is dead stays for as long as the caller says (`cluster.keep_deleted`): for those who read from it what
they knew of a moment ago, and for a database that is brought back to an earlier moment. A leftover was stored by
somebody who has died before its commit. Its name is condemned before it is deleted, and stays so for a week: a commit
that comes after all finds that, and nothing is lost. So its age is only a guess, and no clock decides.

Nothing is deleted on the word of a call that nobody has answered: a standby that takes over may not know of it, and
need the object. The database tells what is dead by a commit, and where that is not answered, nothing is deleted.

One node does that for all; two do no harm.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Final

from halfmoon.cluster.engine.database import DeadObjects
from halfmoon.cluster.engine.objects import ObjectStore

log: Final = logging.getLogger("halfmoon.cluster")

LEFTOVER: Final = timedelta(hours=24)


class Sweeper:
    """Both raise DatabaseUnavailableError and StoreUnavailableError; what was not done is done by the next call."""

    def __init__(self, database: DeadObjects, store: ObjectStore, prefix: str) -> None:
        """`prefix`: of the keys of all objects of this cluster."""
        self._database = database
        self._store = store
        self._prefix = prefix

    async def delete_dead(self, dead_s: float) -> int:
        """What has been dead for longer; how many were deleted."""
        deleted = 0
        while keys := await self._database.dead_objects(dead_s):
            await self._store.delete(keys)
            await self._database.forget_objects(keys)
            deleted += len(keys)
        return deleted

    async def delete_leftovers(self, now: datetime | None = None) -> int:
        """How many were deleted."""
        before = (now or datetime.now(UTC)) - LEFTOVER
        deleted = 0
        async for part in self._store.list(self._prefix):
            old = [one.key for one in part if one.modified < before]
            if not old:
                continue
            known = await self._database.known(old)
            await self._database.condemn([key for key in old if key not in known])
            # Who has committed one in this moment has it. Those that were condemned before could not be deleted then.
            condemned = sorted(await self._database.condemned_among(old))
            await self._store.delete(condemned)
            deleted += len(condemned)
        if deleted:
            log.info("event=leftovers_deleted count=%d", deleted)
        return deleted
