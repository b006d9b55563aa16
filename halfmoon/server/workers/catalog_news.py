"""Changes of the shared catalog, told from process to process.

Who has committed one tells the others, and answers its client when they know it, or after `TOLD_S`: one that is not
connected is waited for, too, since it may be there and serve clients. A process that was not told looks for itself
every `POLL_S`; one that is connected anew is told at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from halfmoon.cluster.asking import nobody
from halfmoon.cluster.messages import CatalogChanged, Done
from halfmoon.cluster.store import CatalogUnavailableError
from halfmoon.errors import BrokerError, Fault
from halfmoon.server.workers.tasks import failed, resolve, soon

if TYPE_CHECKING:
    from halfmoon.cluster.asking import Told
    from halfmoon.cluster.shared import SharedCatalog
    from halfmoon.core.timers import Timers
    from halfmoon.server.workers.catalog import SharedCatalogDriver
    from halfmoon.server.workers.links import Links

logger = logging.getLogger("halfmoon.server")

POLL_S = 1.0
TOLD_S = 1.0
AGAIN_MS = 1_000
"""What could not be changed when its time had come is tried again after so long."""


class CatalogNews:
    def __init__(
        self,
        shared: SharedCatalog,
        driver: SharedCatalogDriver,
        links: Links,
        on_lost: Callable[[Exception], None],
    ) -> None:
        """`on_lost`: as of SharedCatalogDriver."""
        self._shared = shared
        self._driver = driver
        self._links = links
        self._on_lost = on_lost
        self._polling: asyncio.Task[None] | None = None
        self._missed: dict[int, asyncio.Future[object]] = {}
        """Processes that could not be told, and when they are."""

    def start(self) -> None:
        self._driver.tell = self._tell_others
        self._polling = asyncio.get_running_loop().create_task(self._poll())

    def stop(self) -> None:
        if self._polling is not None:
            self._polling.cancel()

    def change(self, work: Callable[[], object], told: Callable[[object], None]) -> None:
        """As of adapters/kafka/shards.Homes."""

        async def change() -> None:
            try:
                made = await self._driver.change(work)
            except CatalogUnavailableError as error:
                made = error
            except Exception as error:
                failed(error)
                made = error
            told(made)

        soon(change())

    def connected(self, process: int) -> None:
        """A process is: it may have missed something."""
        missed = self._missed.pop(process, None)
        told = nobody if missed is None else partial(resolve, missed)
        self._links.ask_process(process, CatalogChanged(self._shared.version), told)

    def heard(self, question: CatalogChanged, told: Told) -> None:
        """Another process has changed it."""
        if question.version <= self._shared.version:
            told(Done())
        else:
            self.catch_up(lambda error: told(error or Done()))

    def catch_up(self, told: Callable[[BrokerError | None], None]) -> None:
        """Learn what others have changed; told when what was committed until now is known here, or why it is not."""

        async def look() -> None:
            told(await self._catch_up())

        soon(look())

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            await self._catch_up()

    async def _catch_up(self) -> BrokerError | None:
        try:
            await self._driver.catch_up()
        except CatalogUnavailableError as error:
            logger.error("event=catalog_unavailable error=%s", error)
            return BrokerError(Fault.COORDINATOR_NOT_AVAILABLE, str(error))
        except Exception as error:
            self._on_lost(error)
            raise
        return None

    async def _tell_others(self, version: int) -> None:
        loop = asyncio.get_running_loop()
        waiting = []
        for process, is_up in self._links.others().items():
            if is_up:
                future: asyncio.Future[object] = loop.create_future()
                self._links.ask_process(process, CatalogChanged(version), partial(resolve, future))
            else:
                future = self._missed.setdefault(process, loop.create_future())
            waiting.append(future)
        if waiting:
            await asyncio.wait(waiting, timeout=TOLD_S)


class ChangedInTime:
    """Deadlines of what is changed in the shared catalog when its time has come (core/timers.Timed)."""

    def __init__(self, timers: Timers, driver: SharedCatalogDriver) -> None:
        self._timers = timers
        self._driver = driver
        self._not_before_ms = 0

    def next_deadline(self) -> int | None:
        deadline_ms = self._timers.next_deadline()
        return None if deadline_ms is None else max(deadline_ms, self._not_before_ms)

    def expire(self, mono_ms: int) -> None:
        deadline_ms = self.next_deadline()
        if deadline_ms is not None and deadline_ms <= mono_ms:
            self._not_before_ms = mono_ms + AGAIN_MS
            soon(self._driver.change(lambda: self._timers.expire(mono_ms)))
