"""What Linux says about processes and the machine: CPU seconds, anonymous memory, versions."""

from __future__ import annotations

import mmap
import os
import platform
import re
import subprocess
import time
from importlib import metadata
from pathlib import Path

MB = 1 << 20
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """CPU seconds of a process since its start, user and system, all its threads (steps of 10 ms)."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _stat(pid: int) -> list[str]:
    # The second field is the program's name in parentheses, which may contain anything.
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


def anonymous_mb(pid: int) -> float:
    """Memory that is the process's own: RssAnon. Mapped files (the log) are page cache, and not counted."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) * 1024 / MB if found else 0.0


def machine_cpu_s() -> tuple[float, float]:
    """CPU seconds that the machine's cores were busy, and that its host took away (steal), since it started."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / _TICKS_PER_S, ticks[7] / _TICKS_PER_S


class Ballast:
    """Memory held so that little is free, and that little is warm: see `touch_free_memory`."""

    def __init__(self, leave_mb: float) -> None:
        """Take all that is available but `leave_mb`. The first touch of it may take a minute."""
        self.held_mb = max(0.0, _meminfo_mb("MemAvailable") - leave_mb)
        self._memory = _touched(self.held_mb)

    def release(self) -> None:
        if self._memory is not None:
            self._memory.close()
            self._memory = None


def touch_free_memory(leave_mb: float = 500.0) -> None:
    """Lay hands on the free memory and give it back at once.

    The first touch of a page costs a virtual machine more than ten times a copy into it, because the host has to find
    the memory; and a host may take back within seconds what is free. Whoever writes into the page cache pays for that,
    a broker and its rival alike, so that one would compare the machine with itself. Which free page comes next is the
    kernel's choice: it must be all of them, and so there must be few (`Ballast`).
    """
    memory = _touched(_meminfo_mb("MemFree") - leave_mb)
    if memory is not None:
        memory.close()


def _touched(size_mb: float) -> mmap.mmap | None:
    if size_mb < 1:
        return None
    return mmap.mmap(-1, int(size_mb) * MB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)


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
