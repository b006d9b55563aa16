"""The shared catalog in one process: changes made here and those of others, one after the other.

Everything waits for a disk or for another process, so it is done in a thread, and the loop goes on. What comes of it is
applied in the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import perf_counter
from typing import Any, TypeVar, cast

from halfmoon.cluster.changes import Changes
from halfmoon.cluster.shared import SharedCatalog
from halfmoon.cluster.store import (
    CatalogDamagedError,
    CatalogLostError,
    CatalogStore,
    CatalogUnavailableError,
    CatalogUncertainError,
    News,
)
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema import control
from halfmoon.server.workers.tasks import soon

T = TypeVar("T")

KEPT = 10_000
"""After so many changes a snapshot takes their place: a start reads no more."""
BEHIND = 1_000
"""So many changes stay all the same, for processes that have not heard of the last ones yet."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
"""Between tries."""

_OF_RIGHTS = control.AclsChanged, control.UsersChanged, control.TokensChanged

logger = logging.getLogger("halfmoon.server")


async def _carried_out(slices: Generator[object, Any, T]) -> T:
    while True:
        try:
            next(slices)
        except StopIteration as done:
            return cast(T, done.value)
        await asyncio.sleep(0)


def _may_come_later(record: bytes) -> bool:
    """Of what others have changed meanwhile nothing is in its way: whoever began the later generation has the shard."""
    return isinstance(control.decode(record), control.ShardStarted)


def _is_of_rights(news: News) -> bool:
    """It may say that somebody may do less than before."""
    if news.snapshot is not None:
        return True
    return any(isinstance(control.decode(record), _OF_RIGHTS) for each in news.changes for record in each.records)


