"""The files of the commitlog: their names, and what is done to them in threads, beside the log's own state."""

from __future__ import annotations

import contextlib
import errno
import mmap
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct

from halfmoon.core.storage import bounds
from halfmoon.core.storage.bounds import Floor
from halfmoon.core.storage.files import Buffer, File, FileSystem
from halfmoon.core.storage.segment import Removed, Segment
from halfmoon.errors import StartError

FOLDER: Final = "log"
SPARE: Final = "log/spare"


def segment_path(start: int) -> str:
    return f"{FOLDER}/{start:020d}"


def list_segments(fs: FileSystem) -> list[tuple[int, str]]:
    """(start, path) of the segment files, in order."""
    return [(int(name), f"{FOLDER}/{name}") for name in fs.listdir(FOLDER) if len(name) == 20 and name.isdigit()]


class MissingFile:
    """What stands in for a file that is gone: zeroes, which nobody takes for frames."""

    def __init__(self, size: int) -> None:
        self._size = size

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        return sum(map(len, buffers))  # what a start rewrites is what it has read

    def pread(self, length: int, position: int) -> bytes:
        return bytes(max(0, min(length, self._size - position)))

    def pread_into(self, buffer: memoryview, position: int) -> None:
        if position + len(buffer) > self._size:
            raise OSError(errno.EIO, f"the file ends at {self._size}")
        buffer[:] = bytes(len(buffer))

    def pread_cached_into(self, buffer: memoryview, position: int) -> bool:
        self.pread_into(buffer, position)
        return True

    def expect(self, length: int, position: int) -> bool:
        return False

    def forget(self, length: int, position: int) -> None:
        pass

    def written(self, position: int) -> tuple[int, int]:
        return self._size, self._size

    def sync(self) -> None:
        pass

    def allocate(self, size: int) -> None:
        pass

    def size(self) -> int:
        return self._size

    def map(self) -> MissingMapping:
        return MissingMapping(self._size)

    def close(self) -> None:
        pass


class MissingMapping:
    """Zeroes that take no memory."""

    def __init__(self, size: int) -> None:
        self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
        self.view = memoryview(self._map)

    def in_memory(self, start: int, end: int) -> bool:
        return True

    def release(self) -> bool:
        try:
            self.view.release()
            self._map.close()
        except BufferError:
            self.view = memoryview(self._map)
            return False
        return True


def missing_segment(start: int, end: int) -> Segment:
    """Stands for log positions whose files are gone or cut short."""
    file = MissingFile(end - start)
    return Segment(start, end - start, file, file.map())


def gaps(segments: Sequence[Segment]) -> list[tuple[int, int]]:
    """Log positions [from, to) that no file holds, between the others. Raises StartError where two files overlap."""
    found = []
    for before, after in pairwise(segments):
        if before.end > after.start:
            raise StartError(
                f"segment {before.start:020d} ends at {before.end}, but the next begins at {after.start}: "
                "one of the two is another log's"
            )
        if before.end < after.start:
            found.append((before.end, after.start))
    return found


class Retired(Struct):
    """A file that is in no list any more. `path` is None once its name is gone."""

    segment: Segment
    path: str | None
    others: list[str]
    """Files about it that go with it."""

    def remove(self, fs: FileSystem, *, reuse: bool, floor: Floor | None = None) -> Removed:
        """In a thread. `floor`: noted before the file goes. Raises OSError; then call it again."""
        if floor is not None and self.path is not None:
            bounds.note_floor(fs, floor)
        released, recycled = self.segment.mapping.release(), False
        if self.path is not None:
            # While slices are being sent the name goes at once, so that a restart does not find it; the file lives on
            # until it is unmapped.
            with contextlib.suppress(FileNotFoundError):
                recycled = reuse and released and self._becomes_spare(fs, self.path)
                if not recycled:
                    fs.remove(self.path)
            self.path = None
        while self.others:
            with contextlib.suppress(FileNotFoundError):
                fs.remove(self.others[-1])
            self.others.pop()
        if released and not recycled:
            self.segment.file.close()
        return Removed(released, self.segment.file if recycled else None)

    def _becomes_spare(self, fs: FileSystem, path: str) -> bool:
        # First the name, then the look at the links: a backup that links the file cannot slip in between.
        fs.rename(path, SPARE)
        self.path = SPARE
        return fs.links(SPARE) == 1


class SyncJob:
    """One fdatasync for everybody who waits. `run` may be called in a thread; it touches nothing of the log's state."""

    __slots__ = ("_files", "_fs", "target")

    def __init__(self, fs: FileSystem, files: list[File], new_names: bool, target: int) -> None:
        self._files = files
        self._fs = fs if new_names else None
        self.target = target

    @property
    def is_plain(self) -> bool:
        """Whether it is one fdatasync of one file, and no folder's."""
        return self._fs is None and len(self._files) == 1

    def begin(self, done: Callable[[OSError | None], None]) -> bool:
        return False

    def run(self) -> None:
        """Raises OSError."""
        for file in self._files:
            file.sync()
        if self._fs is not None:
            self._fs.sync_directory(FOLDER)
