"""From places in the log to bytes for a socket: the reading side of the local disk (B06).

Near the end of the log the bytes are certainly in the page cache, and a slice of the mapped file costs nothing.
Further back a slice might make whoever touches it wait for the disk, and that would be the event loop. There the
kernel is asked whether all of it is in memory; what is not is left to a thread.

What is may be gone by the time it is sent. So once a read had to go to the disk, memory is taken to be short: for a
while, older data that is in memory is copied at once instead.

What comes from the disk takes a place in the page cache, and somebody has to make room for it. Once memory is full,
that is every write: a reader that races over an old log then holds up the producers. So what cold reads have brought
in is kept to `log.cold_bytes`, and what nobody has asked for in the longest time is forgotten (`ColdBlocks`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from halfmoon.core.storage.commitlog import CommitLog
from halfmoon.core.storage.fetch_buffers import FetchBuffers
from halfmoon.core.storage.frame_reading import FrameReader
from halfmoon.core.storage.segment import Segment
from halfmoon.core.storage.storage import Frames, Place, Read
from halfmoon.schema.snapshot import CLEAN_BASE

NEAR_BYTES: Final = 16 << 10
"""Two batches no further apart than this are read in one go, …"""
STRETCH_BYTES = 1 << 20
"""… as long as that makes no more than this."""

CAREFUL_BYTES = 256 << 20
"""After a read that had to go to the disk, so much of older data is copied."""

BLOCK_BYTES = 4 << 20
"""What cold reads bring in is forgotten in steps of so much."""

COLD_SHARE: Final = 4
"""Unless it is configured, the page cache that cold reads may fill is memory divided by this."""


class Stretch(NamedTuple):
    """A part of a segment that holds several wanted batches close together. `guard` keeps the segment's file open."""

    segment: Segment
    start: int
    end: int
    places: list[Place]
    guard: "memoryview"

    @property
    def kept_bytes(self) -> int:
        """The memory that its batches take. What lies between small batches that stand far apart does not stay in
        memory while they are being sent."""
        wanted = sum(length for _, length in self.places)
        return wanted if 2 * wanted < self.end - self.start else self.end - self.start

    def load_into(self, memory: memoryview) -> list[memoryview]:
        """Meant for a thread; `memory` is `kept_bytes`. Raises OSError."""
        at = self.start - self.segment.start
        if len(memory) == self.end - self.start:
            self.segment.file.pread_into(memory, at)
            return self._cut(memory)
        whole = memoryview(bytearray(self.end - self.start))
        self.segment.file.pread_into(whole, at)
        return _copied(self._cut(whole), memory)

    def load_cached_into(self, memory: memoryview) -> list[memoryview] | None:
        """The same; None where it would wait for the disk."""
        file, at = self.segment.file, self.start - self.segment.start
        if len(memory) == self.end - self.start:
            return self._cut(memory) if file.pread_cached_into(memory, at) else None
        whole = memoryview(bytearray(self.end - self.start))
        return _copied(self._cut(whole), memory) if file.pread_cached_into(whole, at) else None

    def _cut(self, view: memoryview) -> list[memoryview]:
        return [view[position - self.start : position - self.start + length] for position, length in self.places]

    def in_memory(self) -> bool:
        return self.segment.mapping.in_memory(self.start - self.segment.start, self.end - self.segment.start)

    def forget(self) -> None:
        self.segment.file.forget(self.end - self.start, self.start - self.segment.start)


def _copied(pieces: Sequence[memoryview], memory: memoryview) -> list[memoryview]:
    copies, at = [], 0
    for piece in pieces:
        copy = memory[at : at + len(piece)]
        copy[:] = piece
        copies.append(copy)
        at += len(piece)
    return copies


def _load(stretches: Sequence[Stretch], take: Callable[[int], memoryview]) -> list[memoryview]:
    """In a thread. Raises OSError."""
    memory, at, pieces = take(sum(stretch.kept_bytes for stretch in stretches)), 0, []
    for stretch in stretches:
        size = stretch.kept_bytes
        pieces += stretch.load_into(memory[at : at + size])
        at += size
    return pieces


def first(places: Sequence[Place], most_bytes: int) -> tuple[Sequence[Place], int]:
    """The first of them, of so many bytes in all at most; and how many bytes that is."""
    size = 0
    for at, (_, length) in enumerate(places):
        if size + length > most_bytes:
            return places[:at], size
        size += length
    return places, size


def _private(size: int) -> memoryview:
    return memoryview(bytearray(size))


