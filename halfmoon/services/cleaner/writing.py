"""Writing one compacted segment (core/clean_files.py) under a name that is not its own yet, and its index beside it."""

from __future__ import annotations

import contextlib

from halfmoon.core import clean_files
from halfmoon.core.storage import frame
from halfmoon.core.storage.files import ASIDE, Buffer, FileSystem, write_all
from halfmoon.core.storage.frame import HEADER_BYTES, INDEXED, Kind
from halfmoon.core.storage.index import Key
from halfmoon.schema import control
from halfmoon.services.cleaner.reading import STRETCH_BYTES, Pace, Piece

SYNC_BYTES = 32 << 20
"""After so much a file is synced, so that the fdatasyncs of the log do not wait behind all of it."""


def discard(fs: FileSystem, start: int) -> None:
    """Remove what an output would have become."""
    for path in (clean_files.index_path(start) + ASIDE, clean_files.data_path(start) + ASIDE):
        with contextlib.suppress(FileNotFoundError):
            fs.remove(path)


class Writer:
    """One compacted segment that is being written."""

    def __init__(self, fs: FileSystem, start: int, pace: Pace) -> None:
        self._fs = fs
        self.start = start
        self._pace = pace
        discard(fs, start)
        self._file = fs.open(clean_files.data_path(start) + ASIDE, create=True)
        self._buffers: list[Buffer] = []
        self._written = self._synced = 0
        self.size = 0
        self.has_indexed = False
        """Whether the key index looks into one of its frames."""
        self.rows = clean_files.Rows()
        self._control(control.Cleaned(start, start, []), 0)

    def add(self, piece: Piece, payload: Buffer, max_ms: int, record_count: int) -> None:
        old = piece.frame
        length = HEADER_BYTES + len(piece.provenance) + len(payload)
        position = self.start + self.size
        header = frame.encode(
            Kind.BATCH, length, position, old.flushed, old.generation, old.topic_number, old.partition, record_count,
            old.base_offset, old.span, old.original_span, old.store_ms, flags=old.flags, due_ms=old.due_ms,
            provenance=piece.provenance,
        )  # fmt: skip
        key = Key(old.topic_number, old.partition)
        self.rows.add(
            key, old.base_offset, old.span, position + length - len(payload), len(payload), max_ms, old.store_ms
        )
        self.has_indexed |= bool(old.flags & INDEXED)
        self._buffers += (header, payload)
        self._grow(length)

    def _control(self, record: control.Cleaned, now_ms: int) -> None:
        payload = control.encode(record)
        length = HEADER_BYTES + len(payload)
        header = frame.encode(
            Kind.CONTROL, length, self.start + self.size, 0, 0, -1, -1, 0, 0, 0, 0, now_ms,
            payload_crc=frame.control_crc(payload),
        )  # fmt: skip
        self._buffers += (header, payload)
        self._grow(length)

    def _grow(self, length: int) -> None:
        self.size += length
        if self.size - self._written >= STRETCH_BYTES:
            self._write()
            if self._written - self._synced >= SYNC_BYTES:
                self._file.sync()
                self._synced = self._written

    def _write(self) -> None:
        write_all(self._file, self._buffers, self._written)
        self._pace(self.size - self._written)
        self._buffers, self._written = [], self.size

    def finish(self, moved: list[control.Moved], lost: list[tuple[int, int, int, int]], now_ms: int) -> control.Cleaned:
        """Raises OSError."""
        self.rows.write(
            self._fs, self.start, self.start + self.size + self._last_length(moved, lost),
            clean_files.index_path(self.start) + ASIDE,
        )  # fmt: skip
        self._control(self._record(moved, lost), now_ms)
        self._write()
        self._file.sync()
        self._file.close()
        return control.Cleaned(self.start, self.start + self.size, moved, lost)

    def _record(self, moved: list[control.Moved], lost: list[tuple[int, int, int, int]]) -> control.Cleaned:
        """As it is to be repeated at the file's end, which is somewhere behind this."""
        return control.Cleaned(self.start, self.start + self.size + self._last_length(moved, lost), moved, lost)

    def _last_length(self, moved: list[control.Moved], lost: list[tuple[int, int, int, int]]) -> int:
        # Numbers of 2⁶² and more take the same room, whatever they are.
        return HEADER_BYTES + len(control.encode(control.Cleaned(self.start, self.start, moved, lost)))

    def close(self) -> None:
        self._file.close()
