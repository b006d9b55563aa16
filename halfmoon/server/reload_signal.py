"""A running broker takes over what its settings file says now, as often as it is told to (SIGHUP)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from halfmoon.errors import HalfmoonError

if TYPE_CHECKING:
    from halfmoon.config.settings import Settings
    from halfmoon.server.auditing import Auditing

logger = logging.getLogger("halfmoon.server")


class Reloaded(Protocol):
    @property
    def auditing(self) -> Auditing | None: ...
    def reload(self, settings: Settings) -> None:
        """Raises HalfmoonError."""


async def reload_when_told(
    told: asyncio.Event, read: Callable[[], Settings], broker: Reloaded, configure_log: Callable[[Settings], None]
) -> None:
    """Does not end. What is wrong is logged, and everything stays as it was. `read`: in a thread."""
    while True:
        await told.wait()
        told.clear()
        if broker.auditing is not None:  # whatever the settings say now: who rotates files has moved them
            broker.auditing.reopen()
        try:
            settings = await asyncio.to_thread(read)  # reading YAML takes 20 ms
            broker.reload(settings)
            configure_log(settings)
        except HalfmoonError as error:
            logger.error("event=reload_failed error=%s", error)
        except Exception:
            logger.exception("event=reload_failed")
