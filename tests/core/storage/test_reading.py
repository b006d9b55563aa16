"""From places to bytes: hot slices, cold copies, and segments that go meanwhile."""

from __future__ import annotations

import random

import pytest

from halfmoon.config.log_settings import LogSettings
from halfmoon.config.settings import LimitSettings, Settings
from halfmoon.core.records.batch_header import BatchHeader, parse_header
from halfmoon.core.storage import reading
from halfmoon.core.storage.commitlog import CommitLog
from halfmoon.core.storage.fetch_buffers import FetchBuffers
from halfmoon.core.storage.local import LocalStorage, shard_storage
from halfmoon.core.storage.reading import ColdBlocks, Reader
from halfmoon.core.storage.storage import Place, Read
from halfmoon.errors import BrokerError
from halfmoon.testing.faulty_files import FaultyFileSystem, FaultyMapping
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, batch, open_broker, partition_of, send, turn
from tests.core.log_bench import append_batch, expire, flush, open_log


@pytest.fixture
def log(fs: FaultyFileSystem) -> CommitLog:
    return open_log(fs)


def written(log: CommitLog, *sizes: int) -> list[Place]:
    """Batches of about these sizes; their places."""
    places = []
    for offset, size in enumerate(sizes):
        position = append_batch(log, offset, b"%d-" % offset + b"x" * size) + 92
        places.append((position, log.end - position))
    flush(log)
    return places


def headers(slices: object) -> list[BatchHeader]:
    return [parse_header(piece) for piece in slices]  # type: ignore[attr-defined]


def offsets(slices: object) -> list[int]:
    return [header.base_offset for header in headers(slices)]


def test_near_the_end_slices_of_the_mapping_are_handed_out(log: CommitLog) -> None:
    places = written(log, 10, 10, 10)
    read = Reader(log, hot_bytes=1 << 20).read(places)
    assert read.cold is None
    assert offsets(read.slices) == [0, 1, 2]
    assert read.size == sum(length for _, length in places)
    assert all(isinstance(piece, memoryview) and piece.obj is log.segments[0].view.obj for piece in read.slices)


def test_hot_reads_reach_over_segments(log: CommitLog) -> None:
    places = written(log, *[9_000] * 20)
    assert len(log.segments) > 2
    assert offsets(Reader(log, hot_bytes=1 << 30).read(places).slices) == list(range(20))


def is_slice(log: CommitLog, piece: object) -> bool:
    """Whether it is one of the first segment's mapping."""
    return isinstance(piece, memoryview) and piece.obj is log.segments[0].view.obj


def test_further_back_what_is_in_memory_is_handed_out_as_slices_too(log: CommitLog) -> None:
    places = written(log, *[9_000] * 20)
    reader = Reader(log, hot_bytes=0)
    read = reader.read(places)
    assert read.cold is None
    assert offsets(read.slices) == list(range(20))
    assert is_slice(log, read.slices[0])
    assert reader.cold_reads == 0