class SharedCatalogDriver:
    """Create, use and stop it in the loop."""

    def __init__(
        self,
        store: CatalogStore,
        shared: SharedCatalog,
        changes: Changes,
        on_applied: Callable[[set[int]], None],
        on_lost: Callable[[Exception], None],
        *,
        insists: bool = False,
        now_s: Callable[[], float] = perf_counter,
    ) -> None:
        """`on_applied` is told which topics have changed, after each change of this or another process; `on_lost` that
        this process knows something that is not in the catalog, and must stop. `insists`: the end of a commit is asked
        for until the store answers. `now_s`: a monotonic clock."""
        self._store = store
        self._insists = insists
        self._stops = self._is_lost = False
        self._shared = shared
        self._changes = changes
        self._on_applied = on_applied
        self._on_lost = on_lost
        self._thread = ThreadPoolExecutor(1, "halfmoon-catalog")
        self._turn = asyncio.Lock()
        self._asked = self._caught_up = 0
        """How often `catch_up` was called, and of which calls what was to be known is known."""
        self._now_s = now_s
        self.confirmed_s = now_s()
        """When the last look was begun that has succeeded, or has found what is not certain and takes nobody's rights.
        Each change begins with one: whoever catches up waits behind many."""
        self.tell: Callable[[int], Coroutine[Any, Any, None]] | None = None
        """Tells the other processes of a new version; a change is over when they know it, or cannot be told soon."""

    def stop_insisting(self) -> None:
        """The process stops: what a commit has come to is asked for no more."""
        self._stops = True

    async def stop(self) -> None:
        self.stop_insisting()
        async with self._turn:
            await self._run(self._store.close)
            await asyncio.to_thread(self._thread.shutdown)

    async def catch_up(self) -> None:
        """Apply what others have changed, and what could not be applied before. Raises CatalogUnavailableError."""
        self._asked += 1
        mine = self._asked
        async with self._turn:
            if self._caught_up >= mine:  # with another one, which began after this was asked for
                return
            asked, begun_s = self._asked, self._now_s()
            news = await self._news(self._store.read, self._shared.version)
            self._take(news)
            if news.version is None:
                self._on_applied(set())
            self._caught_up, self.confirmed_s = asked, begun_s

    async def change(self, work: Callable[[], T | Generator[object, Any, T]], *, until_told: bool = True) -> T:
        """Have `work` make a change: it sees the catalog as it is, and the records that it appends are one change. What
        it returns is returned once they are committed, and the other processes know them, unless `until_told` is False;
        where that is slices, they are carried out, and the loop turns in between. Raises CatalogUnavailableError, and
        what `work` raises.

        A change that was begun is carried out to its end, whoever waits for it: else the catalog would stay held.
        """
        return await asyncio.shield(self._change(work, until_told))

    async def change_at_start(self, work: Callable[[], T | Generator[object, Any, T]]) -> T:
        """As `change`; a process that insists waits until the catalog can be changed. Raises CatalogUnavailableError
        where that is no use."""
        while True:
            try:
                return await self.change(work)
            except CatalogUnavailableError as error:
                of_no_use = self._is_lost or self._stops or isinstance(error, CatalogDamagedError)
                if of_no_use or not self._insists:
                    raise
                logger.warning("event=catalog_unavailable again_s=%g error=%s", LONGEST_PAUSE_S, error)
            await asyncio.sleep(LONGEST_PAUSE_S)

    async def _change(self, work: Callable[[], T | Generator[object, Any, T]], until_told: bool) -> T:
        before = -1
        try:
            async with self._turn:
                begun_s = self._now_s()
                news = await self._news(self._store.begin, self._shared.version)
                try:
                    self._take(news)
                except BaseException:
                    await self._let_go()
                    raise
                self.confirmed_s = begun_s
                before = self._shared.version
                self._changes.begin()
                try:
                    made = work()
                    if isinstance(made, Generator):
                        return await _carried_out(made)
                    return made
                finally:
                    # Also where it has failed on the way: what it has appended is true here.
                    await self._finish()
        finally:
            if -1 < before < self._shared.version and self.tell is not None:
                if until_told:
                    await self.tell(self._shared.version)
                else:
                    soon(self.tell(self._shared.version))

    async def _finish(self) -> None:
        records = self._changes.records()
        if not records:
            self._changes.abandoned()
            await self._let_go()
            return
        expected = self._shared.version + 1
        try:
            version = await self._run(lambda: self._store.commit(records))
        except CatalogUnavailableError as error:
            made = await self._committed_after_all(expected, records)
            if made is None:
                self._is_lost = True
                self._changes.failed(BrokerError(Fault.UNKNOWN_SERVER_ERROR, str(error)))
                self._on_lost(error)
                raise
            version = made
        self._on_applied(self._changes.committed(version))
        await self._keep()

    async def _let_go(self) -> None:
        """Nothing was changed. Where the store cannot be told so, it has lost its connection, and holds nothing."""
        with contextlib.suppress(CatalogUnavailableError):
            await self._run(self._store.abandon)

    async def _committed_after_all(self, version: int, records: list[bytes]) -> int | None:
        """The version that has the commit of which nobody has heard: it was made, or is made now. None: others have
        made this version, and what they have made may not come before this."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                news = await self._news(self._store.begin, version - 1)
                if news.version is None:
                    return await self._run(lambda: self._store.commit(records))
                was_made = any(each.version == version and list(each.records) == records for each in news.changes)
                await self._run(self._store.abandon)
                if was_made:
                    return version
                if news.snapshot is not None or not all(map(_may_come_later, records)):
                    return None
                self._take(news)
                version = self._shared.version + 1
                continue
            except CatalogLostError:
                return None
            except CatalogUnavailableError as error:
                if not self._insists or self._stops:
                    return None
                logger.info("event=catalog_unavailable again_s=%g error=%s", pause_s, error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _keep(self) -> None:
        version = self._shared.version
        if version - self._shared.snapshot_version >= KEPT:
            self._shared.snapshot_version = version
            snapshot = self._shared.save()
            try:
                await self._run(lambda: self._store.keep(version, snapshot, BEHIND))
            except CatalogUnavailableError as error:
                logger.warning("event=catalog_snapshot_failed error=%s", error)

    async def _news(self, ask: Callable[[int], News], after: int) -> News:
        """Raises CatalogUnavailableError. Where the catalog went back, this process knows what others never will."""
        begun_s = self._now_s()
        try:
            return await self._run(partial(ask, after))
        except CatalogUncertainError as error:
            # Nobody was told that it is done. So what is known here is what holds, unless somebody was told just before
            # it became uncertain; that may be only where nobody loses a right by it.
            if not _is_of_rights(error.news):
                self.confirmed_s = begun_s
            raise
        except CatalogLostError as error:
            if not self._is_lost:
                self._is_lost = True
                logger.critical("event=commits_lost error=%s", error)
                self._on_lost(error)
            raise

    def _take(self, news: News) -> None:
        if news.version is not None:
            self._on_applied(self._shared.take(news))

    def _run(self, work: Callable[[], T]) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work)
