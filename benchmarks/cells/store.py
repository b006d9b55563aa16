"""Many partitions, many batches, and reading what is not in memory."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.bench import FEW, HALFMOON, ROUNDS, Bench, Cell, CellSkippedError, Figures, TogetherCell, prefixed
from benchmarks.brokers import BARE, INTERVAL, KAFKA, Broker
from benchmarks.readings import MB

PARTITIONS = 1_000
SPARK_PARTITIONS = 200
SPARK_RECORDS = 50
"""In each partition."""
PIPELINE_RECORDS, PIPELINE_WRITTEN = 2_000_000, 500_000
MEMORY_LIMIT_MB = 256
COLD_RATE = 200.0
COLD_SECONDS = 10
CGROUP = Path("/sys/fs/cgroup")


def partitions(bench: Bench, broker: Broker) -> Figures:
    return bench.load(broker, "create_topics", topic=bench.topic("partitions"), partitions=PARTITIONS)


def spark(bench: Bench, broker: Broker) -> Figures:
    count = bench.times(SPARK_PARTITIONS)
    return bench.load(broker, "spark_read", topic=bench.topic("spark"), partitions=count, records=SPARK_RECORDS)


def pipeline(bench: Bench, brokers: Sequence[Broker]) -> list[dict[str, Figures]]:
    """In one JVM, which takes them in turn: one that has just started measures itself. The bare loop is only read: it
    has no producer ids. Beside it stands Spark alone: the same rows from Parquet files, and into some."""
    rounds = min(ROUNDS, bench.rounds or ROUNDS)
    said = bench.load(
        brokers[0], "spark_pipeline", brokers={broker.name: broker.bootstrap for broker in brokers},
        only_read=[BARE], topic=bench.topic("pipeline"), records=bench.times(PIPELINE_RECORDS, least=10_000),
        written=bench.times(PIPELINE_WRITTEN, least=1_000), rounds=rounds,
    )  # fmt: skip
    found: list[dict[str, Figures]] = [{} for _ in range(rounds)]
    for name, seconds in said.items():
        number, broker, figure = name.split(".")
        found[int(number)].setdefault(broker, {})[figure] = seconds
    return found


def retained(bench: Bench, _: Broker) -> Figures:
    """In a broker of its own: what very many batches of one record leave in memory."""
    broker = bench.brokers.start_halfmoon(INTERVAL)
    try:
        before_mb = broker.anonymous_mb()
        figures = bench.load(
            broker, "small_batches", topic=bench.topic("retained"), count=bench.times(bench.retained_batches)
        )
        time.sleep(6)
        return figures | {"before_mb": before_mb, "loaded_mb": broker.anonymous_mb()}
    finally:
        bench.brokers.stop(broker)


def cold(bench: Bench, like: Broker) -> Figures:
    """In a broker of its own with little memory: produce at a pace, alone, beside a reader that goes

    once through an old, large log meanwhile, and beside one that reads it over and over as fast as it comes.
    """
    with _memory_group() as group:
        broker = bench.brokers.start_halfmoon(like.name)
        try:
            limit_mb = max(64, bench.times(MEMORY_LIMIT_MB))
            group.limit(limit_mb)
            group.add(broker.pid)
            topic = bench.topic("old")
            bench.load(broker, "produce", topic=topic, size=1_000, count=limit_mb * 2 * MB // 1_000)
            bench.settle()  # it is the reading of that log that shall be felt, not its writing
            count = bench.times(int(COLD_RATE) * COLD_SECONDS, least=200)

            def measure() -> Figures:
                return bench.load(broker, "paced", topic=bench.topic("paced"), count=count, rate=COLD_RATE)

            alone = measure()
            once_s = count / COLD_RATE
            with bench.background(broker, "read_again", topic=topic, mb_s=limit_mb * 2 / once_s) as reading:
                once = measure()
            with bench.background(broker, "read_again", topic=topic) as racing:
                beside_racing = measure()
            readers = {"reader_mb_s": reading["mb_s"], "racing_reader_mb_s": racing["mb_s"]}
            return once | prefixed("alone", alone) | prefixed("racing", beside_racing) | readers
        finally:
            bench.brokers.stop(broker)


class _MemoryGroup:
    """A control group with limited memory, page cache included; its files differ between cgroup 1 and 2."""

    def __init__(self, path: Path, limit_file: str) -> None:
        self._path = path
        self._limit_file = limit_file

    def limit(self, megabytes: int) -> None:
        (self._path / self._limit_file).write_text(str(megabytes * MB))

    def add(self, pid: int) -> None:
        (self._path / "cgroup.procs").write_text(str(pid))


@contextmanager
def _memory_group() -> Iterator[_MemoryGroup]:
    """Raises CellSkippedError where this machine lets us make none."""
    first = (CGROUP / "memory").is_dir()
    path = (CGROUP / "memory" if first else CGROUP) / f"halfmoon-bench-{time.time_ns()}"
    limit_file = "memory.limit_in_bytes" if first else "memory.max"
    try:
        path.mkdir()
    except OSError as error:
        raise CellSkippedError(
            f"needs a memory control group, and {path.parent} cannot be written: {error.strerror}"
        ) from None
    try:
        if not (path / limit_file).exists():
            raise CellSkippedError(f"needs the memory controller, which {path.parent} does not offer")
        yield _MemoryGroup(path, limit_file)
    finally:
        for _ in range(100):
            try:
                path.rmdir()
                break
            except OSError:  # The broker in it is just ending.
                time.sleep(0.05)


CELLS = (
    Cell("partitions", f"a topic of {PARTITIONS:,} partitions is created", partitions),
    TogetherCell(
        "pipeline",
        f"halfmoon.pipeline: {PIPELINE_RECORDS:,} records of 100 B read, streamed into Parquet, and"
        f" {PIPELINE_WRITTEN:,} written",
        pipeline,
        on=(KAFKA, INTERVAL, BARE),
    ),
    Cell(
        "spark",
        f"Spark batch read of {SPARK_PARTITIONS} partitions with {SPARK_RECORDS} records each",
        spark,
        (KAFKA, INTERVAL),
        FEW,
    ),
    Cell("retained", "very many retained batches of one record", retained, on=(INTERVAL,), rounds=1),
    Cell("cold", "produce while another consumer reads a log of twice the memory limit", cold, on=HALFMOON, rounds=FEW),
)
