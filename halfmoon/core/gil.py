"""For loops in a thread that may take milliseconds. This module is not compiled, and must not be."""

from __future__ import annotations

EVERY = 1_024
"""Records between two calls: a tenth of a millisecond, compiled."""


def let_others_run() -> None:
    """Compiled code keeps the GIL, however long the loop's thread waits for it; Python gives it up on the way into a
    function."""
