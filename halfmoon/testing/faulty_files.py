"""A file system in memory that fails the way disks do, behind the core's port (`halfmoon.core.storage.files`).

What a write changes is in the *cache* at once and on the *disk* only after `sync`; what a create, rename or remove
changes is on the disk only after `sync_directory`. `power_loss` returns what a machine would find after the power
came back: of every page written since the last sync, by the dice, the new bytes, the old ones, or the new ones up to
some sector; of the changes of names, the first few. `kill` returns what a process would find after `kill -9`: all of
the cache.

Faults to be switched on: `free` (bytes left before ENOSPC), `sync_s` (what a sync takes), `fail_sync` and `fail_write`
(EIO), `no_descriptors` (EMFILE), `spoil` (one file's writes and syncs fail with EIO), `short_writes`, and `crash_at`:
the process dies at the n-th operation that changes anything. After a failed sync the pages count as clean although the
disk got only some of them, as on Linux.
"""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Sequence

from halfmoon.core.storage.files import Buffer

PAGE = 4096
SECTOR = 512


class ProcessDied(BaseException):
    """`crash_at` was reached. No `except Exception` stops it, and whatever tries to clean up finds a dead process."""


class Inode:
    """A file's bytes, as the cache and as the disk have them."""

    __slots__ = ("bad", "cache", "dirty", "disk", "links")

    def __init__(self, cache: bytearray, disk: bytearray) -> None:
        self.links = 1
        self.bad = False
        self.cache = cache
        self.disk = disk
        self.dirty: set[int] = set()
        """Numbers of the pages in which the two may differ."""


class FaultyMapping:
    def __init__(self, fs: FaultyFileSystem, inode: Inode) -> None:
        self._fs = fs
        self._inode = inode
        self.view = memoryview(inode.cache).toreadonly()

    def in_memory(self, start: int, end: int) -> bool:
        return not self._fs.cold

    def release(self) -> bool:
        self.view.release()
        try:
            self._inode.cache.append(0)  # refused while a slice is out
        except BufferError:
            self.view = memoryview(self._inode.cache).toreadonly()
            return False
        del self._inode.cache[-1:]
        return True


