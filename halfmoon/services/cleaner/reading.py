"""Reading batches for the cleaner, by the rows of index files, with their frames: whole ones only."""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, overload

from halfmoon.core.storage import frame
from halfmoon.core.storage.files import File, FileSystem
from halfmoon.core.storage.frame import BEFORE_BYTES, HEADER_BYTES, MAGIC, BadFrameError, Frame, check_payload
from halfmoon.core.storage.index import Run
from halfmoon.schema.provenance import MAX_PROVENANCE_BYTES

STRETCH_BYTES = 1 << 20
"""So much is read at once."""
GAP_BYTES = 64 << 10
"""Two batches no further apart than this are read in one go."""


class SourceGoneError(Exception):
    """A file that was to be read has expired meanwhile: plan again."""


class Row(NamedTuple):
    base: int
    span: int
    position: int
    length: int
    max_ms: int

    @property
    def end_offset(self) -> int:
        return self.base + self.span


def end_offset(row: Row) -> int:
    return row.end_offset


class Piece(NamedTuple):
    """A batch as it was found: its frame and provenance list are whole."""

    frame: Frame
    provenance: bytes
    payload: memoryview


Pace = Callable[[int], None]
"""Called with bytes that were read or written; it may take its time."""
LetIn = Callable[[], object]
"""Called after each batch: whoever waits for the processor may have it."""


class RowList(Sequence[Row]):
    """The rows of some runs, one after the other, made as they are asked for."""

    def __init__(self, runs: Iterable[Run], low: int = 0, high: int | None = None) -> None:
        self._runs = list(runs)
        self._ends: list[int] = []
        count = 0
        for run in self._runs:
            count += run.high - run.low
            self._ends.append(count)
        self._low, self._high = low, count if high is None else high

    def __len__(self) -> int:
        return self._high - self._low

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Row]: ...
    def __getitem__(self, at: int | slice) -> Row | Sequence[Row]:
        if isinstance(at, slice):
            low, high, step = at.indices(len(self))
            assert step == 1
            return RowList(self._runs, self._low + low, self._low + max(low, high))
        if not 0 <= at < len(self):
            raise IndexError(at)
        return self._row(self._low + at)

    def __iter__(self) -> Iterator[Row]:
        left, before = len(self), self._low
        for run, end in zip(self._runs, self._ends, strict=True):
            count = run.high - run.low
            skipped = max(0, min(count, before - (end - count)))
            columns = run.columns
            for row in range(run.low + skipped, min(run.high, run.low + skipped + left)):
                length = columns.total[row] - run.before(row)
                yield Row(columns.base[row], columns.span[row], columns.position[row], length, columns.max_ms[row])
                left -= 1

    def _row(self, at: int) -> Row:
        nth = bisect_right(self._ends, at)
        run = self._runs[nth]
        row = run.high - (self._ends[nth] - at)
        columns = run.columns
        return Row(
            columns.base[row], columns.span[row], columns.position[row],
            columns.total[row] - run.before(row), columns.max_ms[row],
        )  # fmt: skip


class Sources:
    """Reads batches by their rows."""

    def __init__(self, fs: FileSystem, segments: Sequence[tuple[int, int, str]], pace: Pace, let_in: LetIn) -> None:
        self._fs = fs
        self._segments = segments
        self._starts = [start for start, _, _ in segments]
        self._files: dict[int, File] = {}
        self.read_bytes = 0
        self._pace = pace
        self._let_in = let_in

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _file(self, at: int) -> File:
        file = self._files.get(at)
        if file is None:
            try:
                file = self._files[at] = self._fs.open(self._segments[at][2])
            except FileNotFoundError as error:
                raise SourceGoneError(str(error)) from None
        return file

    def stretches(self, rows: Iterable[Row]) -> Iterator[list[Row]]:
        """Rows that stand close together."""
        found: list[Row] = []
        low = high = segment_end = 0
        for row in rows:
            _, _, position, length, _ = row
            end = position + length
            near = high <= position <= high + GAP_BYTES and position < segment_end
            if not found or not near or end - low > STRETCH_BYTES:
                if found:
                    yield found
                found, low, segment_end = [], position, self._segment_end(position)
            found.append(row)
            high = end
        if found:
            yield found

    def _segment_end(self, position: int) -> int:
        return self._segments[bisect_right(self._starts, position) - 1][1]

    def read(self, stretches: Iterable[list[Row]], *, backwards: bool = False) -> Iterator[tuple[Row, Piece | None]]:
        """The batches of one stretch after the other, with their rows; None where rot has taken one. The next stretch
        is on its way from the disk meanwhile. Raises OSError."""
        before: tuple[list[Row], bool] | None = None
        for stretch in chain(stretches, (None,)):
            coming = None if stretch is None else (stretch, self._expect(stretch))
            if before is not None:
                rows, cold = before
                found = list(zip(rows, self._read(rows, cold=cold), strict=True))
                for each in reversed(found) if backwards else found:
                    yield each
                    self._let_in()
            before = coming

    def _place(self, rows: Sequence[Row]) -> tuple[File, int, int, int]:
        """The file in which a stretch stands, and where that begins; from which log position on so many bytes of it are
        read."""
        at = bisect_right(self._starts, rows[0].position) - 1
        start = self._segments[at][0]
        low = max(start, rows[0].position - BEFORE_BYTES)
        return self._file(at), start, low, rows[-1].position + rows[-1].length - low

    def _expect(self, rows: Sequence[Row]) -> bool:
        file, start, low, length = self._place(rows)
        return file.expect(length, low - start)

    def _read(self, rows: Sequence[Row], *, cold: bool) -> list[Piece | None]:
        file, start, low, length = self._place(rows)
        view = memoryview(bytearray(length))
        if not file.pread_cached_into(view, low - start):
            cold = True
            view = memoryview(file.pread(length, low - start))
        self.read_bytes += length
        self._pace(length)
        found = [_piece(view, low, row) or self._long_piece(file, start, row) for row in rows]
        if cold:
            file.forget(length, low - start)
        return found

    def _long_piece(self, file: File, start: int, row: Row) -> Piece | None:
        """As `_piece`, where the provenance list may be longer than what was read of it."""
        low = max(start, row.position - HEADER_BYTES - MAX_PROVENANCE_BYTES)
        data = file.pread(row.position + row.length - low, low - start)
        return _piece(memoryview(data), low, row)


def _piece(view: memoryview, base: int, row: Row) -> Piece | None:
    """The batch whose payload stands at `row.position`, in bytes of which the first stands at `base`; None where there
    is no whole one."""
    at = row.position - HEADER_BYTES
    upto = row.position + row.length - base
    before: bytes | None = None
    while at >= base:
        with contextlib.suppress(BadFrameError):
            found = frame.decode(view[:upto], at, base)
            if found.payload_position == row.position and found.payload_length == row.length:
                payload = view[row.position - base : upto]
                check_payload(found, payload)
                proof = view[at + HEADER_BYTES - base : row.position - base]
                return Piece(found, bytes(proof), payload)
        if before is None:
            before = bytes(view[: row.position - base])
        at = base + before.rfind(MAGIC, 0, at - base + len(MAGIC) - 1)
    return None
