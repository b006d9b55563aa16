"""What stands before the shards of one process."""

from __future__ import annotations

import random

from halfmoon.adapters.tcp.buffers import BufferPool
from halfmoon.cluster.placement import Layout
from halfmoon.cluster.shared import SharedCatalog
from halfmoon.cluster.store import News
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.records.batches import build_batch, iter_records
from halfmoon.server.assembly import Sections
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
    front = Front(
        rig.shared, rig.changes, kernels, rig.shard(first), Layout.of_workers(SHARDS), rig.clock, dice.randbytes
    )
    front.apply(set(rig.shared.catalog.by_number))
    here = [index for index in range(8) if rig.shard_of(topic, index) in HERE]
    found = {index: front.kernel_of(topic.partitions[index]) for index in here}
    assert found == {index: kernels[HERE.index(rig.shard_of(topic, index))] for index in here}
    assert {partition.index for partition in topic.partitions if front.find_kernel(partition)} == set(here)


def test_partitions_keep_their_numbers_wherever_they_lie() -> None:
    """Message ids have them, shards that open later are told them, and so is who begins with a snapshot."""
    rig = ShardRig()
    topic = rig.topic("t")
    numbers = [partition.queue_number for partition in topic.partitions]
    assert numbers == list(range(numbers[0], numbers[0] + 8))
    assert numbers[0] >= 0
    rig.front.remove(rig.nodes[HERE[1]].kernel)
    assert [partition.queue_number for partition in topic.partitions] == numbers
    catalog = Catalog(rig.settings, rig.shared.catalog.topic_configs)
    Sections(catalog)
    restored = SharedCatalog(catalog)
    restored.take(News((rig.shared.version, rig.shared.save()), []))
    found = restored.catalog.topic("t")
    assert found is not None
    assert [partition.queue_number for partition in found.partitions] == numbers


def test_a_buffer_is_free_when_all_shards_have_written_what_lies_in_it() -> None:
    """Each shard writes when its own turn ends. A buffer that was pinned while only the first had something to write
    has been appended to the second, too, by then: connections share buffers, and the pool asks once for all of them."""
    rig = ShardRig()
    topic = rig.topic("t")
    indexes = {shard: next(i for i in range(8) if rig.shard_of(topic, i) == shard) for shard in HERE}
    pool = BufferPool(1 << 20, rig.front.after_write, rig.front.write)
    first, second = HERE
    kept = []
    for shard in (first, second):
        buffer = pool.take_anyway(1_000)
        data = build_batch([(None, b"of shard %d" % shard, 0, ())])
        view = buffer.view[: len(data)]
        view[:] = data
        node = rig.nodes[shard]
        node.kernel.append(node.topic("t").partitions[indexes[shard]], view, 0)
        pool.pin(buffer)
        kept.append(buffer)
    rig.nodes[first].kernel.write()
    for buffer in (pool.take_anyway(1_000), pool.take_anyway(1_000)):
        buffer.view[:] = b"\xff" * len(buffer.view)  # another connection receives
    rig.turn()
    for shard in HERE:
        node = rig.nodes[shard]
        read = node.kernel.read(node.topic("t").partitions[indexes[shard]], 0, 1 << 20, min_one=True)
        (record,) = (record for piece in read.slices for record in iter_records(piece))
        assert record.value == b"of shard %d" % shard


def test_a_shard_that_cannot_write_is_told_later_and_the_others_go_on() -> None:
    rig = ShardRig()
    first = rig.nodes[HERE[0]].kernel
    first.log.failed = OSError("no space")
    topic = rig.topic("t")
    here = {index for index in range(8) if rig.shard_of(topic, index) == HERE[1]}
    assert {partition.index for partition in topic.partitions if rig.front.find_kernel(partition)} == here
    assert first.catalog.topic("t") is None
    first.log.failed = None
    rig.front.apply(())  # as each time when it is looked for news
    assert {partition.index for partition in topic.partitions if rig.front.find_kernel(partition)} == {
        index for index in range(8) if rig.shard_of(topic, index) in HERE
    }
    assert not rig.front._missed
