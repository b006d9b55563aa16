"""Compaction, by chance: what a reader makes of a compacted topic is what was written, after whatever has happened.

The model knows every record that was written, and which of them a reader may miss: those that a later one with the same
key follows, and tombstones whose time is over. The rules write, clean in single steps with other things in between,
restart, kill, cut the power, and lose what can be made again.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from halfmoon.core.jobs import Job
from halfmoon.testing.faulty_files import FaultyFileSystem
from tests.chance import trying
from tests.core.bench import VirtualClock, cleaning_job, open_broker, partition_of, sync, turn
from tests.core.clean_bench import batches, clean, keyed, records, seal

pytestmark = pytest.mark.timeout(300)

RETENTION_MS = 3_600_000
PARTITIONS = 2
KEYS = [b"k%d" % at for at in range(6)] + [b"a long key, of which a digest is remembered: %d" % at for at in range(3)]
CONFIGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": str(RETENTION_MS),
}
Written = tuple[bytes, bytes | None, int]
"""Key, value, when."""


class Compacted(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32), memory=st.sampled_from([1, 500, 1 << 20]))
    def begin(self, seed: int, memory: int) -> None:
        self.clock = VirtualClock()
        self.fs = FaultyFileSystem(random.Random(seed))
        self.log = {"cleaner": {"memory_bytes": memory, "min_dead_ratio": 0.2}, "retention": "1d"}
        self.broker = open_broker(self.fs, self.clock, **self.log)
        self.broker.create_topic("t", PARTITIONS, CONFIGS)
        self.broker.create_topic("filler", 1)
        turn(self.broker)
        self.written: list[dict[int, Written]] = [{} for _ in range(PARTITIONS)]
        self.job: Job[object] | None = None
        self.counter = 0

    @rule(
        index=st.integers(0, PARTITIONS - 1),
        keys=st.lists(st.tuples(st.sampled_from(KEYS), st.booleans()), min_size=1, max_size=6),
        codec=st.sampled_from([0, 0, 0, 1, 3]),
        size=st.sampled_from([0, 100, 3000]),
    )
    def produce(self, index: int, keys: list[tuple[bytes, bool]], codec: int, size: int) -> None:
        rows: list[tuple[bytes | None, bytes | None]] = []
        for key, none in keys:
            self.counter += 1
            rows.append((key, None if none else b"%d-" % self.counter + b"x" * size))
        partition = partition_of(self.broker, "t", index)
        produced = self.broker.append(partition, keyed(*rows, codec=codec), self.clock.wall_ms())
        for at, (key, value) in enumerate(rows, produced.base_offset):
            assert key is not None
            self.written[index][at] = key, value, self.clock.now_ms
        turn_without_cleaning(self)

    @rule(size=st.sampled_from([1000, 30_000]))
    def fill(self, size: int) -> None:
        partition = partition_of(self.broker, "filler")
        self.broker.append(partition, keyed((b"f", b"y" * size)), self.clock.wall_ms())
        turn_without_cleaning(self)

    @rule()
    def seal(self) -> None:
        self.broker.housekeeping.freeze()
        turn_without_cleaning(self)

    @rule()
    def clean_all(self) -> None:
        self.end_job()
        clean(self.broker, self.clock)

    @rule()
    def begin_job(self) -> None:
        if self.job is None:
            self.clock.now_ms += 15_000
            self.broker.housekeeping.turn()
            self.job = cleaning_job(self.broker)

    @rule()
    def end_job(self) -> None:
        if self.job is not None:
            job, self.job = self.job, None
            try:
                result = job.run()
            except Exception as error:
                job.failed(error)
            else:
                job.done(result)

    @rule(hours=st.sampled_from([0, 1, 30]))
    def time_passes(self, hours: int) -> None:
        self.clock.now_ms += hours * 3_600_000 + 1
        self.broker.housekeeping.turn()
        while not self.broker.housekeeping.retain():
            pass
        turn_without_cleaning(self)

    @rule(lose=st.sampled_from(["nothing", "nothing", "checkpoint", "index", "cleaned index", "all"]))
    def restart(self, lose: str) -> None:
        self.end_job()
        turn(self.broker)
        self.broker.close()
        self.reopen(self.fs.kill(), lose)

    @rule(lose=st.sampled_from(["nothing", "nothing", "checkpoint", "cleaned index", "all"]), power=st.booleans())
    def crash(self, lose: str, power: bool) -> None:
        self.reopen(self.fs.power_loss() if power else self.fs.kill(), lose)

    def reopen(self, fs: FaultyFileSystem, lose: str) -> None:
        self.job = None
        self.fs = fs
        for path in list(fs.names):
            checkpoint = path in ("checkpoint", "clean") and lose in ("checkpoint", "all")
            indexed = path.startswith("index/") and lose in ("index", "all")
            cleaned = path.endswith(".index") and lose in ("cleaned index", "all")
            if checkpoint or indexed or cleaned:
                fs.remove(path)
        fs.sync_directory("")
        fs.sync_directory("cleaned")
        self.broker = open_broker(fs, self.clock, **self.log)
        assert not self.broker.health()

    @invariant()
    def readers_see_what_was_written(self) -> None:
        if not hasattr(self, "written"):
            return
        for index, written in enumerate(self.written):
            partition = partition_of(self.broker, "t", index)
            assert partition.start_offset == 0
            assert partition.next_offset == max(written, default=-1) + 1
            found = records(self.broker, "t", index)
            offsets = [offset for offset, _ in found]
            assert offsets == sorted(set(offsets))
            last = {key: offset for offset, (key, _, _) in sorted(written.items())}
            for offset, record in found:
                key, value, _ = written[offset]
                assert (record.key, record.value) == (key, value)
                assert record.timestamp >= 1000
            seen = set(offsets)
            for key, offset in last.items():
                _, value, when_ms = written[offset]
                # A tombstone is first cleaned some time after it was written.
                if value is not None or self.clock.now_ms - when_ms < RETENTION_MS:
                    assert offset in seen, f"the last record of {key!r} is gone, {offset}"
            self.and_from_anywhere(index, offsets)

    def and_from_anywhere(self, index: int, offsets: list[int]) -> None:
        """A reader who begins at any offset gets the same from there on."""
        partition = partition_of(self.broker, "t", index)
        for begin in range(0, partition.high_watermark, 1 + partition.high_watermark // 5):
            read = self.broker.read(partition, begin, 1, min_one=True)
            batch = (read.cold() if read.cold is not None else list(read.slices))[0]
            end = int.from_bytes(batch[:8], "big") + int.from_bytes(batch[23:27], "big") + 1
            assert end > begin
            assert not [at for at in offsets if begin <= at < int.from_bytes(batch[:8], "big")]

    def teardown(self) -> None:
        if not hasattr(self, "written"):
            return
        self.end_job()
        # With nothing in between, all that can go goes.
        for index in range(PARTITIONS):
            partition = partition_of(self.broker, "t", index)
            for end in (b"end", b"end"):
                self.broker.append(partition, keyed((end, b"1")), self.clock.wall_ms())
        clean(self.broker, self.clock)
        seal(self.broker)
        for index in range(PARTITIONS):
            dirty = self.broker.cleaner.planner.cleanable(partition_of(self.broker, "t", index))
            assert not dirty.is_due
            if partition_of(self.broker, "t", index).compacted_upto > 0:
                keys = [
                    record.key
                    for offset, record in records(self.broker, "t", index)
                    if offset < partition_of(self.broker, "t", index).compacted_upto
                ]
                assert len(keys) == len(set(keys))
        assert list(batches(self.broker, "t"))


def turn_without_cleaning(machine: Compacted) -> None:
    broker = machine.broker
    broker.write()
    sync(broker)
    broker.settle()
    broker.housekeeping.plan()
    while (job := broker.housekeeping.next_job()) is not None:
        job.done(job.run())


TestCompacted = Compacted.TestCase
TestCompacted.settings = trying(60, 30)
