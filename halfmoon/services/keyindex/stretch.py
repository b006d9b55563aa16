"""Entries of the key index in memory: what is looked up, as hashes, and the stretch of the log that has no file yet.

An *entry* is 64 bits: the hash of what is looked up in the upper half, where its frame begins in the lower half. The
hash is of 32 bits and may be that of something else, so whoever finds a frame looks into it. What is looked up is a key
of a topic, or a block of offsets of a partition (`key_hash`, `block_hash`).
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator
from typing import Final

from halfmoon.core.crc import crc32c

BLOCK_BITS: Final = 8
"""Offsets are looked up in blocks of 256."""
PLACE_MASK: Final = (1 << 32) - 1
"""Of an entry: where its frame begins, less where the stretch does."""

_TOPIC: Final = struct.Struct("<I")
_BLOCK: Final = struct.Struct("<IIQ")
_BLOCK_SEED: Final = crc32c(b"block")
_BUCKET_SHIFT: Final = 20
"""Bits of a hash that entries of one bucket may differ in: there are 4,096 buckets, each sorted at once."""


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
        return {self.start + (entry & PLACE_MASK) for entry in bucket if entry >> 32 == hashed}

    def entries(self) -> Iterator[array[int]]:
        """All of them, ascending, in pieces that are quickly sorted."""
        for number in sorted(self._buckets):
            yield array("Q", sorted(set(self._buckets[number])))
