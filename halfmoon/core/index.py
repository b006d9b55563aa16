"""Where the batches of a partition stand in the log: columns in memory for the tail, immutable files for the rest (B03).

A *column set* has one row per batch, in the order of offsets:

    base       first offset of the batch
    position   log position of the batch's first byte
    total      bytes of all batches of this run up to and including this one (a prefix sum: a fetch is two bisects)
    max_ms     the batch's largest record timestamp
    running_ms the largest timestamp so far in this run: sorted, where `max_ms` need not be
    span       offsets the batch takes

A *run* is a slice [low, high) of a column set that belongs to one partition.

An index file covers the log positions [start, end), never more than one segment. Little-endian:

     byte  size  field
        0     4  magic "HMix"
        4     4  version (1)
        8     8  start, log position
       16     8  end, log position
       24     8  newest store time in it, Unix ms
       32     8  rows
       40     4  runs
       44     4  CRC-32C of the columns
       48        directory: per run topic number i32, partition i32, low u64, high u64; sorted by topic, partition
      ...     4  CRC-32C of all before this
      ...        padding to 8 bytes, then the columns: base, position, total, max_ms, running_ms (i64), span (i32)

The directory's checksum is tested whenever a file is opened, the columns' by `halfmoon log verify` only: the file was synced
before it got its name. A file that does not check is thrown away and built again from the log.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from halfmoon.core.crc import crc32c
from halfmoon.core.files import FileSystem, Mapping, write_file

FOLDER = "index"
_HEADER = struct.Struct("<4sIQQQQII")
_RUN = struct.Struct("<iiQQ")
_CRC = struct.Struct("<I")
_MAGIC = b"HMix"
_VERSION = 1
_LONG_COLUMNS = ("base", "position", "total", "max_ms", "running_ms")


class Columns:
    """One column set; `array`s in memory or casts of a mapped file."""

    __slots__ = ("base", "max_ms", "position", "running_ms", "span", "total")

    def __init__(
        self,
        base: Sequence[int],
        position: Sequence[int],
        total: Sequence[int],
        max_ms: Sequence[int],
        running_ms: Sequence[int],
        span: Sequence[int],
    ) -> None:
        self.base = base
        self.position = position
        self.total = total
        self.max_ms = max_ms
        self.running_ms = running_ms
        self.span = span


class Growing(Columns):
    """The columns of one partition's tail."""

    __slots__ = ()
    base: array[int]
    position: array[int]
    total: array[int]
    max_ms: array[int]
    running_ms: array[int]
    span: array[int]

    def __init__(self) -> None:
        super().__init__(*(array("q") for _ in _LONG_COLUMNS), array("i"))

    def add(self, base: int, position: int, length: int, max_ms: int, span: int) -> None:
        if self.base:
            self.total.append(self.total[-1] + length)
            last = self.running_ms[-1]
            self.running_ms.append(max_ms if max_ms > last else last)
        else:
            self.total.append(length)
            self.running_ms.append(max_ms)
        self.base.append(base)
        self.position.append(position)
        self.max_ms.append(max_ms)
        self.span.append(span)


class Run:
    """Rows [low, high) of a column set: some consecutive batches of one partition."""

    __slots__ = ("columns", "file", "high", "low")

    def __init__(self, columns: Columns, low: int, high: int, file: IndexFile | None = None) -> None:
        assert low < high
        self.columns = columns
        self.low = low
        self.high = high
        self.file = file

    @property
    def first_offset(self) -> int:
        return self.columns.base[self.low]

    @property
    def end_offset(self) -> int:
        return self.columns.base[self.high - 1] + self.columns.span[self.high - 1]

    @property
    def bytes(self) -> int:
        return self.columns.total[self.high - 1]

    @property
    def max_ms(self) -> int:
        return self.columns.running_ms[self.high - 1]

    def row_for(self, offset: int) -> int:
        """First row whose batch ends above `offset`; `high` if none does."""
        columns = self.columns
        row = bisect_right(columns.base, offset, self.low, self.high) - 1
        if row < self.low:
            return self.low
        return row + 1 if columns.base[row] + columns.span[row] <= offset else row

    def before(self, row: int) -> int:
        """Bytes of the run's batches before `row`."""
        return self.columns.total[row - 1] if row > self.low else 0

    def row_for_time(self, timestamp_ms: int) -> int:
        """First row, from the first on, whose own largest timestamp reaches `timestamp_ms`; `high` if none does."""
        columns = self.columns
        row = bisect_left(columns.running_ms, timestamp_ms, self.low, self.high)
        while row < self.high and columns.max_ms[row] < timestamp_ms:
            row += 1
        return row


class Key(NamedTuple):
    topic_number: int
    partition: int


