"""Batches that a version before 0.3, or one with `log.validate: header`, took from a producer though their records are
not what their header says: no reader stops at them, and `halfmoon log verify` shows them."""

from __future__ import annotations

import pytest

from halfmoon.core.records.batch_header import assemble, parse_header
from halfmoon.core.records.batches import build_batch, iter_records
from halfmoon.errors import BrokerError
from halfmoon.offline.dumping import dump_files
from halfmoon.offline.verifying import verify_files
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, open_broker, partition_of, relay, send, turn
from tests.core.relay_bench import lose_derived

HUGE = 2**31 - 1


def lie(body=None, **fields):
    honest = build_batch([(b"key", b"a-lie", 5_000, (("KEYS", b"k"),))] * 3)
    return assemble(parse_header(honest)._replace(**fields), honest[61:] if body is None else body)


def swapped():
    records = build_batch([(None, b"a0", 5_000, ())] * 3)[61:]
    size = len(records) // 3
    return records[2 * size :] + records[size : 2 * size] + records[:size]


LIES = {
    "2^31 - 1 records": (lie(record_count=HUGE, last_offset_delta=HUGE - 1), HUGE),
    "a thousand records": (lie(record_count=1_000, last_offset_delta=999), 1_000),
    "one record": (lie(record_count=1, last_offset_delta=0), 1),
    "offset deltas 2, 1, 0": (lie(swapped()), 3),
    "a length that is not so": (lie(b"\x70" + lie()[62:]), 3),
    "compressed garbage": (lie(b"\xde\xad\xbe\xef" * 9, attributes=4), 3),
}
each_lie = pytest.mark.parametrize("case", LIES)


def store(broker: BareNode, topic: str, case: str) -> int:
    """As a version did that looked at nothing; the offset behind it."""
    batch, span = LIES[case]
    partition = partition_of(broker, topic)
    now_ms = broker.clock.wall_ms()
    broker.kernel.appender._store(partition, memoryview(bytearray(batch)), span, span, 5_000, now_ms, keyed=True)
    turn(broker)
    return partition.next_offset


def read_all(broker: BareNode, topic: str, offset: int = 0) -> list[bytes | None]:
    """As a client that goes on behind the last offset of each batch it gets; what it cannot read is None."""
    partition = partition_of(broker, topic)
    found: list[bytes | None] = []
    while offset < partition.high_watermark:
        slices = broker.read(partition, offset, 300, min_one=True).slices
        if not slices:
            break
        data = b"".join(bytes(piece) for piece in slices)
        while data:
            length = 12 + int.from_bytes(data[8:12], "big")
            header = parse_header(data)
            assert header.base_offset + header.last_offset_delta >= offset
            try:
                found += [record.value for record in iter_records(data[:length])]
            except BrokerError:
                found.append(None)
            offset = header.base_offset + header.last_offset_delta + 1
            data = data[length:]
    return found


@pytest.fixture
def broker(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    broker = open_broker(fs, clock)
    broker.create_topic("t", 1)
    send(broker, "t", b"a0", b"a1")
    turn(broker)
    return broker


@each_lie
def test_a_kafka_reader_gets_past_it(broker: BareNode, case: str) -> None:
    after = store(broker, "t", case)
    send(broker, "t", b"a2")
    turn(broker)
    found = read_all(broker, "t")
    assert [value for value in found if value not in (None, b"a-lie")] == [b"a0", b"a1", b"a2"]
    for offset in (2, after - 1, after):
        assert read_all(broker, "t", offset)[-1] == b"a2"


def test_a_batch_that_counts_more_than_there_can_be_is_not_handed_out(broker: BareNode) -> None:
    """A client that got it would wait there for records; what follows is fetched with what went before."""
    partition = partition_of(broker, "t")
    after = store(broker, "t", "2^31 - 1 records")
    assert read_all(broker, "t") == [b"a0", b"a1"]
    for offset in (2, 5, after - 1):
        assert broker.read(partition, offset, 1 << 20, min_one=True).slices == ()
        assert broker.bytes_available(partition, offset, 1 << 20) == 0, "or a waiting fetch would be answered for ever"
    send(broker, "t", b"a2")
    turn(broker)
    assert read_all(broker, "t") == [b"a0", b"a1", b"a2"]
    assert broker.bytes_available(partition, 2, 1 << 20) == len(
        b"".join(bytes(piece) for piece in broker.read(partition, 2, 1 << 20, min_one=True).slices)
    )


@each_lie
def test_views_skip_it(broker: BareNode, case: str) -> None:
    broker.create_topic("v", 1, {"halfmoon.view.source": "t", "halfmoon.view.prefix": "a"})
    store(broker, "t", case)
    send(broker, "t", b"a2", b"b")
    turn(broker)
    relay(broker)
    assert [value for value in read_all(broker, "v") if value != b"a-lie"] == [b"a0", b"a1", b"a2"]
    assert broker.relays.problems() == []


@each_lie
def test_the_key_index_and_a_search_by_time_get_past_it(broker: BareNode, case: str) -> None:
    store(broker, "t", case)
    partition = partition_of(broker, "t")
    send(broker, "t", b"a2")
    turn(broker)
    relay(broker)
    assert broker.key_index.covers(broker.log.end)
    for time_ms in (0, 4_000, 5_000, broker.clock.wall_ms()):
        search = broker.batch_for_time(partition, time_ms)
        if search is not None:
            found = search()
            assert found is None or 0 <= found[0] <= partition.next_offset
    newest = broker.max_timestamp(partition)
    assert newest is None or newest() is not None


@each_lie
def test_a_restart_keeps_it_and_what_is_around_it(fs: FaultyFileSystem, broker: BareNode, case: str) -> None:
    after = store(broker, "t", case)
    send(broker, "t", b"a2")
    turn(broker)
    before = read_all(broker, "t")
    lose_derived(fs)
    again = open_broker(fs, VirtualClock())
    assert partition_of(again, "t").next_offset == after + 1
    assert read_all(again, "t") == before


@each_lie
def test_verify_shows_it_and_a_dump_goes_on(fs: FaultyFileSystem, broker: BareNode, case: str) -> None:
    good = verify_files(fs)
    assert (good.ok, good.unreadable) == (True, 0)
    store(broker, "t", case)
    send(broker, "t", b"a2")
    turn(broker)
    report = verify_files(fs)
    assert (report.ok, report.unreadable) == (False, 1)
    (problem,) = report.problems
    assert "offset 2 of partition 0 of topic number" in problem
    assert "cannot be read" in problem
    assert sum(info.kind == "batch" for info in dump_files(fs)) == 3
