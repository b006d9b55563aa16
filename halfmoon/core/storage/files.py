"""The file-system port, and the real one behind it.

Everything the core keeps goes through these two protocols, so that tests can run it over a file system that loses
unsynced bytes, tears and shortens writes, and returns ENOSPC and EIO (`halfmoon.testing.faulty_files`).
Paths are relative to the data directory and use `/`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from halfmoon.core.storage.held_back import HeldBack
from halfmoon.errors import StartError

Buffer = bytes | bytearray | memoryview
LOCK: Final = "lock"
"""The file of a data directory that its broker holds locked."""

FILE_MODE, DIRECTORY_MODE = 0o600, 0o700
"""Messages and credentials are their owner's alone."""
_OTHERS: Final = 0o077

IOV_MAX: Final = 1024
"""Most buffers that one pwritev takes (Linux: UIO_MAXIOV)."""


class Mapping(Protocol):
    """A read-only view of a whole file that follows what is written to it."""

    view: memoryview

    def in_memory(self, start: int, end: int) -> bool:
        """Whether all of these bytes are in memory, so that touching them does not wait for the disk. False too where
        that cannot be told."""

    def release(self) -> bool:
        """Unmap. False, and still mapped, while somebody holds a slice of `view`."""


class File(Protocol):
    """An open file. All positions are absolute; there is no file pointer."""

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write buffers one after the other; returns the bytes written, which may be fewer. Raises OSError."""

    def pread(self, length: int, position: int) -> bytes: ...

    def pread_into(self, buffer: memoryview, position: int) -> None:
        """Fill `buffer`. Raises OSError, also where the file ends before."""

    def pread_cached_into(self, buffer: memoryview, position: int) -> bool:
        """As `pread_into`, but False where that would wait for the disk."""

    def expect(self, length: int, position: int) -> bool:
        """This is going to be read: what of it is not in memory may be on its way from the disk meanwhile. Returns
        whether it was not, as far as a byte in its middle tells."""

    def forget(self, length: int, position: int) -> None:
        """Nobody is expected to read this again soon: what of it is on the disk need not stay in memory."""

    def written(self, position: int) -> tuple[int, int]:
        """The first stretch [from, to) at or behind `position` that may have been written to; what is outside reads as
        zeroes. Where nothing follows, or the file ends, it is empty."""

    def sync(self) -> None:
        """fdatasync: what was written before this call survives power loss once it returns. Raises OSError."""

    def allocate(self, size: int) -> None:
        """Reserve disk for the first `size` bytes. Raises OSError (ENOSPC)."""

    def size(self) -> int: ...

    def map(self) -> Mapping: ...

    def close(self) -> None: ...


class FileSystem(Protocol):
    """A directory with files and folders."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Raises FileNotFoundError unless `create`, FileExistsError with it where the file exists."""

    def rename(self, source: str, target: str) -> None:
        """Replaces `target`. Durable after `sync_directory` of its folder."""

    def remove(self, path: str) -> None: ...

    def listdir(self, path: str) -> list[str]:
        """Names in a folder, sorted; an empty list where the folder does not exist."""

    def make_directory(self, path: str) -> None: ...

    def links(self, path: str) -> int:
        """How many names the file has: more than one while a backup shares it."""

    def sync_directory(self, path: str) -> None:
        """Makes creations, renames and removals in a folder survive power loss."""

    def free_bytes(self) -> int:
        """Bytes that may still be written."""

    def memory_bytes(self) -> int:
        """The most memory that its files may take as page cache."""

    def exposed(self) -> str | None:
        """A file that others than its owner may read; None where there is none, or that cannot be told."""


class OsMapping(Mapping):
    def __init__(self, fd: int, size: int, held: HeldBack | None = None) -> None:
        held = held or HeldBack()
        # It keeps a descriptor of its own.
        self._map = held.run(lambda: mmap.mmap(fd, size, access=mmap.ACCESS_READ))
        self.view = memoryview(self._map)
        self._address = 0

    def in_memory(self, start: int, end: int) -> bool:
        from halfmoon.core.storage import (
            page_cache,  # ctypes costs start-up time, and only readers of older data come here
        )

        if not self._address:
            self._address = page_cache.address_of(self._map)
        return page_cache.all_in_memory(self._address + start, end - start)

    def release(self) -> bool:
        try:
            self.view.release()
            self._map.close()
        except BufferError:  # a slice is still being sent
            self.view = memoryview(self._map)
            return False
        return True


