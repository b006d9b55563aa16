"""The lock of an engine."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any


class EngineLock:
    """The engine's. Who leaves carries out what was posted meanwhile by those who did not want to wait for it."""

    __slots__ = ("_carry_out", "_posted", "acquire", "release")

    def __init__(self, posted: deque[Any], carry_out: Callable[[], None]) -> None:
        lock = threading.RLock()
        self.acquire = lock.acquire
        self.release = lock.release
        self._posted = posted
        self._carry_out = carry_out

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()
        if self._posted:
            self._carry_out()
