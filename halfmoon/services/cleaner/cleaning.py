"""Writing compacted segments: one task, from the files that are read to the files that are written.

A task names offsets of partitions, where they are stored, and what is to be done with them: copy what lives, or compact
it (compaction.py). It reads sealed files only, by their index files, and writes new ones, so it may run beside the
broker, in a thread or in a process of its own: `run` needs a file system and the task, nothing else. Its files get
their names from the caller (`adopt`); until then they are leftovers.

What is read is checked, or rot would get a new checksum with its new frame. Batches that have been lost are left out
and named in the record. Batches whose records cannot be read (they come from clients, as they are) are copied.

Memory is bounded: by the keys that are remembered (`Task.key_bytes`), and a byte for each record that is compacted,
four for each that stays, 8 for each batch that goes, and 52 for each batch of the file being written.
"""

from __future__ import annotations

import errno
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress

import msgspec

from halfmoon.core import clean_files
from halfmoon.core.record_keys import Keys, read_keys
from halfmoon.core.records.batch_header import CONTROL, TRANSACTIONAL, BatchHeader, parse_header
from halfmoon.core.records.batches import batch_body
from halfmoon.core.storage import index
from halfmoon.core.storage.files import ASIDE, Buffer, FileSystem
from halfmoon.core.storage.index import Key, Run
from halfmoon.core.transactions.aborted import Aborted, AbortedBatches
from halfmoon.errors import BrokerError
from halfmoon.schema import control
from halfmoon.services.cleaner.compaction import DEAD, UNDECIDED, LastOfKey, filter_marker, filter_records, sources_left
from halfmoon.services.cleaner.reading import LetIn, Pace, Piece, Row, RowList, SourceGoneError, Sources, end_offset
from halfmoon.services.cleaner.writing import Writer, discard

BLOCK_ROWS = 4096
"""Batches that are looked up at once by a walk backwards."""
MOST_ROWS = 2_000_000
"""Batches of one file: 100 MB while it is being written."""


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


def run(fs: FileSystem, task: Task, pace: Pace = lambda nbytes: None, let_in: LetIn = lambda: None) -> Iterator[Output]:
    """Do a task. Raises OSError, SourceGoneError. The files of outputs that were given out stay if a later one
    fails."""
    cleaning = _Cleaning(fs, task, pace, let_in)
    try:
        yield from cleaning.run()
    finally:
        cleaning.close()


def adopt(fs: FileSystem, record: control.Cleaned) -> clean_files.CleanFile:
    """Give a written file its name, durably, and open it. Slow. Raises OSError."""
    for path in (clean_files.index_path(record.start), clean_files.data_path(record.start)):
        fs.rename(path + ASIDE, path)
    fs.sync_directory(clean_files.FOLDER)
    segment = clean_files.open_segment(fs, record.start)
    return clean_files.CleanFile(segment, clean_files.open_index(fs, segment))


# -- deciding --------------------------------------------------------------------------------------------------------


