"""Which messages of a queue are not dealt with yet: those that wait for a time, a decision or an acknowledgement.

One bit a message, in chunks of 1,024 offsets; a chunk in which nothing waits any more takes no memory. Ten million
waiting messages take four megabytes where they lie close together. Every waiting message is in the log, so what waits
is a function of the log: added with the frame that holds it, settled by the frame (or control record) that names it as
its source. Settling twice changes nothing, so recovery may apply either again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from halfmoon.schema.snapshot import Chunks, array_head, encode

CHUNK: Final = 1024
"""Offsets in a chunk."""
_CHUNK_BYTES: Final = CHUNK // 8
_SHIFT: Final = CHUNK.bit_length() - 1
RUN: Final = 64
"""Chunks that are encoded together, and again when one of them has changed: 8 KiB, 30 µs."""
_RUN_SHIFT: Final = RUN.bit_length() - 1
_OFFSET_TO_RUN: Final = _SHIFT + _RUN_SHIFT
_AT_ONCE: Final = 32
"""Runs that a slice of `prepare` encodes: about a millisecond."""
_FEW: Final = 8
_FULL: Final = b"\xff" * _CHUNK_BYTES

Bits = dict[int, int]
"""Offsets of one queue: number of the chunk → its bits, as one number."""


def bits_by_queue(places: Iterable[tuple[int, int, int]]) -> dict[tuple[int, int], Bits]:
    """Offsets by their queue, which is the first two numbers of a place. Each takes a third of a microsecond."""
    found: dict[tuple[int, int], Bits] = {}
    for number, index, offset in places:
        bits = found.get((number, index))
        if bits is None:
            bits = found[number, index] = {}
        chunk = offset >> _SHIFT
        bits[chunk] = bits.get(chunk, 0) | 1 << (offset & (CHUNK - 1))
    return found


class PendingSet:
    """Offsets of one queue. They are added in ascending order, and settled in any."""

    __slots__ = ("_chunks", "_count", "_end", "_runs")

    def __init__(self, chunks: Chunks = [], end: int = 0) -> None:  # noqa: B006 (it is not kept)
        """`end`: no offset from here on was ever added."""
        self._chunks: dict[int, bytearray] = {number: bytearray(bits) for number, bits in chunks}
        self._count = sum(int.from_bytes(bits, "little").bit_count() for _, bits in chunks)
        self._end = end
        self._runs: dict[int, bytes | None] = {number >> _RUN_SHIFT: None for number in self._chunks}
        """Ascending; how each run is encoded, None where that has to be done again."""

    def __len__(self) -> int:
        return self._count

    @property
    def end(self) -> int:
        """No offset from here on was added yet."""
        return self._end

    def add(self, first: int, count: int) -> None:
        """The offsets from `first` on wait. What lies below `end` was added before, and is left as it is."""
        low, high = max(first, self._end), first + count
        if low >= high:
            return
        self._end = high
        self._count += high - low
        while low < high:
            number = low >> _SHIFT
            stop = min(high, (number + 1) << _SHIFT)
            self._runs[number >> _RUN_SHIFT] = None
            bits = self._chunks.get(number)
            if bits is None:
                bits = self._chunks[number] = bytearray(_CHUNK_BYTES)
            if stop - low == CHUNK:
                bits[:] = _FULL
            elif stop - low > _FEW:
                added = ((1 << stop - low) - 1) << (low & (CHUNK - 1))
                bits[:] = (int.from_bytes(bits, "little") | added).to_bytes(_CHUNK_BYTES, "little")
            else:
                for offset in range(low, stop):
                    at = offset & (CHUNK - 1)
                    bits[at >> 3] |= 1 << (at & 7)
            low = stop

    def settle(self, offset: int) -> bool:
        """The message is dealt with; whether it was not before."""
        bits = self._chunks.get(offset >> _SHIFT)
        if bits is None:
            return False
        at = offset & (CHUNK - 1)
        mask = 1 << (at & 7)
        if not bits[at >> 3] & mask:
            return False
        bits[at >> 3] &= ~mask
        self._count -= 1
        self._runs[offset >> _OFFSET_TO_RUN] = None
        if not any(bits):
            del self._chunks[offset >> _SHIFT]
        return True

    def settle_run(self, first: int, count: int) -> None:
        """As `settle`, for the offsets from `first` on."""
        while count > 0:
            at = first & (CHUNK - 1)
            size = min(count, CHUNK - at)
            self._clear(first >> _SHIFT, ((1 << size) - 1) << at)
            first += size
            count -= size

    def settle_all(self, offsets: Bits) -> None:
        """As `settle`, for each."""
        for number, bits in offsets.items():
            self._clear(number, bits)

    def _clear(self, number: int, settled: int) -> None:
        bits = self._chunks.get(number)
        if bits is None:
            return
        before = int.from_bytes(bits, "little")
        left = before & ~settled
        self._count -= (before ^ left).bit_count()
        self._runs[number >> _RUN_SHIFT] = None
        if left:
            bits[:] = left.to_bytes(_CHUNK_BYTES, "little")
        else:
            del self._chunks[number]

    def keep(self, kept: Chunks, upto: int) -> None:
        """As `settle`, for each below offset `upto` that is not among these."""
        there = {number: int.from_bytes(bits, "little") for number, bits in kept}
        for number in [each for each in self._chunks if each << _SHIFT < upto]:
            below = (1 << min(CHUNK, upto - (number << _SHIFT))) - 1
            self._clear(number, below & ~there.get(number, 0))

    def holds(self, offsets: Bits) -> bool:
        """Whether all of them wait."""
        for number, bits in offsets.items():
            waiting = self._chunks.get(number)
            if waiting is None or bits & ~int.from_bytes(waiting, "little"):
                return False
        return True

    def __contains__(self, offset: int) -> bool:
        bits = self._chunks.get(offset >> _SHIFT)
        at = offset & (CHUNK - 1)
        return bits is not None and bool(bits[at >> 3] & 1 << (at & 7))

    def first(self, from_offset: int = 0) -> int | None:
        """The lowest offset that waits, from this one on."""
        # Chunks are made in ascending order, so the first one is the lowest.
        lowest = from_offset >> _SHIFT
        for number, bits in self._chunks.items():
            if number < lowest:
                continue
            value = int.from_bytes(bits, "little")
            if number == lowest:
                value = value >> (from_offset & (CHUNK - 1)) << (from_offset & (CHUNK - 1))
            if value:
                return (number << _SHIFT) + (value & -value).bit_length() - 1
        return None

    def count(self, low: int, high: int) -> int:
        """How many wait in [low, high)."""
        found = 0
        first, last = low >> _SHIFT, (high - 1) >> _SHIFT
        numbers = range(first, last + 1) if last - first < len(self._chunks) else list(self._chunks)
        for number in numbers:
            bits = self._chunks.get(number)
            base = number << _SHIFT
            if bits is not None and low < base + CHUNK and base < high:
                value = int.from_bytes(bits, "little") >> max(0, low - base) << max(0, low - base)
                found += (value & ((1 << min(CHUNK, high - base)) - 1)).bit_count()
        return found

    def between(self, low: int, high: int) -> Iterator[int]:
        """The offsets in [low, high) that wait, ascending."""
        for number in range(low >> _SHIFT, ((high - 1) >> _SHIFT) + 1):
            bits = self._chunks.get(number)
            if bits is not None:
                base = number << _SHIFT
                for offset in range(max(low, base), min(high, base + CHUNK)):
                    at = offset & (CHUNK - 1)
                    if bits[at >> 3] & 1 << (at & 7):
                        yield offset

    def chunks(self) -> Chunks:
        """All of it, to be written down."""
        return [(number, bytes(bits)) for number, bits in self._chunks.items()]

    def encoded(self) -> msgspec.Raw:
        """`chunks()` as MessagePack. What has not changed since the last time is only copied."""
        for _ in self.prepare():
            pass
        return msgspec.Raw(b"".join([array_head(len(self._chunks)), *[run or b"" for run in self._runs.values()]]))

    def prepare(self) -> Iterator[None]:
        """Encode what has changed, in slices."""
        changed = [number for number, run in self._runs.items() if run is None]
        for at in range(0, len(changed), _AT_ONCE):
            if at:
                yield
            for number in changed[at : at + _AT_ONCE]:
                self._encode(number)

    def _encode(self, number: int) -> None:
        chunks = self._chunks
        run = range(number << _RUN_SHIFT, (number + 1) << _RUN_SHIFT)
        encoded = b"".join([encode((chunk, chunks[chunk])) for chunk in run if chunk in chunks])
        if encoded:
            self._runs[number] = encoded
        else:
            self._runs.pop(number, None)
