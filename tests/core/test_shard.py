"""A log whose topics other logs share: what lies elsewhere, and numbers of its own."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from halfmoon.config.settings import load_settings
from halfmoon.core import identity
from halfmoon.core.catalog import snapshot
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import RemotePartition
from halfmoon.core.identity import Identity
from halfmoon.core.records.batches import build_batch
from halfmoon.core.storage.files import write_file
from halfmoon.core.storage.log_files import segment_path
from halfmoon.errors import BrokerError, Fault, StartError
from halfmoon.schema import control
from halfmoon.schema.shards import OWN_QUEUES, OWN_TOPICS, ShardState
from halfmoon.schema.snapshot import ShardSnapshot, Snapshot, decode, encode_again
from halfmoon.server.assembly import Sections
from halfmoon.testing.faulty_files import FaultyFileSystem, ProcessDied
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, drop_oldest, flip, open_broker, send, turn, values


def open_shard(fs: FaultyFileSystem, clock: VirtualClock, number: int = 3, **log: Any) -> BareNode:
    return open_broker(fs, clock, shard=number, **log)


def share(node: BareNode, number: int, name: str, shards: bytes, first_queue: int = 0) -> None:
    """A topic of the shared catalog."""
    node.append_control(
        control.TopicCreated(number, name, name.encode().rjust(16), len(shards), {}, first_queue=first_queue)
    )
    node.append_control(control.PartitionsPlaced(number, 0, shards))


def test_a_log_is_opened_as_what_it_is(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    open_shard(fs, clock, 3).close()
    open_shard(fs, clock, 3).close()
    with pytest.raises(StartError, match="belongs to node 3"):
        open_shard(fs, clock, 4)
    with pytest.raises(StartError, match="this is shard 3"):
        open_broker(fs, clock)


def test_the_data_of_one_process_are_no_shard(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    open_broker(fs, clock).close()
    with pytest.raises(StartError, match=r"belongs to node \d+"):
        open_shard(fs, clock)
    said = Identity(1, "another", 3)
    write_file(fs, identity.PATH, [msgspec.json.encode(said)])
    with pytest.raises(StartError, match="belongs to cluster another, not to cluster"):
        open_shard(fs, clock)
    write_file(fs, identity.PATH, [msgspec.json.encode(Identity(1, "cluster", 3))])
    with pytest.raises(StartError, match="the data of one process"):
        open_shard(fs, clock)


def test_it_may_die_in_the_middle_of_its_first_start(clock: VirtualClock) -> None:
    done = False
    for step in range(1, 200):
        fs = FaultyFileSystem(random.Random(step))
        fs.crash_at = step
        try:
            open_shard(fs, clock)
            done = True
        except ProcessDied:
            pass
        for left in (fs.kill(), fs.power_loss()):
            assert state_of(open_shard(left, clock)).number == 3
        if done:
            break
    assert done
    assert step > 5


def state_of(node: BareNode) -> ShardState:
    assert node.catalog.shard is not None
    return node.catalog.shard


def as_it_should_be(node: BareNode) -> None:
    """Of the topic that `shared` makes."""
    topic = node.catalog.by_name["shared"]
    assert [isinstance(partition, RemotePartition) for partition in topic.partitions] == [
        True,
        False,
        True,
        True,
        False,
    ]
    assert [partition.index for partition in topic.partitions] == list(range(5))
    assert [partition.index for partition in topic.here()] == [1, 4]
    assert [node.catalog.partition(7, index) for index in (0, 2, 3, 5)] == [None] * 4
    assert node.catalog.partition_count(7) == 5
    assert [(each.topic.name, each.index) for each in node.catalog.partitions()] == [("shared", 1), ("shared", 4)]
    assert {number: each.index for number, each in node.catalog.by_queue_number.items()} == {101: 1, 104: 4}
    assert values(node, "shared", 1) == [b"a"]
    assert values(node, "shared", 4) == [b"b", b"c"]


def test_what_lies_elsewhere_is_not_here(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """After any kind of start: from the log, a checkpoint, or the head of a segment."""
    node = open_shard(fs, clock)
    share(node, 7, "shared", bytes([0, 3, 1, 2, 3]), 100)
    send(node, "shared", b"a", index=1)
    send(node, "shared", b"b", b"c", index=4)
    turn(node)
    as_it_should_be(node)
    again = open_shard(fs.kill(), clock)
    assert again.report.snapshot_position == 0
    as_it_should_be(again)
    again.close()
    stopped = open_shard(again.fs, clock)
    assert stopped.report.clean
    as_it_should_be(stopped)
    position = stopped.log.end
    while stopped.log.segments[-1].start < position:
        send(stopped, "shared", b"x" * 1_000, index=1)
        turn(stopped)
    drop_oldest(stopped)
    turn(stopped)
    left = stopped.fs.kill()
    left.remove("checkpoint")
    headed = open_shard(left, clock)
    assert headed.report.snapshot_position >= position
    topic = headed.catalog.by_name["shared"]
    assert [partition.index for partition in topic.here()] == [1, 4]
    assert topic.partitions[4].next_offset == 2
    assert state_of(headed) == state_of(stopped)


def test_every_record_of_shards_may_be_applied_twice(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    node = open_shard(fs, clock)
    records: list[control.Any] = [
        control.ShardBegun(3),
        control.TopicCreated(7, "shared", bytes(16), 3, {}, first_queue=100),
        control.PartitionsPlaced(7, 0, bytes([3, 0, 3])),
        control.PartitionsAdded(7, 5, 110),
        control.PartitionsPlaced(7, 3, bytes([1, 3])),
        control.TopicCreated(8, "gone", bytes([1] * 16), 2, {}, first_queue=120),
        control.PartitionsPlaced(8, 0, bytes([1, 3])),
        control.TopicDeleted(8),
        control.CatalogSeen(17),
    ]
    for record in records:
        node.catalog.apply(record)
    once = snapshot.take(node.catalog, 0, 1)
    for record in records:
        node.catalog.apply(record)
    assert snapshot.take(node.catalog, 0, 1) == once
    restored = Catalog(load_settings({}, {}, {}))
    Sections(restored)
    snapshot.restore(restored, decode(once))
    assert snapshot.take(restored, 0, 1) == once
    assert restored.shard == ShardState(3, OWN_TOPICS | 3 << 22, OWN_QUEUES, 17)
    assert [partition.index for partition in restored.partitions()] == [0, 2, 4]


def test_what_a_shard_makes_has_numbers_that_no_other_gives_out(clock: VirtualClock) -> None:
    found: list[int] = []
    for number in (0, 3, 255):
        fs = FaultyFileSystem(random.Random(number))
        node = open_shard(fs, clock, number)
        share(node, 7, "shared", bytes([number]), 100)
        first, _ = node.create_topic("mine", 2)
        second, _ = node.create_topic("too", 1)
        node.add_partitions(first, 3)
        assert [each.queue_number for each in (*first.partitions, *second.partitions)] == [
            OWN_QUEUES + at for at in (0, 1, 3, 2)
        ]
        found += [first.number, second.number, node.allocate_producer_id()[0]]
        turn(node)
        again = open_shard(fs.kill(), clock, number)
        third, _ = again.create_topic("later", 1)
        assert third.partitions[0].queue_number == OWN_QUEUES + 4
        found += [third.number, again.allocate_producer_id()[0]]
        share(again, 8, "more", bytes([number]), 200)
        assert again.catalog.by_number[8].partitions[0].queue_number == 200
        assert again.catalog.next_topic_number == 9
    assert len(set(found)) == len(found)
    assert all(each < 1 << 31 for each in found[0::5] + found[1::5] + found[3::5])


def test_a_lost_topic_of_its_own_is_made_up_for(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """Its number is far from the others', which is no reason to look for a billion topics."""
    node = open_shard(fs, clock)
    turn(node)
    position = node.log.end
    node.create_topic("mine", 2)
    turn(node)
    end = node.log.end
    send(node, "mine", b"a", index=1)
    turn(node)
    segment = segment_path(node.log.segments[0].start)
    left = fs.kill()
    flip(left, segment, position, end - position)
    again = open_shard(left, clock)
    (topic,) = again.catalog.by_number.values()
    assert topic.number == OWN_TOPICS | 3 << 22
    assert values(again, topic.name, 1) == [b"a"]
    assert again.create_topic("next", 1)[0].number == topic.number + 1


