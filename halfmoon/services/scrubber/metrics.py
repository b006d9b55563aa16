"""Metrics of the scrubber."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from halfmoon.core.metrics import Family, Put


class Scrubber(Protocol):
    read_bytes: int
    passes: int

    @property
    def ended_ms(self) -> int: ...
    @property
    def corrupt(self) -> Sequence[object]: ...


FAMILIES = (
    Family("halfmoon_scrubber_read_bytes_total", "counter", "Bytes of the log that the scrubber has checked."),
    Family("halfmoon_scrubber_passes_total", "counter", "Passes over all of the log that the scrubber has ended."),
    Family("halfmoon_scrubber_last_pass_timestamp_seconds", "gauge", "When the scrubber's last pass ended; 0: never."),
    Family("halfmoon_scrubber_corrupt_stretches", "gauge", "Corrupt stretches of the log that the scrubber has found."),
)


def read(scrubber: Scrubber, put: Put) -> None:
    put("halfmoon_scrubber_read_bytes_total", scrubber.read_bytes)
    put("halfmoon_scrubber_passes_total", scrubber.passes)
    put("halfmoon_scrubber_last_pass_timestamp_seconds", scrubber.ended_ms / 1000)
    put("halfmoon_scrubber_corrupt_stretches", len(scrubber.corrupt))
