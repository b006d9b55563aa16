"""Filtered views: what matches is there once, in order, whatever happens in between (B39, B41)."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.core.crc import crc32c
from halfmoon.core.records.batch_header import TIMESTAMP_TYPE
from halfmoon.core.records.batches import BatchHeader, build_batch, iter_records, parse_header
from halfmoon.core.records.compression import NONE, ZSTD
from halfmoon.core.storage.scan import Scan, read_provenance
from halfmoon.errors import BrokerError, Fault
from halfmoon.plugins.store.view.updater import WHOLE_BYTES
from halfmoon.schema.provenance import SourceRange
from halfmoon.schema.provenance import decode as decode_provenance
from halfmoon.services.common import filters
from halfmoon.services.common.filtering import READ
from halfmoon.services.common.filters import IN_LOOP_BYTES
from halfmoon.services.common.gathering import MERGE_BYTES
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.chance import trying
from tests.core.bench import ValueFilter, VirtualClock, flip, open_broker, partition_of, relay, send, turn, values
from tests.core.log_bench import new_fs
from tests.core.relay_bench import deaths, lose_derived

DAY_MS = 86_400_000

Row = tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]
"""A record: key, value, timestamp in Unix ms, headers."""


@pytest.fixture
def broker(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    return open_broker(fs, clock)


def view_of(source: str, prefix: str = "a", **more: str) -> dict[str, str]:
    return {"halfmoon.view.source": source, "halfmoon.view.prefix": prefix} | {
        f"halfmoon.view.{name.removesuffix('_')}": value for name, value in more.items()
    }


def put(broker: BareNode, topic: str, rows: Iterable[Row], index: int = 0, **fields: Any) -> None:
    partition = partition_of(broker, topic, index)
    broker.append(partition, memoryview(bytearray(build_batch(rows, **fields))), broker.clock.wall_ms())


def batches(broker: BareNode, topic: str, index: int = 0) -> list[tuple[BatchHeader, bytes]]:
    partition = partition_of(broker, topic, index)
    found = []
    at = partition.start_offset
    while at < partition.high_watermark:
        read = broker.read(partition, at, 1 << 20, min_one=True)
        for piece in read.cold() if read.cold is not None else read.slices:
            header = parse_header(piece)
            found.append((header, bytes(piece)))
            at = header.base_offset + header.last_offset_delta + 1
    return found


def rows(broker: BareNode, topic: str, index: int = 0) -> list[tuple[int, Row]]:
    return [
        (header.base_offset + record.offset_delta, (record.key, record.value, record.timestamp, record.headers))
        for header, piece in batches(broker, topic, index)
        for record in iter_records(piece)
    ]


def reopened(broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    broker.close()
    return open_broker(fs, clock)


# -- what is in a view -------------------------------------------------------------------------------------------------


def test_a_view_holds_what_matches(broker: BareNode) -> None:
    broker.create_topic("t", 2)
    broker.create_topic("v", configs=view_of("t"))
    send(broker, "t", b"a1", b"b1", b"a2")
    send(broker, "t", b"b2")
    send(broker, "t", b"a3", index=1)
    relay(broker)
    send(broker, "t", b"b3", b"a4")
    relay(broker)
    assert values(broker, "v") == [b"a1", b"a2", b"a4"]
    assert values(broker, "v", 1) == [b"a3"]
    assert partition_of(broker, "v").next_offset == 3


def test_nothing_is_left_to_do_when_nothing_has_come(broker: BareNode) -> None:
    broker.create_topic("t", 1)
    broker.create_topic("v", configs=view_of("t"))
    relay(broker)
    end = broker.log.end
    relay(broker)
    assert broker.log.end == end
    assert not broker.relays.has_work


_headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2).map(tuple)
_row = st.tuples(
    st.none() | st.binary(max_size=70),
    st.none() | st.builds(bytes.__add__, st.sampled_from([b"a", b"b"]), st.binary(max_size=200)),
    st.sampled_from([0, 1, 1000, 1 << 40, -5, (1 << 63) - 1, -(1 << 63)]),
    _headers,
)
_batch = st.tuples(st.lists(_row, min_size=1, max_size=6), st.integers(0, 4), st.booleans())


def _spread(rows: list[Row]) -> int:
    times = [row[2] for row in rows]
    return max(abs(time - times[0]) for time in times)


@trying(150)
@given(
    st.lists(_batch.filter(lambda batch: _spread(batch[0]) < 1 << 63), max_size=12),
    st.sampled_from(["prefix", "holding"]),
    st.sampled_from(["CreateTime", "LogAppendTime"]),
)
def test_key_value_headers_and_time_stay_whatever_the_source_is_like(
    sent: list[tuple[list[Row], int, bool]], language: str, time: str
) -> None:
    broker = open_broker(new_fs(), VirtualClock())
    broker.create_topic("t", 1, {"message.timestamp.type": time})
    broker.create_topic("v", configs={"halfmoon.view.source": "t", f"halfmoon.view.{language}": "a"})
    for content, codec, pause in sent:
        put(broker, "t", content, codec=codec)
        if pause:
            relay(broker)
            broker.clock.now_ms += 5  # type: ignore[attr-defined]
    relay(broker)
    wanted = bytes.startswith if language == "prefix" else bytes.__contains__
    expected = [row for _, row in rows(broker, "t") if wanted(row[1] or b"", b"a")]
    assert rows(broker, "v") == list(enumerate(expected))
    for header, _ in batches(broker, "v"):
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
        assert header.record_count == header.last_offset_delta + 1
        assert not header.attributes & TIMESTAMP_TYPE


def test_a_view_may_stamp_its_records_itself(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("t", 1)
    broker.create_topic("v", configs=view_of("t") | {"message.timestamp.type": "LogAppendTime"})
    send(broker, "t", b"a1", timestamp=5)
    clock.now_ms += 77
    relay(broker)
    assert [row[2] for _, row in rows(broker, "v")] == [clock.now_ms]


def test_matches_of_small_batches_become_one(broker: BareNode) -> None:
    broker.create_topic("t", 1)
    for number in range(50):
        send(broker, "t", b"a%d" % number, b"b")
    turn(broker)
    broker.create_topic("v", configs=view_of("t"))
    relay(broker)
    assert [header.record_count for header, _ in batches(broker, "v")] == [50]


def test_batches_do_not_grow_without_bound(broker: BareNode) -> None:
    broker.create_topic("t", 1)
    for _ in range(40):
        send(broker, "t", b"a" * 10_000, b"b")
    turn(broker)
    broker.create_topic("v", configs=view_of("t"))
    relay(broker)
    found = batches(broker, "v")
    assert sum(header.record_count for header, _ in found) == 40
    assert all(len(piece) < MERGE_BYTES + 11_000 for _, piece in found)


@pytest.mark.parametrize("codec", range(5))
def test_a_large_batch_that_matches_as_a_whole_is_not_taken_apart(broker: BareNode, codec: int) -> None:
    dice = random.Random(1)
    broker.create_topic("t", 1)
    broker.create_topic("v", configs=view_of("t"))
    small = [(None, b"a", 7, ())]
    put(broker, "t", small, codec=codec)
    put(broker, "t", [(None, b"a" + dice.randbytes(WHOLE_BYTES), 9, (("h", b"x"),))], codec=codec)
    put(broker, "t", small, codec=codec)
    relay(broker)
    source, view = batches(broker, "t"), batches(broker, "v")
    assert [header.base_offset for header, _ in view] == [0, 1, 2]
    assert view[1][1][61:] == source[1][1][61:]


def test_records_that_were_deleted_within_a_batch_do_not_come_back(broker: BareNode) -> None:
    broker.create_topic("t", 1)
    send(broker, "t", b"a0", b"a1", b"a2")
    turn(broker)
    broker.delete_records(partition_of(broker, "t"), 2)
    broker.create_topic("v", configs=view_of("t"))
    relay(broker)
    assert values(broker, "v") == [b"a2"]


@pytest.mark.parametrize(("begin", "expected"), [("earliest", [b"a1", b"a2"]), ("latest", [b"a2"])])
def test_where_a_view_begins(broker: BareNode, begin: str, expected: list[bytes]) -> None:
    broker.create_topic("t", 1)
    send(broker, "t", b"a1")
    broker.create_topic("v", configs=view_of("t", from_=begin))
    send(broker, "t", b"a2")
    relay(broker)
    assert values(broker, "v") == expected


def test_a_view_grows_with_its_source_and_new_partitions_begin_at_the_beginning(broker: BareNode) -> None:
    changes: list[tuple[str, str]] = []
    broker.administration.on_changed = lambda topic, change: changes.append((topic, change))
    broker.create_topic("t", 1)
    broker.create_topic("v", configs=view_of("t", from_="latest"))
    broker.create_topic("w", configs=view_of("v"))
    turn(broker)
    changes.clear()
    topic = broker.topic("t")
    assert topic is not None
    broker.add_partitions(topic, 3)
    send(broker, "t", b"a1", index=2)
    relay(broker)
    assert values(broker, "v", 2) == values(broker, "w", 2) == [b"a1"]
    assert sorted(changes) == [("t", "grown"), ("v", "grown"), ("w", "grown")]
    assert broker.catalog.partition(broker.topic("w").number, 2) is not None  # type: ignore[union-attr]


def test_a_view_of_a_view(broker: BareNode) -> None:
    broker.create_topic("t", 1)
    broker.create_topic("v", configs=view_of("t", "a"))
    broker.create_topic("w", configs=view_of("v", "ab"))
    send(broker, "t", b"a1", b"ab1", b"b1", b"ab2")
    relay(broker)
    assert values(broker, "w") == [b"ab1", b"ab2"]


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("configs", "partitions", "fault", "said"),
    [
        ({"halfmoon.view.prefix": "a"}, -1, Fault.INVALID_CONFIG, "a view needs halfmoon.view.source"),
        ({"halfmoon.view.source": " "}, -1, Fault.INVALID_CONFIG, "expected the name of a topic"),
        ({"halfmoon.view.source": "t"}, -1, Fault.INVALID_CONFIG, "a view needs one filter"),
        (view_of("t", holding="b"), -1, Fault.INVALID_CONFIG, "not halfmoon.view.holding and halfmoon.view.prefix"),
        (view_of("t", from_="now"), -1, Fault.INVALID_CONFIG, "expected earliest or latest"),
        (view_of("t", ""), -1, Fault.INVALID_CONFIG, "halfmoon.view.prefix: expected a prefix (line 1, column 1)"),
        (view_of("no"), -1, Fault.INVALID_CONFIG, "there is no topic 'no'"),
        (view_of("v"), -1, Fault.INVALID_CONFIG, "there is no topic 'v'"),
        (view_of("inside"), -1, Fault.INVALID_CONFIG, "topic 'inside' is internal"),
        (
            {"halfmoon.view.source": "t", "halfmoon.view.xpath": "/"},
            -1,
            Fault.INVALID_CONFIG,
            "'xpath' (there are: holding, prefix)",
        ),
        (view_of("t", state="filled"), -1, Fault.INVALID_CONFIG, "it is read-only"),
        ({"halfmoon.view.": "t"}, -1, Fault.INVALID_CONFIG, "unknown topic config name"),
        (view_of("t"), 3, Fault.INVALID_PARTITIONS, "'t' has 2, not 3"),
    ],
)
def test_a_definition_that_cannot_be_met_is_refused(
    broker: BareNode, configs: dict[str, str], partitions: int, fault: Fault, said: str
) -> None:
    broker.create_topic("t", 2)
    broker.create_topic("inside", 2, internal=True)
    with pytest.raises(BrokerError) as caught:
        broker.create_topic("v", partitions, configs)
    assert caught.value.fault is fault
    assert said in caught.value.message
    assert broker.topic("v") is None


def test_nobody_produces_to_a_view(broker: BareNode) -> None:
    broker.create_topic("t", 1)
    broker.create_topic("v", configs=view_of("t"))
    with pytest.raises(BrokerError, match="'v' is a view") as caught:
        send(broker, "v", b"a")
    assert caught.value.fault is Fault.POLICY_VIOLATION


def test_a_view_does_not_grow_by_itself(broker: BareNode) -> None:
    broker.create_topic("t", 1)
    view, _ = broker.create_topic("v", configs=view_of("t"))
    with pytest.raises(BrokerError, match="is a view") as caught:
        broker.add_partitions(view, 2)
    assert caught.value.fault is Fault.INVALID_PARTITIONS


def test_growth_counts_the_views_partitions_too(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = open_broker(fs, clock, sections={"limits": {"max_partitions": 5}})
    topic, _ = broker.create_topic("t", 1)
    broker.create_topic("v", configs=view_of("t"))
    with pytest.raises(BrokerError, match="4 more partitions"):
        broker.add_partitions(topic, 3)
    broker.add_partitions(topic, 2)
    broker.create_topic("last", 1)
    with pytest.raises(BrokerError, match="1 more partitions"):
        broker.create_topic("more", 1)


def test_a_definition_never_changes(broker: BareNode) -> None:
    topic, _ = broker.create_topic("t", 1)
    view, _ = broker.create_topic("v", configs=view_of("t") | {"retention.ms": "5"})
    for configs in ({}, view_of("t", "b"), view_of("t", from_="latest"), view_of("t", holding="b")):
        with pytest.raises(BrokerError, match="never changes"):
            broker.alter_configs(view, configs)
    with pytest.raises(BrokerError, match="'t' is no view, and cannot become one"):
        broker.alter_configs(topic, view_of("v"))
    broker.alter_configs(view, view_of("t") | {"retention.ms": "6"})
    assert view.rules.retention_ms == 6


def test_a_source_is_not_deleted_while_views_need_it(broker: BareNode) -> None:
    topic, _ = broker.create_topic("t", 1)
    view, _ = broker.create_topic("v", configs=view_of("t"))
    with pytest.raises(BrokerError, match="is the source of the view 'v'") as caught:
        broker.delete_topic(topic)
    assert caught.value.fault is Fault.POLICY_VIOLATION
    broker.delete_topic(view)
    broker.delete_topic(topic)


def test_a_source_that_is_deleted_by_force_leaves_its_views_what_they_have(
    broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock
) -> None:
    topic, _ = broker.create_topic("t", 1)
    broker.create_topic("v", configs=view_of("t"))
    send(broker, "t", b"a1")
    relay(broker)
    broker.alter_configs(topic, {"halfmoon.delete.force": "true"})
    broker.delete_topic(topic)
    broker.create_topic("t", 1)
    send(broker, "t", b"a2")
    relay(broker)
    assert values(broker, "v") == [b"a1"]
    broker = reopened(broker, fs, clock)
    send(broker, "t", b"a3")
    relay(broker)
    assert values(broker, "v") == [b"a1"], "a namesake is another topic"
    view = broker.topic("v")
    assert view is not None
    assert broker.views.state(view) == "its source was deleted"
    assert broker.views.problems() == []


def test_its_position_says_what_of_the_source_is_in_it(
    broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock
) -> None:
    broker.create_topic("t", 2)
    view, _ = broker.create_topic("v", configs=view_of("t"))
    assert broker.views.position(view) == [(0, 0), (0, 0)]
    send(broker, "t", b"a1", b"b1", b"a2")
    assert broker.views.position(view) == [(0, 0), (0, 0)], "nothing of it was looked at"
    relay(broker)
    assert broker.views.position(view) == [(3, 2), (0, 0)]
    send(broker, "t", b"b2")
    relay(broker)
    assert broker.views.position(view) == [(4, 2), (0, 0)], "a record that does not match is passed as well"
    broker = reopened(broker, fs, clock)
    again = broker.topic("v")
    assert again is not None
    assert broker.views.position(again)[0] in ((3, 2), (4, 2)), "what did not match may be looked at again"


def test_a_deleted_view_is_not_filled_any_more(broker: BareNode) -> None:
    broker.create_topic("t", 1)
    view, _ = broker.create_topic("v", configs=view_of("t"))
    send(broker, "t", b"a1")
    broker.delete_topic(view)
    relay(broker)
    assert broker.views.followers == {}
    assert broker.views.readings() == []


# -- restarts ----------------------------------------------------------------------------------------------------------


def test_after_a_restart_a_view_goes_on_where_it_was(
    broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock
) -> None:
    broker.create_topic("t", 1)
    broker.create_topic("v", configs=view_of("t"))
    send(broker, "t", b"a1", b"b1")
    relay(broker)
    send(broker, "t", b"a2")
    turn(broker)
    broker = reopened(broker, fs, clock)
    relay(broker)
    assert values(broker, "v") == [b"a1", b"a2"]


def test_each_batch_says_what_it_was_made_from(broker: BareNode) -> None:
    topic, _ = broker.create_topic("t", 1)
    view, _ = broker.create_topic("v", configs=view_of("t"))
    send(broker, "t", b"b", b"a")
    relay(broker)
    send(broker, "t", b"b")
    relay(broker)
    send(broker, "t", b"a", b"b", b"b")
    relay(broker)
    scan = Scan(broker.log.segments, 0, 0, broker.log.flushed)
    found = [
        decode_provenance(read_provenance(broker.log.segment_at(frame.position), frame)).range
        for frame, _ in scan.frames()
        if frame.topic_number == view.number
    ]
    assert found == [SourceRange(topic.number, 0, 0, 2), SourceRange(topic.number, 0, 3, 6)]


@pytest.mark.parametrize("after", ["kill", "power_loss"])
@pytest.mark.parametrize("lose", ["nothing", "checkpoint", "all that is derived"])
def test_what_is_in_a_view_does_not_come_again_when_its_proof_is_gone(
    fs: FaultyFileSystem, clock: VirtualClock, after: str, lose: str
) -> None:
    """The view keeps little, its source much: all batches of the view expire, and with them their provenance."""
    broker = open_broker(fs, clock)
    broker.create_topic("t", 1)
    broker.create_topic("v", configs=view_of("t") | {"retention.ms": "1000"})
    for number in range(40):
        send(broker, "t", b"a%d" % number, bytes(6000))
        relay(broker)
    partition = partition_of(broker, "v")
    clock.now_ms += DAY_MS
    while not broker.housekeeping.retain():
        pass
    turn(broker)
    begun = partition.start_offset
    assert begun > 20
    fs = getattr(fs, after)()
    if lose != "nothing":
        for path in list(fs.names):
            if path in ("checkpoint", "clean") or (path.startswith("index/") and lose != "checkpoint"):
                fs.remove(path)
        fs.sync_directory("")
    broker = open_broker(fs, clock)
    relay(broker)
    assert values(broker, "v") == [b"a%d" % number for number in range(begun, 40)]
    assert partition_of(broker, "v").next_offset == 40


def test_a_stretch_without_a_match_is_written_down_now_and_then(
    broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock
) -> None:
    broker.create_topic("t", 1)
    broker.create_topic("v", configs=view_of("t"))
    for _ in range(5):
        send(broker, "t", b"b")
    relay(broker)
    assert partition_of(broker, "v").source_next == 0
    broker.housekeeping.turn()
    turn(broker)
    assert partition_of(broker, "v").source_next == 5
    end = broker.log.end
    broker.housekeeping.turn()
    assert broker.log.end == end, "once is enough"
    broker = open_broker(fs.kill(), clock)
    assert partition_of(broker, "v").source_next == 5


def test_what_is_gathered_and_not_appended_does_not_count_as_passed(
    broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock
) -> None:
    broker.create_topic("t", 1)
    for number in range(10):
        send(broker, "t", b"a%d" % number)
    turn(broker)
    broker.create_topic("v", configs=view_of("t"))
    turn(broker)
    for _ in range(7):
        broker.relays.step()
    broker.housekeeping.turn()
    turn(broker)
    broker = open_broker(fs.kill(), clock)
    relay(broker)
    assert values(broker, "v") == [b"a%d" % number for number in range(10)]


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def test_a_view_that_its_source_s_retention_overtakes_skips_and_says_so(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("t", 1)
    for number in range(8):
        send(broker, "t", b"a%d" % number)
    turn(broker)
    broker.create_topic("v", configs=view_of("t"))
    broker.delete_records(partition_of(broker, "t"), 5)
    relay(broker)
    assert values(broker, "v") == [b"a5", b"a6", b"a7"]
    assert broker.views.readings()[0].counters.skipped == 5
    assert broker.warnings() == ["view v has skipped 5 offsets that its source removed first"]
    assert broker.health() == []
    clock.now_ms += 3_600_000
    assert broker.warnings() == []


def test_what_rot_has_taken_from_the_source_is_stepped_over(
    broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock
) -> None:
    broker.create_topic("t", 1)
    positions = []
    for number in range(6):
        send(broker, "t", b"a%d" % number)
        positions.append(broker.log.end)
        turn(broker)  # each batch says that those before it are on disk
    fs = fs.power_loss()
    path = next(path for path in fs.names if path.startswith("log/0"))
    flip(fs, path, positions[2] - 3)
    for name in ("checkpoint", "clean"):
        if name in fs.names:
            fs.remove(name)
    broker = open_broker(fs, clock)
    broker.create_topic("v", configs=view_of("t"))
    relay(broker)
    assert values(broker, "v") == [b"a0", b"a1", b"a3", b"a4", b"a5"]
    assert broker.views.readings()[0].counters.skipped == 1


@pytest.mark.parametrize("upto", [20, 400])
def test_what_rot_has_taken_from_a_view_is_not_moved_again(
    broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock, upto: int
) -> None:
    """Whether a later batch of the view tells how far it had come, or only the snapshot of the next segment."""
    broker.create_topic("t", 1)
    view, _ = broker.create_topic("v", configs=view_of("t"))
    for number in range(20):
        send(broker, "t", b"a%02d" % number)
        relay(broker)
    for _ in range(upto):
        send(broker, "t", b"b" * 1000)
        relay(broker)
    scan = Scan(broker.log.segments, 0, 0, broker.log.flushed)
    places = [frame.position for frame, _ in scan.frames() if frame.topic_number == view.number]
    fs = fs.power_loss()
    path = next(path for path in fs.names if path.startswith("log/0"))
    for position in places[-3:] if upto == 400 else places[5:8]:
        flip(fs, path, position, 100)
    lose_derived(fs)
    broker = open_broker(fs, clock)
    relay(broker)
    partition = partition_of(broker, "v")
    lost = (17, 20) if upto == 400 else (5, 8)
    assert partition.queue.damaged == [lost]
    assert values(broker, "v") == [b"a%02d" % n for n in range(20) if not lost[0] <= n < lost[1]]
    assert partition.next_offset == 20


def test_a_batch_that_nobody_can_read_is_left_out_and_counted(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = open_broker(fs, clock, validate="header")
    broker.create_topic("t", 1)
    broker.create_topic("v", configs=view_of("t"))
    send(broker, "t", b"a1")
    # So many records that some are gathered before the last one turns out to be malformed.
    broken = bytearray(build_batch([(None, b"a2", 0, ())] * 2 * READ + [(None, b"a3", 0, ())]))
    broken[broken.index(b"a3") - 1] = 0x7F  # the value's length
    broken[17:21] = crc32c(broken[21:]).to_bytes(4, "big")
    broker.append(partition_of(broker, "t"), memoryview(broken), 0)
    send(broker, "t", b"a4")
    relay(broker)
    assert values(broker, "v") == [b"a1", b"a4"]
    counters = broker.views.readings()[0].counters
    assert (counters.malformed, counters.matched, counters.looked_at) == (1, 2, 2)


def test_a_filter_that_raises_counts_as_no_match(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    def wanted(value: bytes) -> bool:
        if value == b"bad":
            raise ValueError(value)
        return True

    broker = open_broker(fs, clock, languages={"odd": lambda expression: ValueFilter(wanted)})
    broker.create_topic("t", 1)
    broker.create_topic("v", configs={"halfmoon.view.source": "t", "halfmoon.view.odd": ""})
    send(broker, "t", b"1", b"bad", b"2", b"bad")
    relay(broker)
    assert values(broker, "v") == [b"1", b"2"]
    assert broker.views.readings()[0].counters.filter_errors == 2


@pytest.mark.parametrize("codec", [NONE, ZSTD])
def test_a_filter_that_takes_long_looks_at_large_batches_in_a_thread(
    fs: FaultyFileSystem, clock: VirtualClock, codec: int
) -> None:
    in_thread: list[bool] = []
    loads = 0

    def wanted(value: bytes) -> bool:
        in_thread.append(loading)
        if value == b"bad":
            raise ValueError(value)
        return value.startswith(b"a")

    compiled = ValueFilter(wanted)
    compiled.takes_long = True  # type: ignore[attr-defined]
    broker = open_broker(fs, clock, languages={"slow": lambda expression: compiled})
    broker.create_topic("t", 1)
    broker.create_topic("v", configs={"halfmoon.view.source": "t", "halfmoon.view.slow": ""})
    send(broker, "t", b"a1", b"b1", b"bad")
    put(broker, "t", [(None, b"ab"[n % 2 : n % 2 + 1] + bytes(1_000), 1_000, ()) for n in range(40)], codec=codec)
    put(broker, "t", [(None, b"bad", 1_000, ()), (None, b"a2" + bytes(IN_LOOP_BYTES), 1_000, ())], codec=codec)
    turn(broker)
    while broker.relays.has_work:
        loading = False
        load = broker.relays.step()
        if load is not None:
            loading, loads = True, loads + 1
            load.loaded(load.load())
        turn(broker)
    large = [b"a" + bytes(1_000)] * 20
    assert values(broker, "v") == [b"a1", *large, b"a2" + bytes(IN_LOOP_BYTES)]
    assert in_thread == [False] * 3 + [True] * 42, "each record is looked at once"
    counters = broker.views.readings()[0].counters
    assert (counters.filter_errors, counters.looked_at, counters.matched) == (2, 45, 22)
    assert loads >= 2


def test_a_batch_that_a_thread_cannot_read_is_left_out_and_counted(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    compiled = ValueFilter(lambda value: True)
    compiled.takes_long = True  # type: ignore[attr-defined]
    broker = open_broker(fs, clock, languages={"slow": lambda expression: compiled}, validate="header")
    broker.create_topic("t", 1)
    broker.create_topic("v", configs={"halfmoon.view.source": "t", "halfmoon.view.slow": ""})
    broken = bytearray(build_batch([(None, b"a2" + bytes(IN_LOOP_BYTES), 0, ()), (None, b"a3", 0, ())]))
    broken[broken.index(b"a3") - 1] = 0x7F  # the value's length
    broken[17:21] = crc32c(broken[21:]).to_bytes(4, "big")
    broker.append(partition_of(broker, "t"), memoryview(broken), 0)
    send(broker, "t", b"a1")
    relay(broker)
    assert values(broker, "v") == [b"a1"]
    assert broker.views.readings()[0].counters.malformed == 1


def test_a_view_whose_filter_is_missing_halts_and_goes_on_when_it_is_back(
    broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock
) -> None:
    broker.create_topic("t", 1)
    broker.create_topic("v", configs=view_of("t"))
    send(broker, "t", b"a1")
    relay(broker)
    broker.close()
    broker = open_broker(fs, clock, languages={})
    send(broker, "t", b"a2")
    relay(broker)
    assert values(broker, "v") == [b"a1"]
    (problem,) = broker.health()
    assert "view v is not filled: no enabled plugin offers the filter language 'prefix'" in problem
    broker = reopened(broker, fs, clock)
    relay(broker)
    assert values(broker, "v") == [b"a1", b"a2"]
    assert broker.health() == []


def test_a_disk_that_is_full_for_a_while_costs_nothing_but_time(
    broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock
) -> None:
    broker.create_topic("t", 1)
    broker.create_topic("v", configs=view_of("t"))
    send(broker, "t", b"a1", b"b1", b"a2")
    turn(broker)
    broker.log.low_disk = True
    relay(broker)
    assert values(broker, "v") == []
    assert any("view v-0" in problem for problem in broker.health())
    broker.log.low_disk = False
    clock.now_ms += 1000
    assert broker.relays.next_deadline() == clock.now_ms
    broker.relays.expire(clock.now_ms)
    relay(broker)
    assert values(broker, "v") == [b"a1", b"a2"]
    assert broker.health() == []


# -- crashes -----------------------------------------------------------------------------------------------------------


def play(fs: FaultyFileSystem, clock: VirtualClock, _: None) -> None:
    """Raises ProcessDied somewhere, if the file system says so."""
    broker = open_broker(fs, clock)
    topic, _ = broker.create_topic("t", 1)
    broker.create_topic("v", configs=view_of("t"))
    broker.create_topic("w", configs=view_of("v", "a1") | {"retention.bytes": "20000"})
    number = 0
    for step in range(12):
        for _ in range(3):
            send(broker, "t", b"a%03d" % number, b"b" * 3000, b"a%03d" % (number + 1))
            number += 2
        if step == 5:
            broker.add_partitions(topic, 2)
        if step % 3:
            relay(broker)
        else:
            turn(broker)
        if step == 8:
            broker.close()
            broker = open_broker(fs, clock)
        broker.housekeeping.turn()
        clock.now_ms += DAY_MS
        broker.housekeeping.retain()


def check(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """Whatever the source holds, and was not deleted, is in the views once and in order."""
    broker = open_broker(fs, clock)
    relay(broker)
    if broker.topic("v") is None:
        return
    source = [value for _, value in _all_values(broker, "t") if value.startswith(b"a")]
    view = [value for _, value in _all_values(broker, "v")]
    assert view[len(view) - len(source) :] == source
    assert view == sorted(set(view))
    if broker.topic("w") is not None:
        narrow = [value for _, value in _all_values(broker, "w")]
        assert narrow == sorted(set(narrow))
        wanted = [value for value in view if value.startswith(b"a1")]
        assert wanted[len(wanted) - len(narrow) :] == narrow
    assert broker.health() == []


def _all_values(broker: BareNode, topic: str) -> list[tuple[int, bytes]]:
    return [(offset, row[1] or b"") for offset, row in rows(broker, topic)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("in_thread", [False, True])
def test_dying_at_any_operation_moves_everything_once(in_thread: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if in_thread:
        monkeypatch.setattr(filters, "IN_LOOP_BYTES", 0)
        monkeypatch.setattr(ValueFilter, "takes_long", True, raising=False)
    for fs, clock, _ in deaths(play, lambda: None, least=100):
        check(fs, clock)
