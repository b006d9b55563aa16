"""What a process says first, by which others know that it is ready."""

from __future__ import annotations

import os
import selectors
import time
from typing import IO


def first_line(pipe: IO[bytes], limit_s: float) -> str:
    """Its first line; less of it, or nothing, where it ends before. Nobody has read from the pipe. Raises
    TimeoutError."""
    read, until_s = b"", time.monotonic() + limit_s
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while not read.endswith(b"\n"):
            if not selector.select(max(until_s - time.monotonic(), 0)):
                raise TimeoutError(f"it is not ready after {limit_s:g} s")
            more = os.read(pipe.fileno(), 4096)
            if not more:
                break
            read += more
    return read.decode()
