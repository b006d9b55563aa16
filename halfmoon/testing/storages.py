"""Storage engines for tests: one whose reads always come late, and one of which half the reads fail.

Both keep the log as the local disk does (core/storage/local.py), so everything that is written is there. Hand one to a
node in place of it: `Node(…, storage=late())`. What answers a request, moves messages or follows the log has to pass
with both: the first finds who takes it for granted that bytes are here, the second finds who loses something, or
disturbs others, where a read fails.
"""

from __future__ import annotations

import errno
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from halfmoon.config.settings import Settings
from halfmoon.core.storage.commitlog import CommitLog
from halfmoon.core.storage.fetch_buffers import FetchBuffers
from halfmoon.core.storage.files import Buffer, File, FileSystem, Mapping
from halfmoon.core.storage.frame_reading import WholeFrame
from halfmoon.core.storage.log_files import FOLDER
from halfmoon.core.storage.reading import ColdBlocks, Reader, first
from halfmoon.core.storage.storage import Frames, MakeStorage, Place, Read

T = TypeVar("T")


class Around(Protocol):
    """Makes another load of a load."""

    def __call__(self, load: Callable[[], T]) -> Callable[[], T]: ...


class BlockedError(Exception):
    """A late read was waited for in the loop's thread."""


def late(pause_s: Callable[[], float] = lambda: 0.0, *, strict: bool = False) -> MakeStorage:
    """No read is answered at once, and what a segment's `view` shows is zeroes until it was brought. A load takes
    `pause_s()`. `strict`: one that is run in the thread that asked for it raises BlockedError."""

    def make(fs: FileSystem, settings: Settings) -> LateStorage:
        return LateStorage(fs, settings, pause_s, strict=strict)

    return make


def failing(dice: random.Random, share: float = 0.5) -> MakeStorage:
    """So many of the reads come late and fail with EIO; the others are answered as the local disk does."""

    def make(fs: FileSystem, settings: Settings) -> FailingStorage:
        return FailingStorage(fs, settings, dice, share)

    return make


class LateStorage:
    def __init__(self, fs: FileSystem, settings: Settings, pause_s: Callable[[], float], *, strict: bool) -> None:
        log = settings.log
        self.log = _LateLog(_LateFiles(fs), log.segment_bytes, log.low_disk_bytes)
        buffers = FetchBuffers(settings.limits.fetch_buffer_bytes)
        self.reader = LateReader(self.log, log.hot_bytes, ColdBlocks(log.cold_bytes), buffers)
        self.reader.pause_s = pause_s
        self.reader.strict = strict


class FailingStorage:
    def __init__(self, fs: FileSystem, settings: Settings, dice: random.Random, share: float) -> None:
        log = settings.log
        self.log = CommitLog(fs, log.segment_bytes, log.low_disk_bytes)
        self.reader = FailingReader(self.log, log.hot_bytes, ColdBlocks(log.cold_bytes))
        self.reader.dice = dice
        self.reader.share = share


class LateReader(Reader):
    """Counts in `cold_reads` what was asked for."""

    pause_s: Callable[[], float]
    strict: bool

    def read(self, places: Sequence[Place], load_bytes: int | None = None) -> Read:
        if load_bytes is not None:
            places = first(places, load_bytes)[0]
        size = sum(length for _, length in places)
        return Read((), size, self.load(places), loads=True) if places else Read((), 0, None)

    def load(self, places: Sequence[Place]) -> Callable[[], list[memoryview]]:
        return self._later(super().load(places))

    def frames(self) -> Frames:
        return _FramesAround(super().frames(), self._later)

    def bring(self, start: int, end: int) -> Callable[[], object] | None:
        segment = self._log.segment_at(start)
        guard, file = segment.view[:0], segment.file
        low, high = start - segment.start, min(end, segment.end) - segment.start

        def load() -> None:
            with guard:
                file.pread(high - low, low)

        return self._later(load) if low < high else None

    def _later(self, load: Callable[[], T]) -> Callable[[], T]:
        self.cold_reads += 1
        asked_in = threading.get_ident()

        def run() -> T:
            if self.strict and threading.get_ident() == asked_in:
                raise BlockedError("a late read was waited for in the loop's thread")
            pause_s = self.pause_s()
            if pause_s:
                time.sleep(pause_s)
            return load()

        return run


