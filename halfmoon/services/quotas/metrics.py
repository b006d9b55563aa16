"""Metrics of client quotas."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from halfmoon.core.metrics import Family, Put


class Throttling(Protocol):
    """What is read (service.Quotas)."""

    throttled: Counter[str]
    throttled_ms: Counter[str]


FAMILIES = (
    Family("halfmoon_throttled_total", "counter", "Times that a quota throttled a client.", ("quota",)),
    Family("halfmoon_throttle_seconds_total", "counter", "Total throttle time of all clients.", ("quota",)),
)


def read(quotas: Throttling, put: Put) -> None:
    for key, count in quotas.throttled.items():
        put("halfmoon_throttled_total", count, key)
        put("halfmoon_throttle_seconds_total", quotas.throttled_ms[key] / 1000, key)
