"""Rot in the end of a transaction: how it ended is told by whatever part of it is whole."""

from __future__ import annotations

import pytest

from halfmoon.core.catalog.topics import Partition
from halfmoon.core.storage.frame import HEADER_BYTES
from halfmoon.core.storage.log_files import segment_path
from halfmoon.core.storage.scan import read_header
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.transactions import TransactionState
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, flip, open_broker, partition_of, send, turn
from tests.services.transactions.transaction_bench import TxnClient, read_committed

RECORD = 2
"""The part that is the record; 0 and 1 are the markers of the two partitions."""


def told(partition: Partition, broker: BareNode) -> list[bytes]:
    """What a reader of committed records gets that goes on behind what is lost."""
    found: list[bytes] = []
    at = partition.start_offset
    while at < partition.stable_offset:
        upto = next((low for low, high in partition.queue.damaged if low >= at), partition.stable_offset)
        if at < upto:
            found += [value for _, value in read_committed(broker, "t", partition.index, from_offset=at, upto=upto)]
        at = next((high for low, high in partition.queue.damaged if low == upto), partition.stable_offset)
    return found


@pytest.mark.parametrize("rotten", [(0,), (1,), (RECORD,), (0, 1), (0, RECORD), (1, RECORD)], ids=str)
@pytest.mark.parametrize("byte", [3, HEADER_BYTES + 7], ids=["header", "payload"])
@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("bumps", [True, False])
@pytest.mark.parametrize("more", [True, False], ids=["more after it", "nothing after it"])
def test_an_end_that_was_answered_stays_what_it_was(
    fs: FaultyFileSystem, clock: VirtualClock, rotten: tuple[int, ...], byte: int, committed: bool, bumps: bool,
    more: bool,
) -> None:  # fmt: skip
    broker = open_broker(fs, clock)
    broker.create_topic("t", 2)
    one = TxnClient(broker, "x", bumps=bumps)
    one.init()
    for index in (0, 1):
        one.send("t", b"one", index=index)
    one.commit_offsets("g", "t", 5)
    turn(broker)
    begin = broker.log.end
    one.end(commit=committed)
    turn(broker)
    expected = [b"one"] if committed else []
    if more:
        for index in (0, 1):
            one.send("t", b"two", index=index)
        one.commit()
        expected = [*expected, b"two"]
    send(broker, "t", b"end")
    turn(broker)
    segment = broker.log.segment_at(begin)
    parts = []
    at = begin
    while len(parts) < 3:
        parts.append(at)
        at = read_header(segment, at, 0).end
    fs = fs.kill()
    for part in rotten:
        flip(fs, segment_path(segment.start), parts[part] - segment.start + byte)
    broker = one.broker = open_broker(fs, clock)
    turn(broker)

    entry = broker.state.transactions.by_name["x"]
    assert (entry.producer_id, entry.epoch) == (one.producer_id, one.epoch)
    if more or committed:
        assert entry.state is TransactionState.COMPLETE_COMMIT
    else:
        assert entry.state is TransactionState.COMPLETE_ABORT
    partitions = [partition_of(broker, "t", index) for index in (0, 1)]
    progress = broker.groups.offsets("g")
    assert (progress[partitions[0]].offset if progress else None) == (5 if committed else None)
    assert all(partition.stable_offset == partition.high_watermark for partition in partitions)
    assert told(partitions[0], broker) == [*expected, b"end"]
    assert told(partitions[1], broker) == expected
    for part in {0, 1} & set(rotten):
        lost = 1
        with pytest.raises(BrokerError) as error:
            broker.read(partitions[part], lost, 1_000, min_one=True)
        assert error.value.fault is Fault.CORRUPT_MESSAGE
    clock.now_ms += 60_000
    broker.transactions.expire(clock.mono_ms())
    for index in (0, 1):
        one.send("t", b"three", index=index)
    one.commit()
    turn(broker)
    assert told(partitions[0], broker) == [*expected, b"end", b"three"]
    assert told(partitions[1], broker) == [*expected, b"three"]
