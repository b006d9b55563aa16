"""The log of one process that becomes a shard's: what it is told of other shards' things holds over every start."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from halfmoon.core import identity
from halfmoon.core.catalog.topics import RemotePartition
from halfmoon.core.identity import Identity
from halfmoon.core.storage.files import write_file
from halfmoon.schema import control
from halfmoon.schema.provenance import Origin, Provenance, SourceRun
from halfmoon.schema.shards import OWN_PRODUCERS_BITS, OWN_TOPICS
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, batch, drop_oldest, open_broker, partition_of, send, turn, values
from tests.core.relay_bench import lose_derived

NUMBER = 3
COMMITTED = control.Committed(4, -1, "", 1)
KEPT, GONE = "kept", "elsewhere"


def divide(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    """Partition 1 of t lies here, and the others elsewhere; so do half of the groups and of the waiting messages."""
    node = open_broker(fs, clock)
    node.create_topic("t", 4)
    node.create_topic("w", 1, internal=True)
    number, waiting = node.topic("t").number, partition_of(node, "w")
    for index in range(4):
        send(node, "t", b"in %d" % index, index=index)
    for at in range(8):
        made = bytearray(batch(b"waits %d" % at))
        node.append_relayed(waiting, made, sources=(), origin=Origin(number, at % 4), due_ms=clock.now_ms + 1_000)
    runs = [SourceRun(waiting.topic.number, 0, at, 2) for at in (1, 2, 5)]
    node.append_relayed(partition_of(node, "t"), bytearray(batch(b"check")), attempts=runs)
    for group in (KEPT, GONE):
        node.append_control(control.OffsetsCommitted(group, [(number, index, COMMITTED) for index in range(4)]))
        node.append_control(control.ShareGroupSaved(group, 7))
        node.append_control(control.ShareChanged(group, number, 1, 1, []))
    node.append_control(control.UsersChanged([control.User("alice")], []))
    turn(node)
    node.append_control(control.ShardImported(NUMBER, [waiting.topic.number], node.log.end))
    node.append_control(control.PartitionsPlaced(number, 0, bytes([0, NUMBER, 2, 1])))
    node.append_control(control.GroupsElsewhere([GONE]))
    bits = (1 << 1 | 1 << 5).to_bytes(128, "little")
    node.append_control(control.WaitingKept(waiting.topic.number, 0, 8, [(0, bits)]))
    turn(node)
    return node


def look(node: BareNode) -> None:
    topic = node.topic("t")
    assert [isinstance(each, RemotePartition) for each in topic.partitions] == [True, False, True, True]
    assert values(node, "t", 1) == [b"in 1"]
    waiting = partition_of(node, "w")
    assert waiting.pending is not None
    assert list(waiting.pending.between(0, 100)) == [1, 5]
    assert sorted(node.state.attempts.attempts) == [(waiting.topic.number, 0, 1), (waiting.topic.number, 0, 5)]
    assert list(node.state.groups.offsets) == [KEPT]
    assert set(node.state.groups.offsets[KEPT]) == {(topic.number, index) for index in range(4)}
    assert node.state.share.epochs == {KEPT: 7}
    assert set(node.state.share.delivery_states) == {KEPT, GONE}
    shard = node.catalog.shard
    assert shard is not None
    assert (shard.number, shard.own) == (NUMBER, [waiting.topic.number])
    assert shard.owns(waiting.topic.number)
    assert shard.owns(OWN_TOPICS)
    assert not shard.owns(topic.number)
    assert node.log.reusable_from == shard.linked_upto > 0
    assert node.allocate_producer_id()[0] >> OWN_PRODUCERS_BITS == NUMBER


def again(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    write_file(fs, identity.PATH, [msgspec.json.encode(Identity(1, "cluster", NUMBER))])
    return open_broker(fs, clock, shard=NUMBER)


def stopped(fs: FaultyFileSystem, node: BareNode) -> FaultyFileSystem:
    node.close()
    return fs


def killed(fs: FaultyFileSystem, _node: BareNode) -> FaultyFileSystem:
    return fs.kill()


def killed_and_alone(fs: FaultyFileSystem, node: BareNode) -> FaultyFileSystem:
    """Only the log is left."""
    found = killed(fs, node)
    lose_derived(found)
    return found


@pytest.mark.parametrize("how", [stopped, killed, killed_and_alone])
def test_it_holds_over_a_start(
    fs: FaultyFileSystem, clock: VirtualClock, how: Callable[[FaultyFileSystem, BareNode], FaultyFileSystem]
) -> None:
    node = again(how(fs, divide(fs, clock)), clock)
    look(node)


def test_it_stands_at_the_head_of_the_next_segment(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    node = divide(fs, clock)
    look_again = again(stopped(fs, node), clock)
    before = len(look_again.log.segments)
    while len(look_again.log.segments) < before + 2:
        send(look_again, "t", b"x" * 9_000, index=1)
        turn(look_again)
    end = partition_of(look_again, "t", 1).high_watermark
    drop_oldest(look_again)
    turn(look_again)
    look_again.close()
    lose_derived(fs)
    last = again(fs, clock)
    assert partition_of(last, "t", 1).high_watermark == end
    assert isinstance(last.topic("t").partitions[0], RemotePartition)
    assert last.state.share.epochs == {KEPT: 7}
    assert last.catalog.shard is not None
    assert last.catalog.shard.own == [last.topic("w").number]


def test_what_comes_later_waits_on(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """The record is about what was there before, also where a start applies it again."""
    node = divide(fs, clock)
    waiting, number = partition_of(node, "w"), node.topic("t").number
    made = bytearray(batch(b"later"))
    node.append_relayed(waiting, made, sources=(), origin=Origin(number, 1), due_ms=clock.now_ms + 10**6)
    turn(node)
    record = control.WaitingKept(waiting.topic.number, 0, 8, [(0, (1 << 1 | 1 << 5).to_bytes(128, "little"))])
    node.catalog.prove(Provenance(attempts=(SourceRun(waiting.topic.number, 0, 8, 1),)))
    node.catalog.apply(record)
    assert waiting.pending is not None
    assert list(waiting.pending.between(0, 100)) == [1, 5, 8]
    assert (waiting.topic.number, 0, 8) in node.state.attempts.attempts
