"""Metrics of share groups."""

from __future__ import annotations

from collections.abc import Sized
from typing import Protocol

from halfmoon.core.metrics import Family, Put


class DeadLetters(Protocol):
    written: int
    unwritten: int


class Shares(Protocol):
    """What is read (service.ShareService)."""

    @property
    def sessions(self) -> Sized: ...
    @property
    def dead_letters(self) -> DeadLetters: ...


FAMILIES = (
    Family("halfmoon_share_sessions", "gauge", "Open share sessions: one for each member that fetches."),
    Family(
        "halfmoon_share_dead_letters_total",
        "counter",
        "Dead letters of share groups, by outcome.",
        ("outcome",),
    ),
)


def read(shares: Shares, put: Put) -> None:
    put("halfmoon_share_sessions", len(shares.sessions))
    put("halfmoon_share_dead_letters_total", shares.dead_letters.written, "written")
    put("halfmoon_share_dead_letters_total", shares.dead_letters.unwritten, "unwritten")
