"""Time is shared out among connections: how long one may handle its requests before others have their turn, and how
long all of them together in one round of the loop.

A round: the loop asks for events, and all who have sent something are served. One that has sent many requests ahead is
served one turn a round; what is left of its requests comes in the next. Whoever comes when a round has taken long
enough has one request handled, so all go on.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Final

from halfmoon.adapters.tcp.turns import LOOK_S, Turns

TURN_S: Final = 0.004
"""Of one connection; the request that is under way is ended."""
ROUND_S: Final = 0.010
"""Of all connections."""


class RoundTime:
    """Of one loop. `call_soon`: the loop's; what it is given runs when all events of the round are handled."""

    __slots__ = ("_call_soon", "_open", "_turns", "_until", "now")

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        now: Callable[[], float] = perf_counter,
        turns: Turns | None = None,
    ) -> None:
        """`turns`: where long turns are noted; it has the same clock. None: nowhere."""
        self._call_soon = call_soon
        self.now = now
        self._turns = turns or Turns(lambda: 0.0, lambda: 0.0)
        self._open = False
        self._until = 0.0

    def begin(self) -> float:
        """A connection begins its turn: until when it may last, for `is_over`."""
        now = self.now()
        turns = self._turns
        turns.begun_s = now
        if now >= turns.look_s:
            turns.begin(now)
        if not self._open:
            self._open = True
            self._until = now + ROUND_S
            self._call_soon(self._end)
        return min(now + TURN_S, self._until)

    def end(self, doing: str) -> None:
        """The turn that was begun last is over. `doing`: what it was about."""
        turns = self._turns
        if turns.now() - turns.begun_s > LOOK_S:
            turns.took(doing, turns.begun_s)

    def is_over(self, until: float) -> bool:
        return self.now() > until

    def _end(self) -> None:
        self._open = False
