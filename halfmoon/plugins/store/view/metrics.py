"""Metrics of views."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from halfmoon.plugin import Family, PutNumber


class Counters(Protocol):
    looked_at: int
    matched: int
    skipped: int
    malformed: int
    filter_errors: int


class Reading(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def lag(self) -> int: ...
    @property
    def counters(self) -> Counters: ...


FAMILIES = (
    Family("halfmoon_view_lag", "gauge", "Source offsets that a view has not processed.", ("view",)),
    Family(
        "halfmoon_view_inspected_total",
        "counter",
        "Records of the source that a view has processed.",
        ("view",),
        old_name="halfmoon_view_looked_at_total",
    ),
    Family("halfmoon_view_matched_total", "counter", "Records of those that matched.", ("view",)),
    Family("halfmoon_view_skipped_total", "counter", "Source offsets removed before a view processed them.", ("view",)),
    Family("halfmoon_view_malformed_batches_total", "counter", "Batches that a view cannot decode.", ("view",)),
    Family("halfmoon_view_filter_errors_total", "counter", "Records for which the filter raised.", ("view",)),
)


def read(views: Iterable[Reading], put: PutNumber) -> None:
    for view in views:
        name, counters = view.name, view.counters
        put("halfmoon_view_lag", view.lag, name)
        put("halfmoon_view_inspected_total", counters.looked_at, name)
        put("halfmoon_view_matched_total", counters.matched, name)
        put("halfmoon_view_skipped_total", counters.skipped, name)
        put("halfmoon_view_malformed_batches_total", counters.malformed, name)
        put("halfmoon_view_filter_errors_total", counters.filter_errors, name)
