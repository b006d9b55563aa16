"""What stands before the shards of one process."""

from __future__ import annotations

import random

from halfmoon.server.workers.front import Front
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.adapters.kafka.shard_rig import HERE, SHARDS, ShardRig


def test_a_shard_that_has_missed_a_topic_is_told_when_it_is_opened() -> None:
    """Another process made the topic, and this one ended before it heard of it."""
    rig = ShardRig()
    topic = rig.topic("t")
    dice = random.Random(5)
    first, second = HERE
    missed = BareNode(FaultyFileSystem(dice), rig.settings, rig.clock, dice.randbytes, shard=rig.shard(second))
    missed.open()
    missed.use((), (), ())
    missed.start()
    kernels = [rig.nodes[first].kernel, missed.kernel]
    front = Front(rig.shared, rig.changes, kernels, rig.shard(first), SHARDS, rig.clock, dice.randbytes)
    front.apply(set(rig.shared.catalog.by_number))
    here = [index for index in range(8) if rig.shard_of(topic, index) in HERE]
    found = {index: front.kernel_of(topic.partitions[index]) for index in here}
    assert found == {index: kernels[HERE.index(rig.shard_of(topic, index))] for index in here}
    assert {partition.index for partition in topic.partitions if front.find_kernel(partition)} == set(here)
