"""Dispatch: what becomes visible, and where the tails are closed."""

from __future__ import annotations

import pytest

from halfmoon.core.catalog.topics import Partition
from halfmoon.core.dispatch import Appended, Dispatch, adopt, write_index
from halfmoon.core.storage.index import Key
from tests.core.bench import VirtualClock, open_broker, partition_of
from tests.core.log_bench import new_fs


@pytest.fixture
def partitions() -> list[Partition]:
    broker = open_broker(new_fs(), VirtualClock())
    broker.create_topic("t", 2)
    broker.create_topic("u", 1)
    return [partition_of(broker, "t", 0), partition_of(broker, "t", 1), partition_of(broker, "u")]


def appended(partition: Partition, offset: int, position: int, length: int = 100, store_ms: int = 0) -> Appended:
    return Appended(partition, offset, 1, position, length, 5, store_ms)


def test_what_is_dispatched_is_visible_and_counted_by_partition(partitions: list[Partition]) -> None:
    a, b, _ = partitions
    arrivals: dict[Partition, int] = {}
    dispatch = Dispatch(0)
    dispatch.run([appended(a, 0, 10), appended(b, 0, 200, 50), appended(a, 1, 300)], 400, arrivals)
    assert (a.high_watermark, b.high_watermark) == (2, 1)
    assert arrivals == {a: 200, b: 50}
    assert dispatch.position == 400


def test_tails_are_closed_exactly_at_the_point_asked_for(partitions: list[Partition]) -> None:
    a, b, c = partitions
    dispatch = Dispatch(0)
    dispatch.freeze_at(250, b"checkpoint")
    dispatch.run([appended(a, 0, 10), appended(c, 0, 100)], 200, {})
    assert not dispatch.frozen
    dispatch.run([appended(b, 0, 260), appended(a, 1, 300)], 400, {})
    (frozen,) = dispatch.frozen
    assert (frozen.start, frozen.end, frozen.checkpoint) == (0, 250, b"checkpoint")
    assert {partition for partition, _ in frozen.runs} == {a, c}
    assert dispatch.frozen_position == 250
    dispatch.freeze_at(400)
    dispatch.run((), 400, {})
    assert [(f.start, f.end, {p for p, _ in f.runs}) for f in dispatch.frozen][1] == (250, 400, {a, b})


def test_a_point_that_is_reached_without_batches_still_says_how_far_all_is_indexed(partitions: list[Partition]) -> None:
    dispatch = Dispatch(0)
    dispatch.freeze_at(100)
    dispatch.freeze_at(100)
    dispatch.run((), 100, {})
    (frozen,) = dispatch.frozen
    assert (frozen.start, frozen.end, frozen.runs) == (0, 100, [])


def test_points_must_come_in_order(partitions: list[Partition]) -> None:
    dispatch = Dispatch(100)
    dispatch.freeze_at(200)
    with pytest.raises(AssertionError):
        dispatch.freeze_at(150)
    with pytest.raises(AssertionError):
        Dispatch(100).freeze_at(50)


def test_the_newest_store_time_is_that_of_the_stretch(partitions: list[Partition]) -> None:
    """The clock may be set back; retention goes by the newest of what is in the file, not by the last."""
    a, *_ = partitions
    dispatch = Dispatch(0)
    dispatch.run([appended(a, 0, 10, store_ms=900), appended(a, 1, 110, store_ms=700)], 200, {})
    dispatch.freeze_at(200)
    dispatch.run([], 200, {})
    dispatch.run([appended(a, 2, 210, store_ms=750)], 300, {})
    dispatch.freeze_at(300)
    dispatch.run([], 300, {})
    assert [frozen.newest_store_ms for frozen in dispatch.frozen] == [900, 750]


def test_frozen_rows_are_served_from_their_file_once_it_is_there(partitions: list[Partition]) -> None:
    a, b, _ = partitions
    dispatch = Dispatch(0)
    dispatch.run([appended(a, 0, 10), appended(b, 0, 200), appended(a, 1, 300)], 400, {})
    dispatch.freeze_at(400)
    dispatch.run([appended(a, 2, 410)], 500, {})
    before = a.queue.places(0, 1000, min_one=True)
    frozen = dispatch.frozen.popleft()
    file = write_index(new_fs(), frozen)
    assert list(adopt(frozen, file)) == []
    assert a.queue.places(0, 1000, min_one=True) == before
    assert [run.file for run in a.queue.runs()] == [file, None]
    assert list(file.runs) == [Key(a.topic.number, 0), Key(a.topic.number, 1)]


def test_many_tails_are_closed_in_slices(partitions: list[Partition], monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes meanwhile is behind the freeze point, and in no run of it."""
    monkeypatch.setattr("halfmoon.core.dispatch.CLOSED_AT_ONCE", 1)
    a, b, c = partitions
    dispatch = Dispatch(0)
    dispatch.run([appended(a, 0, 10), appended(b, 0, 110), appended(c, 0, 210)], 300, {})
    dispatch.freeze_at(300)
    dispatch.run((), 300, {})
    assert list(dispatch.closing) == [b, c]
    dispatch.run([appended(c, 1, 310), appended(a, 1, 410)], 500, {})
    assert list(dispatch.closing) == [b]
    dispatch.close_some()
    assert not dispatch.closing
    (frozen,) = dispatch.frozen
    assert {partition: (run.first_offset, run.end_offset) for partition, run in frozen.runs} == {
        a: (0, 1),
        b: (0, 1),
        c: (0, 1),
    }
    dispatch.freeze_at(500)
    dispatch.run([appended(b, 1, 510)], 600, {})
    dispatch.freeze_at(600)
    dispatch.run((), 600, {})  # the freeze before is over by then
    assert [len(frozen.runs) for frozen in dispatch.frozen] == [3, 2, 1]
    assert [a.high_watermark, b.high_watermark, c.high_watermark] == [2, 2, 2]
