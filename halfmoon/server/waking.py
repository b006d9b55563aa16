"""Held requests that one arrival, or one moment, wakes together are read and answered in several turns of the loop."""

from __future__ import annotations

from halfmoon.adapters.tcp.turns import LOOK_S, TICK, Turns
from halfmoon.core.hold import HoldService

WAKING_S = 0.005
"""When a turn has lasted so long, no more are woken in it."""


def wake_in_turns(hold: HoldService, turns: Turns) -> None:
    """Where the loop says when its turns begin; else all are woken at once."""
    soon = turns.quick_soon
    if soon is None:
        return

    def is_long() -> bool:
        return turns.now() - turns.begun_s > WAKING_S

    def wake() -> None:
        begun_s = turns.now()
        turns.begin(begun_s)
        hold.wake_late()
        if turns.now() - begun_s > LOOK_S:
            turns.took(TICK, begun_s)

    def on_late() -> None:
        soon(wake)

    hold.is_long, hold.on_late = is_long, on_late
