"""Where a partition's batches stand in the log: columns in memory for the tail, immutable files for the rest (B03).

A *column set* has one row per batch, in the order of offsets:

    base       first offset of the batch
    position   log position of the batch's first byte
    total      bytes of the partition's batches up to and including this one (a prefix sum: a fetch is two bisects).
               It goes on from run to run, so that runs are joined by copying; where it began does not matter
    max_ms     the batch's largest record timestamp
    running_ms the largest timestamp so far in this run: sorted, where `max_ms` need not be
    span       offsets the batch takes

A *run* is a slice [low, high) of a column set that belongs to one partition, with the total *before* its first row.

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
       48        directory: per run topic number i32, partition i32, low u64, high u64, total before it u64;
                 sorted by topic, partition
      ...     4  CRC-32C of all before this
      ...        padding to 8 bytes, then the columns: base, position, total, max_ms, running_ms (i64), span (i32)
      ...        of a clean file only: padding to 8 bytes, then the largest store time so far in the run (i64)

The directory's checksum is tested whenever a file is opened, the columns' by `halfmoon log verify` only: the file
was synced before it got its name. A file that does not check is thrown away and built again from the log.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from halfmoon.core.crc import crc32c
from halfmoon.core.gil import let_others_run
from halfmoon.core.storage.files import ASIDE, IOV_MAX, File, FileSystem, Mapping, replace_file, write_all
from halfmoon.schema.snapshot import CLEAN_BASE

FOLDER: Final = "index"
_HEADER: Final = struct.Struct("<4sIQQQQII")
_RUN: Final = struct.Struct("<iiQQQ")
_CRC: Final = struct.Struct("<I")
_MAGIC: Final = b"HMix"
_VERSION = 1
_LONG_COLUMNS: Final[tuple[str, ...]] = ("base", "position", "total", "max_ms", "running_ms")
_ROW_BYTES: Final = 8 * len(_LONG_COLUMNS) + 4
_CHUNK_ROWS = 8192
LEAST_MS: Final = -(1 << 63)
"""No timestamp is less."""
_WRITE_BYTES = 1 << 20


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
    """The columns of one partition's tail. `before`: the total before the first row."""

    __slots__ = ("before", "last_running_ms", "last_total")
    base: array[int]
    position: array[int]
    total: array[int]
    max_ms: array[int]
    running_ms: array[int]
    span: array[int]

    def __init__(self, before: int = 0) -> None:
        super().__init__(array("q"), array("q"), array("q"), array("q"), array("q"), array("i"))
        self.before = self.last_total = before
        self.last_running_ms = LEAST_MS

    def add(self, base: int, position: int, length: int, max_ms: int, span: int) -> None:
        self.last_total += length
        if max_ms > self.last_running_ms:
            self.last_running_ms = max_ms
        self.total.append(self.last_total)
        self.running_ms.append(self.last_running_ms)
        self.base.append(base)
        self.position.append(position)
        self.max_ms.append(max_ms)
        self.span.append(span)