class _Decided:
    """What becomes of the records of one partition: the marks of all batches."""

    def __init__(self, sources: Sources, work: Work, rows: Sequence[Row], key_bytes: int, counts: Counts) -> None:
        self._sources = sources
        self._aborted = AbortedBatches(work.aborted)
        self._counts = counts
        self._unreadable: set[int] = set()
        """Base offsets."""
        self._missing: set[int] = set()
        """Base offsets of batches that rot had taken when they were first walked over."""
        self._again = False
        dirty = bisect_right(rows, work.compacted_upto, key=end_offset)
        self._clean, self._dirty = rows[:dirty], rows[dirty:]
        self._dirty_from = work.compacted_upto
        self._marks = bytearray()
        """Of the dirty batches, the newest first, but for those of which nothing is left."""
        self._gone = array("q")
        """Base offsets of the latter, which need not be read again, the newest first."""
        self._clean_marks: bytearray | None = None
        """Of the clean batches, the oldest first; None where `_last` still knows all later keys."""
        self._starts: array[int] | None = array("I")
        """Where the records of dirty batches begin in their bodies that are not dead, in the order of the marks; None
        where some of them were undecided."""
        self._last = LastOfKey(key_bytes)
        self._first_walk()
        self._again = True
        while self._marks and max(self._marks) >= UNDECIDED:
            self._further_walk(key_bytes)
        self._at = len(self._marks)
        self._start_at = len(self._starts or ())
        self._clean_at = 0

    def left(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Without the batches that are gone."""
        gone = self._gone
        at = len(gone) - 1
        for row in rows:
            if at >= 0 and gone[at] == row.base:
                at -= 1
            else:
                yield row

    def starts(self, row: Row, marks: bytearray) -> Sequence[int] | None:
        """Where the records that are not dead begin, if that is known: asked for after the marks."""
        if self._starts is None or row.end_offset <= self._dirty_from:
            return None
        live = len(marks) - marks.count(DEAD)
        self._start_at -= live
        return self._starts[self._start_at : self._start_at + live][::-1]

    def check(self, row: Row, piece: Piece | None) -> None:
        """Marks are told apart by their order only. Raises OSError where the batch was there when they were made, and
        is not now, or the other way round."""
        walked = row.end_offset > self._dirty_from or self._clean_marks is not None
        if walked and (piece is None) != (row.base in self._missing):
            raise OSError(errno.EIO, f"what stands at log position {row.position} reads differently each time")

    def of(self, row: Row, piece: Piece, header: BatchHeader) -> bytearray | None:
        """The marks of a batch. Asked for once each, in the order of offsets. None: it is to be copied."""
        if self._aborted.hold(header):
            return bytearray()
        if row.base in self._unreadable:
            return None
        count = header.record_count
        if row.end_offset > self._dirty_from:
            self._at -= count
            return self._marks[self._at : self._at + count][::-1]
        if self._clean_marks is not None:
            self._clean_at += count
            return self._clean_marks[self._clean_at - count : self._clean_at]
        keys = self._keys(row, piece)
        return None if keys is None else self._last.marks_of_earlier(keys)

    def _first_walk(self) -> None:
        self._counts.walks += 1
        for row, piece in self._backwards(self._dirty):
            keys = self._keys(row, piece)
            if keys is not None:
                marks = self._last.mark(keys)[::-1]
                if not any(marks) and not parse_header(piece.payload).attributes & TRANSACTIONAL:
                    self._gone.append(row.base)
                    self._counts.records += len(marks)
                    continue
                self._marks += marks
                if self._starts is not None:
                    self._starts.extend(compress(reversed(keys.starts), marks))
                if self._last.is_full:
                    self._starts = None
        if self._last.is_full:
            self._clean_marks = bytearray()
            for row, piece in self._forwards(self._clean):
                keys = self._keys(row, piece)
                if keys is not None:
                    self._clean_marks += self._last.marks_of_earlier(keys)
            self._last = LastOfKey(0)

    def _further_walk(self, key_bytes: int) -> None:
        self._counts.walks += 1
        last = LastOfKey(key_bytes)
        at = gone = 0
        for row, piece in self._backwards(self._dirty):
            if gone < len(self._gone) and self._gone[gone] == row.base:
                gone += 1
                continue
            keys = self._keys(row, piece)
            if keys is not None:
                marks = self._marks[at : at + len(keys.keys)][::-1]
                last.mark_again(keys, marks)
                self._marks[at : at + len(keys.keys)] = marks[::-1]
                at += len(keys.keys)
        at = 0
        assert self._clean_marks is not None
        for row, piece in self._forwards(self._clean):
            keys = self._keys(row, piece)
            if keys is not None:
                for mark in last.marks_of_earlier(keys):
                    if not mark:
                        self._clean_marks[at] = mark
                    at += 1

    def _backwards(self, rows: Sequence[Row]) -> Iterator[tuple[Row, Piece]]:
        blocks = (rows[max(0, high - BLOCK_ROWS) : high] for high in range(len(rows), 0, -BLOCK_ROWS))
        stretches = (stretch for block in blocks for stretch in reversed(list(self._sources.stretches(block))))
        return self._whole(self._sources.read(stretches, backwards=True))

    def _forwards(self, rows: Sequence[Row]) -> Iterator[tuple[Row, Piece]]:
        return self._whole(self._sources.read(self._sources.stretches(rows)))

    def _whole(self, found: Iterator[tuple[Row, Piece | None]]) -> Iterator[tuple[Row, Piece]]:
        for row, piece in found:
            if self._again:
                self.check(row, piece)
            elif piece is None:
                self._missing.add(row.base)
            if piece is not None:
                yield row, piece

    def _keys(self, row: Row, piece: Piece) -> Keys | None:
        """None of a batch that is no matter of keys."""
        header = parse_header(piece.payload)
        if header.attributes & CONTROL or self._aborted.hold(header):
            return None
        try:
            return read_keys(bytes(batch_body(piece.payload)), header.record_count)
        except BrokerError:
            self._unreadable.add(row.base)
            return None


# -- doing it ----------------------------------------------------------------------------------------------------------


class _Cleaning:
    def __init__(self, fs: FileSystem, task: Task, pace: Pace, let_in: LetIn) -> None:
        self._fs = fs
        self._task = task
        self._pace = pace
        self._counts = Counts()
        self._sources = Sources(fs, task.segments, pace, let_in)
        self._indexes: dict[str, index.IndexFile] = {}
        self._next_start = task.start
        self._writer: Writer | None = None
        self._moved: list[control.Moved] = []
        self._lost: list[tuple[int, int, int, int]] = []

    def close(self) -> None:
        self._sources.close()
        if self._writer is not None:
            self._writer.close()
            discard(self._fs, self._writer.start)

    def run(self) -> Iterator[Output]:
        self._open_indexes()
        for work in self._task.works:
            yield from self._do(work)
        if self._moved:
            yield self._finish()

    def _open_indexes(self) -> None:
        """All at once: later they may have expired. Raises SourceGoneError, OSError."""
        for path in {path for work in self._task.works for path, _, _ in work.sources}:
            try:
                self._indexes[path] = index.open_file(self._fs, path)
            except FileNotFoundError as error:
                raise SourceGoneError(f"{path}: {error}") from None
            except ValueError as error:
                raise OSError(errno.EIO, f"{path} is damaged ({error}); it is made again at the next start") from None

    def _rows(self, work: Work) -> Sequence[Row]:
        """Where the work's offsets stand."""
        found: list[Run] = []
        for path, low, high in work.sources:
            run = self._indexes[path].runs.get(Key(work.number, work.partition))
            run = None if run is None else run.between(low, high)
            if run is not None:
                found.append(run)
        return RowList(found)

    def _do(self, work: Work) -> Iterator[Output]:
        rows = self._rows(work)
        decided = None
        if work.compact:
            decided = _Decided(self._sources, work, rows, self._task.key_bytes, self._counts)
        unmarked: set[int] = set()
        """Producers of whose transactions records were met, and no marker yet."""
        begun = work.from_offset
        stretches = self._sources.stretches(rows if decided is None else decided.left(rows))
        for row, piece in self._sources.read(stretches):
            if decided is not None:
                decided.check(row, piece)
            if piece is None:
                self._lost.append((work.number, work.partition, row.base, row.end_offset))
                continue
            payload: Buffer | None = piece.payload
            if decided is not None:
                payload = self._left_of(work, row, piece, decided, unmarked)
            if payload is None:
                continue
            if self._is_full(len(payload)):
                if row.base > begun:
                    self._note(work, begun, row.base)
                    begun = row.base
                yield self._finish()
            self._add(row, piece, payload)
        self._note(work, begun, work.upto_offset)

    def _left_of(
        self, work: Work, row: Row, piece: Piece, decided: _Decided, unmarked: set[int]
    ) -> bytes | memoryview | None:
        batch = piece.payload
        header = parse_header(batch)
        now_ms, retention_ms = self._task.now_ms, work.delete_retention_ms
        if header.attributes & CONTROL:
            needed = header.producer_id in unmarked
            unmarked.discard(header.producer_id)
            return filter_marker(batch, header, now_ms, retention_ms, needed=needed)
        if header.attributes & TRANSACTIONAL:
            unmarked.add(header.producer_id)
        marks = decided.of(row, piece, header)
        if marks is None:
            return batch
        starts = decided.starts(row, marks)
        try:
            left = filter_records(batch, header, marks, now_ms, retention_ms, starts)
        except BrokerError:
            return batch
        self._counts.records += header.record_count
        if left is not None:
            self._counts.kept_records += parse_header(left).record_count
        return left

    def _is_full(self, more: int) -> bool:
        writer = self._writer
        if writer is None or not writer.rows.count:
            return False
        return writer.size + more > self._task.file_bytes or writer.rows.count >= MOST_ROWS

    def _add(self, row: Row, piece: Piece, payload: Buffer) -> None:
        if self._writer is None:
            self._writer = Writer(self._fs, self._next_start, self._pace)
        if payload is piece.payload:
            self._writer.add(piece, payload, row.max_ms, piece.frame.record_count)
        else:
            header = parse_header(payload)
            if piece.provenance:
                piece = piece._replace(provenance=sources_left(piece.provenance, piece.payload, payload))
            self._writer.add(piece, payload, header.max_timestamp, header.record_count)

    def _note(self, work: Work, low: int, high: int) -> None:
        compacted_upto = max(work.compacted_upto, high) if work.compact else work.compacted_upto
        self._moved.append(control.Moved(work.number, work.partition, low, high, compacted_upto))

    def _finish(self) -> Output:
        moved, self._moved = self._moved, []
        lost, self._lost = self._lost, []
        writer = self._writer
        if writer is None:
            return Output(control.Cleaned(self._next_start, self._next_start, moved, lost), self._take_counts())
        record = writer.finish(moved, lost, self._task.now_ms)
        has_indexed = writer.has_indexed
        self._writer = None
        self._counts.written_bytes += record.end - record.start
        self._next_start = record.end
        return Output(record, self._take_counts(), has_indexed)

    def _take_counts(self) -> Counts:
        """What was counted since the last output."""
        self._counts.read_bytes, self._sources.read_bytes = self._sources.read_bytes, 0
        taken = msgspec.structs.replace(self._counts)
        for name in Counts.__struct_fields__:
            setattr(self._counts, name, 0)
        return taken
