"""The cache of one shard: a folder of this machine's disk, of which everything can be had again.

Segments and compacted segments from before this node had the shard are files without content at first; blocks are
filled as they are read, and a block is never touched before. What is written here is never synced: what makes it
durable is a commit. Files beside the log (indexes, checkpoints) are kept as objects: put there where the local disk
would sync its folder, and fetched as a whole, several at a time, as soon as one is wanted. The mark of a clean stop is
not kept: where the log ends the database says.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from halfmoon.cluster.engine.backing import Backing
from halfmoon.core import clean_files, clean_mark
from halfmoon.core.storage import index
from halfmoon.core.storage.files import Buffer, File, FileSystem, Mapping, write_all
from halfmoon.core.storage.log_files import FOLDER

BLOCK_BYTES: Final = 4 << 20
AT_ONCE: Final = 16
AT_ONCE_BYTES: Final = 32 << 20
"""So many files, and so much of them unless one is larger, are fetched at a time."""
_LOG: Final = f"{FOLDER}/"
_ASIDE: Final = ".remote"
"""Of a file that is about to get its name."""
Read = Callable[[int, int], Sequence[tuple[int, bytes]]]
"""(where in the file, bytes) of all that stands at [low, high) of it. Raises OSError."""


class CachedFiles:
    """The file system of one shard's storage, in one epoch. Not for the loop's thread, but for segments that are made
    here and for reads of what is here."""

    def __init__(self, fs: FileSystem, backing: Backing) -> None:
        """`fs`: a folder of this shard alone. What is in it is left from before, and nobody trusts it."""
        self._fs = fs
        self._backing = backing
        self._here: set[str] = set()
        """Files that were made or fetched in this epoch."""
        self._remote: dict[str, _Remote] = {}
        """By path of a file that is filled as it is read."""
        self._exchanging = threading.Lock()
        """Of such a file, and of what says what of it is here. Nobody waits for the store with it."""
        self._changed: set[str] = set()
        """Files beside the log that are to be kept."""
        self._removed: set[str] = set()
        """Files that are kept and are not to be any more."""
        self._opening = True
        self._deferred: set[str] = set()
        """Of `_changed`: they are kept with the next that is."""
        self.free_bytes = fs.free_bytes
        self.memory_bytes = fs.memory_bytes
        self.make_directory = fs.make_directory
        self.exposed = fs.exposed

    def forget(self, path: str, start: int, size: int) -> File:
        """A segment that is in the store is not here any more. Whoever has the old file open goes on with that."""
        self.make_remote(path, start, size)
        return self.open(path)

    def forget_kept(self, path: str) -> File:
        """The same of a compacted segment's messages."""
        self._make_kept(path)
        return self.open(path)

    def is_in_store(self, path: str) -> bool:
        """A file beside the log, as it is here."""
        return self._is_kept(path) and path not in self._changed

    def make_remote(self, path: str, start: int, size: int) -> None:
        """A segment that is in the store."""

        def read(low: int, high: int) -> Sequence[tuple[int, bytes]]:
            return [(position - start, data) for position, data in self._backing.read(start + low, start + high)]

        self._make_remote(path, size, read)

    def _make_kept(self, path: str) -> None:
        """A compacted segment's messages, that are in the store."""
        kept = self._backing.files[path]
        self._make_remote(path, kept.size, lambda low, high: [(low, self._backing.part_of(kept, low, high))])

    def _make_remote(self, path: str, size: int, read: Read) -> None:
        """In the place of what is here under this name."""
        aside = path + _ASIDE
        with contextlib.suppress(FileNotFoundError):
            self._fs.remove(aside)
        file = self._fs.open(aside, create=True)
        file.pwritev([bytes(1)], size - 1)  # its size, and no room on the disk
        file.close()
        with self._exchanging:
            self._fs.rename(aside, path)
            self._remote[path] = _Remote(size, read)
        self._here.add(path)

    def opened(self) -> None:
        """Whoever opens the log has read all of it that he needs. Until then, indexes that are made of it are not kept:
        nobody is to wait for that."""
        self._opening = False

    def _fetch_beside(self) -> None:
        """Have all files beside the log here: whoever opens it wants them, one after the other. Raises OSError."""
        names = [path for path in sorted(self._backing.files) if path not in self._here and not _is_compacted(path)]
        while names:
            taken, size = 0, 0
            for path in names[:AT_ONCE]:
                size += self._backing.files[path].size
                if taken and size > AT_ONCE_BYTES:
                    break
                taken += 1
            for path, data in zip(names, self._backing.load_files(names[:taken]), strict=False):
                self._keep(path, data)
            del names[:taken]

    def _keep(self, path: str, data: bytes) -> None:
        """A file as it is in the store."""
        folder = path.rpartition("/")[0]
        if folder:
            self._fs.make_directory(folder)
        file = self._make(path)
        write_all(file, [data], 0)
        file.close()

    def _make(self, path: str) -> File:
        if path not in self._here:
            with contextlib.suppress(FileNotFoundError):
                self._fs.remove(path)
        file = self._fs.open(path, create=True)
        self._here.add(path)
        return file

    def open(self, path: str, *, create: bool = False) -> File:
        if create:
            return _LocalFile(self._make(path))
        self._fetch(path)
        with self._exchanging:
            file = self._fs.open(path)
            remote = self._remote.get(path)
        return _LocalFile(file) if remote is None else _RemoteFile(file, remote)

    def _fetch(self, path: str) -> None:
        """Have a file here. Raises FileNotFoundError."""
        if path not in self._here:
            if not self._is_kept(path):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if _is_compacted(path):
                self._fs.make_directory(path.rpartition("/")[0])
                self._make_kept(path)
            else:
                self._fetch_beside()

    def _is_kept(self, path: str) -> bool:
        return path in self._backing.files and path not in self._removed

    def fill(self, file: File, low: int, high: int) -> None:
        """Have these bytes of a segment here. Raises OSError."""
        if isinstance(file, _RemoteFile):
            file.fill(low, high)

    def here(self, file: File) -> tuple[int, float]:
        """Of a segment: about how many bytes of it are here, and since when, by the monotonic clock, in seconds."""
        if isinstance(file, _RemoteFile):
            return file.remote.bytes_here, file.remote.filled_s
        assert isinstance(file, _LocalFile)
        return file.size(), file.opened_s

    def rename(self, source: str, target: str) -> None:
        self._fetch(source)
        self._fs.rename(source, target)
        self._here.discard(source)
        self._here.add(target)
        self._changed.discard(source)
        if self._is_kept(source):
            self._removed.add(source)
        if not target.startswith(_LOG) and target != clean_mark.CLEAN_MARK:
            self._changed.add(target)
            self._removed.discard(target)

    def remove(self, path: str) -> None:
        kept = self._is_kept(path)
        if path not in self._here and not kept:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if path in self._here:
            self._fs.remove(path)
            self._here.discard(path)
        self._remote.pop(path, None)
        self._changed.discard(path)
        if kept:
            self._removed.add(path)

    def listdir(self, path: str) -> list[str]:
        prefix = f"{path}/" if path else ""
        known = [*self._here, *(name for name in list(self._backing.files) if name not in self._removed)]
        return sorted({name[len(prefix) :].partition("/")[0] for name in known if name.startswith(prefix)})

    def links(self, path: str) -> int:
        return 1

    def sync_directory(self, path: str) -> None:
        """What was put in place there is kept in the store when this returns, and what was removed is not. While the
        log is closed that is so after the checkpoint alone, which is the last. Raises OSError."""
        closing = self._backing.is_closing
        if closing and path:
            return

        def is_meant(name: str) -> bool:
            return closing or name.rpartition("/")[0] == path

        names = set(filter(is_meant, list(self._changed)))
        if self._opening and path == index.FOLDER:
            self._deferred |= names
            return
        names |= self._deferred
        self._deferred.clear()
        data = {name: self._all_of(name) for name in sorted(names & self._changed)}
        if data:
            self._backing.put_files(data)
            self._changed.difference_update(data)
        gone = list(filter(is_meant, list(self._removed)))
        if gone:
            self._backing.remove_files(gone)
            self._removed.difference_update(gone)

    def _all_of(self, path: str) -> bytes:
        file = self._fs.open(path)
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()