def test_once_the_disk_was_needed_older_data_is_copied_for_a_while(
    fs: FaultyFileSystem, log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = written(log, *[9_000] * 4)
    monkeypatch.setattr(reading, "CAREFUL_BYTES", 2 * places[0][1])
    reader = Reader(log, hot_bytes=0)
    fs.cold = True
    assert reader.read(places).cold is not None
    fs.cold = False
    for _ in range(2):
        (piece,) = reader.read(places[:1]).slices
        assert offsets([piece]) == [0]
        assert not is_slice(log, piece)
    (piece,) = reader.read(places[:1]).slices
    assert is_slice(log, piece)


def test_what_is_not_cached_is_left_to_a_thread(fs: FaultyFileSystem, log: CommitLog) -> None:
    places = written(log, *[9_000] * 20)
    fs.cold = True
    reader = Reader(log, hot_bytes=0)
    read = reader.read(places)
    assert not read.slices
    assert read.size == sum(length for _, length in places)
    assert read.cold is not None
    assert offsets(read.cold()) == list(range(20))
    assert reader.cold_reads == 1


class ColdReading:
    """Reads batches that are all cold, one at a time, and sees what is forgotten meanwhile, in positions of the log."""

    def __init__(self, fs: FaultyFileSystem, log: CommitLog, cold_bytes: int | None, hot_bytes: int = 0) -> None:
        fs.cold = True
        self.fs = fs
        self.reader = Reader(log, hot_bytes, ColdBlocks(cold_bytes))

    def forgotten(self, *places: Place) -> list[tuple[int, int]]:
        self.fs.forgotten.clear()
        read = self.reader.read(places)
        assert read.cold is not None
        assert not self.fs.forgotten, "that is left to the thread too"
        assert len(read.cold()) == len(places)
        return self.fs.forgotten


@pytest.fixture
def block(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(reading, "BLOCK_BYTES", 10_000)
    return 10_000


def at(places: list[Place], block: int, number: int) -> Place:
    """The first batch that lies wholly in this block."""
    return next(place for place in places if place[0] >= number * block)


def test_of_what_cold_reads_bring_in_no_more_than_the_limit_stays(
    fs: FaultyFileSystem, log: CommitLog, block: int
) -> None:
    places = written(log, *[900] * 60)
    cold = ColdReading(fs, log, 2 * block)
    assert cold.forgotten(at(places, block, 0)) == []
    assert cold.forgotten(at(places, block, 3)) == []
    assert cold.forgotten(at(places, block, 0)) == [], "it counts once"
    assert cold.forgotten(at(places, block, 1)) == [(3 * block, 4 * block)], "what was read longest ago goes"
    assert cold.forgotten(at(places, block, 2)) == [(0, block)]
    assert cold.forgotten(at(places, block, 4), at(places, block, 5)) == [(block, 2 * block), (2 * block, 3 * block)]


def test_without_a_limit_it_is_a_quarter_of_the_memory(fs: FaultyFileSystem, log: CommitLog, block: int) -> None:
    places = written(log, *[900] * 60)
    fs.memory = 4 * block + 3
    cold = ColdReading(fs, log, None)
    assert cold.forgotten(at(places, block, 0)) == []
    assert cold.forgotten(at(places, block, 1)) == [(0, block)]


def test_logs_of_one_process_share_the_limit(block: int) -> None:
    """And the processes of one broker share it, too."""
    shared = ColdBlocks(4 * block, processes=2)
    logs = []
    for _ in range(2):
        fs = FaultyFileSystem(random.Random(1))
        log = open_log(fs)
        places = written(log, *[900] * 60)
        logs.append((places, ColdReading(fs, log, None)))
        logs[-1][1].reader = Reader(log, 0, shared)
    (first_places, first), (second_places, second) = logs
    assert first.forgotten(at(first_places, block, 0)) == []
    assert second.forgotten(at(second_places, block, 3)) == []
    assert second.forgotten(at(second_places, block, 1)) == []
    assert first.fs.forgotten == [(0, block)], "what was read longest ago goes, whichever log it is of"
    assert first.forgotten(at(first_places, block, 2)) == []
    assert second.fs.forgotten == [(3 * block, 4 * block)]


def test_shards_of_one_process_share_its_memory(block: int) -> None:
    settings = Settings(
        log=LogSettings(segment_bytes=64 << 10, hot_bytes=16 * block, cold_bytes=4 * block),
        limits=LimitSettings(fetch_buffer_bytes=50_000),
    )
    make = shard_storage(settings, shards=16, processes=2)
    found = []
    for _ in range(2):
        fs = FaultyFileSystem(random.Random(1))
        storage = make(fs, settings)
        storage.log.open()
        places = written(storage.log, *[900] * 60)
        found.append((fs, storage, places))
        fs.cold = True
        assert storage.reader.read(places[-5:]).cold is None, "a sixteenth of hot_bytes"
        for number in (0, 2):
            cold = storage.reader.read([at(places, block, number)]).cold
            assert cold is not None
            cold()
    (first_fs, first, _), (_, second, _) = found
    assert first_fs.forgotten == [(0, block), (2 * block, 3 * block)], "half of cold_bytes is two blocks"
    assert first.reader.buffers is second.reader.buffers
    assert first.reader.buffers.limit_bytes == 50_000
    alone = LocalStorage(FaultyFileSystem(random.Random(3)), settings)
    assert alone.reader.buffers is not first.reader.buffers


def test_what_is_forgotten_may_lie_in_two_segments_or_have_expired(
    fs: FaultyFileSystem, log: CommitLog, block: int
) -> None:
    places = written(log, *[900] * 200)
    border = log.segments[1].start
    number = border // block
    assert number * block < border < (number + 1) * block
    cold = ColdReading(fs, log, 0)
    assert cold.forgotten(at(places, block, number)) == [(number * block, border), (0, (number + 1) * block - border)]
    cold = ColdReading(fs, log, block)
    assert cold.forgotten(at(places, block, number)) == []
    expire(log)
    later = at(places, block, 10)
    assert cold.forgotten(later) == [(0, (number + 1) * block - border)]
    while log.start <= later[0]:
        expire(log)
    assert cold.forgotten(at(places, block, 18)) == []


def test_what_is_read_from_the_mapped_files_is_never_forgotten(
    fs: FaultyFileSystem, log: CommitLog, block: int
) -> None:
    places = written(log, *[900] * 30)
    cold = ColdReading(fs, log, 0, hot_bytes=log.end - 12_345)
    assert cold.forgotten(at(places, block, 1)) == [(block, 12_345)]


def test_a_segment_may_retire_while_a_cold_read_is_under_way(fs: FaultyFileSystem, log: CommitLog) -> None:
    places = written(log, *[9_000] * 30)
    fs.cold = True
    read = Reader(log, hot_bytes=0).read(places[:4])
    assert read.cold is not None
    expire(log)
    append_batch(log, 99, b"y" * 60_000)
    flush(log)
    append_batch(log, 100, b"y" * 60_000)  # what was recycled is overwritten
    flush(log)
    assert offsets(read.cold()) == [0, 1, 2, 3]


def test_slices_of_a_retired_segment_stay_what_they_are(log: CommitLog) -> None:
    places = written(log, *[9_000] * 30)
    read = Reader(log, hot_bytes=1 << 30).read(places[:4])
    before = [bytes(piece) for piece in read.slices]
    expire(log)
    for offset in range(20):
        append_batch(log, offset, b"y" * 9_000)
        flush(log)
    assert [bytes(piece) for piece in read.slices] == before


def test_reading_what_has_expired_is_refused(log: CommitLog) -> None:
    places = written(log, *[9_000] * 30)
    expire(log)
    with pytest.raises(BrokerError):
        Reader(log, hot_bytes=0).read(places[:1])


def test_batches_close_together_are_read_in_one_go_and_those_far_apart_are_not(
    fs: FaultyFileSystem, log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "STRETCH_BYTES", 20_000)
    places = written(log, *[1_000] * 50)
    reader = Reader(log, hot_bytes=0)
    fs.bytes_read = 0
    assert offsets(reader.read(places).slices) == list(range(50))
    assert fs.bytes_read < 70_000
    far = [places[0], places[40]]
    fs.bytes_read = 0
    assert offsets(reader.read(far).slices) == [0, 40]
    assert fs.bytes_read < 3_000


def test_what_lies_between_small_batches_is_not_kept_in_memory(log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FaultyMapping, "in_memory", lambda mapping, start, end: False)
    places = written(log, *[10, 3_000] * 8)
    reader = Reader(log, hot_bytes=0)
    pieces = reader.read(places[::2]).slices
    assert offsets(pieces) == list(range(0, 16, 2))
    assert reader.buffers.in_use_bytes == sum(map(len, pieces))


def test_no_places_no_bytes(log: CommitLog) -> None:
    assert Reader(log, 0).read([]) == Read((), 0, None)


# -- by time, through the broker ---------------------------------------------------------------------------------------


@pytest.fixture
def broker(fs: FaultyFileSystem) -> BareNode:
    broker = open_broker(fs, VirtualClock())
    broker.create_topic("t", 1)
    return broker


def found_for(broker: BareNode, timestamp_ms: int) -> tuple[int, int] | None:
    search = broker.batch_for_time(partition_of(broker, "t"), timestamp_ms)
    return None if search is None else search()


@pytest.mark.parametrize("cold", [False, True])
def test_the_first_record_of_a_time_though_times_are_not_sorted(
    fs: FaultyFileSystem, broker: BareNode, cold: bool
) -> None:
    times = [100, 500, 200, 50, 700, 300, 900]
    for number, timestamp in enumerate(times):
        send(broker, "t", b"a", b"b", timestamp=timestamp)  # the second is one ms later
        if number == 3:
            turn(broker)
            broker.housekeeping.freeze()
        turn(broker)
    fs.cold = cold
    records = [(2 * at + nth, time + nth) for at, time in enumerate(times) for nth in (0, 1)]
    for asked in (0, 100, 101, 102, 300, 501, 502, 701, 900, 901):
        expected = next((record for record in records if record[1] >= asked), None)
        assert found_for(broker, asked) == expected, asked
    assert found_for(broker, 902) is None
    newest = broker.max_timestamp(partition_of(broker, "t"))
    assert newest is not None
    assert newest() == (13, 901)


def test_times_before_the_start_count_for_nothing(broker: BareNode) -> None:
    send(broker, "t", b"a", b"b", b"c", timestamp=900)
    send(broker, "t", b"d", timestamp=300)
    turn(broker)
    broker.delete_records(partition_of(broker, "t"), 2)
    assert found_for(broker, 0) == (2, 902)
    broker.delete_records(partition_of(broker, "t"), 3)
    assert found_for(broker, 0) == (3, 300)
    assert found_for(broker, 301) is None
    newest = broker.max_timestamp(partition_of(broker, "t"))
    assert newest is not None
    assert newest() == (3, 300)


def test_an_empty_partition_has_no_times(broker: BareNode) -> None:
    assert found_for(broker, 0) is None
    assert broker.max_timestamp(partition_of(broker, "t")) is None


def test_times_are_found_after_a_restart(fs: FaultyFileSystem, broker: BareNode) -> None:
    for timestamp in (100, 900, 300):
        broker.append(partition_of(broker, "t"), batch(b"x", timestamp=timestamp), 0)
    turn(broker)
    again = open_broker(fs.kill(), VirtualClock())
    assert found_for(again, 200) == (1, 900)
    assert found_for(again, 901) is None


def test_a_cold_read_takes_no_more_memory_than_it_may(fs: FaultyFileSystem, log: CommitLog) -> None:
    places = written(log, *[9_000] * 20)
    length = places[0][1]
    fs.cold = True
    reader = Reader(log, hot_bytes=0)
    read = reader.read(places, load_bytes=3 * length + 100)
    assert read.size == 3 * length
    assert read.loads
    assert read.cold is not None
    assert reader.buffers.in_use_bytes == 0
    pieces = read.cold()
    assert offsets(pieces) == [0, 1, 2]
    assert 3 * length <= reader.buffers.in_use_bytes <= 3 * length + 300, "with the heads of frames in between"
    del pieces
    assert reader.buffers.in_use_bytes == 0
    assert reader.read(places, load_bytes=length - 1) == Read((), 0, None, loads=True)


def test_small_batches_far_apart_take_their_own_size_only(fs: FaultyFileSystem, log: CommitLog) -> None:
    places = written(log, 100, 9_000, 100, 9_000, 100)[::2]
    fs.cold = True
    reader = Reader(log, hot_bytes=0)
    read = reader.read(places)
    assert read.cold is not None
    pieces = read.cold()
    assert offsets(pieces) == [0, 2, 4]
    assert reader.buffers.in_use_bytes == sum(length for _, length in places)


def test_copies_of_what_is_in_memory_count_too_and_wait_where_there_is_no_room(
    fs: FaultyFileSystem, log: CommitLog
) -> None:
    places = written(log, *[9_000] * 4)
    reader = Reader(log, hot_bytes=0, buffers=FetchBuffers(15_000))
    fs.cold = True
    assert reader.read(places[:1]).cold is not None
    fs.cold = False
    first = reader.read(places[:1])
    assert first.loads
    assert first.cold is None
    assert reader.buffers.in_use_bytes == places[0][1]
    assert reader.read(places[1:2]).cold is not None
    del first
    assert reader.read(places[1:2]).cold is None


def test_a_file_that_ends_too_early_is_an_error(fs: FaultyFileSystem, log: CommitLog) -> None:
    places = written(log, 9_000)
    fs.cold = True
    read = Reader(log, hot_bytes=0).read(places)
    assert read.cold is not None
    inode = log.segments[0].file._inode  # type: ignore[attr-defined]
    inode.cache = inode.cache[:5_000]
    with pytest.raises(OSError, match="Input/output"):
        read.cold()
