"""Crashes, by chance: what was acknowledged is there, and nothing that was never sent.

A model is told of every record the broker acknowledged. Then the process dies (the page cache lives) or the power goes
(unsynced pages are lost, kept, or torn), and the broker that starts from what is left is held against the model. The
same over and over, on the same disk, with recycled segments and lost derived files.
"""

from __future__ import annotations

import contextlib
import random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from halfmoon.core.jobs import Job
from halfmoon.core.storage.log_files import SyncJob
from halfmoon.errors import BrokerError
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.chance import trying
from tests.core.bench import VirtualClock, batch, jobs, open_broker, read_all, sync, turn
from tests.slices import small_slices

PARTITIONS = 3
STEPS = ["append", "large", "write", "begin", "run", "end", "sync", "retain"]


class Model:
    """What the outside world knows of one topic."""

    def __init__(self) -> None:
        self.sent: list[dict[int, bytes]] = [{} for _ in range(PARTITIONS)]
        """Every value ever appended, by the offset it was given; of an offset given twice, the last."""
        self.acknowledged = [0] * PARTITIONS
        """Offsets below are acknowledged."""
        self.start = [0] * PARTITIONS


class Threads:
    """A job and a sync in the middle of what they do. A job's file operations happen in `run`, its consequences in
    `end`."""

    def __init__(self, broker: BareNode) -> None:
        self.broker = broker
        self.job: Job[object] | None = None
        self.result: object = None
        self.ran = False
        self.syncing: SyncJob | None = None

    def begin(self) -> None:
        if self.job is None:
            self.job, self.ran = self.broker.housekeeping.next_job(), False

    def run(self) -> None:
        if self.job is not None and not self.ran:
            self.result, self.ran = self.job.run(), True

    def end(self) -> None:
        if self.job is not None and self.ran:
            self.job.done(self.result)
            self.job = None

    def sync(self) -> None:
        """Begin a sync, or end the one under way."""
        if self.syncing is None:
            self.syncing = self.broker.log.sync_job()
        else:
            self.syncing.run()
            self.broker.finish_sync(self.syncing, None)
            self.syncing = None

    def finish(self) -> None:
        if self.syncing is not None:
            self.sync()
        self.run()
        self.end()


