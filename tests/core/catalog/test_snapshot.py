"""Snapshots: all of a catalog, and nothing that was not in it."""

from __future__ import annotations

import msgspec
import pytest

from halfmoon.core.catalog import snapshot
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.schema import control
from halfmoon.schema.groups import ConsumerGroupChange, ConsumerMember, GroupRecord
from halfmoon.schema.snapshot import decode, encode
from halfmoon.server.assembly import Sections
from halfmoon.services.groups.state import GroupsState
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, flip, open_broker, partition_of, send, turn


@pytest.fixture
def broker(fs: FaultyFileSystem) -> BareNode:
    """With something in every corner of its catalog."""
    broker = open_broker(fs, VirtualClock())
    broker.create_topic("gone", 1)
    broker.create_topic("t", 2, {"retention.ms": "777000"})
    broker.create_topic("inside", 1, internal=True)
    broker.delete_topic(broker.topic("gone"))  # type: ignore[arg-type]
    send(broker, "t", b"a", b"b", producer_id=9, sequence=0)
    send(broker, "t", b"c", index=1)
    turn(broker)
    broker.delete_records(partition_of(broker, "t"), 1)
    broker.groups.commit("g", -1, "", None, [(partition_of(broker, "t"), 2, 1, "note")])
    broker.append_control(control.GroupSaved(GroupRecord("h", 3, "consumer", "range", "m", True, ()), 4))
    member = ConsumerMember("m", assigned=((1, 0, 2),), epoch=2)
    broker.append_control(
        control.ConsumerGroupSaved(ConsumerGroupChange("c", 2, 2, True, ((1, 2),), (member,), (("m", ((1, 0),)),)), 5)
    )
    broker.allocate_producer_id()
    partition_of(broker, "t", 1).queue.lose(5, 7)
    turn(broker)
    return broker


def restored(broker: BareNode, data: bytes) -> Catalog:
    catalog = Catalog(broker.settings)
    Sections(catalog)
    snapshot.restore(catalog, decode(data))
    return catalog


def groups_of(catalog: Catalog) -> GroupsState:
    return next(each for each in catalog.sections if isinstance(each, GroupsState))


def test_a_restored_catalog_is_the_same(broker: BareNode) -> None:
    data = snapshot.take(broker.catalog, 1234, 5)
    again = restored(broker, data)
    assert snapshot.take(again, 1234, 5) == data
    topic = again.by_name["t"]
    assert topic.id == broker.topic("t").id  # type: ignore[union-attr]
    assert topic.rules.retention_ms == 777_000
    first, second = topic.partitions
    assert (first.start_offset, first.next_offset, first.epochs) == (1, 2, [(1, 0)])
    assert second.queue.damaged == [(5, 7)]
    assert first.producers is not None
    assert first.producers.check(9, 0, 0, 2) is not None, "a repeated batch is still known"
    assert again.by_name["inside"].internal
    assert again.next_topic_number == 3
    assert again.next_producer_id == 1000
    groups = groups_of(again)
    assert set(groups.groups) == {"h"}
    assert groups.consumer_groups["c"].whole() == broker.state.groups.consumer_groups["c"].whole()
    assert groups.consumer_groups["c"].saved_ms == 5
    assert groups.offsets["g"][1, 0].metadata == "note"


def test_what_stands_at_the_head_of_segments_has_no_producers_without_a_transaction(broker: BareNode) -> None:
    again = restored(broker, snapshot.take(broker.catalog, 0, 1, producers=False))
    assert all(partition.producers is None for partition in again.partitions())
    assert again.by_name["t"].partitions[0].next_offset == 2


@pytest.mark.parametrize("part_bytes", [1, 7, 1 << 20])
def test_parts_put_together_are_the_whole(broker: BareNode, monkeypatch: pytest.MonkeyPatch, part_bytes: int) -> None:
    monkeypatch.setattr(snapshot, "PART_BYTES", part_bytes)
    data = snapshot.take(broker.catalog, 0, 1)
    parts = list(snapshot.parts(data))
    assert b"".join(part.data for part in parts) == data
    assert len(parts) == -(-len(data) // part_bytes)


def test_a_checkpoint_is_loaded_or_counts_as_lost(broker: BareNode, fs: FaultyFileSystem) -> None:
    data = snapshot.take(broker.catalog, 1234, 5, clean=True)
    snapshot.save(fs, data)
    loaded = snapshot.load(fs)
    assert loaded is not None
    assert (loaded.position, loaded.generation, loaded.clean) == (1234, 5, True)
    assert encode(loaded) == data
    size = len(fs.names["checkpoint"].cache)
    for at in range(0, size, 3):
        flip(fs, "checkpoint", at)
        assert snapshot.load(fs) is None
        flip(fs, "checkpoint", at)
    for length in (0, 5, 12, size - 1):
        cut = fs.kill()
        del cut.names["checkpoint"].cache[length:]
        assert snapshot.load(cut) is None
    fs.remove("checkpoint")
    assert snapshot.load(fs) is None


def test_a_checkpoint_of_another_version_counts_as_lost(
    broker: BareNode, fs: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is derived: the log says who may read the directory."""
    with monkeypatch.context() as newer:
        newer.setattr(snapshot, "_VERSION", 2)
        snapshot.save(fs, snapshot.take(broker.catalog, 0, 1))
    assert snapshot.load(fs) is None


def test_a_newer_snapshot_may_have_more_fields(broker: BareNode) -> None:
    fields = msgspec.msgpack.decode(snapshot.take(broker.catalog, 0, 1))
    assert decode(msgspec.msgpack.encode([*fields, "new"])).position == 0


@pytest.mark.parametrize("count", [0, 1, 15, 16, 300, 1 << 16])
@pytest.mark.parametrize("producers", [True, False])
def test_what_was_encoded_before_is_the_same(fs: FaultyFileSystem, count: int, producers: bool) -> None:
    """Whatever MessagePack's head of an array is."""
    catalog = Catalog(open_broker(fs, VirtualClock()).settings)
    catalog.apply(control.TopicCreated(0, "t", bytes(16), count, {}))
    for partition in list(catalog.partitions())[::3]:
        partition.began_epoch(1, 0)
        catalog.apply(control.ProducerAdvanced(0, partition.index, 7, 0, 0, 1, 1))
    for _ in snapshot.prepared(catalog):
        pass
    assert None not in [partition.saved for partition in catalog.partitions()]
    known = snapshot.take(catalog, 5, 1, producers=producers, again=True)
    assert known == snapshot.take(catalog, 5, 1, producers=producers)
