"""The real file system behind the port."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from halfmoon.core.storage.files import (
    IOV_MAX,
    Buffer,
    OsFile,
    OsFileSystem,
    read_file,
    replace_file,
    write_all,
    write_file,
)
from halfmoon.errors import StartError


@pytest.fixture
def fs(tmp_path: Path) -> OsFileSystem:
    return OsFileSystem(tmp_path / "data")


class Stingy:
    """Writes three bytes at a time."""

    def __init__(self, file: OsFile) -> None:
        self._file = file

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        return self._file.pwritev([b"".join(bytes(buffer) for buffer in buffers)[:3]], position)


def test_short_writes_are_carried_on(tmp_path: Path) -> None:
    file = OsFile(os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT))
    assert write_all(Stingy(file), [b"ab", b"", memoryview(b"cdefg"), bytearray(b"h")], 2) == 10
    assert file.pread(20, 0) == b"\0\0abcdefgh"
    file.close()


def test_more_buffers_than_one_call_takes_are_written(fs: OsFileSystem) -> None:
    file = fs.open("f", create=True)
    count = 2 * IOV_MAX + 7
    assert write_all(file, [b"%04d" % (n % 10_000) for n in range(count)], 0) == 4 * count
    assert file.pread(4 * count, 0) == b"".join(b"%04d" % (n % 10_000) for n in range(count))
    file.close()


def test_a_write_that_writes_nothing_is_an_error(tmp_path: Path) -> None:
    class Stuck:
        def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
            return 0

    with pytest.raises(OSError, match="wrote nothing"):
        write_all(Stuck(), [b"x"], 0)


def test_reading_beyond_the_end_gives_what_there_is(fs: OsFileSystem) -> None:
    file = fs.open("f", create=True)
    file.pwritev([b"abc"], 0)
    assert file.pread(10, 1) == b"bc"
    assert file.pread(10, 5) == b""
    buffer = memoryview(bytearray(2))
    assert file.pread_cached_into(buffer, 1)
    assert buffer == b"bc"
    assert not file.pread_cached_into(memoryview(bytearray(10)), 1)
    file.pread_into(buffer, 0)
    assert buffer == b"ab"
    with pytest.raises(OSError, match="the file ends at 3"):
        file.pread_into(memoryview(bytearray(10)), 1)
    file.close()


def test_a_mapping_knows_what_of_it_is_in_memory(fs: OsFileSystem) -> None:
    size = 64 * mmap.PAGESIZE
    file = fs.open("f", create=True)
    file.pwritev([os.urandom(size)], 0)
    file.sync()
    mapping = file.map()
    assert mapping.in_memory(0, size)
    assert mapping.in_memory(5, 6)
    assert mapping.in_memory(mmap.PAGESIZE - 1, mmap.PAGESIZE + 1)
    assert not mapping.in_memory(7, 7), "of nothing it cannot be told"
    assert mapping.release(), "the question leaves nothing behind"
    fd = os.open(Path(fs.root) / "f", os.O_RDWR)
    os.posix_fadvise(fd, 0, size, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    mapping = file.map()
    if mapping.in_memory(0, size):
        pytest.skip("this file system keeps its files in memory")
    file.pread(mmap.PAGESIZE, 0)
    assert mapping.in_memory(0, mmap.PAGESIZE)
    assert not mapping.in_memory(0, size)
    file.pread(size, 0)
    assert mapping.in_memory(0, size)
    mapping.release()
    file.close()


def test_what_is_forgotten_leaves_memory_and_nothing_beside_it(fs: OsFileSystem) -> None:
    page = mmap.PAGESIZE
    file = fs.open("f", create=True)
    data = os.urandom(64 * page)
    file.pwritev([data], 0)
    file.sync()
    # Read with read-ahead switched off, so that each page stands for itself in the cache.
    file.forget(64 * page, 0)
    mapping = file.map()
    if mapping.in_memory(0, page):
        pytest.skip("this file system keeps its files in memory")
    file.pread(64 * page, 0)
    file.forget(2 * page, 10 * page + 5)
    for number in range(64):
        forgotten = 10 <= number <= 12
        assert mapping.in_memory(number * page, (number + 1) * page) is not forgotten, number
    assert file.pread(64 * page, 0) == data
    mapping.release()
    file.close()


def test_what_is_not_on_the_disk_yet_is_not_forgotten(fs: OsFileSystem) -> None:
    file = fs.open("f", create=True)
    file.pwritev([b"new" * 5000], 0)
    file.forget(15_000, 0)
    assert file.pread(15_000, 0) == b"new" * 5000
    file.close()


def test_allocated_space_reads_as_zeros_and_counts_in_the_size(fs: OsFileSystem) -> None:
    file = fs.open("f", create=True)
    file.allocate(10_000)
    assert file.size() == 10_000
    assert file.pread(3, 9_990) == b"\0\0\0"
    file.close()


def test_a_mapping_follows_the_file_and_is_kept_while_a_slice_of_it_is_out(fs: OsFileSystem) -> None:
    file = fs.open("f", create=True)
    file.allocate(4096)
    mapping = file.map()
    file.pwritev([b"hello"], 10)
    held = mapping.view[10:15]
    assert held == b"hello"
    assert not mapping.release()
    assert mapping.view[10:15] == b"hello"
    file.close()
    assert held == b"hello"
    held.release()
    assert mapping.release()


def test_files_are_made_once_and_opened_only_if_they_exist(fs: OsFileSystem) -> None:
    with pytest.raises(FileNotFoundError):
        fs.open("f")
    fs.open("f", create=True).close()
    with pytest.raises(FileExistsError):
        fs.open("f", create=True)
    fs.remove("f")
    with pytest.raises(FileNotFoundError):
        fs.remove("f")


def test_folders(fs: OsFileSystem) -> None:
    assert fs.listdir("log") == []
    fs.make_directory("log")
    fs.make_directory("log")
    for name in ("b", "a"):
        fs.open(f"log/{name}", create=True).close()
    fs.rename("log/b", "log/c")
    fs.sync_directory("log")
    assert fs.listdir("log") == ["a", "c"]
    assert fs.free_bytes() > 0


def test_links_are_counted(fs: OsFileSystem) -> None:
    fs.open("f", create=True).close()
    assert fs.links("f") == 1
    os.link(fs.root / "f", fs.root / "g")
    assert fs.links("f") == 2


def test_a_small_file_is_replaced_as_a_whole(fs: OsFileSystem) -> None:
    assert read_file(fs, "f") is None
    write_file(fs, "f", [b"one"])
    write_file(fs, "f", [b"t", b"wo"])
    assert read_file(fs, "f") == b"two"
    assert fs.listdir("") == ["f"]


def test_a_replacement_that_fails_leaves_what_was_there_and_nothing_else(fs: OsFileSystem) -> None:
    write_file(fs, "f", [b"one"])

    def fill(file: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OSError, match="full"):
        replace_file(fs, "f", fill)
    assert read_file(fs, "f") == b"one"
    assert fs.listdir("") == ["f"]


def test_a_replacement_does_not_stumble_over_one_that_was_cut_off(fs: OsFileSystem) -> None:
    fs.open("f.new", create=True).close()
    write_file(fs, "f", [b"one"])
    assert fs.listdir("") == ["f"]


def test_a_directory_belongs_to_one_process(fs: OsFileSystem) -> None:
    fs.lock()
    other = "import sys; from halfmoon.core.storage.files import OsFileSystem; OsFileSystem(sys.argv[1]).lock()"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", other, str(fs.root)]
    refused = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert refused.returncode != 0
    assert f"is in use by another broker (pid {os.getpid()})" in refused.stderr
    fs.unlock()
    assert subprocess.run(command, capture_output=True, check=False, env=environment).returncode == 0


def test_a_directory_that_cannot_be_made_is_said_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StartError, match="cannot be created: Not a directory"):
        OsFileSystem(tmp_path / "file" / "data")


def test_read_only_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="no directory"):
        OsFileSystem(tmp_path / "data", read_only=True)
    assert not (tmp_path / "data").exists()
    write_file(OsFileSystem(tmp_path / "data"), "f", [b"x"])
    file = OsFileSystem(tmp_path / "data", read_only=True).open("f")
    assert file.map().view == b"x"
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pwritev([b"y"], 0)
    file.close()


def test_what_was_written_of_an_allocated_file(tmp_path: Path) -> None:
    fs = OsFileSystem(tmp_path)
    file = fs.open("f", create=True)
    assert file.written(0) == (0, 0)
    file.allocate(1 << 20)
    file.pwritev([b"x" * 5_000], 100_000)
    stretches = []
    start, end = file.written(0)
    while start < end:
        stretches.append((start, end))
        start, end = file.written(end)
    assert (start, end) == (1 << 20, 1 << 20)
    # A file system that cannot tell says the whole file.
    assert all(stretches[at][1] <= stretches[at + 1][0] for at in range(len(stretches) - 1))
    assert any(low <= 100_000 and high >= 105_000 for low, high in stretches)
    file.close()


@pytest.mark.parametrize(("code", "found"), [(errno.ENXIO, (4_096, 4_096)), (errno.EINVAL, (10, 4_096))])
def test_file_systems_that_know_nothing_of_holes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, found: tuple[int, int]
) -> None:
    def lseek(fd: int, position: int, how: int) -> int:
        raise OSError(code, os.strerror(code))

    file = OsFileSystem(tmp_path).open("f", create=True)
    file.allocate(4_096)
    monkeypatch.setattr("halfmoon.core.storage.files.os.lseek", lseek)
    assert file.written(10) == found
    file.close()


@pytest.fixture
def few_descriptors() -> Iterator[Callable[[], list[int]]]:
    """A function that takes all descriptors there are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []

    def take() -> list[int]:
        used = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 8, hard))
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        return taken

    yield take
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for fd in taken:
        os.close(fd)


