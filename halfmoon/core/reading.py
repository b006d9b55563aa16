"""From places in the log to bytes for a socket (B06).

Near the end of the log the bytes are certainly in the page cache, and a slice of the mapped file costs nothing.
Further back a slice might make whoever touches it wait for the disk, and that would be the event loop. There the
kernel is asked whether all of it is in memory; what is not is left to a thread.

What is may be gone by the time it is sent. So once a read had to go to the disk, memory is taken to be short: for a
while, older data that is in memory is copied at once instead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from halfmoon.core.commitlog import CommitLog, Segment
from halfmoon.core.records import newest_record, offset_for_time

Place = tuple[int, int]
"""(log position, length) of a batch."""

NEAR_BYTES = 16 << 10
"""Two batches no further apart than this are read in one go, …"""
STRETCH_BYTES = 1 << 20
"""… as long as that makes no more than this."""

CAREFUL_BYTES = 256 << 20
"""After a read that had to go to the disk, so much of older data is copied."""


class Read(NamedTuple):
    """Whole batches. If `cold` is set, `slices` is empty: call it in a thread, it returns them. `size` in bytes."""

    slices: Sequence[memoryview | bytes]
    size: int
    cold: Callable[[], list[memoryview]] | None


class Stretch(NamedTuple):
    """A part of a segment that holds several wanted batches close together. `guard` keeps the segment's file open."""

    segment: Segment
    start: int
    end: int
    places: list[Place]
    guard: memoryview

    def cut(self, data: bytes | bytearray) -> list[memoryview]:
        view = memoryview(data)
        pieces = [view[position - self.start : position - self.start + length] for position, length in self.places]
        if 2 * sum(len(piece) for piece in pieces) < len(view):
            # Small batches far apart: what lies between them shall not stay in memory while they are being sent.
            return [memoryview(bytes(piece)) for piece in pieces]
        return pieces

    def load(self) -> list[memoryview]:
        """Meant for a thread. Raises OSError."""
        return self.cut(self.segment.file.pread(self.end - self.start, self.start - self.segment.start))

    def in_memory(self) -> bool:
        return self.segment.mapping.in_memory(self.start - self.segment.start, self.end - self.segment.start)

    def load_cached(self) -> list[memoryview] | None:
        data = self.segment.file.pread_cached(self.end - self.start, self.start - self.segment.start)
        return None if data is None else self.cut(data)


class Reader:
    """Reads batches; counts what it had to leave to a thread."""

    def __init__(self, log: CommitLog, hot_bytes: int) -> None:
        self._log = log
        self._hot_bytes = hot_bytes
        self.cold_reads = 0
        self._careful_bytes = 0
        self._one_search = threading.Lock()
        """A batch may be a decompression bomb. It costs its limit's memory once, and not once per thread."""

    def read(self, places: Sequence[Place]) -> Read:
        if not places:
            return Read((), 0, None)
        size = sum(length for _, length in places)
        log = self._log
        if places[0][0] >= log.end - self._hot_bytes:
            return Read(self._views(places), size, None)
        stretches = self._stretches(places)
        if self._careful_bytes > 0:
            self._careful_bytes -= size
        elif all(stretch.in_memory() for stretch in stretches):
            return Read(self._views(places), size, None)
        slices: list[memoryview] = []
        for stretch in stretches:
            cached = stretch.load_cached()
            if cached is None:
                self.cold_reads += 1
                self._careful_bytes = CAREFUL_BYTES
                return Read((), size, lambda: [piece for each in stretches for piece in each.load()])
            slices += cached
        return Read(slices, size, None)

    def _views(self, places: Sequence[Place]) -> list[memoryview]:
        """Slices of the mapped files. Thousands of small batches come in one read, so the segment is looked up once."""
        views = []
        start = end = -1
        for position, length in places:
            if not start <= position < end:
                segment = self._log.segment_at(position)
                start, end, view = segment.start, segment.end, segment.view
            views.append(view[position - start : position - start + length])
        return views

    def _stretches(self, places: Sequence[Place]) -> list[Stretch]:
        found: list[Stretch] = []
        for position, length in places:
            last = found[-1] if found else None
            near = last is not None and position - last.end <= NEAR_BYTES and position < last.segment.end
            if last is not None and near and position + length - last.start <= STRETCH_BYTES:
                last.places.append((position, length))
                found[-1] = last._replace(end=position + length)
            else:
                segment = self._log.segment_at(position)
                found.append(Stretch(segment, position, position + length, [(position, length)], segment.view[:0]))
        return found

    def search_time(
        self, places: Sequence[Place], timestamp_ms: int, start_offset: int
    ) -> Callable[[], tuple[int, int] | None]:
        """A function for a thread that finds the first record to reach `timestamp_ms` in these batches.

        It returns (offset, timestamp), looks at or after `start_offset` only, and raises OSError, and
        BrokerError where a batch is malformed.
        """
        stretches = [self._stretches([place])[0] for place in places]

        def search() -> tuple[int, int] | None:
            with self._one_search:
                for stretch in stretches:
                    found = offset_for_time(stretch.load()[0], timestamp_ms, min_offset=start_offset)
                    if found is not None:
                        return found
            return None

        return search

    def search_newest(self, place: Place, start_offset: int) -> Callable[[], tuple[int, int] | None]:
        """As `search_time`, for the record with the largest timestamp of one batch, at or after `start_offset`."""
        (stretch,) = self._stretches([place])

        def search() -> tuple[int, int] | None:
            with self._one_search:
                return newest_record(stretch.load()[0], min_offset=start_offset)

        return search
