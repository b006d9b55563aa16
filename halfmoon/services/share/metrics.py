"""Metrics of share groups."""

from __future__ import annotations

from typing import Protocol

from halfmoon.core.metrics import Family, Put


class DeadLetters(Protocol):
    written: int
    unwritten: int


class Shares(Protocol):
    """What is read (service.ShareService)."""

    @property
    def session_count(self) -> int: ...
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
    put("halfmoon_share_sessions", shares.session_count)
    put("halfmoon_share_dead_letters_total", shares.dead_letters.written, "written")
    put("halfmoon_share_dead_letters_total", shares.dead_letters.unwritten, "unwritten")