def test_a_deleted_topic_is_taken_apart(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    node = open_shard(fs, clock)
    share(node, 7, "shared", bytes([0, 3]), 100)
    topic = node.catalog.by_name["shared"]
    node.append_control(control.TopicDeleted(7))
    for _ in node.catalog.bury():
        pass
    assert topic.partitions == []
    assert node.catalog.by_queue_number == {}


def test_one_process_writes_what_it_always_wrote(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    node = open_broker(fs, clock)
    node.create_topic("t", 1)
    data = snapshot.take(node.catalog, 0, 1)
    assert len(msgspec.msgpack.decode(data)) == len(Snapshot.__struct_fields__)
    assert type(decode(data)) is Snapshot
    assert encode_again(decode(data)) == data
    shard = open_shard(FaultyFileSystem(random.Random(2)), clock)
    data = snapshot.take(shard.catalog, 0, 1)
    assert type(decode(data)) is ShardSnapshot
    assert encode_again(decode(data)) == data


def test_nothing_is_appended_to_a_partition_that_lies_elsewhere(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """It would be acknowledged, and nobody would read it."""
    node = open_shard(fs, clock)
    share(node, 7, "shared", bytes([0, 3]), 100)
    end = node.log.end
    for index, partition in enumerate(node.catalog.by_name["shared"].partitions):
        batch = memoryview(bytearray(build_batch([(None, b"v", 1_700_000_000_000, ())])))
        if index == 0:
            with pytest.raises(BrokerError) as refused:
                node.append(partition, batch, clock.wall_ms())
            assert refused.value.fault is Fault.NOT_LEADER_OR_FOLLOWER
            assert node.log.end == end
        else:
            assert node.append(partition, batch, clock.wall_ms()).base_offset == 0
