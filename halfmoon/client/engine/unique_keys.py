"""UNIQ_KEY: the name that a producer gives each message (org.apache.rocketmq.common.message.MessageClientIDSetter).

    4 bytes of address · 2 of process id · 4 of chance · 4: ms since the start · 2: counter, all in upper-case hex

RocketMQ's has the hash of a class loader where chance is here: it tells producers of one process apart.
"""

from __future__ import annotations

import random
from collections.abc import Callable


class UniqueKeys:
    """Of one client."""

    def __init__(
        self, address: bytes, process_id: int, wall_ms: Callable[[], int], dice: random.Random | None = None
    ) -> None:
        chance = (dice or random.SystemRandom()).getrandbits(32)
        self._prefix = f"{address[-4:].hex()}{process_id & 0xFFFF:04x}{chance:08x}".upper()
        self._wall_ms = wall_ms
        self._began_ms = wall_ms()
        self._counter = 0

    def next(self) -> str:
        """32 characters."""
        self._counter = counter = self._counter + 1 & 0xFFFF
        return f"{self._prefix}{self._wall_ms() - self._began_ms & 0xFFFFFFFF:08X}{counter:04X}"
