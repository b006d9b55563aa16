"""Changes of the shared catalog that clients of RocketMQ ask for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from halfmoon.adapters.rocketmq.shards import Administered
from halfmoon.cluster.changes import Changes
from halfmoon.cluster.store import CatalogUnavailableError
from halfmoon.errors import BrokerError, Fault
from halfmoon.server.workers.catalog import SharedCatalogDriver
from halfmoon.server.workers.deletions import Deletions


class CatalogChanges:
    """See adapters/rocketmq/shards.Changes. Used in the loop."""

    def __init__(
        self, driver: SharedCatalogDriver, changes: Changes, administered: Administered, deletions: Deletions
    ) -> None:
        """`administered`: over the shared catalog (the front)."""
        self.ask_deletion = deletions.ask
        self._driver = driver
        self._changes = changes
        self._administered = administered
        self._tasks: set[asyncio.Task[None]] = set()

    def change(self, work: Callable[[Administered], object], told: Callable[[Exception | None], None]) -> None:
        task = asyncio.get_running_loop().create_task(self._change(work, told))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _change(self, work: Callable[[Administered], object], told: Callable[[Exception | None], None]) -> None:
        failure: Exception | None = None
        try:
            await self._driver.change(lambda: work(self._administered))
        except CatalogUnavailableError as error:
            failure = BrokerError(Fault.COORDINATOR_NOT_AVAILABLE, f"the catalog cannot be changed now: {error}")
        except Exception as error:
            failure = error
        told(failure)

    def when_known(self, told: Callable[[BrokerError | None], None]) -> None:
        self._changes.when_durable(self._changes.version, told)
