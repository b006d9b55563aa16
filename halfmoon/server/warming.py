"""What a broker loads once it is ready: it has started without that, and no request is to wait for it.

One piece after the other, each in a turn of the loop of its own, and each a few milliseconds at most.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final

from halfmoon.adapters.kafka.api import registered
from halfmoon.adapters.kafka.protocol import REQUESTS, RESPONSES
from halfmoon.adapters.kafka.registry import OnDemand

EVERY_S: Final = 0.01

logger = logging.getLogger("halfmoon.server")


class Warming:
    """Of one process. Create, start and stop it in its loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pieces = pieces()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = self._loop.call_later(EVERY_S, self._next)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _next(self) -> None:
        load = next(self._pieces, None)
        if load is None:
            self._timer = None
            return
        try:
            load()
        except Exception:  # whoever calls the API is told, too
            logger.exception("event=loading_failed")
        self.start()


def pieces() -> Iterator[Callable[[], object]]:
    """The modules of APIs that are not loaded, and what their messages consist of."""
    for key, api in registered().items():
        if isinstance(api.handler, OnDemand) and not api.handler.is_loaded:
            yield api.handler.load
        for messages in (REQUESTS, RESPONSES):
            if key in messages:
                yield messages[key].load