class IndexFile:
    """An opened, mapped index file."""

    __slots__ = ("_mapping", "columns", "columns_crc", "end", "newest_store_ms", "path", "runs", "start")

    def __init__(self, path: str, mapping: Mapping) -> None:
        """Raises ValueError where the file is damaged or of another version."""
        self.path = path
        self._mapping = mapping
        view = mapping.view
        if len(view) < _HEADER.size:
            raise ValueError("shorter than its header")
        magic, version, self.start, self.end, self.newest_store_ms, rows, runs, self.columns_crc = _HEADER.unpack_from(view)
        if magic != _MAGIC or version != _VERSION:
            raise ValueError(f"not an index file of version {_VERSION}")
        at = _HEADER.size + runs * _RUN.size
        if at + _CRC.size > len(view) or crc32c(view[:at]) != _CRC.unpack_from(view, at)[0]:
            raise ValueError("directory checksum")
        at = _aligned(at + _CRC.size)
        if at + rows * 44 > len(view):
            raise ValueError("shorter than its columns")
        longs = []
        for _ in _LONG_COLUMNS:
            longs.append(view[at : at + 8 * rows].cast("q"))
            at += 8 * rows
        self.columns = Columns(*longs, view[at : at + 4 * rows].cast("i"))
        self.runs = {
            Key(topic, partition): Run(self.columns, low, high, self)
            for topic, partition, low, high in _RUN.iter_unpack(view[_HEADER.size : _HEADER.size + runs * _RUN.size])
        }

    def columns_intact(self) -> bool:
        columns = self.columns
        crc = 0
        for name in (*_LONG_COLUMNS, "span"):
            crc = crc32c(memoryview(getattr(columns, name)).cast("B"), crc)
        return crc == self.columns_crc

    def close(self) -> None:
        """Forget the mapping; the memory goes when the last run is gone."""
        self.runs = {}


def _aligned(size: int) -> int:
    return -(-size // 8) * 8


def file_path(start: int, end: int) -> str:
    return f"{FOLDER}/{start:020d}-{end:020d}"


def write(
    fs: FileSystem, start: int, end: int, newest_store_ms: int, runs: Iterable[tuple[Key, Sequence[Run]]]
) -> IndexFile:
    """Write the index of log positions [start, end) and open it. `runs` is sorted by key; several runs of one partition

    become one. Slow (syncs): meant for a thread. Raises OSError.
    """
    directory = bytearray()
    columns = Growing()
    count = rows = 0
    for key, pieces in runs:
        low = rows
        for run in pieces:
            _extend(columns, low, run)
            rows += run.high - run.low
        directory += _RUN.pack(*key, low, rows)
        count += 1
    body = [memoryview(getattr(columns, name)).cast("B") for name in (*_LONG_COLUMNS, "span")] if rows else []
    crc = 0
    for column in body:
        crc = crc32c(column, crc)
    head = _HEADER.pack(_MAGIC, _VERSION, start, end, newest_store_ms, rows, count, crc) + directory
    head += _CRC.pack(crc32c(head))
    path = file_path(start, end)
    write_file(fs, path, [head.ljust(_aligned(len(head)), b"\0"), *body])
    return open_file(fs, path)


def _extend(columns: Growing, low: int, run: Run) -> None:
    """Append a run's rows. What counts from the run's beginning is carried on where the partition has rows already."""
    source, rows = run.columns, slice(run.low, run.high)
    begun = len(columns.base) > low
    for name in ("base", "position", "max_ms"):
        getattr(columns, name).frombytes(bytes(memoryview(getattr(source, name))[rows]))
    columns.span.frombytes(bytes(memoryview(source.span)[rows]))  # type: ignore[arg-type]
    if begun:
        bytes_before, newest = columns.total[-1], columns.running_ms[-1]
        columns.total.extend(total + bytes_before for total in source.total[rows])
        columns.running_ms.extend(max(newest, ms) for ms in source.running_ms[rows])
    else:
        columns.total.extend(source.total[rows])
        columns.running_ms.extend(source.running_ms[rows])


def open_file(fs: FileSystem, path: str) -> IndexFile:
    """Raises FileNotFoundError, ValueError."""
    file = fs.open(path)
    try:
        if file.size() == 0:
            raise ValueError("empty")
        return IndexFile(path, file.map())
    finally:
        file.close()


def listed(fs: FileSystem) -> Iterator[tuple[int, int, str]]:
    """(start, end, path) of the index files in the folder, sorted by start; leftovers of a crash are left out."""
    for name in fs.listdir(FOLDER):
        start, _, end = name.partition("-")
        if start.isdigit() and end.isdigit():
            yield int(start), int(end), f"{FOLDER}/{name}"
