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
from collections.abc import Iterator, Sequence

import msgspec

from halfmoon.core import clean_files
from halfmoon.core.records.batch_header import CONTROL, TRANSACTIONAL, parse_header
from halfmoon.core.storage import index
from halfmoon.core.storage.files import ASIDE, Buffer, FileSystem
from halfmoon.core.storage.index import Key, Run
from halfmoon.errors import BrokerError
from halfmoon.schema import control
from halfmoon.services.cleaner.compaction import filter_marker, filter_records, sources_left
from halfmoon.services.cleaner.deciding import Decided
from halfmoon.services.cleaner.reading import LetIn, Pace, Piece, Row, RowList, SourceGoneError, Sources
from halfmoon.services.cleaner.tasks import Counts, Output, Task, Work
from halfmoon.services.cleaner.writing import Writer, discard

MOST_ROWS = 2_000_000
"""Batches of one file: 100 MB while it is being written."""


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
                raise OSError(errno.EIO, f"{path} is damaged ({error}); the next start rebuilds it") from None

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
            decided = Decided(self._sources, work, rows, self._task.key_bytes, self._counts)
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
        self, work: Work, row: Row, piece: Piece, decided: Decided, unmarked: set[int]
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
