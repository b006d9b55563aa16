"""Records whose TTL is over when a view comes to them: it passes over them, and stays as it is afterwards."""

from __future__ import annotations

import pytest

from halfmoon.core.records.batches import build_batch
from halfmoon.plugins.store.view.updater import WHOLE_BYTES
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, append, open_broker, partition_of, relay, values

TTL = "halfmoon.ttl.ms"
VIEW = {"halfmoon.view.source": "t", "halfmoon.view.prefix": "a"}


@pytest.fixture
def broker(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    return open_broker(fs, clock)


def send(broker: BareNode, *rows: tuple[bytes, int | None], codec: int = 0) -> None:
    made = [(None, value, broker.clock.wall_ms(), () if ttl is None else ((TTL, b"%d" % ttl),)) for value, ttl in rows]
    append(broker, partition_of(broker, "t"), memoryview(bytearray(build_batch(made, codec=codec))))
    relay(broker)


@pytest.mark.parametrize("codec", range(5))
def test_a_new_view_begins_without_what_has_expired(broker: BareNode, clock: VirtualClock, codec: int) -> None:
    broker.create_topic("t", 1)
    send(broker, (b"a1", 100), (b"a2", 200), (b"b", 100), (b"a3", None), codec=codec)
    clock.now_ms += 100
    broker.create_topic("v", -1, VIEW)
    relay(broker)
    assert values(broker, "v") == [b"a2", b"a3"]
    assert broker.views is not None
    (reading,) = broker.views.readings()
    assert (reading.counters.looked_at, reading.counters.matched, reading.lag) == (4, 2, 0)
    assert broker.expiry.counts == {("view", "dropped"): 1}


def test_what_expires_in_a_view_stays_there(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("t", 1)
    broker.create_topic("v", -1, VIEW)
    send(broker, (b"a1", 100))
    clock.now_ms += 1_000
    assert values(broker, "v") == [b"a1"]


def test_the_sources_ttl_counts_and_a_whole_batch_may_have_expired(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("t", 1, {TTL: "100"})
    large = b"a" * (WHOLE_BYTES // 10)
    send(broker, *[(large, None)] * 12)
    clock.now_ms += 50
    send(broker, *[(b"a later" + large, None)] * 12)
    clock.now_ms += 50
    broker.create_topic("v", -1, VIEW)
    relay(broker)
    assert values(broker, "v") == [b"a later" + large] * 12
    assert broker.expiry.counts == {("view", "dropped"): 12}


def test_off_it_copies_everything(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = open_broker(fs, clock, off=["expiry"])
    broker.create_topic("t", 1)
    send(broker, (b"a1", 100))
    clock.now_ms += 100
    broker.create_topic("v", -1, VIEW)
    relay(broker)
    assert values(broker, "v") == [b"a1"]
