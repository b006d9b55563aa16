"""Key files: which frames of a stretch of the log hold a key, or say what became of a message (B05).

A key file covers the log positions [start, end), never more than one segment. Little-endian:

     byte  size  field
        0     4  magic "HMky"
        4     4  version (1)
        8     8  start, log position
       16     8  end, log position
       24     8  oldest store time in it, Unix ms; 0 where it has no entries
       32     8  newest store time in it, Unix ms
       40     8  number of entries
       48     4  CRC-32C of the entries
       52     4  CRC-32C of all before this
       56        the entries (stretch.py), ascending: hash << 32 | position of the frame − start (u64)

The header's checksum is tested whenever a file is opened, the entries' by `halfmoon log verify` only: the file was
synced before it got its name. A file that does not check is thrown away and built again from the log.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator

from halfmoon.core.crc import crc32c
from halfmoon.core.storage.files import ASIDE, File, FileSystem, Mapping, replace_file, write_all
from halfmoon.services.keyindex.stretch import PLACE_MASK, Stretch

FOLDER = "keys"
LAST_MS = 1 << 63
"""Later than all store times."""

_HEADER = struct.Struct("<4sIQQQQQI")
_CRC = struct.Struct("<I")
_ENTRIES_AT = _HEADER.size + _CRC.size
_MAGIC = b"HMky"
_VERSION = 1


class KeyFile:
    """An opened, mapped key file."""

    __slots__ = ("_entries_crc", "_mapping", "end", "entries", "newest_ms", "oldest_ms", "path", "start")

    def __init__(self, path: str, mapping: Mapping) -> None:
        """Raises ValueError where the file is damaged or of another version."""
        self.path = path
        self._mapping = mapping
        view = mapping.view
        if len(view) < _ENTRIES_AT:
            raise ValueError("shorter than its header")
        fields = _HEADER.unpack_from(view)
        magic, version, self.start, self.end, self.oldest_ms, self.newest_ms, count, self._entries_crc = fields
        if magic != _MAGIC or version != _VERSION:
            raise ValueError(f"not a key file of version {_VERSION}")
        if crc32c(view[: _HEADER.size]) != _CRC.unpack_from(view, _HEADER.size)[0]:
            raise ValueError("header checksum")
        if len(view) != _ENTRIES_AT + 8 * count:
            raise ValueError("shorter than its entries, or longer")
        self.entries = view[_ENTRIES_AT:].cast("Q")

    def __len__(self) -> int:
        return len(self.entries)

    def find(self, hashed: int) -> set[int]:
        """Log positions of frames that may have it. May wait for the disk."""
        entries = self.entries
        at = bisect_left(entries, hashed << 32)
        found = set()
        while at < len(entries) and entries[at] >> 32 == hashed:
            found.add(self.start + (entries[at] & PLACE_MASK))
            at += 1
        return found

    def gone_on_with(self) -> Stretch:
        """A stretch that goes on where the file ends, and has what is in it."""
        stretch = Stretch(self.start)
        stretch.upto, stretch.oldest_ms, stretch.newest_ms = self.end, self.oldest_ms, self.newest_ms
        for entry in self.entries:
            stretch.add(entry >> 32, self.start + (entry & PLACE_MASK))
        return stretch

    def intact(self) -> bool:
        """Whether the entries' checksum holds."""
        return bool(crc32c(self.entries.cast("B")) == self._entries_crc)


def write(fs: FileSystem, stretch: Stretch) -> KeyFile:
    """Write the entries of a stretch, and open the file. Slow (syncs), meant for a thread. Raises OSError."""
    path = f"{FOLDER}/{stretch.start:020d}-{stretch.upto:020d}"

    def fill(file: File) -> None:
        at, crc, count = _ENTRIES_AT, 0, 0
        for entries in stretch.entries():
            view = memoryview(entries).cast("B")
            crc = crc32c(view, crc)
            count += len(entries)
            at = write_all(file, [view], at)
        fields = stretch.start, stretch.upto, stretch.oldest_ms, stretch.newest_ms, count, crc
        header = _HEADER.pack(_MAGIC, _VERSION, *fields)
        write_all(file, [header + _CRC.pack(crc32c(header))], 0)

    replace_file(fs, path, fill)
    return open_file(fs, path)


def open_file(fs: FileSystem, path: str) -> KeyFile:
    """Raises FileNotFoundError, ValueError."""
    file = fs.open(path)
    try:
        if file.size() == 0:
            raise ValueError("empty")
        return KeyFile(path, file.map())
    finally:
        file.close()


def listed(fs: FileSystem) -> Iterator[tuple[int, int, str]]:
    """(start, end, path) of the key files in the folder, sorted by start, of equal ones the longest first; leftovers of
    a crash are left out."""
    found = []
    for name in fs.listdir(FOLDER):
        start, _, end = name.partition("-")
        if start.isdigit() and end.isdigit():
            found.append((int(start), int(end), f"{FOLDER}/{name}"))
    yield from sorted(found, key=lambda entry: (entry[0], -entry[1]))


def leftovers(fs: FileSystem) -> Iterator[str]:
    """Paths of key files that were not finished."""
    return (f"{FOLDER}/{name}" for name in fs.listdir(FOLDER) if name.endswith(ASIDE))
