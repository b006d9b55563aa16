"""Audit's file: a line each, written by a thread of its own, so that a slow disk is nobody's wait.

What waits for the thread is bounded; what does not fit, and what the disk does not take, is counted as dropped. The
broker goes on, and `/healthz` warns until a line is written again. The file can be moved away and a new one asked for
(`reopen`), as logrotate does it with SIGHUP.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

from halfmoon.errors import StartError

MOST_BYTES = 4 << 20
"""Of lines that wait for the thread."""
STOP_S = 5.0
"""So long a stop waits for what is still to be written."""

Write = Callable[[int, bytes], int]


class AuditFile:
    """Use it in one thread. Its own is a daemon: a disk that hangs does not keep the broker from ending."""

    def __init__(self, path: Path, write: Write = os.write) -> None:
        """Raises StartError where the file cannot be opened."""
        self._path = path
        self._write = write
        try:
            self._descriptor = _opened(path)
        except OSError as error:
            raise StartError(f"$.security.audit.file: cannot open '{path}': {error.strerror}") from error
        self.dropped = 0
        """Lines, since the start."""
        self._problem = self._unopened = ""
        """Why lines were lost last, and why there is no new file."""
        self._torn = False
        """The last line that was written is not whole."""
        self._changed = threading.Condition()
        """Guards what follows, and `dropped`."""
        self._lines: list[bytes] = []
        self._bytes = 0
        self._reopens = self._stops = False
        self._thread = threading.Thread(target=self._run, name="halfmoon-audit", daemon=True)
        self._thread.start()

    def put(self, line: bytes, *, echo: bool = False) -> None:
        """As of services.audit.Sink. It never waits for the disk."""
        with self._changed:
            if self._bytes + len(line) >= MOST_BYTES:
                self.dropped += 1
                return
            self._lines.append(line)
            self._bytes += len(line) + 1
            self._changed.notify()

    def reopen(self) -> None:
        """The file was moved away: what comes now is written to a new one."""
        with self._changed:
            self._reopens = True
            self._changed.notify()

    def stop(self) -> None:
        """Write what is still to be written. It waits for the disk, but not for ever."""
        with self._changed:
            self._stops = True
            self._changed.notify()
        self._thread.join(STOP_S)

    def warnings(self) -> list[str]:
        lost, unopened = self._problem, self._unopened
        found = [f"audit lines are lost: '{self._path}': {lost}"] if lost else []
        return [*found, f"the old audit file is still in use: '{self._path}': {unopened}"] if unopened else found

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines or self._reopens or self._stops)
                lines, self._lines, self._bytes = self._lines, [], 0
                reopens, self._reopens = self._reopens, False
                stops = self._stops
            if lines:
                self._write_all(lines)
            if reopens or self._unopened:
                self._open_again()
            if stops:
                with contextlib.suppress(OSError):
                    os.fsync(self._descriptor)
                os.close(self._descriptor)
                return

    def _write_all(self, lines: list[bytes]) -> None:
        data = (b"\n" if self._torn else b"") + b"\n".join(lines) + b"\n"
        written = 0
        try:
            while written < len(data):
                written += self._write(self._descriptor, data[written:])
        except OSError as error:
            self._problem = error.strerror or str(error)
            whole = data[:written].count(b"\n") - self._torn
            with self._changed:
                self.dropped += len(lines) - max(0, whole)
        else:
            self._problem = ""
        if written:
            self._torn = data[written - 1] != ord("\n")

    def _open_again(self) -> None:
        try:
            descriptor = _opened(self._path)
        except OSError as error:  # the old one is better than none
            self._unopened = error.strerror or str(error)
            return
        os.close(self._descriptor)
        self._descriptor = descriptor
        self._torn, self._unopened = False, ""


def _opened(path: Path) -> int:
    """Never one that keeps a writer waiting, such as a pipe. Raises OSError."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(None, "it is no file")
    return descriptor
