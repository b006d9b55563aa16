"""The wall clock of a node: this machine's, corrected by the database's where that says something else.

A delay is written down as the time at which it ends, and whoever has the shard by then delivers it. So nodes have to
agree on what time it is, also where an operator has forgotten one of them. No lease and no lock asks this clock.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from halfmoon.cluster.engine.upkeep import Upkeep
from halfmoon.server.clock import SystemClock

if TYPE_CHECKING:
    from halfmoon.core.clock import Clock

logger = logging.getLogger("halfmoon.cluster")

LOOK_S: Final = 2.0
TOLERATED_MS: Final = 500
"""Clocks that NTP keeps differ by less: a correction is a leap, which is worse."""
SLOW_MS: Final = 1_000
"""An answer that takes longer says too little."""
WORTH_A_WARNING_MS: Final = 1_000


class DatabaseClock:
    """See core/clock.Clock."""

    def __init__(self, clock: Clock | None = None) -> None:
        """`clock`: this machine's."""
        self._clock = clock or SystemClock()
        self._upkeep = Upkeep()
        self.offset_ms = 0
        """How far the machine's is behind."""

    def wall_ms(self) -> int:
        return self._clock.wall_ms() + self.offset_ms

    def mono_ms(self) -> int:
        return self._clock.mono_ms()

    async def look(self, now_ms: Callable[[], Awaitable[int]]) -> None:
        """`now_ms`: what the database says (Unix ms). Raises DatabaseUnavailableError."""
        clock = self._clock
        begun_ms, asked_ms = clock.mono_ms(), clock.wall_ms()
        said_ms = await now_ms()
        took_ms = clock.mono_ms() - begun_ms
        offset_ms = said_ms - asked_ms - took_ms // 2
        if took_ms <= SLOW_MS and abs(offset_ms - self.offset_ms) > TOLERATED_MS + took_ms // 2:
            self.offset_ms = 0 if abs(offset_ms) <= TOLERATED_MS else offset_ms
            logger.warning("event=clock_corrected offset_ms=%d", self.offset_ms)

    def start(self, now_ms: Callable[[], Awaitable[int]]) -> None:
        async def look() -> None:
            await self.look(now_ms)

        self._upkeep.go_on(look, LOOK_S)

    async def stop(self) -> None:
        await self._upkeep.stop()

    def warnings(self) -> list[str]:
        if abs(self.offset_ms) < WORTH_A_WARNING_MS:
            return []
        far = f"{abs(self.offset_ms) / 1000:,.1f} s {'behind' if self.offset_ms > 0 else 'ahead of'}"
        return [f"this machine's clock is {far} the database's, which this node goes by: is NTP running?"]
