"""Offsets of one partition, as runs of those that follow each other: what groups nack tends to be whole batches.

As numbers for a snapshot: of each run its first offset, and behind it, if there are more, their count as a negative
number. (A version that knew single offsets only reads the first of each run.)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class OffsetRuns:
    """first < end ≤ the first of the next run; runs that touch are one."""

    __slots__ = ("_ends", "_firsts")

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        """`numbers`: as `numbers` gives them, or single offsets in any order."""
        self._firsts: list[int] = []
        self._ends: list[int] = []
        first = -1
        for number in numbers:
            if number >= 0:
                first = number
                self.add(first, 1)
            elif first >= 0:
                self.add(first + 1, -number)

    def add(self, first: int, count: int) -> None:
        firsts, ends, end = self._firsts, self._ends, first + count
        low = bisect_left(ends, first)
        """The first run that it touches, …"""
        high = bisect_right(firsts, end, low)
        """… and the first behind it that it does not."""
        if low < high:
            first, end = min(first, firsts[low]), max(end, ends[high - 1])
        firsts[low:high], ends[low:high] = [first], [end]

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._firsts, offset) - 1
        return at >= 0 and offset < self._ends[at]

    def drop_below(self, offset: int) -> None:
        at = bisect_right(self._ends, offset)
        del self._firsts[:at], self._ends[:at]
        if self._firsts and self._firsts[0] < offset:
            self._firsts[0] = offset

    def __len__(self) -> int:
        """How many runs."""
        return len(self._firsts)

    def offsets(self) -> Iterator[int]:
        """Ascending."""
        for first, end in zip(self._firsts, self._ends, strict=True):
            yield from range(first, end)

    def runs(self) -> list[tuple[int, int]]:
        """(first offset, count), ascending."""
        return [(first, end - first) for first, end in zip(self._firsts, self._ends, strict=True)]

    def numbers(self) -> list[int]:
        """To be written down."""
        found: list[int] = []
        for first, end in zip(self._firsts, self._ends, strict=True):
            found.append(first)
            if end - first > 1:
                found.append(first + 1 - end)
        return found