class OsFile(File):
    """A file of this machine."""

    def __init__(self, fd: int, held: HeldBack | None = None) -> None:
        self._fd = fd
        self._held = held
        # Reads ask for all they want at once; read-ahead beyond that would stand before our fdatasyncs in the disk's
        # queue (a cold reader at full speed: p50 of a synced produce 26 ms with it, 2 ms without).
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        return os.pwritev(self._fd, buffers, position)

    def pread(self, length: int, position: int) -> bytes:
        parts = []
        while length > 0:
            part = os.pread(self._fd, length, position)
            if not part:
                break
            parts.append(part)
            length -= len(part)
            position += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def pread_into(self, buffer: memoryview, position: int) -> None:
        done = 0
        while done < len(buffer):
            part = os.preadv(self._fd, [buffer[done:]], position + done)
            if not part:
                raise OSError(errno.EIO, f"the file ends at {position + done}")
            done += part

    def pread_cached_into(self, buffer: memoryview, position: int) -> bool:
        try:
            # The last byte first: who reads cold data in order would else fill a buffer in vain each time.
            os.preadv(self._fd, [bytearray(1)], position + len(buffer) - 1, os.RWF_NOWAIT)
            done = os.preadv(self._fd, [buffer], position, os.RWF_NOWAIT)
        except OSError:  # not cached (EAGAIN), or a file system without RWF_NOWAIT
            return False
        return done == len(buffer)

    def expect(self, length: int, position: int) -> bool:
        try:
            os.preadv(self._fd, [bytearray(1)], position + length // 2, os.RWF_NOWAIT)
        except OSError:
            with contextlib.suppress(OSError):  # advice; a file system may not take it
                os.posix_fadvise(self._fd, position, length, os.POSIX_FADV_WILLNEED)
            return True
        return False

    def forget(self, length: int, position: int) -> None:
        # The kernel leaves out a page that is not wholly inside.
        begin = position - position % mmap.PAGESIZE
        end = position + length + -(position + length) % mmap.PAGESIZE
        with contextlib.suppress(OSError):  # advice; a file system may not take it
            os.posix_fadvise(self._fd, begin, end - begin, os.POSIX_FADV_DONTNEED)

    def written(self, position: int) -> tuple[int, int]:
        size = self.size()
        if position >= size:
            return size, size
        try:
            start = os.lseek(self._fd, position, os.SEEK_DATA)
            return start, os.lseek(self._fd, start, os.SEEK_HOLE)
        except OSError as error:
            # ENXIO: nothing but a hole. Else the file system cannot tell.
            return (size, size) if error.errno == errno.ENXIO else (position, size)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def allocate(self, size: int) -> None:
        os.posix_fallocate(self._fd, 0, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def map(self) -> OsMapping:
        return OsMapping(self._fd, self.size(), self._held)

    def close(self) -> None:
        # Whoever uses it still, in a thread, must not come upon the next file that gets this number.
        fd, self._fd = self._fd, -1
        os.close(fd)


class OsFileSystem(FileSystem):
    """A directory of this machine, held by one process at a time."""

    def __init__(self, root: str | os.PathLike[str], *, read_only: bool = False) -> None:
        """Makes the directory where there is none; with `read_only` that is a StartError, and files open for
        reading."""
        self.root = Path(root)
        self.held_back = HeldBack()
        self._lock: int | None = None
        self._access = os.O_RDONLY if read_only else os.O_RDWR
        if read_only:
            if not self.root.is_dir():
                raise StartError(f"there is no directory {self.root}")
            return
        try:
            self.root.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        except OSError as error:
            raise StartError(f"data directory {self.root} cannot be created: {error.strerror}") from error

    def lock(self) -> None:
        """Keep other processes out until this one ends. Raises StartError where another one is in."""
        path = self.root / LOCK
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            raise StartError(f"data directory {self.root} cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip()
            os.close(fd)
            raise StartError(
                f"data directory {self.root} is in use by another broker (pid {holder or 'unknown'})"
            ) from error
        with contextlib.suppress(OSError):  # on a full disk; it is only for the message above
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._lock = fd

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        self.held_back.release()

    def open(self, path: str, *, create: bool = False) -> OsFile:
        flags = self._access | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        return OsFile(self.held_back.run(lambda: os.open(self.root / path, flags, FILE_MODE)), self.held_back)

    def rename(self, source: str, target: str) -> None:
        (self.root / source).rename(self.root / target)

    def remove(self, path: str) -> None:
        (self.root / path).unlink()

    def listdir(self, path: str) -> list[str]:
        try:
            return sorted(entry.name for entry in (self.root / path).iterdir())
        except FileNotFoundError:
            return []

    def make_directory(self, path: str) -> None:
        (self.root / path).mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)

    def links(self, path: str) -> int:
        return (self.root / path).stat().st_nlink

    def sync_directory(self, path: str) -> None:
        fd = self.held_back.run(lambda: os.open(self.root / path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free_bytes(self) -> int:
        stat = os.statvfs(self.root)
        return stat.f_bavail * stat.f_frsize

    def memory_bytes(self) -> int:
        from halfmoon.core.storage import page_cache  # see OsMapping.in_memory

        return page_cache.memory_bytes()

    def exposed(self) -> str | None:
        # Nobody reaches a file through a directory that is closed to him.
        try:
            if not self.root.stat().st_mode & _OTHERS:
                return None
            for folder in (self.root, *(each for each in self.root.iterdir() if each.is_dir())):
                for each in folder.iterdir() if folder.stat().st_mode & _OTHERS else ():
                    if each.is_file() and each.stat().st_mode & _OTHERS:
                        return str(each)
        except OSError:  # what expires meanwhile
            pass
        return None


ASIDE: Final = ".new"
"""How the name of a file ends that is not whole yet."""


def copy_file(source: Path, target: Path) -> None:
    """The content, into a file of its owner's alone. Raises OSError, and makes no file where there is no source."""
    import shutil  # here, as it brings all compressions with it

    opener = partial(os.open, mode=FILE_MODE)
    with source.open("rb") as reading, open(target, "wb", opener=opener) as writing:
        shutil.copyfileobj(reading, writing, 1 << 20)


def write_file(fs: FileSystem, path: str, data: Sequence[Buffer]) -> None:
    """Put a whole small file in place, atomically and durably. Raises OSError; what was there before is there still."""
    replace_file(fs, path, lambda file: write_all(file, data, 0))


def replace_file(fs: FileSystem, path: str, fill: Callable[[File], object]) -> None:
    """Put a file in place that `fill` writes: aside, sync, rename, sync the folder. Raises OSError as `write_file`."""
    aside = path + ASIDE
    with contextlib.suppress(FileNotFoundError):
        fs.remove(aside)
    file = fs.open(aside, create=True)
    try:
        fill(file)
        file.sync()
    except OSError:  # no space, most likely: give back what was taken
        with contextlib.suppress(OSError):
            fs.remove(aside)
        raise
    finally:
        file.close()
    fs.rename(aside, path)
    fs.sync_directory(path.rpartition("/")[0])


def write_all(file: File, buffers: Sequence[Buffer], position: int) -> int:
    """Write every byte of `buffers`, however short the single writes come out; returns the end position."""
    if len(buffers) <= IOV_MAX:
        return _write(file, buffers, position)
    for first in range(0, len(buffers), IOV_MAX):
        position = _write(file, buffers[first : first + IOV_MAX], position)
    return position


def _write(file: File, buffers: Sequence[Buffer], position: int) -> int:
    left = 0
    for buffer in buffers:
        left += len(buffer)
    rest = buffers
    while left:
        done = file.pwritev(rest, position)
        if done == 0:
            raise OSError(errno.EIO, "a write wrote nothing")
        position += done
        left -= done
        if left:
            rest = _after(rest, done)
    return position


def _after(buffers: Sequence[Buffer], done: int) -> Sequence[Buffer]:
    """What is left of `buffers` once their first `done` bytes are written."""
    for index, buffer in enumerate(buffers):
        size = len(buffer)
        if done < size:
            return [memoryview(buffer)[done:], *buffers[index + 1 :]] if done else buffers[index:]
        done -= size
    return ()


def read_file(fs: FileSystem, path: str) -> bytes | None:
    """A whole small file, or None where there is none."""
    try:
        file = fs.open(path)
    except FileNotFoundError:
        return None
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()
