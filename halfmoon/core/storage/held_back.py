"""File descriptors that are kept for the broker's own files.

Where connections have used up all others, a file that must be opened takes one of these. What was taken is put back as
soon as there are some again.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class HeldBack:
    """For any thread. Nothing is held back before `hold`."""

    def __init__(self) -> None:
        self._count = 0
        self._held: list[int] = []

    def hold(self, count: int) -> None:
        """As many as can be had."""
        self._count = count
        self._refill()

    def run(self, use: Callable[[], T]) -> T:
        """What takes a descriptor. Raises OSError."""
        while True:
            try:
                result = use()
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._give():
                    raise
            else:
                if len(self._held) < self._count:
                    self._refill()
                return result

    def release(self) -> None:
        self._count = 0
        while self._give():
            pass

    def _give(self) -> bool:
        try:
            os.close(self._held.pop())
        except IndexError:
            return False
        return True

    def _refill(self) -> None:
        with contextlib.suppress(OSError):
            while len(self._held) < self._count:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