class Crashes(RuleBasedStateMachine):
    flush = "sync"

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.clock = VirtualClock()
        self.fs = FaultyFileSystem(random.Random(seed))
        self.broker: BareNode = open_broker(self.fs, self.clock, flush=self.flush)
        self.topics: dict[str, Model] = {}
        self.deleted: set[str] = set()
        self.committed: dict[str, int] = {}
        self.tried: dict[str, set[int]] = {}
        self.generations = [self.broker.generation]
        self.counter = 0
        self.sequences: dict[tuple[str, int], int] = {}
        self.producer_id = 0
        self.create()

    # -- what clients do ---------------------------------------------------------------------------------------------

    @rule()
    def create(self) -> None:
        self.counter += 1
        name = f"t{self.counter}"
        if len(self.topics) >= 3:
            return
        model = Model()

        def created(error: BrokerError | None) -> None:
            assert error is None
            self.topics[name] = model

        with contextlib.suppress(BrokerError):
            _, position = self.broker.create_topic(name, PARTITIONS)
            self.broker.when_durable(position, created)
            turn(self.broker)

    @rule(pick=st.integers(0, 10))
    def delete(self, pick: int) -> None:
        if len(self.topics) < 2 or pick > 2:
            return
        name = sorted(self.topics)[0]
        topic = self.broker.topic(name)
        assert topic is not None

        def gone(error: BrokerError | None) -> None:
            self.deleted.add(name)

        self.broker.when_durable(self.broker.delete_topic(topic), gone)
        del self.topics[name]
        turn(self.broker)

    @rule(
        where=st.integers(0, PARTITIONS - 1),
        sizes=st.lists(st.integers(1, 6000), min_size=1, max_size=4),
        now=st.booleans(),
        idempotent=st.booleans(),
    )
    def produce(self, where: int, sizes: list[int], now: bool, idempotent: bool) -> None:
        for name, model in self.topics.items():
            topic = self.broker.topic(name)
            assert topic is not None
            self.counter += 1
            values = [f"{name}-{where}-{self.counter}-{at}-".encode() + b"x" * size for at, size in enumerate(sizes)]
            key = (name, where)
            sequence = self.sequences.get(key, 0)
            data = batch(*values, producer_id=self.producer_id, sequence=sequence) if idempotent else batch(*values)
            produced = self.broker.append(topic.partitions[where], data, self.clock.wall_ms())
            if idempotent:
                self.sequences[key] = sequence + len(values)
                again = batch(*values, producer_id=self.producer_id, sequence=sequence)
                repeated = self.broker.append(topic.partitions[where], again, self.clock.wall_ms())
                assert repeated.base_offset == produced.base_offset
            for at, value in enumerate(values):
                model.sent[where][produced.base_offset + at] = value
            end = produced.base_offset + len(values)

            def acknowledged(error: BrokerError | None, model: Model = model, end: int = end) -> None:
                if error is None:
                    model.acknowledged[where] = max(model.acknowledged[where], end)

            self.broker.when_durable(produced.position, acknowledged)
        if now:
            turn(self.broker)
        else:
            self.broker.write()
            if self.flush == "interval":
                self.broker.settle()

    @rule(group=st.sampled_from(["a", "b"]))
    def commit(self, group: str) -> None:
        name = sorted(self.topics)[0] if self.topics else None
        if name is None or name != "t1":
            return
        self.counter += 1
        offset = self.counter
        topic = self.broker.topic(name)
        assert topic is not None
        position = self.broker.groups.commit(group, -1, "", None, [(topic.partitions[0], offset, -1, "")])
        self.tried.setdefault(group, set()).add(offset)

        def done(error: BrokerError | None) -> None:
            self.committed[group] = offset

        self.broker.when_durable(position, done)
        turn(self.broker)

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        for name, model in self.topics.items():
            topic = self.broker.topic(name)
            assert topic is not None
            partition = topic.partitions[0]
            before = int(partition.high_watermark * part)
            start, position = self.broker.delete_records(partition, before)
            self.broker.when_durable(
                position, lambda error, m=model, s=start: m.start.__setitem__(0, max(m.start[0], s))
            )
        turn(self.broker)

    @rule(
        steps=st.lists(st.sampled_from(STEPS), max_size=14),
        ending=st.sampled_from(["finish", "finish", "kill", "power"]),
    )
    def interleave(self, steps: list[str], ending: str) -> None:
        """Slow jobs and a sync are under way while the loop goes on."""
        broker = self.broker
        threads = Threads(broker)
        for step in steps:
            if step == "append":
                self.produce_some(9_000)
            elif step == "large":
                self.produce_some(70_000)
            elif step == "write":
                broker.write()
            elif step == "retain":
                self.clock.now_ms += 8 * 86_400_000
                broker.housekeeping.turn()
                while not broker.housekeeping.retain():
                    pass
            else:
                getattr(threads, step)()
            if self.flush == "interval":
                broker.settle()
        if ending == "finish":
            threads.finish()
            turn(broker)
        elif ending == "kill":
            broker.write()
            self.reopen(self.fs.kill())
        else:
            if self.flush == "interval":
                threads.finish()
                sync(broker)
            self.reopen(self.fs.power_loss())

    def produce_some(self, size: int) -> None:
        self.counter += 1
        for name, model in self.topics.items():
            topic = self.broker.topic(name)
            assert topic is not None
            value = f"{name}-{self.counter}-".encode() + b"y" * size
            produced = self.broker.append(topic.partitions[0], batch(value), self.clock.wall_ms())
            model.sent[0][produced.base_offset] = value

            def acknowledged(
                error: BrokerError | None, model: Model = model, end: int = produced.base_offset + 1
            ) -> None:
                if error is None:
                    model.acknowledged[0] = max(model.acknowledged[0], end)

            self.broker.when_durable(produced.position, acknowledged)

    # -- what time and the disk do -----------------------------------------------------------------------------------

    @rule(days=st.sampled_from([0, 0, 1, 8]))
    def time_passes(self, days: int) -> None:
        self.clock.now_ms += days * 86_400_000 + 11_000
        self.broker.housekeeping.turn()
        jobs(self.broker)
        while not self.broker.housekeeping.retain():
            pass
        turn(self.broker)
        self.broker.housekeeping.drop_segments()

    @rule()
    def short_writes(self) -> None:
        self.fs.short_writes = True

    @rule(lose=st.sampled_from(["nothing", "checkpoint", "index", "both"]))
    def clean_restart(self, lose: str) -> None:
        turn(self.broker)
        self.broker.close()
        self.lose(lose)
        self.reopen(self.fs.kill())

    @rule(lose=st.sampled_from(["nothing", "nothing", "checkpoint", "index", "both"]))
    def kill(self, lose: str) -> None:
        self.broker.write()
        if self.flush == "interval":
            self.broker.settle()
        self.lose(lose)
        self.reopen(self.fs.kill())

    @rule(lose=st.sampled_from(["nothing", "nothing", "nothing", "checkpoint", "both"]), written=st.booleans())
    def power_loss(self, lose: str, written: bool) -> None:
        if written:
            self.broker.write()
        if self.flush == "interval":
            sync(self.broker)  # what was acknowledged without being flushed may be lost: flush it first
        self.lose(lose)
        self.reopen(self.fs.power_loss())

    @rule()
    def sync_fails(self) -> None:
        before = {name: list(model.acknowledged) for name, model in self.topics.items()}
        for name in self.topics:
            topic = self.broker.topic(name)
            assert topic is not None
            errors: list[BrokerError | None] = []
            produced = self.broker.append(topic.partitions[0], batch(b"lost?"), self.clock.wall_ms())
            self.topics[name].sent[0][produced.base_offset] = b"lost?"
            self.broker.when_durable(produced.position, errors.append)
            self.sequences.clear()
        self.fs.fail_sync = True
        self.broker.write()
        sync(self.broker)
        if self.topics:
            assert self.broker.log.failed is not None
            assert self.broker.health()
            assert before == {name: list(model.acknowledged) for name, model in self.topics.items()}
        self.fs.fail_sync = False
        self.reopen(self.fs.power_loss())

    def lose(self, what: str) -> None:
        for path in list(self.fs.names):
            checkpoint = path in ("checkpoint", "clean")
            indexed = path.startswith("index/")
            if (checkpoint and what in ("checkpoint", "both")) or (indexed and what in ("index", "both")):
                self.fs.remove(path)
        self.fs.sync_directory("")

    def reopen(self, fs: FaultyFileSystem) -> None:
        self.fs = fs
        self.broker = open_broker(fs, self.clock, flush=self.flush)
        assert not self.broker.report.damaged, self.broker.report
        assert self.broker.generation > self.generations[-1]
        self.generations.append(self.broker.generation)
        # A producer whose last batches were lost goes on under a new id, as a client does that gave up.
        self.producer_id += 1
        self.sequences.clear()
        for name in self.deleted:
            assert self.broker.topic(name) is None
        for group, offset in self.committed.items():
            topic = self.broker.topic("t1")
            if topic is None:
                continue
            found = self.broker.groups.offsets(group)
            if topic.partitions[0] in found:
                kept = found[topic.partitions[0]].offset
                assert kept >= offset
                assert kept in self.tried[group]

    # -- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def everything_acknowledged_is_there(self) -> None:
        if not hasattr(self, "topics"):
            return
        for name, model in self.topics.items():
            topic = self.broker.topic(name)
            assert topic is not None, f"{name} was acknowledged and is gone"
            for where, partition in enumerate(topic.partitions):
                assert partition.start_offset <= partition.high_watermark <= partition.next_offset
                assert partition.start_offset >= model.start[where]
                assert partition.high_watermark >= model.acknowledged[where]
                records = read_all(self.broker, name, where)
                assert [at for at, _ in records] == list(range(partition.start_offset, partition.high_watermark))
                for at, value in records:
                    assert model.sent[where][at] == value, f"{name}-{where}@{at}"


class CrashesInSlices(Crashes):
    """The same, as if there were very many partitions: jobs stop in the midst of what they do in the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.slices = small_slices()
        self.slices.__enter__()

    def teardown(self) -> None:
        self.slices.__exit__(None, None, None)


class CrashesWithInterval(Crashes):
    flush = "interval"

    def sync_fails(self) -> None:
        """What was acknowledged unflushed may go with the power, so there is nothing to hold it against."""


TestCrashes = Crashes.TestCase
TestCrashes.settings = trying(60, 25)
TestCrashesWithInterval = CrashesWithInterval.TestCase
TestCrashesWithInterval.settings = trying(60, 25)
TestCrashesInSlices = CrashesInSlices.TestCase
TestCrashesInSlices.settings = trying(60, 25)
