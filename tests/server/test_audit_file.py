"""Audit's file, on disks that do not do what they should."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from halfmoon.errors import StartError
from halfmoon.server import audit_file
from halfmoon.server.audit_file import AuditFile
from tests.clients.polling import wait_for

Make = Callable[..., AuditFile]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.log"


@pytest.fixture
def make(path: Path) -> Iterator[Make]:
    with ExitStack() as stack:

        def made(write: audit_file.Write = os.write) -> AuditFile:
            file = AuditFile(path, write)
            stack.callback(file.stop)
            return file

        yield made


class Disk:
    """Writes, or fails."""

    def __init__(self) -> None:
        self.error: int | None = None
        self.room: int | None = None
        """Bytes that it takes before it is full."""
        self.hangs = threading.Event()
        self.hangs.set()

    def write(self, descriptor: int, data: bytes) -> int:
        self.hangs.wait(20)
        if self.error is not None:
            raise OSError(self.error, os.strerror(self.error))
        data = data[:7]  # never all at once
        if self.room is not None:
            if not self.room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            data = data[: self.room]
            self.room -= len(data)
        return os.write(descriptor, data)


def test_lines_are_written_in_their_order_and_nobody_else_reads_them(make: Make, path: Path) -> None:
    file = make()
    expected = b"".join(b"%d\n" % number for number in range(1_000))
    for number in range(1_000):
        file.put(b"%d" % number)
    file.stop()
    assert path.read_bytes() == expected
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (file.dropped, file.warnings()) == (0, [])


def test_a_file_that_is_there_goes_on_and_keeps_its_mode(make: Make, path: Path) -> None:
    path.write_bytes(b"before\n")
    path.chmod(0o640)
    file = make()
    file.put(b"after")
    file.stop()
    assert path.read_bytes() == b"before\nafter\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("kind", ["folder", "pipe", "absent"])
def test_what_cannot_be_opened_stops_the_start(make: Make, path: Path, kind: str) -> None:
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path = path / "below" / "a.log"
    with pytest.raises(StartError, match=r"\$\.security\.audit\.file: cannot open '.*a.*\.log': "):
        AuditFile(path)


def test_a_moved_file_gets_what_came_before_and_a_new_one_the_rest(make: Make, path: Path) -> None:
    file = make()
    file.put(b"old")
    path.rename(path.with_suffix(".1"))
    file.reopen()
    wait_for(path.exists)
    file.put(b"new")
    file.stop()
    assert path.with_suffix(".1").read_bytes() == b"old\n"
    assert path.read_bytes() == b"new\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_where_there_is_no_new_file_the_old_one_goes_on(
    make: Make, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = make()
    opened, failures = audit_file._opened, 0

    def counted(at: Path) -> int:
        nonlocal failures
        try:
            return opened(at)
        except OSError:
            failures += 1
            raise

    monkeypatch.setattr(audit_file, "_opened", counted)
    moved = path.with_suffix(".1")
    path.rename(moved)
    path.mkdir()
    file.reopen()
    wait_for(lambda: file.warnings() != [])
    assert file.warnings() == [f"the old audit file is still in use: '{path}': Is a directory"]
    file.put(b"a")
    wait_for(lambda: failures == 2)  # behind that line it was tried again
    assert moved.read_bytes() == b"a\n"
    assert file.warnings() != []
    path.rmdir()
    file.put(b"b")  # it is tried again with the next line, which still goes to the old one
    wait_for(lambda: file.warnings() == [])
    file.put(b"c")
    file.stop()
    assert (moved.read_bytes(), path.read_bytes(), file.dropped) == (b"a\nb\n", b"c\n", 0)


def test_a_full_disk_loses_lines_and_says_so(make: Make, path: Path) -> None:
    disk = Disk()
    file = make(disk.write)
    disk.error = errno.EIO
    file.put(b"lost")
    wait_for(lambda: file.dropped == 1)
    assert file.warnings() == [f"audit lines are lost: '{path}': Input/output error"]
    disk.error = None
    file.put(b"kept")
    wait_for(lambda: path.read_bytes() == b"kept\n")
    wait_for(lambda: file.warnings() == [])
    assert file.dropped == 1


def test_a_line_that_is_torn_is_counted_and_does_not_take_the_next_one_with_it(make: Make, path: Path) -> None:
    disk = Disk()
    file = make(disk.write)
    disk.hangs.clear()
    file.put(b"first")
    wait_for(lambda: file._lines == [])  # the thread has it, and what follows waits
    for line in (b"whole", b"torn apart", b"lost"):
        file.put(line)
    disk.room = len(b"first\nwhole\ntorn")
    disk.hangs.set()
    wait_for(lambda: file.dropped == 2)
    disk.room = 0
    file.put(b"lost, too")
    wait_for(lambda: file.dropped == 3)
    disk.room = None
    file.put(b"next")
    file.stop()
    assert path.read_bytes() == b"first\nwhole\ntorn\nnext\n"
    assert file.dropped == 3


def test_a_disk_that_hangs_is_nobodys_wait(make: Make, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_file, "MOST_BYTES", 1_000)
    monkeypatch.setattr(audit_file, "STOP_S", 0.1)
    disk = Disk()
    file = make(disk.write)
    disk.hangs.clear()
    file.put(b"in the thread")
    wait_for(lambda: file._lines == [])
    for _ in range(500):
        file.put(b"x" * 99)
    assert file.dropped == 490
    file.stop()  # comes back all the same
    assert path.read_bytes() == b""
    disk.hangs.set()
    wait_for(lambda: path.read_bytes().count(b"\n") == 11)
