"""What a node knows that takes a shard over from one that died."""

from __future__ import annotations

import random

import pytest

from halfmoon.cluster.engine.pieces import Durability
from halfmoon.errors import BrokerError, Fault
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.cluster.engine.one_shard import OneShard, one_shard
from tests.core.bench import VirtualClock, open_broker, send, sync, values


def taken_over(shard: OneShard, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> BareNode:
    """By a node with an empty cache. Each takeover begins a segment of its own."""
    kept = shard.make(FaultyFileSystem(random.Random(1)), shard.settings(low_disk_bytes=0))
    monkeypatch.setattr(BareNode, "storage", staticmethod(lambda fs, settings: kept))
    return open_broker(kept.log.fs, clock)


def turn(broker: BareNode) -> None:
    """No checkpoint is made: it dies before."""
    broker.write()
    sync(broker)
    broker.settle()


@pytest.mark.parametrize("kind", Durability)
def test_a_producer_is_known_after_several_takeovers_soon_after_each_other(
    kind: Durability, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by torture: what a takeover reads to see how old a segment is was not fetched before, and read as zeroes.
    So only the last segment before its own was searched for producers."""
    clock = VirtualClock()
    with one_shard(kind) as shard:
        broker = taken_over(shard, clock, monkeypatch)
        broker.create_topic("t", 1)
        for at in range(3):
            send(broker, "t", b"%d" % at, producer_id=7, sequence=at)
            turn(broker)
        for _ in range(5):
            clock.now_ms += 3_000
            broker = taken_over(shard, clock, monkeypatch)
            send(broker, "t", b"of another", producer_id=8, sequence=0)
            turn(broker)
        with pytest.raises(BrokerError) as caught:
            send(broker, "t", b"gap", producer_id=7, sequence=5)
        assert caught.value.fault is Fault.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(broker, "t", b"2", producer_id=7, sequence=2).base_offset == 2, "it is stored"
        send(broker, "t", b"3", producer_id=7, sequence=3)
        turn(broker)
        assert [value for value in values(broker, "t") if value.isdigit()] == [b"0", b"1", b"2", b"3"]
