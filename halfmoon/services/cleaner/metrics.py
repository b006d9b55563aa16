"""Metrics of the cleaner."""

from __future__ import annotations

from typing import Protocol

from halfmoon.core.metrics import Family, Put


class Counts(Protocol):
    read_bytes: int
    written_bytes: int
    records: int
    kept_records: int


class Cleaner(Protocol):
    tasks: int
    failures: int

    @property
    def counts(self) -> Counts: ...


FAMILIES = (
    Family("halfmoon_cleaner_tasks_total", "counter", "Tasks of the cleaner."),
    Family("halfmoon_cleaner_failures_total", "counter", "Tasks of the cleaner that failed."),
    Family("halfmoon_cleaner_read_bytes_total", "counter", "Bytes that the cleaner has read."),
    Family("halfmoon_cleaner_written_bytes_total", "counter", "Bytes that the cleaner has written."),
    Family("halfmoon_cleaner_records_total", "counter", "Records of compacted topics that the cleaner has processed."),
    Family("halfmoon_cleaner_kept_records_total", "counter", "Records of those that the cleaner has kept."),
)


def read(cleaner: Cleaner, put: Put) -> None:
    put("halfmoon_cleaner_tasks_total", cleaner.tasks)
    put("halfmoon_cleaner_failures_total", cleaner.failures)
    put("halfmoon_cleaner_read_bytes_total", cleaner.counts.read_bytes)
    put("halfmoon_cleaner_written_bytes_total", cleaner.counts.written_bytes)
    put("halfmoon_cleaner_records_total", cleaner.counts.records)
    put("halfmoon_cleaner_kept_records_total", cleaner.counts.kept_records)
