"""At most so many lines a second of each who is refused something, and a count of the rest.

Whoever is refused chooses how often, and strangers choose their names. So what is remembered is of one second, and of
few: all others share a place.
"""

from __future__ import annotations

from collections.abc import Callable

MOST = 10
"""Lines of one, …"""
WINDOW_MS = 1_000
"""… in such a time."""
OTHERS = "(others)"


class Limit:
    def __init__(self, mono_ms: Callable[[], int], known: int) -> None:
        """`known`: so many are told apart in a time."""
        self._mono_ms = mono_ms
        self._known = known
        self._until_ms = 0
        self._counts: dict[str, int] = {}

    def admits(self, key: str) -> bool:
        """Whether there is a line for this one now. Call `ended` before, which begins a new time."""
        counts = self._counts
        if key not in counts and len(counts) >= self._known:
            key = OTHERS
        count = counts[key] = counts.get(key, 0) + 1
        return count <= MOST

    def ended(self) -> list[tuple[str, int]]:
        """If the time is over: of whom how many lines were left out in it. A new time begins then."""
        now_ms = self._mono_ms()
        if now_ms < self._until_ms:
            return []
        self._until_ms = now_ms + WINDOW_MS
        left_out = [(key, count - MOST) for key, count in self._counts.items() if count > MOST]
        self._counts.clear()
        return left_out
