"""The key index: finds every frame that holds a key or names a message, whatever happened to its files (B02, B05)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from halfmoon.core import clean_files
from halfmoon.core.records.batch_header import assemble
from halfmoon.core.records.batches import build_batch, parse_header
from halfmoon.core.storage.frame_reading import FrameReader
from halfmoon.plugins.store.delay.delays import CANCEL, LEVEL_TOPIC, NAMES, TIMER_TOPIC, Delays
from halfmoon.services.keyindex import key_file, service
from halfmoon.services.keyindex.entries import SLICE
from halfmoon.services.keyindex.stretch import Stretch, block_hash, key_hash
from halfmoon.services.waiting.types import PutInterceptor
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import SEGMENT, VirtualClock, drop_oldest, flip, jobs, open_broker, partition_of, relay, turn
from tests.core.clean_bench import COMPACT, clean, fresh, put
from tests.core.relay_bench import pass_ms, send

DELAYS = PutInterceptor(
    "delay", (*NAMES, CANCEL), Delays([1_000], 1 << 40).before_put, scheduled_topics=(LEVEL_TOPIC, TIMER_TOPIC)
)


@pytest.fixture
def broker(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    return reopen(fs, clock)


def reopen(fs: FaultyFileSystem, clock: VirtualClock, **settings: Any) -> BareNode:
    return open_broker(fs, clock, interceptors=[DELAYS], **settings)


def places(broker: BareNode, topic: str, key: bytes) -> set[tuple[str, int]]:
    """(topic, base offset) of the frames that the index gives for a key; it must have come to the end of the log."""
    assert broker.key_index.covers(broker.log.end)
    number = partition_of(broker, topic).topic.number
    return {seen for position in broker.key_index.find([key_hash(number, key)])() for seen in [_at(broker, position)]}


def _at(broker: BareNode, position: int) -> tuple[str, int]:
    whole = FrameReader(broker.log.segments + broker.log.cleaned).read(position)
    assert whole is not None
    return broker.catalog.by_number[whole.frame.topic_number].name, whole.frame.base_offset


def rows(count: int, first: int = 0) -> list[tuple[bytes, dict[str, str]]]:
    return [(b"v" * 50, {"KEYS": f"a{at} b{at % 7}", "UNIQ_KEY": f"u{at}"}) for at in range(first, first + count)]


def test_keys_are_found_under_their_topic(broker: BareNode) -> None:
    broker.create_topic("t", 1)
    broker.create_topic("other", 1)
    send(broker, "t", (b"1", {"KEYS": "x y"}), (b"2", {"UNIQ_KEY": "u"}))
    send(broker, "other", (b"3", {"KEYS": "y"}))
    relay(broker)
    for key in (b"x", b"y", b"u"):
        assert places(broker, "t", key) == {("t", 0)}
    assert places(broker, "t", b"x y") == set()
    assert places(broker, "other", b"y") == {("other", 0)}


def test_frames_without_keys_cost_nothing(broker: BareNode) -> None:
    broker.create_topic("t", 1)
    send(broker, "t", (b"v", {"TAGS": "a"}))
    relay(broker)
    assert broker.key_index.entries() == 0


def test_what_waits_is_found_under_the_topic_it_goes_to(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("t", 1)
    send(broker, "t", (b"v", {"KEYS": "k", "DELAY": "1"}))
    relay(broker)
    ((waits, _),) = places(broker, "t", b"k")
    assert waits == "SCHEDULE_TOPIC_XXXX"
    pass_ms(broker, clock, 2_000)
    assert places(broker, "t", b"k") == {(waits, 0), ("t", 0)}
    number = partition_of(broker, waits).topic.number
    (delivered,) = broker.key_index.find([block_hash(number, 0, 0)])()
    assert _at(broker, delivered) == ("t", 0)


@pytest.mark.parametrize("codec", range(5))
def test_compressed_batches_small_and_large(broker: BareNode, codec: int) -> None:
    broker.create_topic("t", 1)
    send(broker, "t", *rows(3), codec=codec)
    dice = random.Random(1)
    large = [(dice.randbytes(60), {"KEYS": f"large{at}"}) for at in range(600)]
    send(broker, "t", *large, codec=codec)
    relay(broker)
    assert places(broker, "t", b"u2") == {("t", 0)}
    assert places(broker, "t", b"large599") == {("t", 3)}


def test_the_records_own_key_where_the_topic_says_so(broker: BareNode) -> None:
    broker.create_topic("t", 1, {"halfmoon.key.index": "true", "halfmoon.headers.enable": "false"})
    broker.create_topic("not", 1)
    for topic in ("t", "not"):
        send(broker, topic, (b"v", {"KEYS": "header"}))  # its own key is k
    relay(broker)
    assert places(broker, "t", b"k") == {("t", 0)}
    assert places(broker, "not", b"k") == set()


def test_files_are_closed_with_their_segment_and_go_with_it(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("t", 1, {"retention.bytes": str(SEGMENT)})
    for first in range(0, 4_000, 20):
        send(broker, "t", *rows(20, first))
        relay(broker)
    files = broker.key_index.files
    ends = {segment.end for segment in broker.log.segments}
    assert len(files) >= 3
    assert {file.end for file in files} <= ends
    assert places(broker, "t", b"a0") == {("t", 0)}
    broker.housekeeping.retain()
    while not broker.housekeeping.retain():
        pass
    turn(broker)
    broker.housekeeping.drop_segments()
    assert broker.log.start > 0
    assert all(file.start >= broker.log.start for file in broker.key_index.files)
    assert places(broker, "t", b"a0") == set()
    assert places(broker, "t", b"u3999") == {("t", 3980)}


@pytest.mark.parametrize("lost", ["nothing", "some", "all", "damaged"])
@pytest.mark.parametrize("after", ["close", "kill", "power_loss"])
def test_it_is_the_same_after_a_restart(fs: FaultyFileSystem, clock: VirtualClock, lost: str, after: str) -> None:
    broker = reopen(fs, clock, index_checkpoint_bytes=4 << 10)
    broker.create_topic("t", 1)
    for first in range(0, 1_000, 20):
        send(broker, "t", *rows(20, first))
        relay(broker)
    expected = {key: places(broker, "t", key) for key in (b"a0", b"b3", b"u501", b"u999", b"nobody")}
    assert len(expected[b"b3"]) > 20
    if after == "close":
        broker.close()
    else:
        fs = getattr(fs, after)()
    files = [path for path in fs.names if path.startswith("keys/")]
    for at, path in enumerate(files):
        if lost == "all" or (lost == "some" and at % 2):
            fs.remove(path)
        elif lost == "damaged":
            flip(fs, path, 9)
    fs.sync_directory("keys")
    again = reopen(fs, clock)
    assert again.key_index.behind_bytes > 0 or (lost == "nothing" and after == "close")
    relay(again)
    assert again.key_index.behind_bytes == 0
    assert {key: places(again, "t", key) for key in expected} == expected


def test_what_is_visible_is_found_before_the_index_has_come_to_it(broker: BareNode) -> None:
    broker.create_topic("t", 1)
    number = partition_of(broker, "t").topic.number

    def found(key: bytes) -> list[tuple[str, int]]:
        return [_at(broker, position) for position in broker.key_index.find_key(number, key)()]

    send(broker, "t", (b"v", {"KEYS": "k"}))
    assert found(b"k") == [], "it is not visible"
    turn(broker)
    assert not broker.key_index.covers(broker.log.end)
    assert found(b"k") == [("t", 0)]
    assert found(b"other") == []
    relay(broker)
    assert broker.key_index.covers(broker.log.end)
    assert found(b"k") == [("t", 0)]


def test_a_clean_restart_scans_nothing(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = reopen(fs, clock)
    broker.create_topic("t", 1)
    send(broker, "t", *rows(5))
    turn(broker)  # the index has not come to it yet
    broker.close()
    again = reopen(fs, clock)
    assert again.key_index.behind_bytes == 0
    relay(again)
    assert places(again, "t", b"u4") == {("t", 0)}


def test_restarts_leave_no_crowd_of_files(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    for at in range(10):
        broker = reopen(fs, clock)
        if at == 0:
            broker.create_topic("t", 1)
        send(broker, "t", *rows(5, at * 5))
        relay(broker)
        broker.close()
        assert len([path for path in fs.names if path.startswith("keys/")]) == 1
    again = reopen(fs.kill(), clock)
    relay(again)
    for at in range(50):
        assert places(again, "t", f"u{at}".encode()) == {("t", at - at % 5)}


def test_a_start_that_changes_nothing(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    for _ in range(3):
        broker = reopen(fs, clock)
        broker.close()
    again = reopen(fs, clock)
    assert again.key_index.behind_bytes == 0


def test_files_of_what_is_gone_are_not_taken_for_what_came_instead(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """With `flush: interval` an index file may be on disk before the log that it speaks of."""
    broker = reopen(fs, clock, flush="interval")
    broker.create_topic("t", 1)
    turn(broker)
    kept = broker.log.end
    send(broker, "t", *rows(5))
    turn(broker)
    tail = Stretch(kept)
    tail.upto = broker.log.end
    key_file.write(fs, tail)
    fs = fs.power_loss()
    again = reopen(fs, clock)
    assert all(file.end <= again.log.end for file in again.key_index.files)


def test_rot_is_stepped_over(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = reopen(fs, clock)
    broker.create_topic("t", 1)
    ends = []
    for first in (0, 20, 40):
        send(broker, "t", *rows(20, first))
        relay(broker)
        ends.append(broker.log.end)
    broker.close()
    flip(fs, "log/" + "0" * 20, ends[0] + 400, 8)
    for path in [path for path in fs.names if path.startswith("keys/")]:
        fs.remove(path)
    again = reopen(fs, clock)
    relay(again)
    assert places(again, "t", b"u5") == {("t", 0)}
    assert places(again, "t", b"u45") == {("t", 40)}


def test_a_batch_that_is_none_stops_nothing(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """Where headers do not act nobody has looked into it before."""
    broker = reopen(fs, clock, segment_bytes=1 << 20, validate="header")
    settings = {"halfmoon.headers.enable": "false", "halfmoon.key.index": "true"}
    bad = broker.create_topic("bad", 1, settings)[0].partitions[0]
    broker.create_topic("t", 1)
    header = parse_header(build_batch([(b"k", b"v", 1, ())]))
    for garbage in (b"small", random.Random(1).randbytes(20_000)):
        batch = assemble(header._replace(attributes=1), garbage)
        broker.append(bad, memoryview(bytearray(batch)), clock.now_ms)
    send(broker, "t", *rows(1))
    relay(broker)
    assert broker.relays.problems() == []
    assert places(broker, "t", b"u0") == {("t", 0)}


def test_many_keys_in_records_that_have_none_of_their_own(broker: BareNode) -> None:
    broker.create_topic("t", 1, {"halfmoon.key.index": "true"})
    overlapping = (b"KEYS" + b"\xfe\x3f") * 500
    send(broker, "t", (overlapping, {}), (b"v", {"KEYS": "a", "UNIQ_KEY": "b"}))
    relay(broker)
    for key in (b"a", b"b", b"k"):
        assert places(broker, "t", key) == {("t", 0)}


@pytest.mark.parametrize("dropped", [1, 2, 5])
def test_segments_that_go_before_they_are_followed(fs: FaultyFileSystem, clock: VirtualClock, dropped: int) -> None:
    """Found by torture: the index could not be written for a while, and then knew of frames that were gone."""
    broker = reopen(fs, clock)
    broker.create_topic("t", 1)
    ends = []
    for at in range(400):
        send(broker, "t", (b"." * 1_000, {"KEYS": f"a{at}"}))
        ends.append(broker.log.end)
    for _ in range(dropped):
        drop_oldest(broker)
    jobs(broker)
    relay(broker)
    assert broker.relays.problems() == []
    there = [at for at in range(1, 400) if ends[at - 1] > broker.log.start]
    assert 50 < len(there) < 400
    for at in there:
        assert places(broker, "t", f"a{at}".encode()) == {("t", at)}


@pytest.mark.parametrize("own_keys", [False, True])
@pytest.mark.parametrize("nth", range(0, 60, 3))
def test_segments_that_go_while_a_frame_is_read(
    broker: BareNode, monkeypatch: pytest.MonkeyPatch, nth: int, own_keys: bool
) -> None:
    """Found by torture: what was read stood before the beginning of the index's tail by then."""
    broker.create_topic("t", 1, {"halfmoon.key.index": "true"} if own_keys else None)
    reader = broker.key_index._reader
    read_at = reader.read_at

    def read_late(places: Any) -> Any:
        read = read_at(places)
        return read._replace(cold=reader.load_at(places))

    monkeypatch.setattr(reader, "read_at", read_late)
    ends = []
    for at in range(400):
        send(broker, "t", (b"." * 1_000, {"KEYS": f"a{at}"}))
        ends.append(broker.log.end)
    turn(broker)
    loads = 0
    while broker.relays.has_work:
        loading = broker.relays.step()
        if loading is None:
            continue
        value = loading.load()
        if loads == nth:
            for _ in range(3):
                drop_oldest(broker)
            jobs(broker)
        loads += 1
        loading.loaded(value)
    assert broker.relays.problems() == []
    there = [at for at in range(1, 400) if ends[at - 1] > broker.log.start]
    assert 50 < len(there) < 400
    for at in there:
        assert places(broker, "t", f"a{at}".encode()) == {("t", at)}


