"""Time is shared out among connections: how long one may handle its requests before others have their turn, and how
long all of them together in one round of the loop.

A round: the loop asks for events, and all who have sent something are served. One that has sent many requests ahead is
served one turn a round; what is left of its requests comes in the next. Whoever comes when a round has taken long
enough has one request handled, so all go on.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

TURN_S = 0.004
"""Of one connection; the request that is under way is ended."""
ROUND_S = 0.010
"""Of all connections."""


class RoundTime:
    """Of one loop. `call_soon`: the loop's; what it is given runs when all events of the round are handled."""

    __slots__ = ("_call_soon", "_now", "_open", "_until")

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], now: Callable[[], float] = perf_counter
    ) -> None:
        self._call_soon = call_soon
        self._now = now
        self._open = False
        self._until = 0.0

    def begin(self) -> float:
        """A connection begins its turn: until when it may last, for `is_over`."""
        now = self._now()
        if not self._open:
            self._open = True
            self._until = now + ROUND_S
            self._call_soon(self._end)
        return min(now + TURN_S, self._until)

    def is_over(self, until: float) -> bool:
        return self._now() > until

    def _end(self) -> None:
        self._open = False