class Run:
    """Rows [low, high) of a column set: some consecutive batches of one partition."""

    __slots__ = ("columns", "file", "high", "low", "total_before")

    def __init__(self, columns: Columns, low: int, high: int, total_before: int, file: IndexFile | None = None) -> None:
        assert low < high
        self.columns = columns
        self.low = low
        self.high = high
        self.total_before = total_before
        self.file = file

    @property
    def first_offset(self) -> int:
        return self.columns.base[self.low]

    @property
    def end_offset(self) -> int:
        return self.columns.base[self.high - 1] + self.columns.span[self.high - 1]

    @property
    def total_after(self) -> int:
        return self.columns.total[self.high - 1]

    @property
    def bytes(self) -> int:
        return self.total_after - self.total_before

    @property
    def max_ms(self) -> int:
        columns = self.columns
        most = columns.running_ms[self.high - 1]
        if self.low and columns.running_ms[self.low - 1] == most:  # it may be of a row that was cut off
            return max(columns.max_ms[self.low : self.high])
        return most

    @property
    def in_clean_file(self) -> bool:
        return self.file is not None and self.file.start >= CLEAN_BASE

    @property
    def newest_store_ms(self) -> int:
        """When its newest batch was stored, Unix ms, or a little later; its file must be there."""
        assert self.file is not None
        return self.file.newest_store_ms if self.file.stored_ms is None else self.file.stored_ms[self.high - 1]

    def stored_before(self, store_ms: int) -> int:
        """First row that may have been stored at `store_ms` or later; of a file that does not know it, all or none."""
        assert self.file is not None
        if self.file.stored_ms is None:
            return self.high if self.file.newest_store_ms < store_ms else self.low
        return bisect_left(self.file.stored_ms, store_ms, self.low, self.high)

    def behind(self, offset: int) -> Run | None:
        """What is left of it behind `offset`, which is in no batch's middle."""
        return self.between(offset, self.end_offset)

    def between(self, low_offset: int, high_offset: int) -> Run | None:
        """Its batches of the offsets [low, high)."""
        low, high = self.row_for(low_offset), self.row_for(high_offset)
        if low == self.low and high == self.high:
            return self
        return Run(self.columns, low, high, self.before(low), self.file) if low < high else None

    def row_for(self, offset: int) -> int:
        """First row whose batch ends above `offset`; `high` if none does."""
        columns = self.columns
        row = bisect_right(columns.base, offset, self.low, self.high) - 1
        if row < self.low:
            return self.low
        return row + 1 if columns.base[row] + columns.span[row] <= offset else row

    def before(self, row: int) -> int:
        """The total before `row`."""
        return self.columns.total[row - 1] if row > self.low else self.total_before

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

    __slots__ = ("_mapping", "columns", "columns_crc", "end", "newest_store_ms", "path", "runs", "start", "stored_ms")

    def __init__(self, path: str, mapping: Mapping) -> None:
        """Raises ValueError where the file is damaged or of another version."""
        self.path = path
        self._mapping = mapping
        view = mapping.view
        if len(view) < _HEADER.size:
            raise ValueError("shorter than its header")
        fields = _HEADER.unpack_from(view)
        magic, version, self.start, self.end, self.newest_store_ms, rows, runs, self.columns_crc = fields
        if magic != _MAGIC or version != _VERSION:
            raise ValueError(f"not an index file of version {_VERSION}")
        at = _HEADER.size + runs * _RUN.size
        if at + _CRC.size > len(view) or crc32c(view[:at]) != _CRC.unpack_from(view, at)[0]:
            raise ValueError("directory checksum")
        at = _aligned(at + _CRC.size)
        if at + rows * _ROW_BYTES > len(view):
            raise ValueError("shorter than its columns")
        base, position, total, max_ms, running_ms = (
            view[at + 8 * rows * nth : at + 8 * rows * (nth + 1)].cast("q") for nth in range(len(_LONG_COLUMNS))
        )
        at += 8 * rows * len(_LONG_COLUMNS)
        self.columns = Columns(base, position, total, max_ms, running_ms, view[at : at + 4 * rows].cast("i"))
        at = _aligned(at + 4 * rows)
        self.stored_ms: Sequence[int] | None = None
        """Of a clean file: when the newest batch of a run up to this row was stored, Unix ms."""
        if self.start >= CLEAN_BASE:
            if at + 8 * rows > len(view):
                raise ValueError("shorter than its columns")
            self.stored_ms = view[at : at + 8 * rows].cast("q")
        directory = view[_HEADER.size : _HEADER.size + runs * _RUN.size]
        self.runs = {
            Key(topic, partition): Run(self.columns, low, high, before, self)
            for topic, partition, low, high, before in _RUN.iter_unpack(directory)
        }

    def columns_intact(self) -> bool:
        columns = self.columns
        crc = 0
        for name in (*_LONG_COLUMNS, "span"):
            crc = crc32c(memoryview(getattr(columns, name)).cast("B"), crc)
        if self.stored_ms is not None:
            crc = crc32c(memoryview(self.stored_ms).cast("B"), crc)  # type: ignore[arg-type]
        return bool(crc == self.columns_crc)

    def close(self) -> None:
        """Forget the mapping; the memory goes when the last run is gone."""
        self.runs = {}