class FailingReader(Reader):
    dice: random.Random
    share: float

    def __init__(self, log: CommitLog, hot_bytes: int, cold_blocks: ColdBlocks) -> None:
        super().__init__(log, hot_bytes, cold_blocks)
        self.failed = 0
        """So many loads have failed."""

    def read(self, places: Sequence[Place], load_bytes: int | None = None) -> Read:
        if places and self._fails():
            super().load(places)  # what was dropped is refused at once
            return Read((), sum(length for _, length in places), self._refuse, loads=True)
        return super().read(places, load_bytes)

    def load(self, places: Sequence[Place]) -> Callable[[], list[memoryview]]:
        return self._perhaps(super().load(places))

    def frames(self) -> Frames:
        return _FramesAround(super().frames(), self._perhaps)

    def bring(self, start: int, end: int) -> Callable[[], object] | None:
        return self._refuse if self._fails() else super().bring(start, end)

    def _fails(self) -> bool:
        return self.dice.random() < self.share

    def _refuse(self) -> list[memoryview]:
        self.failed += 1
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _perhaps(self, load: Callable[[], T]) -> Callable[[], T]:
        def run() -> T:
            if self._fails():
                self._refuse()
            return load()

        return run


class _FramesAround:
    def __init__(self, frames: Frames, around: Around) -> None:
        self._frames = frames
        self._around = around

    def read(self, position: int) -> WholeFrame | None:
        return self._around(lambda: self._frames.read(position))()

    def before(self, payload_position: int) -> WholeFrame | None:
        return self._around(lambda: self._frames.before(payload_position))()


class _LateLog(CommitLog):
    def recover(self, begin: int, end: int) -> None:
        for segment in self.segments:
            low, high = max(begin, segment.start), min(end, segment.end)
            if low < high:
                segment.file.pread(high - low, low - segment.start)

    def resume(self, end: int, generation: int) -> None:
        super().resume(end, generation)
        for segment in self.segments:  # what a start has fetched is not kept
            if isinstance(segment.mapping, _LateMapping):
                segment.mapping.evict()


class _LateMapping:
    """What was written since the start and what was read is here; the rest are zeroes."""

    def __init__(self, size: int) -> None:
        self.bytes = bytearray(size)
        self.view = memoryview(self.bytes).toreadonly()

    def put(self, data: Buffer, position: int) -> None:
        part = memoryview(data)[: max(0, len(self.bytes) - position)]
        memoryview(self.bytes)[position : position + len(part)] = part

    def evict(self) -> None:
        memoryview(self.bytes)[:] = bytes(len(self.bytes))

    def in_memory(self, start: int, end: int) -> bool:
        return False

    def release(self) -> bool:
        self.view.release()
        try:
            self.bytes.append(0)  # refused while a slice is out
        except BufferError:
            self.view = memoryview(self.bytes).toreadonly()
            return False
        return True


class _LateFile:
    def __init__(self, file: File) -> None:
        self._file = file
        self._mapping: _LateMapping | None = None
        self.sync = file.sync
        self.allocate = file.allocate
        self.size = file.size
        self.close = file.close
        self.expect = file.expect
        self.forget = file.forget
        self.written = file.written

    def map(self) -> Mapping:
        self._mapping = _LateMapping(self._file.size())
        return self._mapping

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        count = self._file.pwritev(buffers, position)
        if self._mapping is not None:
            self._mapping.put(b"".join(bytes(buffer) for buffer in buffers)[:count], position)
        return count

    def pread(self, length: int, position: int) -> bytes:
        data = self._file.pread(length, position)
        if self._mapping is not None:
            self._mapping.put(data, position)
        return data

    def pread_into(self, buffer: memoryview, position: int) -> None:
        self._file.pread_into(buffer, position)
        if self._mapping is not None:
            self._mapping.put(bytes(buffer), position)

    def pread_cached_into(self, buffer: memoryview, position: int) -> bool:
        return False


class _LateFiles:
    """The segment files of a file system, of which nothing is here before it is read."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self.rename = fs.rename
        self.remove = fs.remove
        self.listdir = fs.listdir
        self.make_directory = fs.make_directory
        self.links = fs.links
        self.sync_directory = fs.sync_directory
        self.free_bytes = fs.free_bytes
        self.memory_bytes = fs.memory_bytes
        self.exposed = fs.exposed

    def open(self, path: str, *, create: bool = False) -> File:
        file = self._fs.open(path, create=create)
        return _LateFile(file) if path.startswith(f"{FOLDER}/") else file
