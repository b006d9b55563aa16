"""What the cleaner is told to do, and what comes of it: plain data, which may go to another process and back."""

from __future__ import annotations

import msgspec

from halfmoon.core.transactions.aborted import Aborted
from halfmoon.schema import control


class Work(msgspec.Struct, array_like=True, frozen=True):
    """What of a partition is to be moved: the offsets [from_offset, upto_offset), both at the bounds of batches."""

    number: int
    partition: int
    from_offset: int
    upto_offset: int
    sources: list[tuple[str, int, int]]
    """Where these offsets stand, in their order: (path of the index file that says so, from offset, to offset)."""
    compacted_upto: int
    """As it is now. What is below is held against what is above, but not among itself."""
    compact: bool = False
    delete_retention_ms: int = 0
    aborted: list[Aborted] = []


class Task(msgspec.Struct, array_like=True, frozen=True):
    """`works` are sorted by topic number, partition, offset. `segments`: (start, end, path) of the files they stand in,
    sorted. The first clean file begins at `start`, and none becomes larger than `file_bytes` by more than one batch."""

    works: list[Work]
    segments: list[tuple[int, int, str]]
    start: int
    now_ms: int
    file_bytes: int
    key_bytes: int


class Counts(msgspec.Struct, array_like=True):
    read_bytes: int = 0
    written_bytes: int = 0
    records: int = 0
    """Of the batches that were compacted."""
    kept_records: int = 0
    walks: int = 0


class Output(msgspec.Struct, array_like=True, frozen=True):
    """A file that is written and waits for its name; or no file, where nothing is left of what was moved."""

    record: control.Cleaned
    counts: Counts
    has_indexed: bool = False
    """Whether the key index has anything to find in it."""

    @property
    def has_file(self) -> bool:
        return self.record.start < self.record.end
