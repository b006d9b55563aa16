"""Temporary directories of this process, none of which is left behind.

All are in one, which is removed when the process ends: by the process itself, or else, where it is killed, crashes or
calls `os._exit`, by a shell that waits for the end of a pipe. That shell is no child of this process, hears nothing of
a terminal, and ends with it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

_REAPER: Final = """
trap '' HUP INT QUIT TERM
read -r never
tries=0
while [ -e "$1" ] && [ $tries -lt 100 ]; do  # brokers in other processes may still be writing while they end
    rm -rf -- "$1" 2>/dev/null
    [ -e "$1" ] && sleep 0.2
    tries=$((tries + 1))
done
"""

_roots: dict[int, Path] = {}
"""By process: a fork has none of its parent's."""
_pipes: list[int] = []
"""Stay open as long as the process is there."""


def make(prefix: str = "halfmoon-") -> Path:
    """A new directory."""
    return Path(tempfile.mkdtemp(prefix=prefix, dir=_root()))


def remove(folder: str | Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _root() -> Path:
    pid = os.getpid()
    found = _roots.get(pid)
    if found is None or not found.is_dir():
        found = _roots[pid] = Path(tempfile.mkdtemp(prefix=f"halfmoon-testing-{pid}-"))
        atexit.register(_remove_at_the_end, pid, found)
        _watch(found)
    return found


def _watch(root: Path) -> None:
    """Have it removed where this process cannot do so."""
    reading, writing = os.pipe()
    _pipes.append(writing)
    # The shell that we wait for leaves one in the background, whose parent is init.
    command = ["/bin/sh", "-c", f"({_REAPER}) <&{reading} >/dev/null 2>&1 &", "halfmoon-reaper", str(root)]
    with contextlib.suppress(OSError):  # a machine without a shell: who is killed leaves a directory
        subprocess.run(
            command, pass_fds=[reading], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True, check=False,
        )  # fmt: skip
    os.close(reading)


def _remove_at_the_end(pid: int, root: Path) -> None:
    if os.getpid() == pid:
        remove(root)
