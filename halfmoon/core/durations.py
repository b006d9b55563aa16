"""How long things take, counted in buckets: cheap enough for every request."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

FLUSH_BUCKETS_S: Final[tuple[float, ...]] = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0,
)  # fmt: skip
REQUEST_BUCKETS_S: Final[tuple[float, ...]] = (
    0.00025, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
"""Requests may wait for other clients for half a minute, and are answered in 50 µs."""


class Durations:
    """`counts[i]` durations were at most `bounds_s[i]` and above the bound before; the last is of all longer ones."""

    __slots__ = ("bounds_s", "counts", "first_s", "total_s")

    def __init__(self, bounds_s: tuple[float, ...] = FLUSH_BUCKETS_S) -> None:
        self.bounds_s = bounds_s
        self.first_s = bounds_s[0]
        self.counts = [0] * (len(bounds_s) + 1)
        self.total_s = 0.0

    def add(self, seconds: float) -> None:
        self.total_s += seconds
        self.counts[0 if seconds <= self.first_s else bisect_left(self.bounds_s, seconds)] += 1
