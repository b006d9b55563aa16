"""Key files: which frames of a stretch of the log hold a key, or say what became of a message (B05).

An *entry* is 64 bits: the hash of what is looked up in the upper half, where its frame begins in the lower half. The
hash is of 32 bits and may be that of something else, so whoever finds a frame looks into it. What is looked up is a key
of a topic, or a block of offsets of a partition (`key_hash`, `block_hash`).

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
       56        the entries, ascending: hash << 32 | position of the frame − start (u64)

The header's checksum is tested whenever a file is opened, the entries' by `halfmoon log verify` only: the file was
synced before it got its name. A file that does not check is thrown away and built again from the log.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator

from halfmoon.core.crc import crc32c
from halfmoon.core.storage.files import ASIDE, File, FileSystem, Mapping, replace_file, write_all

FOLDER = "keys"
BLOCK_BITS = 8
"""Offsets are looked up in blocks of 256."""
LAST_MS = 1 << 63
"""Later than all store times."""

_HEADER = struct.Struct("<4sIQQQQQI")
_CRC = struct.Struct("<I")
_ENTRIES_AT = _HEADER.size + _CRC.size
_MAGIC = b"HMky"
_VERSION = 1
_TOPIC = struct.Struct("<I")
_BLOCK = struct.Struct("<IIQ")
_BLOCK_SEED = crc32c(b"block")
_BUCKET_SHIFT = 20
"""Bits of a hash that entries of one bucket may differ in: there are 4,096 buckets, each sorted at once."""
_PLACE_MASK = (1 << 32) - 1


def key_hash(topic_number: int, key: bytes) -> int:
    """Of a key of one topic."""
    return crc32c(key, crc32c(_TOPIC.pack(topic_number)))


def key_hashes(topic_number: int, keys: Iterable[bytes | None]) -> list[int]:
    """Of those of the keys that are none and not empty."""
    seed = crc32c(_TOPIC.pack(topic_number))
    return [crc32c(key, seed) for key in keys if key]


def block_hash(topic_number: int, partition: int, offset: int) -> int:
    """Of the block of offsets that this one is in: under it stand the frames that name one of them as a source."""
    return crc32c(_BLOCK.pack(topic_number, partition, offset >> BLOCK_BITS), _BLOCK_SEED)


class Stretch:
    """The entries of a stretch of the log that has no file yet. It begins at `start` and has come to `upto`."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.upto = start
        self.count = 0
        self.oldest_ms = 0
        self.newest_ms = 0
        self._buckets: dict[int, array[int]] = {}
        self._last = -1
        """The entry that was added last: a frame often has a key many times."""

    @classmethod
    def going_on(cls, file: KeyFile) -> Stretch:
        """One that goes on where a file ends, and has what is in it."""
        stretch = cls(file.start)
        stretch.upto, stretch.oldest_ms, stretch.newest_ms = file.end, file.oldest_ms, file.newest_ms
        for entry in file.entries:
            stretch.add(entry >> 32, file.start + (entry & _PLACE_MASK))
        return stretch

    def add(self, hashed: int, position: int) -> None:
        """A frame at `position` has something of this hash."""
        entry = hashed << 32 | position - self.start
        if entry == self._last:
            return
        self._last = entry
        bucket = self._buckets.get(hashed >> _BUCKET_SHIFT)
        if bucket is None:
            bucket = self._buckets[hashed >> _BUCKET_SHIFT] = array("Q")
        bucket.append(entry)
        self.count += 1

    def add_all(self, hashes: Iterable[int], position: int) -> None:
        """As `add` for each: half the time where there are many."""
        place = position - self.start
        buckets = self._buckets
        last = self._last
        for hashed in hashes:
            entry = hashed << 32 | place
            if entry == last:
                continue
            last = entry
            number = hashed >> _BUCKET_SHIFT
            bucket = buckets.get(number)
            if bucket is None:
                bucket = buckets[number] = array("Q")
            bucket.append(entry)
            self.count += 1
        self._last = last

    def saw(self, store_ms: int) -> None:
        """A frame that has entries was stored then (Unix ms)."""
        self.oldest_ms = min(self.oldest_ms or store_ms, store_ms)
        self.newest_ms = max(self.newest_ms, store_ms)

    def find(self, hashed: int) -> set[int]:
        """Log positions of frames that may have it."""
        bucket = self._buckets.get(hashed >> _BUCKET_SHIFT, ())
        return {self.start + (entry & _PLACE_MASK) for entry in bucket if entry >> 32 == hashed}

    def entries(self) -> Iterator[array[int]]:
        """All of them, ascending, in pieces that are quickly sorted."""
        for number in sorted(self._buckets):
            yield array("Q", sorted(set(self._buckets[number])))


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
            found.add(self.start + (entries[at] & _PLACE_MASK))
            at += 1
        return found

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
