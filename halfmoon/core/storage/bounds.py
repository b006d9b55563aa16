"""The bounds of the log, noted beside it: how far it was ever written, and where it begins.

*Ceiling*: so that a start need not search behind a torn tail for long. Recycled segments are full of old bytes, and a
start cannot tell these from what was written lately without reading them all: a gigabyte. So the log notes, ahead of
what it writes, a position that it will not pass before it has noted another. The note is written before the first byte
behind the old one, and synced before *flushed* passes the old one:

    written ≤ ceiling as the page cache has it          after kill −9 nothing stands behind the note
    flushed ≤ ceiling as the disk has it                after a loss of power nothing that was promised does

A frame behind the ceiling may be left after a loss of power where the disk took no sync for AHEAD_BYTES; it was
promised to nobody. A search goes SLACK_BYTES further for its sake: it may be what tells rot from a torn tail.

*Floor*: so that a start knows that its oldest files are gone, and not expired. It is raised, durably, before a file of
the log is removed.

The file `bounds` is overwritten in place, each record within a sector of its own. Little-endian:

     byte  size  field
        0     4  magic "HMce"
        4     4  generation that noted it
        8     8  ceiling, log position
       16     4  CRC-32C of the 16 bytes before
      512    20  the same for the floor, magic "HMfl"

What is missing, damaged, or of an older generation than what is found in the log or in the checkpoint says nothing:
versions before it write without these notes.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from halfmoon.core.crc import crc32c
from halfmoon.core.storage.files import File, FileSystem, read_file, write_all

PATH: Final = "bounds"
AHEAD_BYTES = 32 << 20
"""The note is so far ahead of what is written; a new one comes when half of that is left."""
SLACK_BYTES = 32 << 20

_CEILING: Final = b"HMce"
_FLOOR: Final = b"HMfl"
_FLOOR_AT: Final = 512
_FIELDS: Final = struct.Struct("<4sIQ")
_CRC: Final = struct.Struct("<I")


class Noted(NamedTuple):
    position: int
    generation: int

    @property
    def search_end(self) -> int:
        """Where a search for frames may end."""
        return self.position + SLACK_BYTES


class Floor(NamedTuple):
    """All of the log from here on must be there."""

    position: int
    generation: int


def load(fs: FileSystem) -> Noted | None:
    """The ceiling, if there is one."""
    found = _read(fs, _CEILING, 0)
    return None if found is None else Noted(*found)


def load_floor(fs: FileSystem) -> Floor | None:
    found = _read(fs, _FLOOR, _FLOOR_AT)
    return None if found is None else Floor(*found)


def note_floor(fs: FileSystem, floor: Floor) -> None:
    """Durably; for any thread. Raises OSError."""
    try:
        file = fs.open(PATH)
    except FileNotFoundError:  # the disk had no room for it at the start
        return
    try:
        write_all(file, [_record(_FLOOR, *floor)], _FLOOR_AT)
        file.sync()
    finally:
        file.close()


def _record(magic: bytes, position: int, generation: int) -> bytes:
    fields = _FIELDS.pack(magic, generation, position)
    return fields + _CRC.pack(crc32c(fields))


def _read(fs: FileSystem, expected: bytes, at: int) -> tuple[int, int] | None:
    """Position and generation."""
    data = (read_file(fs, PATH) or b"")[at:]
    if len(data) < _FIELDS.size + _CRC.size:
        return None
    magic, generation, position = _FIELDS.unpack_from(data)
    if magic != expected or crc32c(data[: _FIELDS.size]) != _CRC.unpack_from(data, _FIELDS.size)[0]:
        return None
    return position, generation


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

    def begin(self, end: int, generation: int, floor: int | None = None) -> None:
        """Before the first write of a generation. `floor`: where the log begins. Where the disk takes no note there is
        none in this generation, and an older one says nothing."""
        self._generation = generation
        try:
            if self._file is None:
                try:
                    self._file = self._fs.open(PATH)
                except FileNotFoundError:
                    self._file = self._fs.open(PATH, create=True)
            self.note(end)
            if floor is not None:
                write_all(self._file, [_record(_FLOOR, floor, generation)], _FLOOR_AT)
        except OSError:
            self.close()

    def note(self, end: int) -> None:
        """Raises OSError."""
        assert self._file is not None
        self.position = end + AHEAD_BYTES
        write_all(self._file, [_record(_CEILING, self.position, self._generation)], 0)
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
