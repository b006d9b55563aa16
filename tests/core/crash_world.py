"""A broker that may die at any operation, and what the outside world knows of it.

`World.play` is one long day in the life of a small broker: topics made, grown and deleted, batches, commits, records
deleted,
segments rolled, indexed, merged, expired and recycled, a clean stop and a start. Every promise the broker gives on
the way is noted; `check` holds a broker that started afterwards against them.
"""

from __future__ import annotations

import random

from halfmoon.errors import BrokerError
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, batch, jobs, open_broker, read_all, sync

DAY_MS = 86_400_000
PARTITIONS = 2


class Known:
    """What the outside world knows of one topic."""

    def __init__(self) -> None:
        self.created = False
        self.deleted: bool | None = False
        """None: asked for, not answered."""
        self.sent: dict[tuple[int, int], set[bytes]] = {}
        """(partition, offset) → values that were sent and may stand there."""
        self.acknowledged: dict[int, int] = {}
        self.start: dict[int, int] = {}
        self.start_asked: dict[int, int] = {}


class World:
    def __init__(self, seed: int, flush: str = "sync") -> None:
        self.clock = VirtualClock()
        self.fs = FaultyFileSystem(random.Random(seed))
        self.flush = flush
        self.topics: dict[str, Known] = {}
        self.committed = 0
        self.tried = {0}
        self.generations: list[int] = []
        self.producer_ids: list[int] = []
        self.counter = 0
        self.broker: BareNode | None = None

    # -- what happens --------------------------------------------------------------------------------------------------

    def open(self) -> BareNode:
        self.broker = broker = open_broker(self.fs, self.clock, flush=self.flush)
        self.generations.append(broker.generation)
        return broker

    def play(self) -> None:
        """Raises ProcessDied somewhere, if the file system says so."""
        broker = self.open()
        self.create("a", {})
        self.create("b", {"retention.bytes": "30000"})
        for day in range(3):
            for size in (100, 9_000, 15_000):
                self.produce("a", day % PARTITIONS, size)
                self.produce("b", 1, size // 2)
                self.turn()
            self.commit("a")
            self.allocate_producer_id()
            self.pass_time(4 * DAY_MS)
        self.create("c", {})
        for _ in range(5):
            self.produce("c", 0, 40_000)
            self.turn()
        self.delete_records("a", 0)
        self.delete_records("a", 1)
        self.delete_records("b", 1)
        self.delete("c")
        broker.housekeeping.drop_segments()
        self.turn()
        broker.housekeeping.drop_segments()
        # From here on slow jobs run while the loop goes on.
        for number in range(8):
            self.produce("a", number % PARTITIONS, 20_000)
            self.produce("b", 1, 9_000)
            job = broker.housekeeping.next_job()
            self.broker_write()
            if number % 2:
                self.pass_time(9 * DAY_MS, run_jobs=False)
            if job is not None:
                result = job.run()
                self.produce("b", 0, 10_000)
                job.done(result)
            self.turn()
        self.commit("a")
        self.turn()
        self.pass_time(9 * DAY_MS)
        for _ in range(4):
            self.produce("a", 0, 30_000)
            self.turn()
        broker.close()
        broker = self.open()
        self.produce("a", 0, 30_000)
        self.produce("b", 0, 30_000)
        self.produce("a", 1, 30_000)
        self.turn()
        self.produce("a", 1, 5_000)
        self.broker_write()

    def create(self, name: str, configs: dict[str, str]) -> None:
        assert self.broker is not None
        known = self.topics[name] = Known()

        def created(error: BrokerError | None) -> None:
            known.created = error is None

        _, position = self.broker.create_topic(name, PARTITIONS, configs)
        self.broker.when_durable(position, created)

    def delete(self, name: str) -> None:
        assert self.broker is not None
        known = self.topics[name]
        known.deleted = None
        topic = self.broker.topic(name)
        assert topic is not None

        def deleted(error: BrokerError | None) -> None:
            known.deleted = True

        self.broker.when_durable(self.broker.delete_topic(topic), deleted)

    def produce(self, name: str, index: int, size: int) -> None:
        assert self.broker is not None
        topic = self.broker.topic(name)
        assert topic is not None
        partition = topic.partitions[index]
        known = self.topics[name]
        values = []
        for _ in range(2):
            self.counter += 1
            values.append(f"{name}-{index}-{self.counter}-".encode() + b"x" * (size // 2))
        for at, value in enumerate(values, partition.next_offset):
            known.sent.setdefault((index, at), set()).add(value)
        end = partition.next_offset + len(values)
        produced = self.broker.append(partition, batch(*values), self.clock.wall_ms())

        def acknowledged(error: BrokerError | None) -> None:
            if error is None:
                known.acknowledged[index] = max(known.acknowledged.get(index, 0), end)

        self.broker.when_durable(produced.position, acknowledged)

    def commit(self, name: str) -> None:
        assert self.broker is not None
        topic = self.broker.topic(name)
        assert topic is not None
        self.counter += 1
        offset = self.counter
        self.tried.add(offset)

        def committed(error: BrokerError | None) -> None:
            self.committed = offset

        position = self.broker.groups.commit("g", -1, "", None, [(topic.partitions[0], offset, -1, "")])
        self.broker.when_durable(position, committed)

    def allocate_producer_id(self) -> None:
        assert self.broker is not None
        producer_id, position = self.broker.allocate_producer_id()
        self.broker.when_durable(position, lambda error: self.producer_ids.append(producer_id))

    def delete_records(self, name: str, index: int) -> None:
        assert self.broker is not None
        topic = self.broker.topic(name)
        assert topic is not None
        known = self.topics[name]
        known.start_asked[index] = topic.partitions[index].high_watermark
        start, position = self.broker.delete_records(topic.partitions[index], -1)
        self.broker.when_durable(position, lambda error: known.start.__setitem__(index, start))

    def broker_write(self) -> None:
        assert self.broker is not None
        self.broker.write()
        if self.flush == "interval":
            self.broker.settle()

    def turn(self) -> None:
        assert self.broker is not None
        self.broker_write()
        sync(self.broker)
        self.broker.settle()
        self.broker.housekeeping.plan()
        jobs(self.broker)

    def pass_time(self, ms: int, *, run_jobs: bool = True) -> None:
        assert self.broker is not None
        self.clock.now_ms += ms
        self.committed = 0  # offsets of empty groups expire
        self.broker.housekeeping.turn()
        if run_jobs:
            jobs(self.broker)
        while not self.broker.housekeeping.retain():
            pass
        if run_jobs:
            self.turn()
        self.broker.housekeeping.drop_segments()

    # -- what must hold
    # --------------------------------------------------------------------------------------------------

    def reopen(self, fs: FaultyFileSystem) -> None:
        """Start on what is left, hold it against what is known, and see that it works."""
        self.fs = fs
        broker = self.open()
        assert len(set(self.generations)) == len(self.generations), self.generations
        self.check(broker)
        for name, known in self.topics.items():
            if broker.topic(name) is not None and known.deleted is False:
                self.produce(name, 0, 12_000)
                self.produce(name, 1, 12_000)
        self.allocate_producer_id()
        self.turn()
        assert len(set(self.producer_ids)) == len(self.producer_ids)
        self.check(broker)

    def check(self, broker: BareNode) -> None:
        assert not broker.report.damaged, broker.report
        assert not broker.health()
        for name, known in self.topics.items():
            topic = broker.topic(name)
            if topic is None:
                assert not known.created or known.deleted is not False, f"{name} was acknowledged and is gone"
                continue
            assert known.deleted is not True, f"{name} was deleted and is back"
            for partition in topic.partitions:
                index = partition.index
                assert partition.start_offset <= partition.high_watermark <= partition.next_offset
                assert partition.start_offset >= known.start.get(index, 0)
                assert partition.high_watermark >= known.acknowledged.get(index, 0)
                records = read_all(broker, name, index)
                assert [at for at, _ in records] == list(range(partition.start_offset, partition.high_watermark))
                for at, value in records:
                    assert value in known.sent[index, at], f"{name}-{index}@{at}"
        topic = broker.topic("a")
        if topic is not None:
            progress = broker.groups.offsets("g").get(topic.partitions[0])
            offset = progress.offset if progress is not None else 0
            assert offset >= self.committed, "a commit was lost"
            assert offset in self.tried
