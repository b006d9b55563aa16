"""A node that does not hear of the catalog any more does not know who may do what: it answers no client, then.

Else one that is cut off from the database, and not from clients, would serve a user for ever whose rights have been
taken away.

It looks by a timer, and at the beginning of turns of the loop: a process that stood still has requests to handle before
its timers are called.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from halfmoon.adapters.tcp.turns import Turns

logger = logging.getLogger("halfmoon.cluster")

STALE_S: Final = 10.0
LOOK_S: Final = 0.5


class Shut(Protocol):
    """adapters/tcp/listener.Listener."""

    def shut(self, reason: str) -> None: ...
    def open_again(self) -> None: ...


class CatalogWatch:
    def __init__(self, confirmed_s: Callable[[], float], listeners: Callable[[], Sequence[Shut]], turns: Turns) -> None:
        """`confirmed_s`: when the last look at the catalog was begun that has succeeded, by the clock of `turns`, which
        are the loop's."""
        self._confirmed_s = confirmed_s
        self._listeners = listeners
        self._turns = turns
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.is_stale = False

    def start(self) -> None:
        self._turns.on_look = self._turn
        self._timer = self._loop.call_later(LOOK_S, self._look_again)

    def stop(self) -> None:
        self._turns.on_look = None
        if self._timer is not None:
            self._timer.cancel()

    def _turn(self, now_s: float) -> None:
        if not self.is_stale and now_s - self._confirmed_s() > STALE_S:
            self._look()

    def _look_again(self) -> None:
        self.start()
        self._look()

    def _look(self) -> None:
        is_stale = self._turns.now() - self._confirmed_s() > STALE_S
        if is_stale:  # also those that were opened meanwhile
            for each in self._listeners():
                each.shut("this node has not heard of the catalog for a while")
        elif self.is_stale:
            for each in self._listeners():
                each.open_again()
        if is_stale != self.is_stale:
            logger.warning("event=catalog_stale stale=%s limit_s=%g", is_stale, STALE_S)
        self.is_stale = is_stale

    def problems(self) -> list[str]:
        return [f"the catalog was not confirmed for {STALE_S:g} s: no client is answered"] if self.is_stale else []
