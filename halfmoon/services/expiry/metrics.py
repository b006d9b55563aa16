"""Metrics of expired messages."""

from __future__ import annotations

from collections.abc import Mapping

from halfmoon.core.metrics import Family, Put

FAMILIES = (
    Family(
        "halfmoon_expired_total",
        "counter",
        "Expired messages that were met, by where (delay, pull, retry, share, view) and by outcome.",
        ("where", "outcome"),
    ),
)


def read(counts: Mapping[tuple[str, str], int], put: Put) -> None:
    for (where, outcome), count in sorted(counts.items()):
        put("halfmoon_expired_total", count, where, outcome)
