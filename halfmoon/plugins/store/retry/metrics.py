"""Metrics of retry and dead letters."""

from __future__ import annotations

from typing import Protocol

from halfmoon.plugin import Family, PutNumber


class Counters(Protocol):
    retried: int
    dead_lettered: int


FAMILIES = (
    Family("halfmoon_retries_total", "counter", "Records that groups negatively acknowledged, to get them again."),
    Family("halfmoon_dead_letters_total", "counter", "Records that groups negatively acknowledged for the last time."),
)


def read(counters: Counters, put: PutNumber) -> None:
    put("halfmoon_retries_total", counters.retried)
    put("halfmoon_dead_letters_total", counters.dead_lettered)