def _is_compacted(path: str) -> bool:
    """The messages of a compacted segment, not its index."""
    folder, _, name = path.rpartition("/")
    return folder == clean_files.FOLDER and name.isdigit()


class _LocalFile:
    """All of it is here. It is not synced: it would be made anew."""

    def __init__(self, file: File) -> None:
        self.opened_s = time.monotonic()
        self.pwritev = file.pwritev
        self.pread = file.pread
        self.pread_into = file.pread_into
        self.pread_cached_into = file.pread_cached_into
        self.expect = file.expect
        self.forget = file.forget
        self.written = file.written
        self.allocate = file.allocate
        self.size = file.size
        self.map = file.map
        self.close = file.close

    def sync(self) -> None:
        pass


class _Remote:
    """What of a file of the store is here, for all who have it open."""

    def __init__(self, size: int, read: Read) -> None:
        self.size = size
        self._read = read
        self._here = bytearray(-(-size // BLOCK_BYTES))
        """Of each block, whether it is here."""
        self.filled_s = 0.0
        """When one came last."""
        self._filling = threading.Lock()

    @property
    def bytes_here(self) -> int:
        return min(self.size, self._here.count(1) * BLOCK_BYTES)

    def has(self, low: int, high: int) -> bool:
        if low >= high:
            return True
        first, last = low // BLOCK_BYTES, (high - 1) // BLOCK_BYTES
        return self._here.count(1, first, last + 1) == last + 1 - first

    def fill(self, file: File, low: int, high: int) -> None:
        """Have these bytes in the file, which is this one. In a thread; raises OSError, also where they were dropped
        meanwhile."""
        if self.has(low, high):
            return
        with self._filling:
            for block in range(low // BLOCK_BYTES, (min(high, self.size) - 1) // BLOCK_BYTES + 1):
                if not self._here[block]:
                    begin = block * BLOCK_BYTES
                    end = min(begin + BLOCK_BYTES, self.size)
                    reached = begin
                    for at, data in self._read(begin, end):
                        write_all(file, [data], at)
                        reached += len(data)
                    if reached < end:  # what is not there would be read as zeroes
                        raise OSError(f"{end - reached} bytes of a segment from {begin} on are gone: it has expired")
                    self._here[block] = 1
                    self.filled_s = time.monotonic()


class _RemoteFile:
    """A segment that another node wrote, or this one in an earlier epoch, or that is not here any more. Nobody writes
    to it."""

    def __init__(self, file: File, remote: _Remote) -> None:
        self._file = file
        self.remote = remote
        self._size = remote.size
        self.is_here = remote.has
        self.forget = file.forget
        self.close = file.close

    def fill(self, low: int, high: int) -> None:
        self.remote.fill(self._file, low, high)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        raise OSError(errno.EROFS, "a segment of an earlier epoch is not written to")

    def pread(self, length: int, position: int) -> bytes:
        self.fill(position, position + length)
        return self._file.pread(length, position)

    def pread_into(self, buffer: memoryview, position: int) -> None:
        self.fill(position, position + len(buffer))
        self._file.pread_into(buffer, position)

    def pread_cached_into(self, buffer: memoryview, position: int) -> bool:
        return self.is_here(position, position + len(buffer)) and self._file.pread_cached_into(buffer, position)

    def expect(self, length: int, position: int) -> bool:
        return not self.is_here(position, position + length) or self._file.expect(length, position)

    def written(self, position: int) -> tuple[int, int]:
        return min(position, self._size), self._size

    def sync(self) -> None:
        pass

    def allocate(self, size: int) -> None:
        raise OSError(errno.EROFS, "a segment of an earlier epoch is not written to")

    def size(self) -> int:
        return self._size

    def map(self) -> Mapping:
        return _RemoteMapping(self._file.map(), self)


class _RemoteMapping:
    def __init__(self, mapping: Mapping, file: _RemoteFile) -> None:
        self._mapping = mapping
        self._file = file
        self.view = mapping.view

    def in_memory(self, start: int, end: int) -> bool:
        return self._file.is_here(start, end) and self._mapping.in_memory(start, end)

    def release(self) -> bool:
        released = self._mapping.release()
        if not released:
            self.view = self._mapping.view
        return released