class FaultyFile:
    def __init__(self, fs: FaultyFileSystem, inode: Inode) -> None:
        self._fs = fs
        self._inode = inode

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        fs, inode = self._fs, self._inode
        data = b"".join(bytes(buffer) for buffer in buffers)
        if fs.dies_now():
            data = data[: fs.dice.randrange(len(data) + 1)]  # it got so far
        elif fs.fail_write or inode.bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if fs.short_writes and len(data) > 1:
            data = data[: fs.dice.randrange(1, len(data) + 1)]
        grown = position + len(data) - len(inode.cache)
        if grown > 0:
            fs.take(grown)
            inode.cache.extend(bytes(grown))
        inode.cache[position : position + len(data)] = data
        if data:
            inode.dirty.update(range(position // PAGE, (position + len(data) - 1) // PAGE + 1))
        fs.die_if_dead()
        return len(data)

    def pread(self, length: int, position: int) -> bytes:
        self._fs.bytes_read += length
        return bytes(self._inode.cache[position : position + length])

    def pread_into(self, buffer: memoryview, position: int) -> None:
        data = self.pread(len(buffer), position)
        if len(data) < len(buffer):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        buffer[:] = data

    def pread_cached_into(self, buffer: memoryview, position: int) -> bool:
        if not self._fs.cold:
            self.pread_into(buffer, position)
        return not self._fs.cold

    def expect(self, length: int, position: int) -> bool:
        self._fs.expected.append((position, position + length))
        return self._fs.cold

    def written(self, position: int) -> tuple[int, int]:
        return min(position, self.size()), self.size()

    def forget(self, length: int, position: int) -> None:
        self._fs.forgotten.append((position, position + length))

    def sync(self) -> None:
        inode = self._inode
        self._fs.operation()
        self._fs.syncs += 1
        if self._fs.sync_s:
            time.sleep(self._fs.sync_s)
        pages, inode.dirty = sorted(inode.dirty), set()  # in a thread, while others are written
        if self._fs.fail_sync or inode.bad:
            for page in pages:
                if self._fs.dice.random() < 0.5:
                    _copy_page(inode, inode.disk, page, PAGE)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        for page in pages:
            _copy_page(inode, inode.disk, page, PAGE)
        inode.disk.extend(inode.cache[len(inode.disk) :])

    def allocate(self, size: int) -> None:
        inode = self._inode
        self._fs.operation()
        grown = size - len(inode.cache)
        if grown > 0:
            self._fs.take(grown)
            inode.cache.extend(bytes(grown))
            inode.disk.extend(bytes(size - len(inode.disk)))

    def size(self) -> int:
        return len(self._inode.cache)

    def map(self) -> FaultyMapping:
        self._fs.maps += 1
        return FaultyMapping(self._fs, self._inode)

    def close(self) -> None:
        pass


class FaultyFileSystem:
    """See the head of the module. `dice` decides everything that is left to chance."""

    def __init__(self, dice: random.Random, free: int = 1 << 40) -> None:
        self.dice = dice
        self.free = free
        self.sync_s = 0.0
        """How long a sync of a file takes."""
        self.fail_sync = False
        self.fail_write = False
        self.no_descriptors = False
        """Opening a file fails with EMFILE."""
        self.short_writes = False
        self.readable_by_others: str | None = None
        """A file."""
        self.cold = False
        """Pretend that nothing but the mapped window is in the page cache."""
        self.crash_at = 0
        """Die at this operation, counted from 1; 0 is never."""
        self.operations = 0
        self.dead = False
        self.syncs = 0
        self.bytes_read = 0
        self.memory = 1 << 30
        self.expected: list[tuple[int, int]] = []
        self.forgotten: list[tuple[int, int]] = []
        """The (start, end) of whatever a file was told to forget. It is still read as before."""
        self.maps = 0
        self.names: dict[str, Inode] = {}
        self._disk_names: dict[str, Inode] = {}
        self._changes: list[tuple[str, str | None, Inode | None]] = []
        """Changes of names not on disk yet: (folder, path, what it names now or None)."""

    def dies_now(self) -> bool:
        """Count an operation; whether it is the one that the process dies in."""
        self.die_if_dead()
        self.operations += 1
        self.dead = self.operations == self.crash_at
        return self.dead

    def die_if_dead(self) -> None:
        if self.dead:
            raise ProcessDied

    def operation(self) -> None:
        """Count an operation that happens wholly or, where the process dies, not at all."""
        self.dies_now()
        self.die_if_dead()

    def spoil(self, path: str) -> None:
        """From now on writes and syncs of this file fail with EIO."""
        self.names[path].bad = True

    def take(self, count: int) -> None:
        if count > self.free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.free -= count

    def _name(self, path: str, inode: Inode | None) -> None:
        if inode is None:
            del self.names[path]
        else:
            self.names[path] = inode
        self._changes.append((path.rpartition("/")[0], path, inode))

    def open(self, path: str, *, create: bool = False) -> FaultyFile:
        if self.no_descriptors:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        inode = self.names.get(path)
        if create:
            if inode is not None:
                raise FileExistsError(path)
            self.operation()
            inode = Inode(bytearray(), bytearray())
            self._name(path, inode)
        if inode is None:
            raise FileNotFoundError(path)
        return FaultyFile(self, inode)

    def rename(self, source: str, target: str) -> None:
        inode = self.names.get(source)
        if inode is None:
            raise FileNotFoundError(source)
        self.operation()
        if target in self.names:
            self.free += len(self.names[target].cache)
        # One step on a journalling file system: either name, never both or none.
        del self.names[source]
        self.names[target] = inode
        folder = target.rpartition("/")[0]
        self._changes.append((folder, None, None))
        self._changes += [(folder, target, inode), (folder, source, None)]

    def remove(self, path: str) -> None:
        if path not in self.names:
            raise FileNotFoundError(path)
        self.operation()
        self.free += len(self.names[path].cache)
        self._name(path, None)

    def listdir(self, path: str) -> list[str]:
        prefix = path + "/" if path else ""
        return sorted(
            name[len(prefix) :] for name in self.names if name.startswith(prefix) and "/" not in name[len(prefix) :]
        )

    def make_directory(self, path: str) -> None:
        pass

    def links(self, path: str) -> int:
        return self.names[path].links

    def sync_directory(self, path: str) -> None:
        self.operation()
        if self.fail_sync:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._settle_names(len(self._changes))

    def free_bytes(self) -> int:
        return self.free

    def memory_bytes(self) -> int:
        return self.memory

    def exposed(self) -> str | None:
        return self.readable_by_others

    def _settle_names(self, count: int) -> None:
        """Bring the first changes of names to disk. Journals keep their order across folders, so one order serves
        all."""
        while count < len(self._changes) and count > 0 and self._changes[count - 1][1] is None:
            count += 1
        if count < len(self._changes) and count > 1 and self._changes[count - 2][1] is None:
            count += 1  # both halves of a rename
        for _, path, inode in self._changes[:count]:
            if path is None:
                continue
            if inode is None:
                self._disk_names.pop(path, None)
            else:
                self._disk_names[path] = inode
        del self._changes[:count]

    # -- what is left after a crash ----------------------------------------------------------------------------------

    def kill(self) -> FaultyFileSystem:
        """After kill −9: the cache is whole, and still not on disk."""
        found = FaultyFileSystem(self.dice, self.free)
        copies = {id(inode): self._copy(inode) for inode in [*self.names.values(), *self._disk_names.values()]}
        found.names = {path: copies[id(inode)] for path, inode in self.names.items()}
        found._disk_names = {path: copies[id(inode)] for path, inode in self._disk_names.items()}
        found._changes = [
            (folder, path, None if inode is None else copies.setdefault(id(inode), self._copy(inode)))
            for folder, path, inode in self._changes
        ]
        return found

    @staticmethod
    def _copy(inode: Inode) -> Inode:
        copy = Inode(bytearray(inode.cache), bytearray(inode.disk))
        copy.dirty = set(inode.dirty)
        copy.bad, copy.links = inode.bad, inode.links
        return copy

    def power_loss(self) -> FaultyFileSystem:
        """After a loss of power: what was synced, and by chance parts of the rest."""
        self._settle_names(self.dice.randrange(len(self._changes) + 1))
        found = FaultyFileSystem(self.dice, self.free)
        for path, inode in self._disk_names.items():
            disk = bytearray(inode.disk)
            for page in inode.dirty:
                kept = self.dice.choice((0, 0, PAGE, PAGE, SECTOR * self.dice.randrange(PAGE // SECTOR)))
                if kept:
                    _copy_page(inode, disk, page, kept)
            left = Inode(bytearray(disk), disk)
            left.bad, left.links = inode.bad, inode.links
            found.names[path] = found._disk_names[path] = left
        return found


def _copy_page(inode: Inode, disk: bytearray, page: int, count: int) -> None:
    """Bring the first `count` bytes of a page to the disk; a file that grew grows with its last such page."""
    low = page * PAGE
    data = inode.cache[low : low + count]
    if low > len(disk):
        disk.extend(bytes(low - len(disk)))
    disk[low : low + len(data)] = data
