"""Ending whatever processes descend from this one: the broker, and a JVM that perhaps nobody holds a handle of yet."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

_GRACE_S = {signal.SIGTERM: 20.0, signal.SIGKILL: 5.0}


def end_children() -> None:
    """Ask every descendant to end, wait up to 20 s, then kill what is left. Linux only; elsewhere none is found.

    Descendants, not children: Spark's JVM is started through a shell script, which starts a JVM of its own first. One
    that is started meanwhile is asked too. Exit codes are left to whoever started the process.
    """
    seen: set[int] = set()
    for number, grace_s in _GRACE_S.items():
        deadline = time.monotonic() + grace_s
        asked: set[int] = set()
        while time.monotonic() < deadline:
            # Those seen once are remembered: when its parent ends, a process is nobody's descendant any more.
            seen |= running_descendants()
            running = {pid for pid in seen if _is_running(pid)}
            if not running:
                return
            for pid in running - asked:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass  # It ended by itself.
            asked |= running
            time.sleep(0.02)


def running_descendants() -> set[int]:
    """Pids of this process's children, their children and so on; not those that have ended and wait to be collected."""
    found: set[int] = set()
    new = _children(os.getpid())
    while new:
        found |= new
        new = {child for pid in new for child in _children(pid)} - found
    return {pid for pid in found if _is_running(pid)}


def _children(pid: int) -> set[int]:
    found: set[int] = set()
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found.update(int(child) for child in listing.read_text().split())
        except OSError:
            pass  # A thread or process that ended meanwhile.
    return found


def _is_running(pid: int) -> bool:
    try:
        # "pid (name) state …"; the name may hold anything, so look behind the last bracket.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
