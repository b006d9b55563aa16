"""What the cleaner tells in numbers."""

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
    Family("halfmoon_cleaner_tasks_total", "counter", "Times that the cleaner found something to do."),
    Family("halfmoon_cleaner_failures_total", "counter", "Times that it could not be done."),
    Family("halfmoon_cleaner_read_bytes_total", "counter", "Bytes that the cleaner has read."),
    Family("halfmoon_cleaner_written_bytes_total", "counter", "Bytes of clean files that it has written."),
    Family("halfmoon_cleaner_records_total", "counter", "Records that it has looked at, to compact them."),
    Family("halfmoon_cleaner_kept_records_total", "counter", "Records that were left, of those."),
)


def read(cleaner: Cleaner, put: Put) -> None:
    put("halfmoon_cleaner_tasks_total", cleaner.tasks)
    put("halfmoon_cleaner_failures_total", cleaner.failures)
    put("halfmoon_cleaner_read_bytes_total", cleaner.counts.read_bytes)
    put("halfmoon_cleaner_written_bytes_total", cleaner.counts.written_bytes)
    put("halfmoon_cleaner_records_total", cleaner.counts.records)
    put("halfmoon_cleaner_kept_records_total", cleaner.counts.kept_records)
