"""What Linux says about processes and the machine: CPU seconds, anonymous memory, versions."""

from __future__ import annotations

import contextlib
import mmap
import os
import platform
import re
import subprocess
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from statistics import median

MB = 1 << 20
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """CPU seconds of a process since its start, user and system, all its threads; OSError where there is none."""
    # Its clock counts nanoseconds (clock_getcpuclockid(3) makes the id so); /proc/PID/stat has steps of 10 ms.
    return time.clock_gettime((~pid << 3) | 2)


def anonymous_mb(pid: int) -> float:
    """Memory that is the process's own: RssAnon. Mapped files (the log) are page cache, and not counted."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) * 1024 / MB if found else 0.0


def sockets(pid: int) -> set[str]:
    """Inodes of the sockets that a process has open, those that it listens on among them. Raises FileNotFoundError."""
    found = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            target = str(each.readlink())
            if target.startswith("socket:["):
                found.add(target[8:-1])
    return found


def machine_cpu_s() -> tuple[float, float]:
    """CPU seconds that the machine's cores were busy, and that its host took away (steal), since it started."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / _TICKS_PER_S, ticks[7] / _TICKS_PER_S


class Ballast:
    """Memory held, and the rest of it full of page cache, as on a machine that has been in use for long.

    The first touch of a page costs a virtual machine more than ten times a copy into it, because the host has to find
    the memory; and a host may take back within seconds what is free. Whoever writes into the page cache pays for that,
    a broker and its rival alike, so that one would compare the machine with itself. Where nothing is free, a new page
    is one that held something else a moment ago.
    """

    def __init__(self, folder: Path, leave_mb: float) -> None:
        """Take all that is available but `leave_mb`; a file in `folder` stands for the rest. May take a minute."""
        held_mb = max(0.0, _meminfo_mb("MemAvailable") - leave_mb)
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
        self._memory = mmap.mmap(-1, int(held_mb) * MB, flags=private) if held_mb >= 1 else None
        # A file of holes: reading it takes page cache and no disk.
        self._holes = os.open(folder / "holes", os.O_RDWR | os.O_CREAT, 0o600)
        self._holes_bytes = 4 * int(_meminfo_mb("MemTotal")) * MB
        os.ftruncate(self._holes, self._holes_bytes)
        self._at = 0

    def fill(self, leave_mb: float = 400.0) -> None:
        """Fill what has become free since, but for `leave_mb`."""
        buffer = bytearray(4 * MB)
        while _meminfo_mb("MemFree") > leave_mb:
            for _ in range(8):
                os.preadv(self._holes, [buffer], self._at)
                self._at = (self._at + len(buffer)) % self._holes_bytes

    def release(self) -> None:
        if self._memory is not None:
            self._memory.close()
            self._memory = None
        os.close(self._holes)


def _meminfo_mb(name: str) -> float:
    found = re.search(rf"^{name}:\s+(\d+) kB", _read("/proc/meminfo"), re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


def fdatasync_ms(folder: Path, count: int = 200, size: int = 4096) -> list[float]:
    """How long a write of `size` bytes into a file made beforehand takes to reach the disk, sorted."""
    path = folder / "fdatasync-probe"
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(fd, 0, count * size)
        os.fsync(fd)
        took = []
        for number in range(count):
            begun = time.perf_counter()
            os.pwrite(fd, b"x" * size, number * size)
            os.fdatasync(fd)
            took.append((time.perf_counter() - begun) * 1e3)
    finally:
        os.close(fd)
        path.unlink()
    return sorted(took)


def spread(values: Sequence[float], form: str = ".3g") -> str:
    """Median and range, as tables have them."""
    return f"{median(values):{form}} ({min(values):{form}}–{max(values):{form}})"


def machine() -> dict[str, str]:
    """What the figures depend on, for the report."""
    model = re.search(r"model name\s*:\s*(.+)", _read("/proc/cpuinfo"))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": f"{os.cpu_count()} x {model[1] if model else platform.machine()}",
        "memory": f"{memory / (1 << 30):.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "Java": _java_version(),
        **{name: _version(name) for name in ("halfmoon", "uvloop", "confluent-kafka", "pyspark")},
    }


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _java_version() -> str:
    try:
        found = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    except OSError:
        return "none"
    version = re.search(r'version "([^"]+)"', found)
    return version[1] if version else "unknown"
