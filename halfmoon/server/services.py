"""Plugins' services: tasks beside the broker, started again when they end (hook `halfmoon_services`).

A service that raises or returns has failed. It is started again after a pause that doubles with each failure in a row;
once it has run for RECOVERED_S the row is broken. From RED_FAILURES in a row on, /healthz says so until then.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence

from halfmoon.hooks.types import Service

logger = logging.getLogger("halfmoon.services")

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
RECOVERED_S = 60.0
RED_FAILURES = 3


class Services:
    """All services of a node. `start` and `stop` once each, in the loop."""

    def __init__(self, services: Sequence[Service], *, first_pause_s: float = FIRST_PAUSE_S) -> None:
        self._services = services
        self._first_pause_s = first_pause_s
        self._tasks: list[asyncio.Task[None]] = []
        self._in_a_row: Counter[str] = Counter()
        self._last_error: dict[str, str] = {}
        self.failures: Counter[str] = Counter({service.name: 0 for service in services})
        """Since the start, by service."""

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._supervise(service), name=f"halfmoon-service-{service.name}")
            for service in self._services
        ]

    async def stop(self) -> None:
        """Cancel all, and wait for them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    def problems(self) -> list[str]:
        """A sentence for each service that keeps failing."""
        return [
            f"service {name} has failed {count} times in a row: {self._last_error[name]}"
            for name, count in self._in_a_row.items()
            if count >= RED_FAILURES
        ]

    async def _supervise(self, service: Service) -> None:
        loop = asyncio.get_running_loop()
        while True:
            recovery = loop.call_later(RECOVERED_S, self._recovered, service.name)
            try:
                await service.run()
                error = "it returned"
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                error = "what it waited for was cancelled"
            except Exception as failure:
                error = f"{type(failure).__name__}: {failure}"
                logger.exception("event=service_failed service=%s", service.name)
            finally:
                recovery.cancel()
            self.failures[service.name] += 1
            self._in_a_row[service.name] += 1
            self._last_error[service.name] = error
            pause_s = min(self._first_pause_s * 2 ** min(self._in_a_row[service.name] - 1, 16), LONGEST_PAUSE_S)
            logger.warning("event=service_restarts service=%s pause_s=%g reason=%s", service.name, pause_s, error)
            await asyncio.sleep(pause_s)

    def _recovered(self, name: str) -> None:
        self._in_a_row[name] = 0