@pytest.mark.parametrize("dropped", [1, 2, 5])
def test_segments_that_go_while_they_are_scanned(fs: FaultyFileSystem, clock: VirtualClock, dropped: int) -> None:
    broker = reopen(fs, clock)
    broker.create_topic("t", 1)
    ends = []
    for at in range(400):
        send(broker, "t", (b"." * 1_000, {"KEYS": f"a{at}"}))
        relay(broker)
        ends.append(broker.log.end)
    fs = fs.kill()
    for path in [path for path in fs.names if path.startswith("keys/")]:
        fs.remove(path)
    again = reopen(fs, clock)
    index, gone = again.key_index, False
    while again.relays.has_work:
        loading = again.relays.step()
        if loading is None:
            continue
        value = loading.load()
        if not gone and any(path.startswith("keys/") for path in fs.names):  # the first file is just written
            gone = True
            for _ in range(dropped):
                drop_oldest(again)
            jobs(again)
        loading.loaded(value)
    assert index.behind_bytes == 0
    assert gone
    there = [at for at in range(1, 400) if ends[at - 1] > again.log.start]
    assert len(there) > 50
    for at in there:
        assert places(again, "t", f"a{at}".encode()) == {("t", at)}


def test_the_index_is_made_again_in_slices(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """After a start that finds no file of it: from one pause to the next no more is taken in than a frame has."""
    broker = reopen(fs, clock)
    broker.create_topic("t", 1)
    frames, keys = 60, 300
    for at in range(frames):
        send(broker, "t", *((b"v", {"KEYS": f"k{at}-{each}"}) for each in range(keys)))
    relay(broker)
    entries = broker.key_index.entries()
    assert entries >= frames * keys
    fs = fs.kill()
    for path in [path for path in fs.names if path.startswith("keys/")]:
        fs.remove(path)
    again = reopen(fs, clock)
    index, most, before = again.key_index, 0, 0
    while again.relays.has_work:
        loading = again.relays.step()
        if loading is not None:
            loading.loaded(loading.load())
        most, before = max(most, index.entries() - before), index.entries()
    assert index.entries() == entries
    assert keys <= most <= SLICE
    for at in range(frames):
        assert places(again, "t", f"k{at}-0".encode()) == {("t", at * keys)}


def test_many_entries_become_a_file(broker: BareNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "STRETCH_ENTRIES", 100)
    broker.create_topic("t", 1)
    for first in range(0, 200, 20):
        send(broker, "t", *rows(20, first))
        relay(broker)
    assert len(broker.key_index.files) >= 3
    assert {len(places(broker, "t", f"a{at}".encode())) for at in range(200)} == {1}


def test_no_file_ends_within_a_frame_group(
    fs: FaultyFileSystem, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scan that began there would not believe the rest of the group."""
    monkeypatch.setattr(service, "STRETCH_ENTRIES", 3)
    broker = reopen(fs, clock)
    broker.create_topic("t", 1)
    for first in range(0, 60, 6):
        times = [{"TIMER_DELAY_MS": str(1_000 + at)} if at % 6 else {} for at in range(first, first + 6)]
        send(
            broker,
            "t",
            *[(value, headers | time) for (value, headers), time in zip(rows(6, first), times, strict=True)],
        )
        relay(broker)
    expected = {at: places(broker, "t", f"u{at}".encode()) for at in range(60)}
    assert all(len(found) == 1 for found in expected.values())
    paths = [file.path for file in broker.key_index.files]
    assert len(paths) >= 10
    for path in paths[1::2]:
        fs.remove(path)
    again = reopen(fs.kill(), clock)
    relay(again)
    assert {at: places(again, "t", f"u{at}".encode()) for at in range(60)} == expected


def test_only_files_of_the_time_are_asked(
    broker: BareNode, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "STRETCH_ENTRIES", 1)
    broker.create_topic("t", 1)
    times = []
    for _ in range(3):
        clock.now_ms += 1_000
        times.append(clock.now_ms)
        send(broker, "t", (b"v", {"KEYS": "k"}))
        relay(broker)
    number = partition_of(broker, "t").topic.number
    found = broker.key_index.find([key_hash(number, b"k")], times[1], times[1])()
    assert [_at(broker, position) for position in found] == [("t", 1)]


def test_an_entry_is_kept_once() -> None:
    stretch = Stretch(1_000)
    for hashed in (7, 7, 9, 7):
        stretch.add(hashed, 1_500)
    assert stretch.find(7) == {1_500}
    fs = FaultyFileSystem(random.Random(0))
    stretch.upto = 2_000
    fs.make_directory(key_file.FOLDER)
    file = key_file.write(fs, stretch)
    assert (len(file), file.find(7), file.find(8), file.find(9)) == (2, {1_500}, set(), {1_500})
    assert file.intact()
    flip(fs, file.path, 56)
    assert not key_file.open_file(fs, file.path).intact()


def test_entries_with_the_highest_and_the_lowest_hash() -> None:
    fs = FaultyFileSystem(random.Random(0))
    stretch = Stretch(0)
    for hashed in (0, (1 << 32) - 1):
        stretch.add(hashed, 5)
    stretch.upto = 10
    fs.make_directory(key_file.FOLDER)
    file = key_file.write(fs, stretch)
    assert file.find(0) == file.find((1 << 32) - 1) == {5}


def test_what_is_noted_is_forgotten_when_it_is_done(broker: BareNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "FORGOTTEN", 10)
    broker.create_topic("t", 1)
    for at in range(30):
        send(broker, "t", *rows(1, at))
    relay(broker)
    assert len(broker.key_index._noted) == 0
    assert places(broker, "t", b"u29") == {("t", 29)}


def test_a_clean_file_with_nothing_to_index_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, clock, fs = fresh()
    broker.create_topic("t", 1, COMPACT)
    for at in range(5):
        put(broker, "t", (b"a", b"%d" % at))
    looked_into = []
    monkeypatch.setattr(clean_files, "frames", lambda segment: looked_into.append(segment.start) or ())
    clean(broker, clock)
    relay(broker)
    assert broker.key_index.behind_bytes == 0
    broker.close()
    broker = open_broker(fs.kill(), clock)
    relay(broker)
    assert len(broker.cleaner.files) == 1
    assert not looked_into
