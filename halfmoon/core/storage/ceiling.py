"""How far the log was ever written: a note beside the log, so that a start need not search behind a torn tail for long.

Recycled segments are full of old bytes, and a start cannot tell these from what was written lately without reading
them all: a gigabyte. So the log notes, ahead of what it writes, a position that it will not pass before it has noted
another.
The note is written before the first byte behind the old one, and synced before *flushed* passes the old one:

    written ≤ ceiling as the page cache has it          after kill −9 nothing stands behind the note
    flushed ≤ ceiling as the disk has it                after a loss of power nothing that was promised does

A frame behind the ceiling may be left after a loss of power where the disk took no sync for AHEAD_BYTES; it was
promised to nobody. A search goes SLACK_BYTES further for its sake: it may be what tells rot from a torn tail.

The file `ceiling` is overwritten in place, within one sector. Little-endian:

     byte  size  field
        0     4  magic "HMce"
        4     4  generation that noted it
        8     8  ceiling, log position
       16     4  CRC-32C of bytes 0–15

Where it is missing, damaged, or of a generation before that of a frame that is found, it says nothing: versions before
it write without one.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from halfmoon.core.crc import crc32c
from halfmoon.core.storage.files import File, FileSystem, read_file, write_all

PATH = "ceiling"
AHEAD_BYTES = 32 << 20
"""The note is so far ahead of what is written; a new one comes when half of that is left."""
SLACK_BYTES = 32 << 20

_MAGIC = b"HMce"
_FIELDS = struct.Struct("<4sIQ")
_CRC = struct.Struct("<I")


class Noted(NamedTuple):
    position: int
    generation: int

    @property
    def search_end(self) -> int:
        """Where a search for frames may end."""
        return self.position + SLACK_BYTES


def load(fs: FileSystem) -> Noted | None:
    data = read_file(fs, PATH)
    if data is None or len(data) < _FIELDS.size + _CRC.size:
        return None
    magic, generation, position = _FIELDS.unpack_from(data)
    if magic != _MAGIC or crc32c(data[: _FIELDS.size]) != _CRC.unpack_from(data, _FIELDS.size)[0]:
        return None
    return Noted(position, generation)


class Ceiling:
    """Of one log that is being written."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._file: File | None = None
        self._generation = 0
        self.position = 0
        self.renew_at = 1 << 63
        """Note a new ceiling before anything is written behind this."""
        self._unsynced = False

    def begin(self, end: int, generation: int) -> None:
        """Before the first write of a generation. Where the disk takes no note there is none in this generation, and
        an older one says nothing."""
        self._generation = generation
        try:
            if self._file is None:
                try:
                    self._file = self._fs.open(PATH)
                except FileNotFoundError:
                    self._file = self._fs.open(PATH, create=True)
            self.note(end)
        except OSError:
            self.close()

    def note(self, end: int) -> None:
        """Raises OSError."""
        assert self._file is not None
        self.position = end + AHEAD_BYTES
        fields = _FIELDS.pack(_MAGIC, self._generation, self.position)
        write_all(self._file, [fields + _CRC.pack(crc32c(fields))], 0)
        self.renew_at = self.position - AHEAD_BYTES // 2
        self._unsynced = True

    def to_sync(self) -> File | None:
        """What must be synced before the log's own files are; once."""
        file = self._file if self._unsynced else None
        self._unsynced = False
        return file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None
        self.renew_at = 1 << 63
        self._unsynced = False