def _aligned(size: int) -> int:
    return -(-size // 8) * 8


def file_path(start: int, end: int) -> str:
    return f"{FOLDER}/{start:020d}-{end:020d}"


def write(
    fs: FileSystem,
    start: int,
    end: int,
    newest_store_ms: int,
    runs: Iterable[tuple[Key, Sequence[Run]]],
    *,
    path: str | None = None,
    stored_ms: Iterable[array[int]] = (),
) -> IndexFile:
    """Write the index of log positions [start, end) and open it. `path` and `stored_ms`, by run, of a clean file.

    `runs` is sorted by key; several runs of one partition, which follow one another, become one. Takes little memory,
    however many rows; slow (syncs), meant for a thread. Raises OSError.
    """
    directory = bytearray()
    joined = []
    rows = 0
    for key, pieces in runs:
        low = rows
        rows += sum(run.high - run.low for run in pieces)
        directory += _RUN.pack(*key, low, rows, pieces[0].total_before)
        joined.append(pieces)
    path = path or file_path(start, end)

    def fill(file: File) -> None:
        at = columns_at = _aligned(_HEADER.size + len(directory) + _CRC.size)
        crc = 0
        columns = (*_LONG_COLUMNS, "span")
        for chunks in _batched(chunk for name in columns for pieces in joined for chunk in _column(name, pieces)):
            for chunk in chunks:
                crc = crc32c(chunk, crc)
            at = write_all(file, chunks, at)
        assert at == columns_at + rows * _ROW_BYTES
        if at % 8 and start >= CLEAN_BASE:
            at = write_all(file, [bytes(_aligned(at) - at)], at)
        for times in stored_ms:
            crc = crc32c(_bytes_of(times), crc)
            at = write_all(file, [_bytes_of(times)], at)
        head = _HEADER.pack(_MAGIC, _VERSION, start, end, newest_store_ms, rows, len(joined), crc) + directory
        head += _CRC.pack(crc32c(head))
        write_all(file, [head.ljust(columns_at, b"\0")], 0)

    replace_file(fs, path, fill)
    return open_file(fs, path)


def _batched(chunks: Iterable[memoryview]) -> Iterator[list[memoryview]]:
    """Chunks in lists worth a write each."""
    batch: list[memoryview] = []
    size = 0
    for chunk in chunks:
        batch.append(chunk)
        size += len(chunk)
        if size >= _WRITE_BYTES or len(batch) == IOV_MAX:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _column(name: str, pieces: Sequence[Run]) -> Iterator[memoryview]:
    """The bytes of one column of a partition's runs, as one run's. Nearly all are copied as they are."""
    total = pieces[0].total_before
    newest: int | None = None
    for run in pieces:
        low, high = run.low, run.high
        if name == "total":
            shift = total - run.total_before
            total += run.bytes
            if shift:  # runs of before and after a loss
                for at in range(low, high, _CHUNK_ROWS):
                    let_others_run()
                    chunk = run.columns.total[at : min(at + _CHUNK_ROWS, high)]
                    yield _bytes_of(array("q", [each + shift for each in chunk]))
                continue
        elif name == "running_ms":
            if newest is not None and newest > run.columns.running_ms[low]:
                # It grows within the run; up to where it passes what went before, that counts.
                passed = bisect_left(run.columns.running_ms, newest, low, high)
                for at in range(low, passed, _CHUNK_ROWS):
                    let_others_run()
                    yield _bytes_of(array("q", [newest]) * (min(at + _CHUNK_ROWS, passed) - at))
                low = passed
            newest = run.max_ms if newest is None else max(newest, run.max_ms)
            if low == high:
                continue
        yield memoryview(getattr(run.columns, name))[low:high].cast("B")


def _bytes_of(values: array[int]) -> memoryview:
    return memoryview(values).cast("B")


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


def leftovers(fs: FileSystem) -> Iterator[str]:
    """Paths of index files that were not finished."""
    return (f"{FOLDER}/{name}" for name in fs.listdir(FOLDER) if name.endswith(ASIDE))
