"""The clock port: the core never asks the machine what time it is."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Two clocks, because one may be set back and the other means nothing to a reader."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch: store times, retention, commit times."""

    def mono_ms(self) -> int:
        """Milliseconds of a clock that never goes back: deadlines, sessions."""
