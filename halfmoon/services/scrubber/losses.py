"""Which records a corrupt stretch of the log held: by what is left of its frame, or by the index."""

from __future__ import annotations

from bisect import bisect_left

from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.clean_files import CleanFiles
from halfmoon.core.index_files import IndexFiles
from halfmoon.core.storage.frame import Frame, Kind
from halfmoon.core.storage.index import IndexFile, Key
from halfmoon.core.storage.segment import Segment
from halfmoon.schema.snapshot import CLEAN_BASE
from halfmoon.services.scrubber.checking import Corrupt
from halfmoon.services.scrubber.saved import Lost


class Losses:
    def __init__(self, catalog: Catalog, indexes: IndexFiles, clean_files: CleanFiles) -> None:
        self._catalog = catalog
        self._indexes = indexes
        self._clean_files = clean_files

    def of(self, corrupt: Corrupt, segment: Segment) -> list[Lost]:
        """Those that can be read: what is deleted, expired, or stands in another file since, is not lost."""
        found: dict[Key, tuple[int, int]] = {}
        frame = corrupt.frame
        if frame is not None:
            if frame.kind == Kind.BATCH:
                key = Key(frame.topic_number, frame.partition)
                found[key] = frame.base_offset, frame.base_offset + frame.span
        else:
            for file in self._files(segment):
                if file.start < corrupt.high and corrupt.low < file.end:
                    _add_rows(found, file, corrupt.low, corrupt.high)
        lost: list[Lost] = []
        for key, (low, high) in found.items():
            partition = self._catalog.partition(*key)
            if partition is not None:
                lost += [Lost(*key, *each) for each in _living(partition, low, high, segment.start)]
        return lost

    def _files(self, segment: Segment) -> list[IndexFile]:
        if segment.start < CLEAN_BASE:
            return self._indexes.within(segment)
        file = self._clean_files.get(segment.start)
        return [] if file is None else [file.indexed]


def _add_rows(found: dict[Key, tuple[int, int]], file: IndexFile, low: int, high: int) -> None:
    """The offsets of the batches that stand at the log positions [low, high)."""
    for key, run in file.runs.items():
        position = run.columns.position
        first, last = bisect_left(position, low, run.low, run.high), bisect_left(position, high, run.low, run.high)
        if first < last:
            columns = run.columns
            begin, end = columns.base[first], columns.base[last - 1] + columns.span[last - 1]
            known = found.get(key, (begin, end))
            found[key] = min(begin, known[0]), max(end, known[1])


def _living(partition: Partition, low: int, high: int, start: int) -> list[tuple[int, int]]:
    """What of these offsets is read from the file that begins at `start`."""
    if start < CLEAN_BASE:
        stretches = [(partition.moved_upto, high)]
    else:
        stretches = [(begin, end) for begin, end, of_file in partition.cleaned if of_file == start]
    clipped = [(max(low, begin, partition.start_offset), min(high, end)) for begin, end in stretches]
    return [(begin, end) for begin, end in clipped if begin < end]


def is_indexed(partition: Partition, frame: Frame) -> bool:
    """Whether a batch is found by its offset, there where it stands."""
    for run in partition.queue.runs_from(frame.base_offset):
        row = run.row_for(frame.base_offset)
        if row < run.high:
            return run.columns.position[row] == frame.payload_position
    return False
