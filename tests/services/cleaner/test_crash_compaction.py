"""A process that dies at any operation while it compacts, empties segments and tidies up: nothing is missing that a
reader may count on, before and after."""

from __future__ import annotations

import contextlib
import random

import pytest

from halfmoon.errors import BrokerError
from halfmoon.testing.faulty_files import FaultyFileSystem, ProcessDied
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, cleaning_job, jobs, open_broker, partition_of, turn
from tests.core.clean_bench import COMPACT, clean, keyed, records, seal
from tests.core.deaths import AFTER, after_death, told

pytestmark = pytest.mark.timeout(300)

HOUR_MS = 3_600_000
TOPICS = {"t": 2, "long": 1, "short": 1}
LOG = {"retention": "1h", "cleaner": {"min_dead_ratio": 0.3}}


class World:
    """One day of a small broker, and what was acknowledged: (topic, partition) → offset → (key, value)."""

    def __init__(self, seed: int, flush: str = "sync") -> None:
        self.clock = VirtualClock()
        self.fs = FaultyFileSystem(random.Random(seed))
        self.flush = flush
        self.created: set[str] = set()
        self.sent: dict[tuple[str, int], dict[int, tuple[bytes, bytes | None]]] = {}
        self.acknowledged: dict[tuple[str, int], int] = {}
        self.counter = 0

    def open(self) -> BareNode:
        self.broker = open_broker(self.fs, self.clock, flush=self.flush, **LOG)
        return self.broker

    def play(self) -> None:
        broker = self.open()
        configs = {"t": COMPACT, "long": {"retention.ms": "-1"}, "short": {}}
        for topic, count in TOPICS.items():
            _, position = broker.create_topic(topic, count, configs[topic])
            broker.when_durable(position, lambda error, topic=topic: self.created.add(topic))  # type: ignore[misc]
        turn(broker)
        for hour in range(4):
            for at in range(6):
                self.produce("t", at % 2, (b"a%d" % (at // 2), b"x" * 4000), (b"b%d" % hour, b"y"), (b"gone", None))
                self.produce("long", 0, (b"%d" % at, b"x" * 200))
                self.produce("short", 0, (b"", b"x" * 9000))
                if at == 3:
                    self.interleave(hour)
                turn(broker)
            self.clock.now_ms += HOUR_MS
            while not broker.housekeeping.retain():
                pass
            clean(broker, self.clock)
        assert len(broker.cleaner.files) >= 1
        assert broker.log.start > 0
        broker.close()
        broker = self.open()
        self.produce("t", 0, (b"a0", b"last"))
        self.produce("t", 0, (b"end", b""))
        clean(broker, self.clock)

    def interleave(self, hour: int) -> None:
        """The loop goes on while files are written."""
        broker = self.broker
        seal(broker)
        self.clock.now_ms += 15_000
        broker.housekeeping.turn()
        while (job := cleaning_job(broker)) is not None:
            result = job.run()
            self.produce("t", hour % 2, (b"a1", b"meanwhile" * 300))
            broker.write()
            broker.housekeeping.freeze()
            job.done(result)
            while (other := broker.housekeeping.next_job()) is not None:
                other.done(other.run())

    def produce(self, topic: str, index: int, *pairs: tuple[bytes, bytes | None]) -> None:
        partition = partition_of(self.broker, topic, index)
        values = []
        for key, value in pairs:
            self.counter += 1
            values.append((key, None if value is None else b"%d-" % self.counter + value))
        end = partition.next_offset + len(values)
        place = topic, index
        self.sent.setdefault(place, {}).update(enumerate(values, partition.next_offset))
        produced = self.broker.append(partition, keyed(*values), self.clock.wall_ms())

        def acknowledged(error: BrokerError | None) -> None:
            if error is None:
                self.acknowledged[place] = max(self.acknowledged.get(place, 0), end)

        self.broker.when_durable(produced.position, acknowledged)

    def reopen(self, fs: FaultyFileSystem) -> None:
        self.fs = fs
        self.check(self.open())
        if self.created == set(TOPICS):
            for topic, count in TOPICS.items():
                for index in range(count):
                    self.produce(topic, index, (b"a0", b"after"), (b"c", b"after"))
                    self.produce(topic, index, (b"end", b"after"))
            clean(self.broker, self.clock)
            self.check(self.broker)

    def check(self, broker: BareNode) -> None:
        assert not broker.report.damaged
        assert not broker.health()
        for topic in self.created:
            for partition in partition_of(broker, topic).topic.partitions:
                place = topic, partition.index
                end, sent = self.acknowledged.get(place, 0), self.sent.get(place, {})
                assert partition.high_watermark >= end
                found = dict(records(broker, topic, partition.index))
                for offset, record in found.items():
                    assert sent[offset] == (record.key, record.value)
                if topic == "t":
                    last = {key: offset for offset, (key, _) in sorted(sent.items()) if offset < partition.next_offset}
                    for offset in last.values():
                        assert offset in found, (place, offset)
                else:
                    assert list(found) == list(range(partition.start_offset, partition.high_watermark))
                if topic == "long":
                    assert partition.start_offset == 0


def operations() -> int:
    world = World(0)
    world.play()
    return world.fs.operations


def played_upto(operation: int, flush: str = "sync") -> World:
    world = World(operation, flush)
    world.fs.crash_at = operation
    with contextlib.suppress(ProcessDied):
        world.play()
    return world


def test_dying_at_any_operation_of_the_cleaner_loses_nothing() -> None:
    count = operations()
    assert count > 400
    for operation in range(1, count + 1):
        world = played_upto(operation)
        for after in AFTER:
            with told(operation=operation, after=after):
                died = after_death(world, after)
                died.reopen(died.fs)


def test_dying_with_interval_flushes() -> None:
    for operation in range(1, operations() + 1, 3):
        world = played_upto(operation, flush="interval")
        world.reopen(world.fs.kill())


@pytest.mark.parametrize("lose", ["nothing", "checkpoint", "index", "both"])
@pytest.mark.parametrize("after", AFTER)
def test_dying_at_any_operation_of_a_recovery_with_clean_files(lose: str, after: str) -> None:
    count = operations()
    for died_at in (count - 1, count * 2 // 3):
        died = played_upto(died_at)
        for operation in range(1, 200, 3):
            world = after_death(died, after)
            for path in list(world.fs.names):
                checkpoint = path in ("checkpoint", "clean") and lose in ("checkpoint", "both")
                if checkpoint or (("index/" in path or path.endswith(".index")) and lose in ("index", "both")):
                    world.fs.remove(path)
            for folder in ("", "index", "cleaned"):
                world.fs.sync_directory(folder)
            world.fs.operations = 0
            world.fs.crash_at = operation
            try:
                world.open()
            except ProcessDied:
                pass
            else:
                break  # this recovery takes fewer operations
            world.reopen(world.fs.power_loss())
        assert operation > 5


def test_a_full_disk_only_puts_it_off() -> None:
    clock, fs = VirtualClock(), FaultyFileSystem(random.Random(1))
    broker = open_broker(fs, clock)
    broker.create_topic("t", 1, COMPACT)
    for at in range(30):
        broker.append(partition_of(broker, "t"), keyed((b"%d" % (at % 10), b"x" * 3000)), clock.wall_ms())
        turn(broker)
    seal(broker)
    before = len(records(broker, "t"))
    fs.free = 10_000
    clock.now_ms += 15_000
    broker.housekeeping.turn()
    jobs(broker)
    assert broker.cleaner.tasks == 0
    assert any("disk is nearly full" in problem for problem in broker.health())
    broker.log.low_disk_bytes = -(1 << 40)  # so that it tries
    clock.now_ms += 15_000
    broker.housekeeping.turn()
    jobs(broker)
    assert broker.cleaner.failures == 1
    assert any("cleaning failed" in problem for problem in broker.health())
    assert len(records(broker, "t")) == before
    assert not [path for path in fs.names if path.endswith(".new")]
    broker.log.low_disk_bytes = 0
    fs.free = 1 << 40
    clean(broker, clock)
    assert not broker.health()
    assert len(records(broker, "t")) < before
