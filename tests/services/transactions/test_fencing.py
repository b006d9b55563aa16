"""A log that was brought back to an earlier moment gives no identity out twice, and commits only what is whole."""

from __future__ import annotations

import pytest

from halfmoon.core.append import PRODUCER_ID_BLOCK
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema import control
from halfmoon.services.transactions.fencing import SKIPPED
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, open_broker, partition_of, relay, turn
from tests.services.transactions.transaction_bench import TxnClient, committed_values

STYLES = pytest.mark.parametrize("bumps", [True, False], ids=["epoch bumped", "older"])


@pytest.fixture
def broker(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    broker = open_broker(fs, clock)
    broker.create_topic("t", 2)
    turn(broker)
    return broker


def client(broker: BareNode, name: str, *, bumps: bool) -> TxnClient:
    found = TxnClient(broker, name, bumps=bumps)
    found.init()
    turn(broker)
    return found


def refused(broker: BareNode, producer: TxnClient) -> Fault:
    with pytest.raises(BrokerError) as caught:
        broker.transactions.add_partitions(
            producer.name, producer.producer_id, producer.epoch, [partition_of(broker, "t")]
        )
    return caught.value.fault


@STYLES
def test_producers_get_ids_that_nobody_had(broker: BareNode, bumps: bool) -> None:
    before = [client(broker, name, bumps=bumps) for name in ("ongoing", "ended", "unused")]
    for each in before[:2]:
        each.send("t", each.name.encode())
        turn(broker)
    before[1].commit()
    turn(broker)
    given, _ = broker.allocate_producer_id()
    broker.brought_back()
    assert [refused(broker, each) for each in before] == [Fault.INVALID_PRODUCER_ID_MAPPING] * 3
    partition = partition_of(broker, "t")
    assert partition.stable_offset == partition.high_watermark
    assert committed_values(broker, "t") == [b"ended"]
    after = [client(broker, each.name, bumps=bumps) for each in before]
    assert all(each.producer_id >= given + SKIPPED for each in after)
    assert len({each.producer_id for each in after}) == 3
    for each in after:
        each.send("t", b"new " + each.name.encode())
        turn(broker)
        each.commit()
        turn(broker)
    assert committed_values(broker, "t") == [b"ended", b"new ongoing", b"new ended", b"new unused"]


def test_a_batch_of_before_does_not_come_into_the_next_transaction(broker: BareNode) -> None:
    """Its epoch is what the producer would have got next: the log did not know that it was given out."""
    late = client(broker, "x", bumps=True)
    late.epoch += 1
    broker.brought_back()
    new = client(broker, "x", bumps=True)
    new.send("t", b"new")
    turn(broker)
    with pytest.raises(BrokerError):
        late.send("t", b"late")
    new.commit()
    turn(broker)
    assert committed_values(broker, "t") == [b"new"]


@pytest.mark.parametrize("committed", [True, False])
def test_what_was_decided_stays_decided(fs: FaultyFileSystem, clock: VirtualClock, committed: bool) -> None:
    broker = open_broker(fs, clock)
    broker.create_topic("t", 2)
    turn(broker)
    producer = client(broker, "x", bumps=True)
    producer.send("t", b"decided")
    turn(broker)
    identity = broker.transactions.by_name["x"].identity
    broker.append_control(control.TransactionPrepared("x", identity, committed, clock.wall_ms()))
    turn(broker)
    broker.close()
    again = open_broker(fs, clock)  # which has begun nothing yet
    again.brought_back()
    relay(again)
    assert committed_values(again, "t") == ([b"decided"] if committed else [])
    assert again.transactions.by_name["x"].producer_id >= SKIPPED
    assert refused(again, producer) is Fault.INVALID_PRODUCER_ID_MAPPING


def test_ids_that_stand_in_no_transaction_are_skipped_too(broker: BareNode) -> None:
    before, _ = broker.allocate_producer_id()
    broker.brought_back()
    after, _ = broker.allocate_producer_id()
    assert after >= before + SKIPPED
    assert after <= before + SKIPPED + 2 * PRODUCER_ID_BLOCK
