"""Which pages of a mapped file are in memory, and how much memory there is for all of them.

The first is mincore(2), which Python does not offer. Since Linux 5.2 it tells the truth only to whoever may write the
file, which we always may.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from pathlib import Path
from typing import Any

PAGE = mmap.PAGESIZE

CONTROL_GROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")


class _Buffer(ctypes.Structure):
    """Py_buffer, which is part of the stable ABI from Python 3.11 on."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_Buffer), ctypes.c_int)
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = (ctypes.POINTER(_Buffer),)
_release_buffer.restype = None

_mincore: Any = None
with contextlib.suppress(AttributeError):  # a system without it
    _mincore = ctypes.CDLL(None).mincore
    _mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)


def address_of(mapping: mmap.mmap) -> int:
    """Where the mapping begins in this process's memory, as long as it is not closed."""
    buffer = _Buffer()
    _get_buffer(mapping, buffer, 0)
    try:
        address: int = buffer.buf
        return address
    finally:
        _release_buffer(buffer)


def all_in_memory(address: int, length: int) -> bool:
    """Whether all pages of [address, address + length) are in memory; False too where that cannot be told."""
    if _mincore is None or length <= 0:
        return False
    begin = address - address % PAGE
    count = -(-(address + length - begin) // PAGE)
    pages = ctypes.create_string_buffer(count)
    return bool(_mincore(begin, count * PAGE, pages) == 0 and pages.raw.count(b"\x01") == count)


def memory_bytes() -> int:
    """The memory of the machine, or less where a control group limits it, page cache included (cgroups(7))."""
    limits = [os.sysconf("SC_PHYS_PAGES") * PAGE]
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = OWN_GROUPS.read_text().splitlines()
    names: tuple[str, ...]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            root, names = CONTROL_GROUPS, ("memory.max", "memory.high")
        elif "memory" in controllers.split(","):
            root, names = CONTROL_GROUPS / "memory", ("memory.limit_in_bytes",)
        else:
            continue
        # A container may see its own group as the root, or only a part of the path.
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            for name in names:
                with contextlib.suppress(OSError, ValueError):  # it is not there; it says "max"
                    limits.append(int((folder / name).read_text()))
            if folder == root:
                break
    return min(limits)
