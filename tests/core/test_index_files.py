"""The set of index files: which are used, merged, dropped."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from pathlib import Path

import pytest

from halfmoon.core.index_files import IndexFiles
from halfmoon.core.storage import index
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.core.storage.segment import Segment
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, jobs, open_broker, partition_of, read_all, send, sync, turn
from tests.core.log_bench import new_fs

SIZE = 1000


def segments(count: int) -> list[Segment]:
    return [Segment(at * SIZE, SIZE, None, None) for at in range(count)]  # type: ignore[arg-type]


def written(fs: FaultyFileSystem, *stretches: tuple[int, int]) -> None:
    for start, end in stretches:
        index.write(fs, start, end, 0, [])


def loaded(fs: FaultyFileSystem, start: int, upto: int, count: int) -> IndexFiles:
    files = IndexFiles(fs)
    files.open()
    files.load(start, upto, segments(count))
    return files


def stretches(files: IndexFiles) -> list[tuple[int, int]]:
    return [(file.start, file.end) for file in files.files]


def on_disk(fs: FaultyFileSystem) -> list[tuple[int, int]]:
    return [(start, end) for start, end, _ in index.listed(fs)]


@pytest.mark.parametrize(
    ("there", "used"),
    [
        ([(0, 400), (400, 1000), (1000, 1500)], [(0, 400), (400, 1000), (1000, 1500)]),
        ([(0, 1000), (0, 400), (400, 1000)], [(0, 1000)]),  # a merge that did not come to its end
        ([(0, 400), (300, 1000)], [(0, 400)]),
        ([(800, 1200)], []),  # over a segment's end
        ([(1000, 2000)], []),  # beyond what is known
        ([(500, 500)], []),
    ],
)
def test_only_files_that_fit_are_used_and_the_others_removed(
    there: list[tuple[int, int]], used: list[tuple[int, int]]
) -> None:
    fs = new_fs()
    written(fs, *there)
    fs.open("index/00000000000000000000-00000000000000000900.new", create=True)
    assert stretches(loaded(fs, 0, 1500, 2)) == used
    assert on_disk(fs) == used
    assert len(fs.listdir("index")) == len(used)


def test_files_below_the_first_segment_are_removed() -> None:
    fs = new_fs()
    written(fs, (0, 400), (1000, 2000))
    files = IndexFiles(fs)
    files.open()
    files.load(1000, 2000, segments(2)[1:])
    assert on_disk(fs) == stretches(files) == [(1000, 2000)]


def test_gaps_between_files_are_told_in_order() -> None:
    fs = new_fs()
    written(fs, (100, 400), (400, 600), (1000, 2000))
    files = loaded(fs, 0, 3000, 3)
    gaps = [(start, end, [file.start for file in before]) for start, end, before in files.gaps(0, 3000)]
    assert gaps == [(0, 100, []), (600, 1000, [100, 400]), (2000, 3000, [1000])]


def test_a_sealed_segment_is_merged_when_it_is_wholly_indexed() -> None:
    fs = new_fs()
    written(fs, (0, 400), (1000, 1700), (1700, 2000), (2000, 2500))
    files = loaded(fs, 0, 3000, 3)
    assert [(file.start, file.end) for file in files.mergeable(segments(3))] == [(1000, 1700), (1700, 2000)]
    assert files.mergeable(segments(2)) == [], "the last one is not sealed"


def test_a_segment_with_a_gap_in_its_middle_is_not_merged() -> None:
    fs = new_fs()
    written(fs, (0, 400), (600, 1000))
    assert loaded(fs, 0, 2000, 2).mergeable(segments(2)) == []


def test_asking_again_costs_nothing_until_a_file_comes() -> None:
    fs = new_fs()
    files = loaded(fs, 0, 2000, 2)

    @dataclass
    class Counted(list[Segment]):
        looked: int = 0

        def __len__(self) -> int:
            self.looked += 1
            return 2

        def __getitem__(self, at: int) -> Segment:  # type: ignore[override]
            return segments(2)[at]

    counted = Counted()
    for _ in range(10):
        assert files.mergeable(counted) == []
    assert counted.looked <= 1
    files.add(index.write(fs, 0, 500, 0, []))
    files.add(index.write(fs, 500, 1000, 0, []))
    assert len(files.mergeable(counted)) == 2


def busy_broker(fs: FaultyFileSystem) -> BareNode:
    """Two segments, the first indexed by several files; no merge was begun."""
    broker = open_broker(fs, VirtualClock())
    broker.create_topic("t", 1)
    while len(broker.log.segments) < 3:
        send(broker, "t", b"x" * 9_000)
        broker.write()
        sync(broker)
        broker.housekeeping.plan()
        indexed_upto_date(broker)
    return broker


def indexed_upto_date(broker: BareNode) -> None:
    while (job := broker.housekeeping.next_job()) is not None:
        if job.name == "merging indexes":
            job.failed(RuntimeError("not now"))
            break
        job.done(job.run())


def test_merging_changes_nothing_but_the_files() -> None:
    fs = new_fs()
    broker = busy_broker(fs)
    before = read_all(broker, "t")
    indexes = broker.housekeeping.indexes
    old = indexes.mergeable(broker.log.segments)
    assert len(old) > 1
    size = partition_of(broker, "t").size_bytes
    merged = indexes.merge(old)
    indexes.keep({old[0].path})
    assert list(indexes.replace(old, merged, broker.catalog)) == []
    assert [file.path in fs.names for file in old] == [True] + [False] * (len(old) - 1)
    indexes.release()
    assert read_all(broker, "t") == before
    assert partition_of(broker, "t").size_bytes == size
    assert {(file.start, file.end) for file in indexes.files} == set(on_disk(fs))
    assert merged in indexes.files


def test_a_segment_stays_while_its_files_are_merged() -> None:
    fs = new_fs()
    broker = busy_broker(fs)
    indexes, housekeeping = broker.housekeeping.indexes, broker.housekeeping
    first = broker.log.segments[0]
    housekeeping.turn()
    while (merging := housekeeping.next_job()) is not None and merging.name != "merging indexes":
        merging.done(merging.run())
    assert merging is not None
    broker.delete_records(partition_of(broker, "t"), -1)
    broker.flush()
    housekeeping.drop_segments()
    assert housekeeping.next_job() is None
    merging.done(merging.run())
    assert broker.log.start == first.start
    jobs(broker)
    assert broker.log.start > first.start
    assert all(start >= broker.log.start for start, _ in on_disk(fs))
    assert all(file.start >= broker.log.start for file in indexes.files)


def test_files_of_deleted_topics_are_closed_without_a_collection(tmp_path: Path, clock: VirtualClock) -> None:
    broker = open_broker(OsFileSystem(tmp_path), clock)
    gc.collect()
    gc.disable()
    try:
        for number in range(12):
            topic, _ = broker.create_topic(f"t{number}", 2)
            for index in range(2):
                send(broker, f"t{number}", b"x" * 20_000, index=index)
            turn(broker)
            broker.housekeeping.freeze()
            turn(broker)
            broker.delete_topic(topic)
            del topic
            turn(broker)
        while not broker.housekeeping.retain():
            pass
        turn(broker)
        broker.housekeeping.drop_segments()
        turn(broker)
        gone = [path for path in mapped(tmp_path) if path.endswith("(deleted)")]
        assert not gone
    finally:
        gc.enable()


def mapped(folder: Path) -> list[str]:
    """The index files that this process has mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line.split(maxsplit=5)[5] for line in lines if f"{folder}/index/" in line]


def test_a_file_that_somebody_has_removed_is_no_error(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = open_broker(fs, clock)
    broker.create_topic("t", 1)
    for number in range(12):
        send(broker, "t", b"%d" % number + b"x" * 9_000)
        broker.write()
        sync(broker)
        broker.settle()
        broker.housekeeping.plan()
        for path in [path for path in fs.names if path.startswith("index/")]:
            fs.remove(path)
        jobs(broker)
    assert broker.housekeeping.problems == []
    assert [value[:2].strip(b"x") for _, value in read_all(broker, "t")] == [b"%d" % number for number in range(12)]
