"""How much memory there is for the page cache, told by control groups of either version."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from halfmoon.core.storage import page_cache

MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the control groups are mounted, and `own`, which says where this process is among them."""
    monkeypatch.setattr(page_cache, "CONTROL_GROUPS", tmp_path)
    monkeypatch.setattr(page_cache, "OWN_GROUPS", tmp_path / "own")
    return tmp_path


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_control_groups_it_is_the_machines(groups: Path) -> None:
    assert page_cache.memory_bytes() == MACHINE


def test_of_this_machine_it_can_be_told() -> None:
    assert 0 < page_cache.memory_bytes() <= MACHINE


def test_the_groups_limit_counts(groups: Path) -> None:
    put(groups / "own", "0::/system.slice/halfmoon.service\n")
    put(groups / "system.slice/halfmoon.service/memory.max", f"{64 * MIB}\n")
    put(groups / "system.slice/memory.max", "max\n")
    assert page_cache.memory_bytes() == 64 * MIB


def test_so_does_where_the_kernel_begins_to_take_memory_back(groups: Path) -> None:
    put(groups / "own", "0::/a\n")
    put(groups / "a/memory.max", f"{64 * MIB}\n")
    put(groups / "a/memory.high", f"{48 * MIB}\n")
    assert page_cache.memory_bytes() == 48 * MIB


def test_a_limit_of_a_group_above_counts_too(groups: Path) -> None:
    put(groups / "own", "0::/a/b\n")
    put(groups / "a/b/memory.max", "max\n")
    put(groups / "a/memory.max", f"{32 * MIB}\n")
    assert page_cache.memory_bytes() == 32 * MIB


def test_in_a_container_the_own_group_is_the_root(groups: Path) -> None:
    put(groups / "own", "0::/\n")
    put(groups / "memory.max", f"{128 * MIB}\n")
    assert page_cache.memory_bytes() == 128 * MIB


def test_the_first_version_has_a_folder_for_memory(groups: Path) -> None:
    put(groups / "own", "5:devices:/x\n4:cpu,memory:/docker/abc\n0::/x\n")
    put(groups / "memory/memory.limit_in_bytes", f"{16 * MIB}\n")
    put(groups / "memory/docker/abc/memory.limit_in_bytes", "9223372036854771712\n")
    put(groups / "x/memory.limit_in_bytes", "1\n")
    put(groups / "memory/x/memory.limit_in_bytes", "1\n")
    assert page_cache.memory_bytes() == 16 * MIB
