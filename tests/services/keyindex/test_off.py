"""A broker without the key index: nothing is noted, and nothing is lost."""

from __future__ import annotations

from halfmoon.config.settings import load_settings
from halfmoon.core.features import Feature
from halfmoon.core.records.batches import build_batch
from halfmoon.services.keyindex import key_file
from halfmoon.services.keyindex.service import without
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import SEGMENT, VirtualClock, open_broker, partition_of, relay, turn
from tests.services.keyindex.test_messages import find


class WithoutKeyIndex(BareNode):
    def _features(self) -> list[Feature]:
        self.appender.indexed = self.turn.follower = None
        return [each for each in super()._features() if each.name != "keyindex"] + [without(self.log)]


def put(broker: BareNode, key: bytes) -> None:
    batch = memoryview(bytearray(build_batch([(None, b"v" * 500, 0, (("KEYS", key),))])))
    broker.append(partition_of(broker, "t"), batch, broker.clock.wall_ms())
    turn(broker)


def test_what_came_without_it_is_indexed_by_the_next_start_with_it(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = open_broker(fs, clock)
    broker.create_topic("t", 1)
    put(broker, b"before")
    broker.close()
    assert list(key_file.listed(fs))

    settings = load_settings(
        {"log": {"segment_bytes": SEGMENT, "index_checkpoint_bytes": 16 << 10, "low_disk_bytes": 0}}, {}, {}
    )
    node = WithoutKeyIndex(fs, settings, clock, fs.dice.randbytes)
    node.open()
    assert not list(key_file.listed(fs))
    node.start()
    for number in range(2 * SEGMENT // 500):
        put(node, b"k%d" % number)
    relay(node)
    assert node.key_index.entries() == 0
    node.close()

    broker = open_broker(fs, clock)
    relay(broker)
    assert broker.key_index.behind_bytes == 0
    for key in (b"before", b"k0", b"k7", b"k%d" % (2 * SEGMENT // 500 - 1)):
        assert len(find(broker, "t", key).messages) == 1
    broker.close()
