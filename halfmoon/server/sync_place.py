"""Where an fdatasync runs: in a thread, or where the disk is quick and nobody else waits, in the loop itself.

Handing a sync to a thread and hearing of its end wakes two sleeping processors, 50 µs each in a virtual machine, beside
an fdatasync of 120 µs. For single small requests, which wait for nothing else, the loop therefore calls it itself. It
does so only while the disk has answered quickly of late, so that a slow disk never stops the loop, and only for little:
a large write takes longer, and others are served meanwhile.
"""

from __future__ import annotations

SMALL_BYTES = 16 << 10
"""More than this to be synced goes to the thread."""

FEW_REQUESTS = 2
"""More than so many answers that wait for the sync: there are other clients, whom the loop can serve meanwhile."""

QUICK_S = 0.0005
STALL_S = 0.02

TRUSTED = 8
MOST_TRUST = 64
SLOW_COST = 16
STALL_COST = 1_000


class SyncPlace:
    """One per log. Trust grows with each quick sync, and falls by more with each slow one."""

    def __init__(self) -> None:
        self._trust = 0

    def in_loop(self, nbytes: int, requests: int) -> bool:
        """Whether to sync `nbytes`, for which `requests` answers wait, in the loop."""
        return self._trust >= TRUSTED and nbytes <= SMALL_BYTES and requests <= FEW_REQUESTS

    def took(self, seconds: float, nbytes: int) -> None:
        """A sync of `nbytes` took so long, wherever it ran. What a large one took says nothing of a small one."""
        if seconds <= QUICK_S:
            self._trust = min(self._trust + 1, MOST_TRUST)
        elif nbytes <= SMALL_BYTES:
            cost = SLOW_COST if seconds < STALL_S else STALL_COST
            self._trust = max(min(self._trust, TRUSTED) - cost, -STALL_COST)
