"""Where an fdatasync runs: in a thread, or where the disk is quick and few wait, in the loop itself.

Handing a sync to a thread and hearing of its end wakes two sleeping processors, 50 µs each in a virtual machine, and
300 µs where clients keep all of them busy; beside an fdatasync of 100 to 400 µs. For the few small requests that one
client has in the air the loop therefore calls it itself. It does so only while the disk is quick in the mean of late,
so that a slow disk never stops the loop, and only for little: a large write takes longer, and others are served
meanwhile.
"""

from __future__ import annotations

from typing import Final

SMALL_BYTES: Final = 128 << 10
"""More than this to be synced goes to the thread."""

FEW_REQUESTS: Final = 5
"""More than so many answers that wait for the sync: there are several clients, whom the loop can serve meanwhile. Five
is what a producer has in the air (`max.in.flight.requests.per.connection`)."""

QUICK_S: Final = 0.001
"""A disk whose syncs take longer than this in the mean is left to the thread."""

STALL_S: Final = 0.02
SYNCS_AFTER_STALL: Final = 1_000
"""After a sync as long as STALL_S, so many are left to the thread, whatever they take."""

WEIGHT: Final = 1 / 16
"""Of the newest sync in the mean."""


class SyncPlace:
    """One per log."""

    def __init__(self) -> None:
        self._mean_s = 2 * QUICK_S
        """Weighted towards the newest. Nobody knows the disk yet, so it begins as a slow one."""
        self._left_to_thread = 0
        """So many syncs more, after a stall."""

    def in_loop(self, nbytes: int, requests: int) -> bool:
        """Whether to sync `nbytes`, for which `requests` answers wait, in the loop."""
        quick = self._mean_s <= QUICK_S and not self._left_to_thread
        return quick and nbytes <= SMALL_BYTES and requests <= FEW_REQUESTS

    def took(self, seconds: float, nbytes: int) -> None:
        """A sync of `nbytes` took so long, wherever it ran. What a large one took says nothing of a small one, unless
        it was quick."""
        if self._left_to_thread:
            self._left_to_thread -= 1
        if nbytes <= SMALL_BYTES or seconds <= QUICK_S:
            self._mean_s += (min(seconds, STALL_S) - self._mean_s) * WEIGHT
            if seconds >= STALL_S:
                self._left_to_thread = SYNCS_AFTER_STALL
