"""Clean files on disk: what becomes of them at a start, what rot does to them, what looks at them from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from halfmoon.core import clean_files
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.core.storage.frame import BEFORE_BYTES, before_payload
from halfmoon.core.storage.log_files import segment_path
from halfmoon.errors import BrokerError, Fault
from halfmoon.offline.backup import backup
from halfmoon.offline.dumping import dump_files
from halfmoon.offline.verifying import verify, verify_files
from halfmoon.schema.snapshot import CLEAN_BASE
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, flip, open_broker, partition_of, send, turn, values
from tests.core.clean_bench import COMPACT, clean, fresh, keyed, pairs, put, seal, state

CLEAN_PATH = clean_files.data_path(CLEAN_BASE)


def filled(broker: BareNode, clock: VirtualClock, rounds: int = 3) -> None:
    broker.create_topic("t", 2, COMPACT)
    for round_ in range(rounds):
        for at in range(8):
            put(broker, "t", (b"%d" % at, b"%d-" % round_ + b"x" * 500), index=at % 2)
    for index in range(2):
        put(broker, "t", (b"end", b""), index=index)
    clean(broker, clock)


EXPECTED = [{b"%d" % at: b"2-" + b"x" * 500 for at in range(index, 8, 2)} | {b"end": b""} for index in range(2)]


def test_what_no_record_names_goes_at_the_next_start() -> None:
    broker, clock, fs = fresh()
    filled(broker, clock)
    broker.close()
    fs = fs.kill()
    names = set(fs.names)
    assert CLEAN_PATH in names
    for name in ("9223372036854770000", "9223372036854770000.index", "4611686018427387904.new"):
        file = fs.open(f"cleaned/{name}", create=True)
        file.pwritev([b"left over" * 50], 0)
    broker = open_broker(fs, clock)
    assert {name for name in fs.names if name.startswith("cleaned/")} == {
        name for name in names if name.startswith("cleaned/")
    }
    assert [state(broker, "t", index) for index in range(2)] == EXPECTED


def test_a_lost_index_is_made_again() -> None:
    broker, clock, fs = fresh()
    filled(broker, clock)
    before = [pairs(broker, "t", index) for index in range(2)]
    broker.close()
    fs.remove(CLEAN_PATH + ".index")
    report = verify_files(fs)
    assert any("has no index" in problem for problem in report.problems)
    broker = open_broker(fs.kill(), clock)
    assert [pairs(broker, "t", index) for index in range(2)] == before
    assert not broker.health()


def test_a_missing_file_is_told_and_its_offsets_are_corrupt() -> None:
    broker, clock, fs = fresh()
    filled(broker, clock)
    moved_upto = partition_of(broker, "t").moved_upto
    broker.close()
    assert verify_files(fs).ok
    fs.remove(CLEAN_PATH)
    assert verify_files(fs).problems == [f"compacted segment {CLEAN_BASE:020d} is missing"]
    broker = open_broker(fs.kill(), clock)
    assert any("is missing" in problem for problem in broker.health())
    with pytest.raises(BrokerError) as caught:
        broker.read(partition_of(broker, "t"), 0, 100, min_one=True)
    assert caught.value.fault is Fault.CORRUPT_MESSAGE
    assert [offset for offset, *_ in pairs(broker, "t")] == [moved_upto]


@pytest.mark.parametrize("header", [True, False])
def test_rot_in_a_clean_file(header: bool) -> None:
    broker, clock, fs = fresh()
    filled(broker, clock)
    run = next(partition_of(broker, "t").queue.runs())
    assert run.in_clean_file
    second = run.columns.position[run.low + 1]
    lost = run.columns.base[run.low + 1]
    before = pairs(broker, "t")
    broker.close()
    flip(fs, CLEAN_PATH, second - CLEAN_BASE + (-50 if header else 100))
    report = verify_files(fs)
    assert len(report.damaged) == 1
    assert report.damaged[0][0] <= second <= report.damaged[0][1]
    assert [info.kind for info in dump_files(fs, from_position=CLEAN_BASE)].count("damaged") == 1
    fs.remove(CLEAN_PATH + ".index")
    broker = open_broker(fs.kill(), clock)
    assert broker.health()
    with pytest.raises(BrokerError) as caught:
        broker.read(partition_of(broker, "t"), lost, 100, min_one=True)
    assert caught.value.fault is Fault.CORRUPT_MESSAGE
    assert pairs(broker, "t") == [each for each in before if each[0] != lost]
    assert state(broker, "t", 1) == EXPECTED[1]


def test_rot_that_takes_a_whole_partition_is_told_of() -> None:
    broker, clock, fs = fresh()
    broker.create_topic("t", 4, COMPACT)
    for index in range(4):
        put(broker, "t", (b"a", b"1"), index=index)
        put(broker, "t", (b"end", b""), index=index)
    clean(broker, clock)
    positions = []
    for index in (1, 2):
        run = next(partition_of(broker, "t", index).queue.runs())
        assert run.in_clean_file
        positions.append(run.columns.position[run.low] - CLEAN_BASE - 50)
    broker.close()
    for position in positions:
        flip(fs, CLEAN_PATH, position)
    fs.remove(CLEAN_PATH + ".index")
    broker = open_broker(fs.kill(), clock)
    assert [partition_of(broker, "t", index).queue.damaged for index in range(4)] == [[], [(0, 1)], [(0, 1)], []]
    assert [[offset for offset, *_ in pairs(broker, "t", index)] for index in range(4)] == [[0, 1], [1], [1], [0, 1]]


@pytest.mark.parametrize("compacted", [True, False])
def test_what_rot_has_taken_is_not_given_a_new_checksum(compacted: bool) -> None:
    broker, clock, fs = fresh(cleaner={"min_dead_ratio": 0.1}, retention="1h")
    broker.create_topic("t", 1, COMPACT if compacted else {"retention.ms": "-1"})
    for at in range(6):
        put(broker, "t", (b"%d" % at, b"x" * 500))
    run = next(partition_of(broker, "t").queue.runs(), None)
    assert run is None
    seal(broker)
    position = next(partition_of(broker, "t").queue.runs()).columns.position[2]
    flip(fs, segment_path(0), position + 100)
    if not compacted:
        broker.create_topic("short", 1)
        for _ in range(40):
            send(broker, "short", b"x" * 9000)
            turn(broker)
        clock.now_ms += 7_200_000
        while not broker.housekeeping.retain():
            pass
    clean(broker, clock)
    assert [offset for offset, *_ in pairs(broker, "t")] == [0, 1, 3, 4, 5]
    assert any("has lost offsets 2 to 2" in problem for problem in broker.health())
    assert broker.cleaner.moved_batches_lost == 1
    broker.close()
    broker = open_broker(fs.kill(), clock)
    with pytest.raises(BrokerError) as caught:
        broker.read(partition_of(broker, "t"), 2, 100, min_one=True)
    assert caught.value.fault is Fault.CORRUPT_MESSAGE


def test_a_record_that_rot_has_taken_is_read_from_its_file() -> None:
    broker, clock, fs = fresh()
    filled(broker, clock)
    position = next(
        info.position for info in dump_files(fs) if info.control is not None and info.control.startswith("Cleaned")
    )
    broker.close()
    flip(fs, segment_path(0), position + 95)
    fs.remove("checkpoint")
    fs.remove("clean")
    broker = open_broker(fs.kill(), clock)
    assert broker.report.damaged
    assert len(broker.cleaner.files) == 1
    assert [state(broker, "t", index) for index in range(2)] == EXPECTED


def test_verify_and_dump_know_them() -> None:
    broker, clock, fs = fresh()
    filled(broker, clock)
    report = verify_files(fs)
    assert report.ok, report.problems
    assert report.clean_files == 1
    infos = list(dump_files(fs, from_position=CLEAN_BASE))
    assert [info.kind for info in infos] == ["control", *["batch"] * 8, "control"]
    assert {info.topic for info in infos if info.kind == "batch"} == {"t"}
    inode = fs.names[CLEAN_PATH + ".index"]
    inode.cache[-60] ^= 1
    assert any("columns checksum" in problem for problem in verify_files(fs).problems)


def test_a_backup_has_them(tmp_path: Path) -> None:
    clock = VirtualClock()
    broker = open_broker(OsFileSystem(tmp_path / "source"), clock)
    filled(broker, clock)
    broker.create_topic("filler", 1)

    def roll() -> None:
        count = len(broker.log.segments)
        while len(broker.log.segments) <= count:
            send(broker, "filler", b"x" * 9000)
            turn(broker)

    roll()
    report = backup(tmp_path / "source", tmp_path / "plain")
    assert report.clean_files == 1
    # Replaced since the last segment began: what has replaced it is known to that segment only.
    for at in range(8):
        put(broker, "t", (b"%d" % at, b"new"), index=at % 2)
    for index in range(2):
        put(broker, "t", (b"end", b"new"), index=index)
    clean(broker, clock)
    assert not (tmp_path / "source" / CLEAN_PATH).exists()
    report = backup(tmp_path / "source", tmp_path / "newer")
    assert report.clean_files == 1
    count = len(values(broker, "filler"))
    broker.close()
    for name, expected in (("plain", EXPECTED), ("newer", None)):
        assert verify(tmp_path / name).ok
        copy = open_broker(OsFileSystem(tmp_path / name), clock)
        assert not copy.health()
        assert values(copy, "filler")
        for index in range(2):
            found = state(copy, "t", index)
            assert found == (expected[index] if expected else dict.fromkeys(found, b"new"))
            assert len(found) == 5
        if expected is None:
            assert len(values(copy, "filler")) == count
        copy.close()


def test_a_reader_keeps_what_it_reads() -> None:
    broker, clock, fs = fresh()
    filled(broker, clock)
    read = broker.read(partition_of(broker, "t"), 0, 10_000, min_one=True)
    before = [bytes(piece) for piece in read.slices]
    for at in range(8):
        put(broker, "t", (b"%d" % at, b"new"), index=at % 2)
    put(broker, "t", (b"end", b"new"))
    put(broker, "t", (b"end", b"new"), index=1)
    clean(broker, clock)
    assert CLEAN_PATH not in fs.names
    assert [bytes(piece) for piece in read.slices] == before


def test_times_are_found_over_holes() -> None:
    broker, clock, _ = fresh()
    broker.create_topic("t", 1, COMPACT)
    for at in range(6):
        broker.append(partition_of(broker, "t"), keyed((b"%d" % (at % 3), b"x"), timestamp=1000 * at), clock.wall_ms())
    clean(broker, clock)
    search = broker.batch_for_time(partition_of(broker, "t"), 0)
    assert search is not None
    assert search() == (2, 2000), "those before are gone"
    search = broker.batch_for_time(partition_of(broker, "t"), 2001)
    assert search is not None
    assert search() == (3, 3000)
    newest = broker.max_timestamp(partition_of(broker, "t"))
    assert newest is not None
    assert newest() == (5, 5000)


def test_a_framed_read_finds_store_times_in_clean_files_too() -> None:
    broker, clock, _ = fresh()
    broker.create_topic("t", 1, COMPACT)
    stored = []
    for at in range(4):
        clock.now_ms += 1000
        stored.append(clock.now_ms)
        put(broker, "t", (b"%d" % at, b"x" * 50))
    clean(broker, clock)
    places, read = broker.read_framed(partition_of(broker, "t"), 0, 10_000)
    assert [position >= CLEAN_BASE for position, _ in places] == [True, True, True, False]
    found = [
        before_payload(memoryview(piece)[:BEFORE_BYTES], position)
        for (position, _), piece in zip(places, read.slices, strict=True)
    ]
    assert [each[0] for each in found if each is not None] == stored
