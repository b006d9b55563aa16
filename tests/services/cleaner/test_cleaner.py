"""Compaction, emptying and tidying, as readers see it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from halfmoon.core.append_types import Piece
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.records.batch_header import CONTROL, TRANSACTIONAL, assemble
from halfmoon.core.records.batches import iter_records, parse_header
from halfmoon.core.transactions.aborted import Aborted
from halfmoon.core.transactions.partition import PartitionTransactions
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.provenance import Origin
from halfmoon.services.cleaner import cleaning, planning
from halfmoon.services.cleaner.reading import SourceGoneError
from halfmoon.services.cleaner.tasks import Output, Task
from halfmoon.testing.node import BareNode
from tests.core.bench import SEGMENT, cleaning_job, flip, open_broker, partition_of, relay, send, turn, values
from tests.core.clean_bench import COMPACT, Pair, batches, clean, fresh, keyed, pairs, put, seal, state

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def test_of_each_key_the_last_record_stays_at_its_offset() -> None:
    broker, clock, fs = fresh()
    broker.create_topic("t", 1, COMPACT)
    put(broker, "t", (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    put(broker, "t", (b"c", b"1"))
    put(broker, "t", (b"b", b"2"), (b"c", b"2"), (b"d", b"1"))
    put(broker, "t", (b"e", b"1"))
    clean(broker, clock)
    left = [(2, b"a", b"2"), (4, b"b", b"2"), (5, b"c", b"2"), (6, b"d", b"1"), (7, b"e", b"1")]
    assert pairs(broker, "t") == left
    first, second, _ = map(parse_header, batches(broker, "t"))
    assert (first.base_offset, first.last_offset_delta, first.record_count) == (0, 2, 1)
    assert second.base_offset == 4, "a batch of which nothing is left is gone"
    broker.close()
    assert pairs(open_broker(fs.kill(), clock), "t") == left
    assert pairs(open_broker(fs.power_loss(), clock), "t") == left


def test_the_last_batch_is_not_looked_into() -> None:
    broker, clock, _ = fresh()
    broker.create_topic("t", 1, COMPACT)
    put(broker, "t", (b"a", b"1"), (b"a", b"2"))
    clean(broker, clock)
    assert len(pairs(broker, "t")) == 2
    put(broker, "t", (b"b", b"1"))
    clean(broker, clock)
    assert [offset for offset, *_ in pairs(broker, "t")] == [1, 2]


def test_space_comes_back() -> None:
    broker, clock, _ = fresh()
    broker.create_topic("t", 1, COMPACT)
    for round_ in range(40):
        put(broker, "t", *((b"key-%d" % at, b"%d-" % round_ + b"x" * 1000) for at in range(10)))
        turn(broker)
    put(broker, "t", (b"end", b""))
    log = broker.log
    assert log.end - log.start > 400_000
    clean(broker, clock)
    assert log.segments[-1].end - log.start <= 2 * 65536
    assert broker.cleaner.files.bytes < 30_000
    assert partition_of(broker, "t").size_bytes < 40_000
    assert state(broker, "t") == {b"key-%d" % at: b"39-" + b"x" * 1000 for at in range(10)} | {b"end": b""}
    assert broker.cleaner.counts.records >= 400


@pytest.mark.parametrize("codec", range(5))
def test_tombstones_stay_until_their_horizon(codec: int) -> None:
    broker, clock, _ = fresh()
    broker.create_topic("t", 1, COMPACT | {"delete.retention.ms": "60000"})
    put(broker, "t", (b"a", b"1"), (b"b", b"1"), codec=codec, timestamp=5000)
    put(broker, "t", (b"a", None), (b"x", b"1"), (b"b", b"2"), codec=codec, timestamp=6000)
    put(broker, "t", (b"c", b"1"))
    clean(broker, clock)
    cleaned_ms = clock.now_ms
    assert pairs(broker, "t")[0] == (2, b"a", None)
    batch = next(batches(broker, "t"))
    header = parse_header(batch)
    assert header.attributes & 64
    assert header.attributes & 7 == codec
    assert header.base_timestamp == cleaned_ms + 60_000
    assert [record.timestamp for record in iter_records(batch)] == [6000, 6001, 6002]
    assert header.max_timestamp == 6002
    clock.now_ms += 30_000
    put(broker, "t", (b"d", b"1"))
    clean(broker, clock)
    assert pairs(broker, "t")[0] == (2, b"a", None)
    assert parse_header(next(batches(broker, "t"))) == header, "the horizon is set once"
    clock.now_ms += 60_000
    put(broker, "t", (b"e", b"1"))
    clean(broker, clock)
    assert pairs(broker, "t")[0] == (3, b"x", b"1")
    assert [record.timestamp for record in iter_records(next(batches(broker, "t")))] == [6001, 6002]


def test_the_dirty_ratio_is_waited_for() -> None:
    broker, clock, _ = fresh()
    broker.create_topic("t", 1, COMPACT | {"min.cleanable.dirty.ratio": "0.5"})
    for _ in range(10):
        put(broker, "t", (b"a", b"x" * 100))
    put(broker, "t", (b"end", b"x" * 100))
    clean(broker, clock)
    assert len(pairs(broker, "t")) == 2, "all of it was new"
    for at in range(6):
        put(broker, "t", (b"%d" % at, b"x" * 100))
    clean(broker, clock)
    assert broker.cleaner.tasks == 2
    put(broker, "t", (b"0", b"x" * 100))
    put(broker, "t", (b"0", b"x" * 100))
    clean(broker, clock)
    assert broker.cleaner.tasks == 2, "1 of 8 batches is new"
    for _ in range(9):
        put(broker, "t", (b"0", b"x" * 100))
    clean(broker, clock)
    assert broker.cleaner.tasks == 3


def test_young_records_stay() -> None:
    broker, clock, _ = fresh()
    broker.create_topic("t", 1, COMPACT | {"min.compaction.lag.ms": str(HOUR_MS)})
    put(broker, "t", (b"a", b"1"))
    put(broker, "t", (b"a", b"2"))
    put(broker, "t", (b"b", b"2"))
    clean(broker, clock)
    assert len(pairs(broker, "t")) == 3
    clock.now_ms += HOUR_MS
    clean(broker, clock)
    assert len(pairs(broker, "t")) == 2


def with_old_records() -> tuple[BareNode, Any]:
    """They will be old in an hour, and are not enough to be compacted for another reason."""
    broker, clock, _ = fresh()
    configs = COMPACT | {"min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": str(HOUR_MS)}
    broker.create_topic("t", 1, configs)
    put(broker, "t", (b"a", b"1"))
    put(broker, "t", (b"a", b"2"))
    put(broker, "t", (b"b", b"2"))
    turn(broker)
    return broker, clock


def test_old_records_are_looked_into_although_little_is_new() -> None:
    broker, clock = with_old_records()
    clock.now_ms += HOUR_MS // 2
    broker.housekeeping.turn()
    turn(broker)
    assert len(pairs(broker, "t")) == 3
    clock.now_ms += HOUR_MS // 2
    for _ in range(2):  # the first look asks for an index
        clock.now_ms += 15_000
        broker.housekeeping.turn()
        turn(broker)
    assert len(pairs(broker, "t")) == 2
    assert broker.cleaner.tasks == 1


def test_old_records_that_another_node_stored_are_looked_into_by_the_age_of_their_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planning, "before_payload", lambda _data, _position: None)  # the frame is not here
    broker, clock = with_old_records()
    seal(broker)
    turn(broker)
    for age_ms, expected in ((HOUR_MS // 2, 3), (HOUR_MS, 2)):
        clock.now_ms += age_ms
        broker.housekeeping.turn()
        turn(broker)
        assert len(pairs(broker, "t")) == expected


def test_records_without_a_key_are_refused_where_they_would_be_lost() -> None:
    broker, _, _ = fresh()
    broker.create_topic("t", 1, COMPACT)
    with pytest.raises(BrokerError, match="record 1 of the batch has no key") as caught:
        put(broker, "t", (b"a", b"1"), (None, b"2"))
    assert caught.value.fault is Fault.INVALID_RECORD
    put(broker, "t", (b"", b"empty keys are keys"))


def test_records_of_a_compacted_topic_are_not_deleted_on_demand_or_by_age() -> None:
    broker, clock, _ = fresh(retention="1h")
    broker.create_topic("t", 1, COMPACT)
    broker.create_topic("both", 1, COMPACT | {"cleanup.policy": "compact,delete"})
    for topic in ("t", "both"):
        put(broker, topic, (b"a", b"1"))
        put(broker, topic, (b"b", b"1"))
    seal(broker)
    with pytest.raises(BrokerError) as caught:
        broker.delete_records(partition_of(broker, "t"), 1)
    assert caught.value.fault is Fault.POLICY_VIOLATION
    assert broker.delete_records(partition_of(broker, "both"), 1)[0] == 1
    clock.now_ms += 2 * HOUR_MS
    while not broker.housekeeping.retain():
        pass
    assert partition_of(broker, "t").start_offset == 0
    assert partition_of(broker, "both").start_offset == 2


def test_compact_and_delete_together() -> None:
    broker, clock, _ = fresh()
    broker.create_topic("t", 1, COMPACT | {"cleanup.policy": "compact, delete", "retention.ms": str(5 * DAY_MS // 2)})
    for day in range(4):
        put(broker, "t", (b"day-%d" % day, b"1"), (b"always", b"%d" % day))
        clean(broker, clock)
        clock.now_ms += DAY_MS
    while not broker.housekeeping.retain():
        pass
    assert [key for _, key, _ in pairs(broker, "t")] == [b"day-2", b"always", b"day-3", b"always"]
    turn(broker)
    clean(broker, clock)
    clock.now_ms += 30 * DAY_MS
    while not broker.housekeeping.retain():
        pass
    turn(broker)
    broker.housekeeping.turn()
    turn(broker)
    assert pairs(broker, "t") == []
    assert len(broker.cleaner.files) == 0


def test_a_policy_that_changes() -> None:
    broker, clock, _ = fresh()
    topic, _ = broker.create_topic("t", 1)
    put(broker, "t", (None, b"no key"), (b"a", b"1"))
    put(broker, "t", (b"a", b"2"))
    put(broker, "t", (b"b", b"1"))
    clean(broker, clock)
    assert len(pairs(broker, "t")) == 4
    broker.alter_configs(topic, COMPACT)
    clean(broker, clock)
    assert pairs(broker, "t") == [(2, b"a", b"2"), (3, b"b", b"1")], "what has no key goes, as in Kafka"
    broker.alter_configs(topic, {"retention.ms": "1000"})
    put(broker, "t", (None, b"no key"))
    put(broker, "t", (b"b", b"2"))
    put(broker, "t", (b"c", b"1"))
    clean(broker, clock)
    broker.alter_configs(topic, COMPACT)
    clean(broker, clock)
    assert [key for _, key, _ in pairs(broker, "t")] == [b"a", b"b", b"c"]


def test_more_keys_than_memory() -> None:
    for memory in (1, 2_000, 1 << 20):
        broker, clock, _ = fresh(cleaner={"memory_bytes": memory})
        broker.create_topic("t", 1, COMPACT)
        expected = {}
        for part in range(3):
            for at in range(60):
                key = b"key-%d" % (at * 7 % 45 + part)
                expected[key] = b"%d-%d" % (part, at)
                put(broker, "t", (key, expected[key]), (b"twice", b"1"), (b"twice", b"%d" % at))
            expected[b"twice"] = b"59"
            clean(broker, clock)
            assert state(broker, "t") == expected
            seen = [key for _, key, _ in pairs(broker, "t")[:-3]]
            assert len(set(seen)) == len(seen)
        assert (broker.cleaner.counts.walks > 3) is (memory < 1 << 20)


def test_one_topic_that_lives_long_does_not_keep_everybodys_segments() -> None:
    broker, clock, fs = fresh(retention="1h")
    broker.create_topic("long", 2, {"retention.ms": "-1"})
    broker.create_topic("short", 1)
    for at in range(20):
        send(broker, "long", b"%d" % at, index=at % 2)
        for _ in range(3):
            send(broker, "short", b"x" * 9000)
        turn(broker)
    assert len(broker.log.segments) > 8
    clock.now_ms += 2 * HOUR_MS
    send(broker, "short", b"end")
    seal(broker)
    while not broker.housekeeping.retain():
        pass
    turn(broker)
    clean(broker, clock)
    assert len(broker.log.segments) <= 2
    assert len(broker.cleaner.files) == 1

    def check() -> None:
        assert values(broker, "long", 0) == [b"%d" % at for at in range(0, 20, 2)]
        assert values(broker, "long", 1) == [b"%d" % at for at in range(1, 20, 2)]

    check()
    broker.close()
    broker = open_broker(fs.power_loss(), clock, retention="1h")
    check()
    assert not broker.health()


def test_many_small_clean_files_become_one() -> None:
    broker, clock, _ = fresh()
    broker.create_topic("t", 1, COMPACT)
    broker.create_topic("u", 20, COMPACT)
    for at in range(20):
        put(broker, "u", (b"a", b"%d" % at), index=at)
        put(broker, "u", (b"b", b"%d" % at), index=at)
        clean(broker, clock)
        assert len(broker.cleaner.files) <= 13
    for at in range(20):
        assert state(broker, "u", at) == {b"a": b"%d" % at, b"b": b"%d" % at}


def test_clean_files_that_go_while_they_are_looked_at() -> None:
    """Found by torture: the search for files to tidy ended with an exception, and no job was looked for any more."""
    broker, clock, _ = fresh()
    for name in ("a", "b", "c"):
        broker.create_topic(name, 1, COMPACT)
        put(broker, name, (b"a", b"x"), (b"b", b"x"))
        put(broker, name, (b"a", b"y"))
        clean(broker, clock)
    assert len(broker.cleaner.files) >= 2
    looking = broker.cleaner.planner.plan(broker.cleaner.published)
    next(looking)
    for _ in looking:
        if len(broker.cleaner.files):
            broker.cleaner.files._files.popitem()


def test_clean_files_that_are_mostly_dead_are_left() -> None:
    broker, clock, _ = fresh()
    broker.create_topic("t", 1, COMPACT)
    broker.create_topic("gone", 1, COMPACT)
    for topic, size in (("t", 100), ("gone", 20_000)):
        put(broker, topic, (b"a", b"x" * size))
        put(broker, topic, (b"b", b"x"))
    clean(broker, clock)
    assert broker.cleaner.files.bytes > 20_000
    gone = broker.topic("gone")
    assert gone is not None
    broker.delete_topic(gone)
    clean(broker, clock)
    assert broker.cleaner.files.bytes < 1_000
    assert state(broker, "t") == {b"a": b"x" * 100, b"b": b"x"}


def test_a_file_is_cut_where_it_is_full() -> None:
    broker, clock, fs = fresh()
    broker.create_topic("t", 1, COMPACT)
    for at in range(40):
        put(broker, "t", (b"key-%d" % at, b"x" * 8000))
    clean(broker, clock)
    assert len(broker.cleaner.files) > 3
    assert all(file.segment.size <= 65536 + 300 for file in broker.cleaner.files)
    expected = {b"key-%d" % at: b"x" * 8000 for at in range(40)}
    assert state(broker, "t") == expected
    for at in range(0, 40, 2):
        put(broker, "t", (b"key-%d" % at, b"y" * 8000))
        expected[b"key-%d" % at] = b"y" * 8000
    clean(broker, clock)
    assert state(broker, "t") == expected
    broker.close()
    assert state(open_broker(fs.kill(), clock), "t") == expected


def store(broker: BareNode, batch: memoryview) -> int:
    """Append a batch as it stands, whatever clients may send; its base offset."""
    header = parse_header(batch)
    partition = partition_of(broker, "t")
    offset, count = partition.next_offset, header.record_count
    broker.append_group([Piece(partition, batch, header, original_span=count)], broker.clock.wall_ms())
    return offset


def transactional(producer_id: int, *rows: Pair) -> memoryview:
    batch = keyed(*rows, producer_id=producer_id, producer_epoch=0, base_sequence=0)
    header = parse_header(batch)._replace(attributes=TRANSACTIONAL)
    return memoryview(bytearray(assemble(header, batch[61:])))


def end(producer_id: int, *, commit: bool) -> memoryview:
    batch = keyed((struct.pack(">hh", 0, int(commit)), bytes(6)), producer_id=producer_id, producer_epoch=0)
    header = parse_header(batch)._replace(attributes=TRANSACTIONAL | CONTROL)
    return memoryview(bytearray(assemble(header, batch[61:])))


def test_aborted_records_go_and_hide_nothing_and_markers_go_when_they_are_not_needed() -> None:
    broker, clock, _ = fresh()
    broker.create_topic("t", 1, COMPACT | {"delete.retention.ms": str(HOUR_MS)})
    store(broker, transactional(1, (b"a", b"kept"), (b"b", b"old")))  # 0, 1
    store(broker, transactional(2, (b"a", b"aborted"), (b"x", b"aborted")))  # 2, 3
    store(broker, end(1, commit=True))  # 4
    abort = store(broker, end(2, commit=False))  # 5
    store(broker, transactional(2, (b"b", b"new")))  # 6
    store(broker, end(2, commit=True))  # 7
    store(broker, end(3, commit=True))  # 8: of a transaction without records here
    put(broker, "t", (b"end", b""))  # 9
    transactions = partition_of(broker, "t").transactions = PartitionTransactions()
    transactions.aborted.add(Aborted(2, 2, abort), abort + 1)

    def offsets() -> list[int]:
        return [offset for offset, *_ in pairs(broker, "t")]

    clean(broker, clock)
    assert offsets() == [0, 4, 5, 6, 7, 8, 9]
    clock.now_ms += 30 * 60_000
    put(broker, "t", (b"end", b""))  # 10
    clean(broker, clock)
    assert offsets() == [0, 4, 5, 6, 7, 8, 9, 10], "the abort's horizon begins when its records are gone"
    clock.now_ms += 45 * 60_000
    put(broker, "t", (b"end", b""))  # 11
    clean(broker, clock)
    assert offsets() == [0, 4, 5, 6, 7, 10, 11], "9 was the last batch, and 8 is over"
    clock.now_ms += HOUR_MS
    put(broker, "t", (b"b", b"newest"), (b"end", b""))
    put(broker, "t", (b"end", b""))
    clean(broker, clock)
    assert offsets() == [0, 4, 7, 12, 13, 14], "7 was needed when its record went"
    for _ in range(2):
        clock.now_ms += HOUR_MS
        put(broker, "t", (b"end", b""))
        clean(broker, clock)
    assert offsets() == [0, 4, 12, 15, 16]


def test_nothing_is_cleaned_above_the_stable_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, clock, _ = fresh()
    broker.create_topic("t", 1, COMPACT)
    for at in range(6):
        put(broker, "t", (b"a", b"%d" % at))
    with monkeypatch.context() as patched:
        patched.setattr(Partition, "stable_offset", property(lambda partition: 3))
        clean(broker, clock)
        assert [offset for offset, *_ in pairs(broker, "t")] == [2, 3, 4, 5]
    clean(broker, clock)
    assert [offset for offset, *_ in pairs(broker, "t")] == [4, 5]


NOT_A_TIME = b"\x24\0" + b"\xff" * 10 + b"\0\0\2b\2v\0"
BEYOND_TIME = b"\x22\0\xfe" + b"\xff" * 8 + b"\1\0\2b\2v\0"
ANOTHER = b"\x12\0\0\2\2a\4vv\0"


@pytest.mark.parametrize("body", [b"\xff" * 40, NOT_A_TIME + ANOTHER, BEYOND_TIME + ANOTHER])
def test_batches_that_cannot_be_read_are_kept(body: bytes) -> None:
    """Their header is whole, and that is what was checked when they came."""
    broker, clock, _ = fresh()
    broker.create_topic("t", 1)
    garbage = keyed((b"a", b"1"), (b"b", b"2"))
    store(broker, memoryview(bytearray(assemble(parse_header(garbage), body))))
    put(broker, "t", (b"a", b"2"))
    put(broker, "t", (b"a", b"3"))
    topic = broker.topic("t")
    assert topic is not None
    broker.alter_configs(topic, COMPACT)
    put(broker, "t", (b"a", b"4"))
    clean(broker, clock)
    assert [parse_header(batch).base_offset for batch in batches(broker, "t")] == [0, 3, 4]


def test_the_largest_time_is_one_of_what_is_left() -> None:
    broker, clock, _ = fresh()
    broker.create_topic("t", 1, COMPACT)
    put(broker, "t", (b"a", b"1"), timestamp=9_000)
    put(broker, "t", (b"a", b"2"), timestamp=2_000)
    put(broker, "t", (b"b", b"1"), timestamp=3_000)
    put(broker, "t", (b"c", b"1"), timestamp=1_000)
    clean(broker, clock)
    found = broker.max_timestamp(partition_of(broker, "t"))
    assert found is not None
    assert found() == (2, 3_000)


def test_a_view_of_a_compacted_topic_goes_on_over_holes() -> None:
    broker, clock, _ = fresh()
    broker.create_topic("t", 1, COMPACT)
    broker.create_topic("v", 1, {"halfmoon.view.source": "t", "halfmoon.view.prefix": "yes"})
    put(broker, "t", (b"a", b"yes 1"), (b"b", b"no"))
    relay(broker)
    for at in range(5):
        put(broker, "t", (b"a", b"yes %d" % at))
    put(broker, "t", (b"c", b"yes"))
    clean(broker, clock)
    relay(broker)
    assert values(broker, "v") == [b"yes 1", b"yes 4", b"yes"]
    broker.create_topic("late", 1, {"halfmoon.view.source": "t", "halfmoon.view.prefix": "yes"})
    relay(broker)
    assert values(broker, "late") == [b"yes 4", b"yes"]
    assert not broker.health()


def test_deleting_records_cuts_into_clean_files() -> None:
    broker, clock, fs = fresh()
    broker.create_topic("t", 1, COMPACT | {"cleanup.policy": "compact,delete"})
    for at in range(0, 12, 2):
        put(broker, "t", (b"%d" % at, b"x"), (b"%d" % (at + 1), b"x"))
    clean(broker, clock)
    broker.delete_records(partition_of(broker, "t"), 5)
    assert [offset for offset, *_ in pairs(broker, "t")] == list(range(5, 12))
    put(broker, "t", (b"7", b"y"))
    put(broker, "t", (b"end", b"y"))
    clean(broker, clock)
    left = [5, 6, 8, 9, 10, 11, 12, 13]
    assert [offset for offset, *_ in pairs(broker, "t")] == left
    assert len(partition_of(broker, "t").cleaned) == 1
    assert len(broker.cleaner.files) == 1
    assert [offset for offset, *_ in pairs(open_broker(fs.kill(), clock), "t")] == left


def test_messages_that_wait_are_left_to_rolling() -> None:
    broker, clock, _ = fresh(retention="1h", cleaner={"min_dead_ratio": 0.1})
    broker.create_topic("t", 1)
    broker.create_topic("waiting", 1)
    waiting = partition_of(broker, "waiting")
    broker.append_relayed(
        waiting, bytearray(keyed((b"k", b"v"))), origin=Origin(0, 0), due_ms=clock.now_ms + 40 * DAY_MS
    )
    for _ in range(40):
        send(broker, "t", b"x" * 9000)
        relay(broker)
    clock.now_ms += 2 * HOUR_MS
    while not broker.housekeeping.retain():
        pass
    clean(broker, clock)
    relay(broker)
    assert broker.cleaner.tasks == 0
    assert waiting.moved_upto == 0
    assert len(waiting.pending or ()) == 1


def test_a_change_of_configurations_is_acted_on_at_once() -> None:
    broker, _, _ = fresh()
    told: list[str] = []
    broker.cleaner.on_due = lambda: told.append("due")
    broker.create_topic("t", 1)
    for _ in range(3):
        put(broker, "t", (b"a", b"1"))
    seal(broker)
    topic = broker.topic("t")
    assert topic is not None
    broker.alter_configs(topic, {"retention.ms": "-1"})
    assert not told
    broker.alter_configs(topic, COMPACT | {"min.compaction.lag.ms": str(HOUR_MS)})
    turn(broker)
    assert len(pairs(broker, "t")) == 3
    broker.alter_configs(topic, COMPACT)
    turn(broker)
    assert [offset for offset, *_ in pairs(broker, "t")] == [1, 2]
    assert told == ["due", "due"]


def test_a_change_of_the_node_s_configurations_is_acted_on_at_once() -> None:
    broker, _, _ = fresh()
    broker.create_topic("t", 1)
    for _ in range(3):
        put(broker, "t", (b"a", b"1"))
    seal(broker)
    broker.dynamic_configs.alter("", {"log.cleanup.policy": "compact"})
    turn(broker)
    assert [offset for offset, *_ in pairs(broker, "t")] == [1, 2]


@pytest.mark.parametrize("gone", [0, 7])
def test_many_partitions_are_looked_at_in_slices(monkeypatch: pytest.MonkeyPatch, gone: int) -> None:
    """Requests come in between, and topics may go."""
    monkeypatch.setattr(planning, "SLICE", 3)
    broker, clock, _ = fresh()
    for nth in range(8):
        broker.create_topic(f"t{nth}", 3, COMPACT)
        for index in range(3):
            for value in (b"1", b"2", b"3"):
                put(broker, f"t{nth}", (b"a", value), index=index)
    seal(broker)
    clock.now_ms += broker.settings.log.cleaner.interval_ms
    broker.housekeeping.turn()
    slices = 0
    while broker.cleaner.look():
        slices += 1
        if slices == 6:
            broker.delete_topic(broker.topic(f"t{gone}"))  # type: ignore[arg-type]
    assert slices > 10
    turn(broker)
    for nth in {*range(8)} - {gone}:
        assert [len(pairs(broker, f"t{nth}", index)) for index in range(3)] == [2] * 3
    assert broker.health() == []


def test_a_task_is_about_so_many_partitions_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """What makes a file known changes all of them at once."""
    monkeypatch.setattr(planning, "MOST_WORKS", 5)
    broker, clock, _ = fresh()
    broker.create_topic("t", 12, COMPACT)
    for index in range(12):
        for value in (b"1", b"2", b"3"):
            put(broker, "t", (b"a", value), index=index)
    clean(broker, clock)
    assert broker.cleaner.tasks == 3
    assert [len(pairs(broker, "t", index)) for index in range(12)] == [2] * 12


def test_no_more_is_copied_than_the_disk_has_room_for() -> None:
    """The low-disk mark is for control frames, and nothing is given back before all partitions have moved on."""
    mark = 4 * SEGMENT
    broker, clock, fs = fresh(retention="1h", low_disk_bytes=mark, cleaner={"min_dead_ratio": 0.3})
    broker.create_topic("long", 20, {"retention.ms": "-1"})
    broker.create_topic("short", 1)
    for at in range(120):
        send(broker, "long", b"y" * 4000, index=at % 20)
        send(broker, "short", b"x" * 4500)
        turn(broker)
    clock.now_ms += 2 * HOUR_MS
    send(broker, "short", b"end")
    seal(broker)
    while not broker.housekeeping.retain():
        pass
    turn(broker)
    fs.free = mark + 2 * SEGMENT + 10_000
    clock.now_ms += 15_000
    broker.housekeeping.turn()
    steps = 0
    while (job := cleaning_job(broker)) is not None:
        try:
            result = job.run()
        except OSError as error:
            job.failed(error)
        else:
            steps += 1
            job.done(result)
        assert fs.free_bytes() >= mark
    assert steps, "there was room for something"
    assert broker.cleaner.failures == 0
    assert any("disk is nearly full" in problem for problem in broker.health())
    fs.free = 1 << 40
    clean(broker, clock)
    assert not broker.health()
    assert [values(broker, "long", index=index) for index in range(20)] == [[b"y" * 4000] * 6] * 20


@pytest.mark.parametrize("damage", ["rot", "gone"])
def test_an_index_file_that_stays_away_is_told_of_and_waited_for(damage: str) -> None:
    broker, clock, fs = fresh()
    broker.create_topic("t", 1, COMPACT)
    for at in range(5):
        put(broker, "t", (b"a", b"%d" % at))
    put(broker, "t", (b"end", b""))
    seal(broker)
    for file in broker.housekeeping.indexes.files:
        if damage == "rot":
            flip(fs, file.path, 50)
        else:
            fs.remove(file.path)
    clock.now_ms += 15_000
    broker.housekeeping.turn()
    for _ in range(3):
        job = cleaning_job(broker)
        if job is not None:
            with pytest.raises((OSError, SourceGoneError)) as caught:
                job.run()
            job.failed(caught.value)
    assert cleaning_job(broker) is None
    assert broker.cleaner.failures == 1
    assert any("cleaning failed" in problem and "index/" in problem for problem in broker.health())


def test_index_files_that_are_merged_meanwhile_stay_until_the_task_is_done() -> None:
    """Its process takes a while to start: files that went by then would leave it nothing to do, again and again."""
    broker, clock, fs = fresh()
    broker.create_topic("t", 1, COMPACT)
    indexes = broker.housekeeping.indexes

    def write(size: int) -> None:
        put(broker, "t", (b"a", b"x" * size))
        seal(broker)

    write(1)
    write(1)
    clock.now_ms += 15_000
    broker.housekeeping.turn()
    job = cleaning_job(broker)
    assert job is not None
    planned = broker.indexes.named
    assert planned
    while planned & {file.path for file in indexes.files}:
        write(9_000)  # until the next segment has begun, and the one before has one index file
    assert planned <= set(fs.names)
    job.done(job.run())
    assert broker.cleaner.published == 1
    clean(broker, clock)
    assert broker.cleaner.failures == 0
    assert not planned & set(fs.names)
    assert partition_of(broker, "t").compacted_upto > 0
    write(9_000)
    write(9_000)
    assert {file.path for file in indexes.files} == {name for name in fs.names if name.startswith("index/")}


def test_what_expires_before_it_is_read_is_no_failure() -> None:
    broker, clock, fs = fresh()
    broker.create_topic("t", 1, COMPACT | {"cleanup.policy": "compact,delete"})
    for _ in range(20):
        put(broker, "t", (b"a", b"x" * 9_000))
    seal(broker)
    clock.now_ms += 15_000
    broker.housekeeping.turn()
    job = cleaning_job(broker)
    assert job is not None
    named = broker.indexes.named
    broker.delete_records(partition_of(broker, "t"), 19)
    turn(broker)
    while not broker.housekeeping.retain():
        pass
    turn(broker)
    assert named - set(fs.names)
    with pytest.raises(SourceGoneError) as caught:
        job.run()
    job.failed(caught.value)
    assert broker.cleaner.failures == 0
    assert not broker.health()
    put(broker, "t", (b"a", b"1"), (b"b", b"1"))
    put(broker, "t", (b"a", b"2"))
    put(broker, "t", (b"end", b""))
    clean(broker, clock)
    assert state(broker, "t") == {b"a": b"2", b"b": b"1", b"end": b""}
    assert partition_of(broker, "t").compacted_upto > 19


def test_what_reads_differently_the_second_time_ends_the_task() -> None:
    """Records would be dropped by the marks of others."""
    broker, clock, fs = fresh()
    broker.create_topic("t", 1, COMPACT)
    for at in range(4):
        put(broker, "t", (b"a", b"%d" % at), (b"b-%d" % at, b"1"))
    put(broker, "t", (b"end", b""))
    seal(broker)
    run = next(partition_of(broker, "t").queue.runs())
    tasks: list[Task] = []

    def execute(task: Task) -> Iterator[Output]:
        tasks.append(task)
        return iter(())

    broker.cleaner.execute = execute
    clock.now_ms += 15_000
    broker.housekeeping.turn()
    assert cleaning_job(broker) is not None
    (task,) = tasks
    (segment,) = task.segments
    reads: list[int] = []

    def pace(nbytes: int) -> None:
        if not reads:
            flip(fs, segment[2], run.columns.position[run.low + 1] + 70)
        reads.append(nbytes)

    with pytest.raises(OSError, match="reads differently"):
        list(cleaning.run(fs, task, pace))
    assert len(reads) == 2
