"""Share groups in a log whose topics other logs share: dead letters are written in the shard of their records."""

from __future__ import annotations

import random
from collections.abc import Mapping

from halfmoon.config.settings import load_settings
from halfmoon.core.catalog.topics import Topic
from halfmoon.schema import control
from halfmoon.services.share.share_partition import REJECT
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, relay, send, shard_of, turn
from tests.services.share.share_bench import acknowledge, fetch, letters, part_of, shown

SHARD = 2


class Wanted:
    """What the shard needs."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.grown: list[str] = []

    def make(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        self.made.append(name)

    def grow(self, topic: Topic) -> None:
        self.grown.append(topic.name)


class Bench:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.wanted = Wanted()
        sections = {"log": {"low_disk_bytes": 0}, "groups": {"share": {"auto_offset_reset": "earliest"}}}
        settings = load_settings(sections, {}, {})
        shard = shard_of(SHARD, settings)._replace(topics=self.wanted)
        dice = random.Random(1)
        self.broker = BareNode(FaultyFileSystem(dice), settings, self.clock, dice.randbytes, shard=shard)
        self.broker.open()
        self.broker.use((), (), ())
        self.broker.start()
        self.topic(1, "t", bytes([1, SHARD]))

    def topic(self, number: int, name: str, shards: bytes) -> None:
        """Of the shared catalog."""
        made = control.TopicCreated(number, name, name.encode().rjust(16), len(shards), {}, first_queue=10 * number)
        self.broker.administration.follow(made)
        self.broker.administration.follow(control.PartitionsPlaced(number, 0, shards))
        turn(self.broker)

    def reject_one(self) -> None:
        send(self.broker, "t", b"v", index=1)
        turn(self.broker)
        part = part_of(self.broker, "t", 1)
        fetch(self.broker, part, "a")
        acknowledge(self.broker, part, "a", 0, 0, REJECT)

    def again(self) -> None:
        self.clock.now_ms += 60_000
        self.broker.relays.expire(self.clock.now_ms)
        relay(self.broker)


def test_a_letter_waits_until_its_topic_is_made() -> None:
    bench = Bench()
    bench.reject_one()
    relay(bench.broker)
    assert bench.wanted.made == ["dlq.g"]
    assert shown(part_of(bench.broker, "t", 1)) == "start=0 0 rejected#1"
    bench.topic(2, "dlq.g", bytes([0, 1, 2, 3]))
    bench.again()
    assert shown(part_of(bench.broker, "t", 1)) == "start=1"
    assert bench.broker.shares.dead_letters.unwritten == 0


def test_it_goes_to_a_partition_of_the_same_shard() -> None:
    """The source has index 1, and so has a partition that lies elsewhere."""
    bench = Bench()
    bench.topic(2, "dlq.g", bytes([0, 1, SHARD, 3]))
    bench.reject_one()
    relay(bench.broker)
    turn(bench.broker)
    partitions = bench.broker.catalog.by_name["dlq.g"].partitions
    assert [each.queue.end_offset for each in partitions] == [0, 0, 1, 0]
    del partitions[3], partitions[:2]
    assert [letter["__dlq.errors.partition"] for letter in letters(bench.broker, "dlq.g")] == [b"1"]


def test_a_topic_that_has_no_partition_here_grows() -> None:
    bench = Bench()
    bench.topic(2, "dlq.g", bytes([0, 1]))
    bench.reject_one()
    relay(bench.broker)
    assert bench.wanted.grown == ["dlq.g"]
    bench.broker.administration.follow(control.PartitionsAdded(2, 3, 90))
    bench.broker.administration.follow(control.PartitionsPlaced(2, 2, bytes([SHARD])))
    bench.again()
    turn(bench.broker)
    assert bench.broker.catalog.by_name["dlq.g"].partitions[2].queue.end_offset == 1
