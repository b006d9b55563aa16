"""Views and lookups beside transactions: nothing that is open, nothing that was aborted, no markers."""

from __future__ import annotations

import pytest

from halfmoon.core.records.batches import TRANSACTIONAL, parse_header
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, open_broker, partition_of, relay, send, turn, values
from tests.core.clean_bench import COMPACT, clean, put
from tests.services.keyindex.test_messages import find, places
from tests.services.transactions.transaction_bench import TxnClient


@pytest.fixture
def broker(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    broker = open_broker(fs, clock)
    broker.create_topic("t", 1)
    broker.create_topic("v", configs={"halfmoon.view.source": "t", "halfmoon.view.prefix": "a"})
    return broker


@pytest.fixture
def client(broker: BareNode) -> TxnClient:
    client = TxnClient(broker, "x")
    client.init()
    return client


def test_a_view_is_filled_with_what_was_committed(broker: BareNode, client: TxnClient) -> None:
    client.send("t", b"a1", b"b1")
    send(broker, "t", b"a2")
    relay(broker)
    assert values(broker, "v") == []
    client.commit()
    relay(broker)
    assert values(broker, "v") == [b"a1", b"a2"]
    client.send("t", b"a3")
    client.abort()
    send(broker, "t", b"a4")
    relay(broker)
    assert values(broker, "v") == [b"a1", b"a2", b"a4"]
    assert partition_of(broker, "v").source_next == partition_of(broker, "t").next_offset


@pytest.mark.parametrize("size", [10, 20_000], ids=["taken apart", "as a whole"])
def test_batches_of_a_view_belong_to_no_transaction(broker: BareNode, client: TxnClient, size: int) -> None:
    client.send("t", b"a" * size)
    client.commit()
    relay(broker)
    view = partition_of(broker, "v")
    (piece,) = broker.read(view, 0, 1 << 20, min_one=True).slices
    assert not parse_header(piece).attributes & TRANSACTIONAL
    assert view.stable_offset == view.high_watermark == 1


def test_a_view_goes_on_after_a_restart_where_a_transaction_was_open(
    fs: FaultyFileSystem, clock: VirtualClock, broker: BareNode, client: TxnClient
) -> None:
    client.send("t", b"a1")
    client.abort()
    client.send("t", b"a2")
    relay(broker)
    broker = client.broker = open_broker(fs.kill(), clock)
    relay(broker)
    assert values(broker, "v") == []
    client.commit()
    relay(broker)
    assert values(broker, "v") == [b"a2"]


def test_messages_are_found_once_they_are_committed(broker: BareNode, client: TxnClient) -> None:
    def sent(value: bytes, sequence: int) -> None:
        partition = partition_of(broker, "t")
        batch = client.batch("t", 0, value, headers=(("KEYS", b"k"),))
        broker.append(partition, batch, 0, client.who)
        client.sequences["t", 0] = sequence + 1

    sent(b"one", 0)
    relay(broker)
    assert places(find(broker, "t", b"k")) == []
    client.commit()
    relay(broker)
    assert places(find(broker, "t", b"k")) == ["t-0@0"]
    sent(b"two", 0)
    client.abort()
    relay(broker)
    assert places(find(broker, "t", b"k")) == ["t-0@0"]


def test_aborted_records_stay_out_of_a_view_though_they_are_deleted_while_it_is_filled(
    broker: BareNode, client: TxnClient
) -> None:
    send(broker, "t", b"a0")
    client.send("t", b"a1")
    client.abort()
    send(broker, "t", b"a3")
    turn(broker)
    source, view = partition_of(broker, "t"), partition_of(broker, "v")
    while broker.views._updaters[view].next_offset < 1:  # it goes on batch by batch
        assert broker.relays.step() is None
    broker.delete_records(source, 3)
    relay(broker)
    assert values(broker, "v") == [b"a0", b"a3"]
    assert view.source_next == source.next_offset


def test_a_view_passes_a_hole_before_an_open_transaction(
    fs: FaultyFileSystem, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Compaction may leave nothing of what is decided."""
    broker = open_broker(fs, clock)
    broker.create_topic("t", 1, COMPACT)
    broker.create_topic("v", configs={"halfmoon.view.source": "t", "halfmoon.view.prefix": "a"})
    one, other = TxnClient(broker, "one"), TxnClient(broker, "other")
    for client in (one, other):
        client.init()
    one.send_keyed("t", (b"k", b"a1"))
    other.send_keyed("t", (b"k", b"a2"))
    one.abort()
    put(broker, "t", (b"k", b"a3"))
    clean(broker, clock)
    assert partition_of(broker, "t").stable_offset == 1
    relay(broker)
    other.commit()
    relay(broker)
    assert values(broker, "v") == [b"a2", b"a3"]
    assert not caplog.records
