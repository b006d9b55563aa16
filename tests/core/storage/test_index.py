"""Index files: what is written is read back, joined runs are one, damage is noticed."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.core.storage import index
from halfmoon.core.storage.index import Growing, Key, Run
from halfmoon.testing.faulty_files import FaultyFileSystem
from tests.core.bench import flip
from tests.core.log_bench import new_fs

Row = tuple[int, int, int]
"""Length in bytes, span, largest timestamp."""

ROWS = st.lists(st.tuples(st.integers(61, 1 << 20), st.integers(1, 5), st.integers(-1, 50)), min_size=1, max_size=30)


def run_of(rows: list[Row], base: int = 0, position: int = 0, before: int = 0) -> Run:
    growing = Growing(before)
    for length, span, max_ms in rows:
        growing.add(base, position, length, max_ms, span)
        base += span
        position += length + 92
    return Run(growing, 0, len(rows), before)


def rows_of(run: Run) -> list[tuple[int, ...]]:
    columns = run.columns
    names = ("base", "position", "total", "max_ms", "running_ms", "span")
    return [tuple(getattr(columns, name)[row] for name in names) for row in range(run.low, run.high)]


def written(fs: FaultyFileSystem, runs: dict[Key, list[Run]], start: int = 0, end: int = 1000) -> index.IndexFile:
    return index.write(fs, start, end, 77, sorted(runs.items()))


def test_what_is_written_is_read_back() -> None:
    fs = new_fs()
    runs = {
        Key(3, 0): run_of([(100, 2, 5), (200, 1, 9)]),
        Key(1, 7): run_of([(61, 1, -1)], base=1 << 40, before=1 << 50),
    }
    made = written(fs, {key: [run] for key, run in runs.items()})
    again = index.open_file(fs, made.path)
    assert list(again.runs) == [Key(1, 7), Key(3, 0)]
    for key, run in runs.items():
        assert rows_of(again.runs[key]) == rows_of(run)
        assert again.runs[key].total_before == run.total_before
        assert again.runs[key].bytes == run.bytes
    assert (again.start, again.end, again.newest_store_ms) == (0, 1000, 77)
    assert again.columns_intact()


def test_a_stretch_without_batches_has_a_file_too() -> None:
    fs = new_fs()
    made = written(fs, {})
    assert index.open_file(fs, made.path).runs == {}
    assert made.columns_intact()


@given(st.lists(ROWS, min_size=1, max_size=6), st.data())
def test_runs_of_one_partition_are_joined_as_if_they_had_been_one(pieces: list[list[Row]], data: st.DataObject) -> None:
    fs = new_fs()
    base = position = 0
    before = 500
    runs = []
    for piece in pieces:
        # Where something was lost in between, the totals do not follow one another.
        before = data.draw(st.sampled_from([before, before, 0, before + 1000]))
        runs.append(run_of(piece, base, position, before))
        base, position, before = runs[-1].end_offset, position + sum(r[0] + 92 for r in piece), runs[-1].total_after
    whole = run_of([row for piece in pieces for row in piece], before=runs[0].total_before)
    joined = written(fs, {Key(1, 1): runs}).runs[Key(1, 1)]
    assert rows_of(joined) == rows_of(whole)
    assert joined.bytes == sum(run.bytes for run in runs)


def test_long_runs_are_joined_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "_CHUNK_ROWS", 7)
    monkeypatch.setattr(index, "_WRITE_BYTES", 300)
    first, second = [(100, 1, 90)] * 50, [(80, 1, at) for at in range(60, 120)]
    runs = [run_of(first), run_of(second, base=50, position=50 * 192, before=3)]
    joined = written(new_fs(), {Key(1, 1): runs}).runs[Key(1, 1)]
    assert rows_of(joined) == rows_of(run_of(first + second))


@given(ROWS, st.integers(-2, 200))
def test_the_row_for_an_offset(rows: list[Row], offset: int) -> None:
    run = run_of(rows)
    ends = list(accumulate(span for _, span, _ in rows))
    assert run.row_for(offset) == next((at for at, end in enumerate(ends) if end > offset), len(rows))


@given(ROWS, st.integers(-2, 55))
def test_the_row_for_a_time_is_the_first_that_reaches_it(rows: list[Row], timestamp_ms: int) -> None:
    run = run_of(rows)
    assert run.row_for_time(timestamp_ms) == next(
        (at for at, (_, _, max_ms) in enumerate(rows) if max_ms >= timestamp_ms), len(rows)
    )
    assert run.max_ms == max(max_ms for _, _, max_ms in rows)


@given(ROWS)
def test_a_run_knows_its_ends_and_its_bytes(rows: list[Row]) -> None:
    run = run_of(rows, base=10, before=1000)
    assert run.first_offset == 10
    assert run.end_offset == 10 + sum(span for _, span, _ in rows)
    assert run.bytes == sum(length for length, _, _ in rows)
    befores = [run.before(at) for at in range(run.low, run.high)] + [run.total_after]
    assert [after - before for before, after in pairwise(befores)] == [length for length, _, _ in rows]


def test_no_damage_to_the_directory_goes_unnoticed() -> None:
    fs = new_fs()
    made = written(fs, {Key(1, 0): [run_of([(100, 1, 1)] * 3)], Key(1, 1): [run_of([(100, 1, 1)])]})
    end = 48 + 2 * 32 + 4
    for at in range(end):
        flip(fs, made.path, at)
        with pytest.raises(ValueError, match=r"."):
            index.open_file(fs, made.path)
        flip(fs, made.path, at)
    index.open_file(fs, made.path)


def test_damage_to_the_columns_is_found_when_asked_for() -> None:
    fs = new_fs()
    made = written(fs, {Key(1, 0): [run_of([(100, 1, 1)] * 3)]})
    flip(fs, made.path, len(fs.names[made.path].cache) - 1)
    assert not index.open_file(fs, made.path).columns_intact()


@pytest.mark.parametrize("length", [0, 1, 47, 48, 60, 80, 150])
def test_a_file_cut_short_is_refused(length: int) -> None:
    fs = new_fs()
    made = written(fs, {Key(1, 0): [run_of([(100, 1, 1)] * 3)]})
    fs = fs.kill()
    del fs.names[made.path].cache[length:]
    with pytest.raises(ValueError, match=r"."):
        index.open_file(fs, made.path)


def test_a_file_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = new_fs()
    with monkeypatch.context() as newer:
        newer.setattr(index, "_VERSION", 2)
        path = written(fs, {}).path
    with pytest.raises(ValueError, match="not an index file of version 1"):
        index.open_file(fs, path)


def test_a_full_disk_leaves_no_half_made_file() -> None:
    fs = new_fs()
    fs.free = 200
    with pytest.raises(OSError, match="No space"):
        written(fs, {Key(1, 0): [run_of([(100, 1, 1)] * 30)]})
    assert fs.listdir("index") == []
    assert fs.free == 200


def test_the_listing_leaves_out_what_is_not_finished() -> None:
    fs = new_fs()
    made = written(fs, {})
    fs.open("index/00000000000000001000-00000000000000002000.new", create=True)
    assert list(index.listed(fs)) == [(0, 1000, made.path)]
    assert list(index.leftovers(fs)) == ["index/00000000000000001000-00000000000000002000.new"]
