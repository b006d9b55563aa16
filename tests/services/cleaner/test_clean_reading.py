"""Rows over several runs, and stretches of them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.core.records.batches import build_batch
from halfmoon.core.storage.frame import HEADER_BYTES, Kind, encode
from halfmoon.core.storage.index import Growing, Run
from halfmoon.services.cleaner.reading import GAP_BYTES, STRETCH_BYTES, RowList, Sources
from halfmoon.testing.faulty_files import FaultyFileSystem


def run_of(base: int, count: int, cut: int, position: int) -> Run | None:
    growing = Growing()
    for at in range(count):
        growing.add(base + 2 * at, position + 200 * at, 100, 1000 + at, 2)
    low = min(cut, count)
    return Run(growing, low, count, 100 * low) if low < count else None


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), max_size=5), st.integers(0, 40), st.integers(0, 40))
def test_rows_and_slices_of_them(shapes: list[tuple[int, int]], low: int, high: int) -> None:
    runs = [run_of(100 * nth, count, cut, 10_000 * nth) for nth, (count, cut) in enumerate(shapes)]
    rows = RowList([run for run in runs if run is not None])
    expected = [
        (100 * nth + 2 * at, 2, 10_000 * nth + 200 * at, 100, 1000 + at)
        for nth, (count, cut) in enumerate(shapes)
        for at in range(cut, count)
    ]
    assert list(rows) == expected
    assert [rows[at] for at in range(len(rows))] == expected
    part = rows[low:high]
    assert list(part) == expected[low:high]
    assert [part[at] for at in range(len(part))] == expected[low:high]
    assert list(part[1:3]) == expected[low:high][1:3]
    assert [row.end_offset for row in rows] == [row[0] + 2 for row in expected]


def test_stretches_hold_what_stands_close_together_in_one_file() -> None:
    segments = [(0, 5_000_000, "log/0"), (5_000_000, 9_000_000, "log/1")]
    sources = Sources(FaultyFileSystem(random.Random(1)), segments, lambda nbytes: None, lambda: None)
    growing = Growing()
    places = [0, 200, 300 + GAP_BYTES, 2_000_000, 2_000_000 + STRETCH_BYTES - 50, 4_999_900, 5_000_000, 5_000_100]
    for at, position in enumerate(places):
        growing.add(at, position, 100, 0, 1)
    found = [[row.position for row in stretch] for stretch in sources.stretches(RowList([Run(growing, 0, 8, 0)]))]
    assert found == [places[:3], [places[3]], [places[4]], [places[5]], places[6:]]


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("backwards", [False, True])
def test_the_next_stretch_is_on_its_way_while_one_is_looked_at(*, cold: bool, backwards: bool) -> None:
    fs = FaultyFileSystem(random.Random(1))
    file = fs.open("log", create=True)
    growing = Growing()
    for at in range(3):
        payload = bytearray(build_batch([(b"k", b"v", 0, ())], base_offset=at))
        payload[12:16] = bytes(4)  # the epoch: of the log's first generation
        position = at * 2 * GAP_BYTES
        header = encode(
            Kind.BATCH, HEADER_BYTES + len(payload), position, 0, 0, 1, 0, 1, at, 1, 1, 0
        )  # fmt: skip
        file.pwritev([header, payload], position)
        growing.add(at, position + HEADER_BYTES, len(payload), 0, 1)
    fs.cold = cold
    waited_for: list[int] = []
    sources = Sources(fs, [(0, 6 * GAP_BYTES, "log")], lambda nbytes: None, lambda: waited_for.append(len(offsets)))
    stretches = list(sources.stretches(RowList([Run(growing, 0, 3, 0)])))
    offsets: list[int] = []
    for nth, (row, piece) in enumerate(sources.read(stretches[::-1] if backwards else stretches, backwards=backwards)):
        assert piece is not None
        assert len(fs.expected) == min(3, nth + 2)
        offsets.append(row.base)
    assert offsets == ([2, 1, 0] if backwards else [0, 1, 2])
    assert waited_for == [1, 2, 3], "others are let in after each batch"
    assert fs.forgotten == (fs.expected if cold else []), "what was in memory stays there"