def test_files_are_opened_though_connections_have_all_descriptors(
    tmp_path: Path, few_descriptors: Callable[[], list[int]]
) -> None:
    fs = OsFileSystem(tmp_path)
    fs.held_back.hold(6)
    taken = few_descriptors()
    with pytest.raises(OSError, match="Too many open files"):
        os.open(os.devnull, os.O_RDONLY)
    file = fs.open("segment", create=True)
    file.allocate(4096)
    mapping = file.map()
    fs.sync_directory("")
    assert mapping.release()
    file.close()
    # What was taken of the reserve comes back when there is room again.
    os.close(taken.pop())
    for _ in range(20):
        file = fs.open("segment")
        file.map()
        file.close()
    fs.held_back.release()


def test_without_a_reserve_the_reason_is_told(tmp_path: Path, few_descriptors: Callable[[], list[int]]) -> None:
    fs = OsFileSystem(tmp_path)
    few_descriptors()
    with pytest.raises(OSError, match="Too many open files"):
        fs.open("segment", create=True)


def test_a_file_that_was_closed_is_not_the_next_one_of_its_number(fs: OsFileSystem) -> None:
    """A thread may come late. What it writes must not come into somebody else's file."""
    first = fs.open("first", create=True)
    first.close()
    second = fs.open("second", create=True)
    for late in (lambda: first.pwritev([b"late"], 0), lambda: first.pread(1, 0), first.size, first.close):
        with pytest.raises(OSError, match="Bad file descriptor"):
            late()
    assert second.size() == 0
    second.close()
