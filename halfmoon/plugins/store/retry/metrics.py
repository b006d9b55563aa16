"""Metrics of retry and dead letters."""

from __future__ import annotations

from typing import Protocol

from halfmoon.plugin import Family, PutNumber


class Counters(Protocol):
    retried: int
    dead_lettered: int
    not_retryable: int


FAMILIES = (
    Family("halfmoon_retries_total", "counter", "Records that groups negatively acknowledged, to get them again."),
    Family("halfmoon_dead_letters_total", "counter", "Records that groups negatively acknowledged for the last time."),
    Family("halfmoon_not_retryable_total", "counter", "Those of records whose error is not retryable."),
)


def read(counters: Counters, put: PutNumber) -> None:
    put("halfmoon_retries_total", counters.retried)
    put("halfmoon_dead_letters_total", counters.dead_lettered)
    put("halfmoon_not_retryable_total", counters.not_retryable)