class ColdBlocks:
    """Where cold reads have been, in blocks of the logs of one process. What nobody has read for the longest time goes
    first."""

    def __init__(self, limit_bytes: int | None = None, processes: int = 1) -> None:
        """No `limit_bytes`: a share of the memory. `processes`: so many have the same limit, and share it."""
        self._limit_bytes = limit_bytes
        self._processes = processes
        self._read: OrderedDict[tuple[Reader, int], None] = OrderedDict()

    def add(self, reader: Reader, stretches: Sequence[Stretch], memory_bytes: Callable[[], int]) -> list[Stretch]:
        """These are being read from the disk. Returns what is to be forgotten once they are."""
        if self._limit_bytes is None:
            self._limit_bytes = memory_bytes() // COLD_SHARE
        read = self._read
        for stretch in stretches:
            for number in range(stretch.start // BLOCK_BYTES, (stretch.end - 1) // BLOCK_BYTES + 1):
                read[reader, number] = None
                read.move_to_end((reader, number))
        forgotten: list[Stretch] = []
        while len(read) * BLOCK_BYTES > self._limit_bytes // self._processes:
            (of, number), _ = read.popitem(last=False)
            forgotten += of.cold_stretches(number * BLOCK_BYTES, (number + 1) * BLOCK_BYTES)
        return forgotten


class Reader:
    """Reads batches; counts what it had to leave to a thread."""

    def __init__(
        self,
        log: CommitLog,
        hot_bytes: int,
        cold_blocks: ColdBlocks | None = None,
        buffers: FetchBuffers | None = None,
    ) -> None:
        """`cold_blocks` keeps to a limit what cold reads leave in the page cache; None is one of its own. `buffers`
        gives the memory that `read` needs; None is one without a limit."""
        self._log = log
        self._hot_bytes = hot_bytes
        self._cold_blocks = cold_blocks or ColdBlocks()
        self.buffers = buffers or FetchBuffers(1 << 62)
        self.cold_reads = 0
        self._careful_bytes = 0

    def read(self, places: Sequence[Place], load_bytes: int | None = None) -> Read:
        if not places:
            return Read((), 0, None)
        size = sum(length for _, length in places)
        if self._hot_from() <= places[0][0] < CLEAN_BASE:
            return Read(self._views(places), size, None)
        stretches = self._stretches(places)
        if self._careful_bytes > 0:
            self._careful_bytes -= size
        elif all(stretch.in_memory() for stretch in stretches):
            return Read(self._views(places), size, None)
        if load_bytes is not None and size > load_bytes:
            places, size = first(places, load_bytes)
            if not places:
                return Read((), 0, None, loads=True)
            stretches = self._stretches(places)
        slices = self._copies(stretches, size)
        if slices is not None:
            return Read(slices, size, None, loads=True)
        self.cold_reads += 1
        self._careful_bytes = CAREFUL_BYTES
        return Read((), size, self._cold(stretches), loads=True)

    def _hot_from(self) -> int:
        """What begins there or behind is in the page cache."""
        log = self._log
        return max(log.end - self._hot_bytes, log.here_from)

    def _copies(self, stretches: Sequence[Stretch], size: int) -> list[memoryview] | None:
        """None where that would wait for the disk, or for memory."""
        if not self.buffers.has_room(size):
            return None
        slices: list[memoryview] = []
        for stretch in stretches:
            copies = stretch.load_cached_into(self.buffers.take(stretch.kept_bytes))
            if copies is None:
                return None
            slices += copies
        return slices

    def _cold(self, stretches: list[Stretch]) -> Callable[[], list[memoryview]]:
        forgotten = self._cold_blocks.add(self, stretches, self._log.fs.memory_bytes)

        def load() -> list[memoryview]:
            pieces = _load(stretches, self.buffers.take)
            for stretch in forgotten:
                stretch.forget()
            return pieces

        return load

    def _views(self, places: Sequence[Place]) -> list[memoryview]:
        """Slices of the mapped files. Thousands of small batches come in one read, so the segment is looked up once."""
        views = []
        start = end = -1
        for position, length in places:
            if not start <= position < end:
                segment = self._log.segment_at(position)
                start, end, view = segment.start, segment.end, segment.view
            views.append(view[position - start : position - start + length])
        return views

    def _stretches(self, places: Sequence[Place]) -> list[Stretch]:
        found: list[Stretch] = []
        for position, length in places:
            last = found[-1] if found else None
            near = last is not None and last.start <= position <= last.end + NEAR_BYTES and position < last.segment.end
            if last is not None and near and position + length - last.start <= STRETCH_BYTES:
                last.places.append((position, length))
                found[-1] = last._replace(end=position + length)
            else:
                segment = self._log.segment_at(position)
                found.append(Stretch(segment, position, position + length, [(position, length)], segment.view[:0]))
        return found

    def cold_stretches(self, start: int, end: int) -> Iterator[Stretch]:
        """What there is of a block. It may lie in several segments, have expired, or reach into what is read from the
        mapped files."""
        log = self._log
        if start >= CLEAN_BASE:
            for segment in log.cleaned:
                low, high = max(start, segment.start), min(end, segment.end)
                if low < high:
                    yield Stretch(segment, low, high, [], segment.view[:0])
            return
        start = max(start, log.start)
        end = min(end, self._hot_from())
        while start < end:
            segment = log.segment_at(start)
            stop = min(end, segment.end)
            yield Stretch(segment, start, stop, [], segment.view[:0])
            start = stop

    def load(self, places: Sequence[Place]) -> Callable[[], list[memoryview]]:
        """A function for a thread: what stands at these places. It raises OSError."""
        stretches = self._stretches(places)
        return lambda: _load(stretches, _private)

    def frames(self) -> Frames:
        return FrameReader(self._log.segments + self._log.cleaned)

    def bring(self, start: int, end: int) -> Callable[[], object] | None:
        """None: these bytes of one segment can be touched at once. Else a function for a thread that has them brought
        into the page cache; it raises OSError."""
        log = self._log
        if self._hot_from() <= start < CLEAN_BASE:
            return None
        segment = log.segment_at(start)
        low, high = start - segment.start, min(end, segment.end) - segment.start
        if low >= high or segment.mapping.in_memory(low, high):
            return None
        file, guard = segment.file, segment.view[:0]

        def load() -> None:
            with guard:  # keeps the file open
                for at in range(low, high, BLOCK_BYTES):
                    file.pread(min(BLOCK_BYTES, high - at), at)

        return load
