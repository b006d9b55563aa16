"""What grows, small: each axis is filled, asked and written down."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import growth


def test_what_is_asked_lies_evenly() -> None:
    assert growth.evenly(3) == [0, 1, 2]
    chosen = growth.evenly(100_000)
    assert len(chosen) == growth.VARIED
    assert (chosen[0], chosen[1], chosen[-1]) == (0, 50, 99_950)


@pytest.fixture
def grown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    small = {"partitions": (1, 7), "connections": (1, 9), "groups": (10,), "scheduled": (1_000,), "backlog": (160_000,)}
    axes = tuple(
        growth.Axis(axis.name, axis.title, small[axis.name], axis.fill, axis.ask, axis.expected) for axis in growth.AXES
    )
    monkeypatch.setattr(growth, "AXES", axes)
    monkeypatch.setattr(growth, "JSON", tmp_path / "growth.json")
    assert growth.main(["--pure", "--requests", "20", "--page", str(tmp_path / "growth.md")]) == 0
    return tmp_path


def test_every_axis_is_measured_and_told(grown: Path) -> None:
    text = (grown / "growth.md").read_text()
    for axis in growth.AXES:
        assert f"## {axis.title[0].upper()}" in text
        for size in axis.sizes:
            assert f"\n| {size:,} | " in text
    assert "| groups with a committed offset | OffsetCommit, µs | Produce, µs |" in text
    assert (grown / "images" / "performance-growth.png").read_bytes().startswith(b"\x89PNG")
