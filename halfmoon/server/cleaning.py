"""Runs the cleaner's tasks (services/cleaner/cleaning.py) in a process of their own, beside the broker's.

Compaction looks at every record. A thread that does so in Python takes the interpreter away from the loop for
milliseconds at a time; a process takes a core, and with a lower priority only what nobody else wants. The kernel lets
a process of any priority finish its slice of some ms before one that wakes, so it offers the core after each batch. Its
memory is given back when it ends, and it ends with its broker.

The task goes in and the outputs come out through pipes, each a message: 4 bytes of length, then msgpack. After each
output the process waits for an empty message: whether there is room for another file is the broker's to say.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from halfmoon.core.storage.files import OsFileSystem
from halfmoon.errors import HalfmoonError
from halfmoon.services.cleaner import cleaning
from halfmoon.services.cleaner.reading import SourceGoneError
from halfmoon.services.cleaner.tasks import Output, Task

NICE = 10
LOOKS_S = 0.1
"""Who waits for its turn looks so often whether it is stopped."""
_LENGTH = struct.Struct("<I")
_PR_SET_PDEATHSIG = 1


class Failed(msgspec.Struct, tag=True):
    """The task could not be done. `gone`: what it was to read is not there any more."""

    reason: str
    gone: bool


class Written(msgspec.Struct, tag=True):
    output: Output


class Done(msgspec.Struct, tag=True):
    pass


_encode = msgspec.msgpack.Encoder().encode
_task = msgspec.msgpack.Decoder(Task)
_answer = msgspec.msgpack.Decoder(Failed | Written | Done)


class CleaningError(HalfmoonError):
    """What the process says of why it could not go on."""


def _send(pipe: IO[bytes], message: bytes) -> None:
    pipe.write(_LENGTH.pack(len(message)))
    pipe.write(message)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes:
    """Raises EOFError."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    message = pipe.read(length)
    if len(message) < length:
        raise EOFError
    return message


def command(root: Path, bytes_per_second: int, parent: int) -> list[str]:
    """What the process with this id starts. It finds its modules where that does, and not in the working directory."""
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; "
        f"from halfmoon.server.cleaning import main; main({str(root)!r}, {bytes_per_second}, {parent})"
    )
    return [sys.executable, "-c", code]


class CleaningProcess:
    """`run` is what `Cleaner.execute` wants: call it, and what it returns, in one thread. `stop` may be called in
    another."""

    def __init__(self, root: Path, bytes_per_second: int | None, one_by_one: threading.Lock | None = None) -> None:
        """Those that have the same lock work one after the other."""
        self._root = root.absolute()
        self._bytes_per_second = bytes_per_second or 0
        self._one_by_one = one_by_one or threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, task: Task) -> Iterator[Output]:
        """Raises CleaningError, SourceGoneError, OSError. When it is stopped it ends without more outputs."""
        while not self._one_by_one.acquire(timeout=LOOKS_S):
            if self._stopped:
                return
        try:
            yield from self._run(task)
        finally:
            self._one_by_one.release()

    def _run(self, task: Task) -> Iterator[Output]:
        arguments = command(self._root, self._bytes_per_second, os.getpid())
        with self._lock:
            if self._stopped:
                return
            child = self._child = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert child.stdin is not None
            assert child.stdout is not None
            _send(child.stdin, _encode(task))
            while True:
                answer = _answer.decode(_receive(child.stdout))
                if isinstance(answer, Done):
                    return
                if isinstance(answer, Failed):
                    raise SourceGoneError(answer.reason) if answer.gone else CleaningError(answer.reason)
                yield answer.output
                _send(child.stdin, b"")
        except (EOFError, BrokenPipeError):
            if self._stopped:
                return
            raise CleaningError(f"its process ended with {child.wait()}") from None
        finally:
            with self._lock:
                self._child = None
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()

    def stop(self) -> None:
        """End what is under way; nothing new is begun."""
        with self._lock:
            self._stopped = True
            if self._child is not None:
                self._child.kill()


class Pace:
    """Keeps reading and writing below a number of bytes per second."""

    def __init__(
        self,
        bytes_per_second: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._free_at_s = clock()
        """When what was done so far is paid for."""

    def __call__(self, nbytes: int) -> None:
        now_s = self._clock()
        self._free_at_s = max(self._free_at_s, now_s) + nbytes / self._bytes_per_second
        if self._free_at_s > now_s:
            self._sleep(self._free_at_s - now_s)


def main(root: str, bytes_per_second: int, parent: int) -> None:
    """The process: one task from stdin, its outputs to stdout. `parent`: the broker, which may have ended already."""
    import ctypes  # here, as the broker does not need it

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal; the broker says when
    os.nice(NICE)
    pace = Pace(bytes_per_second) if bytes_per_second else lambda nbytes: None
    messages, answers = sys.stdin.buffer, sys.stdout.buffer
    try:
        task = _task.decode(_receive(messages))
        for output in cleaning.run(OsFileSystem(root), task, pace, os.sched_yield):
            _send(answers, _encode(Written(output)))
            _receive(messages)
    except EOFError:
        return
    except SourceGoneError as error:
        _send(answers, _encode(Failed(str(error), True)))
    except (OSError, HalfmoonError) as error:
        _send(answers, _encode(Failed(str(error), False)))
    else:
        _send(answers, _encode(Done()))
