"""A start whose checkpoint is lost, and producers that repeat what they sent before."""

from __future__ import annotations

import random

import pytest

from halfmoon.core import recovered_producers
from halfmoon.core.records.batches import build_batch
from halfmoon.errors import BrokerError, Fault
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, append, jobs, open_broker, partition_of, send, turn, values
from tests.services.transactions.transaction_bench import TxnClient
from tests.services.waiting.test_deliveries import DELAYS

SEGMENT = 64 << 10


@pytest.fixture
def fs() -> FaultyFileSystem:
    return FaultyFileSystem(random.Random(1))


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def started(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    broker = open_broker(fs, clock, segment_bytes=SEGMENT)
    broker.create_topic("t", 2)
    turn(broker)
    return broker


def fill_segments(broker: BareNode, clock: VirtualClock, count: int, each_ms: int = 100) -> None:
    """Other records, until as many segments more have begun; the indexes of what is sealed are written."""
    wanted = len(broker.log.segments) + count
    while len(broker.log.segments) < wanted:
        send(broker, "t", b"x" * 9_000, index=1)
        turn(broker)
        jobs(broker)
        clock.now_ms += each_ms


def reopened(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    fs = fs.kill()
    for name in ("checkpoint", "clean"):
        if name in fs.names:
            fs.remove(name)
    return open_broker(fs, clock, segment_bytes=SEGMENT)


@pytest.mark.parametrize("segments", [2, 3, 5])
@pytest.mark.parametrize("starts", [1, 2])
def test_a_repeated_batch_is_known(fs: FaultyFileSystem, clock: VirtualClock, segments: int, starts: int) -> None:
    """Found by torture: the batch was stored a second time."""
    broker = started(fs, clock)
    first = [send(broker, "t", b"a%d" % at, producer_id=7, sequence=at).base_offset for at in range(7)]
    for _ in range(starts):
        fill_segments(broker, clock, segments)
        broker = reopened(broker.fs, clock)
        assert broker.report.snapshot_position >= SEGMENT, "else nothing was left out"
    for at in range(2, 7):
        assert send(broker, "t", b"a%d" % at, producer_id=7, sequence=at).base_offset == first[at]
    with pytest.raises(BrokerError) as caught:
        send(broker, "t", b"gap", producer_id=7, sequence=9)
    assert caught.value.fault is Fault.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(broker, "t", b"a7", producer_id=7, sequence=7)
    turn(broker)
    assert values(broker, "t") == [b"a%d" % at for at in range(8)]


def test_it_is_not_read_further_back_than_a_producer_repeats(
    fs: FaultyFileSystem, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = started(fs, clock)
    send(broker, "t", b"old", producer_id=7, sequence=0)
    fill_segments(broker, clock, 6, each_ms=recovered_producers.REPEATED_MS // 4)
    send(broker, "t", b"new", producer_id=8, sequence=0)
    fill_segments(broker, clock, 2)
    broker = reopened(broker.fs, clock)
    assert set(partition_of(broker, "t").producers.by_id) == {8}  # type: ignore[union-attr]


def test_what_the_snapshot_says_stands(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """A producer with an open transaction is in the head's snapshot, and was in the log before."""
    broker = started(fs, clock)
    partition = partition_of(broker, "t")
    for at in range(3):
        send(broker, "t", b"a%d" % at, producer_id=7, sequence=at)
    partition.transaction_began(7, 2)
    fill_segments(broker, clock, 2)
    known = partition.producers.by_id[7]  # type: ignore[union-attr]
    broker = reopened(broker.fs, clock)
    again = partition_of(broker, "t").producers.by_id[7]  # type: ignore[union-attr]
    assert (again.epoch, again.batches) == (known.epoch, known.batches)


def test_the_epoch_of_a_marker_is_known(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """A producer that was fenced stays so."""
    broker = started(fs, clock)
    client = TxnClient(broker, "x")
    client.init()
    client.send("t", b"a")
    late = client.batch("t", 0, b"late")
    client.end(commit=True)
    turn(broker)
    fill_segments(broker, clock, 2)
    known = partition_of(broker, "t").producers.by_id[client.producer_id]  # type: ignore[union-attr]
    broker = reopened(broker.fs, clock)
    partition = partition_of(broker, "t")
    again = partition.producers.by_id[client.producer_id]  # type: ignore[union-attr]
    assert (again.epoch, again.batches) == (known.epoch, known.batches)
    with pytest.raises(BrokerError):
        broker.append(partition, late, clock.now_ms, client.who)


def test_what_went_elsewhere_was_sent_all_the_same(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """The partition that delayed batches were sent to does not hold them."""

    def send_delayed(broker: BareNode, sequence: int, *headers: tuple[str, bytes]) -> None:
        rows = [(None, b"v", 1_000, headers)]
        append(broker, partition_of(broker, "t"), memoryview(build_batch(rows, producer_id=7, producer_epoch=0,
            base_sequence=sequence)))  # fmt: skip
        turn(broker)

    broker = reopened_with_delays(fs, clock)
    broker.create_topic("t", 2)
    turn(broker)
    send_delayed(broker, 0, ("DELAY", b"3"))
    send_delayed(broker, 1, ("DELAY", b"3"))
    fill_segments(broker, clock, 2)
    fs = broker.fs.kill()
    for name in ("checkpoint", "clean"):
        if name in fs.names:
            fs.remove(name)
    broker = reopened_with_delays(fs, clock)
    assert broker.report.snapshot_position >= SEGMENT
    assert len(values(broker, "SCHEDULE_TOPIC_XXXX", 2)) == 2
    send_delayed(broker, 0, ("DELAY", b"3"))
    send_delayed(broker, 1, ("DELAY", b"3"))
    assert len(values(broker, "SCHEDULE_TOPIC_XXXX", 2)) == 2


def reopened_with_delays(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    return open_broker(fs, clock, interceptors=[DELAYS], segment_bytes=SEGMENT)
