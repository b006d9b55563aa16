"""Runs cells against brokers: interleaved, so that what changes on the machine meets them all, and repeated."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from benchmarks import readings
from benchmarks.bench import HALFMOON, Bench, Cell, CellError, CellSkippedError
from benchmarks.brokers import INTERVAL, ROCKETMQ, SYNC, Broker
from benchmarks.goals import Medians
from benchmarks.peer import PeerError

REST_S = 4.0
"""Between the start of the brokers and the reading of their idle memory."""


@dataclass(slots=True)
class Results:
    """All figures of a run: broker → figure → values, one for each repetition that had it."""

    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, broker: str, figures: dict[str, float]) -> None:
        of_broker = self.values.setdefault(broker, {})
        for name, value in figures.items():
            of_broker.setdefault(name, []).append(value)

    def medians(self) -> Medians:
        found = {
            broker: {name: median(values) for name, values in figures.items()}
            for broker, figures in self.values.items()
        }
        _add_floor(found)
        return found


def _add_floor(medians: Medians) -> None:
    """What one request with `flush: sync` takes at least: a request without the disk, and the disk."""
    sync = medians.get(SYNC, {})
    request_ms = medians.get(INTERVAL, {}).get("single_raw.p50_ms")
    disk_ms = sync.get("disk.fdatasync_p50_ms")
    if request_ms is not None and disk_ms is not None:
        sync["disk.floor_ms"] = request_ms + disk_ms


def start_brokers(bench: Bench, say: Callable[[str], None]) -> list[Broker]:
    """Raises PeerError, RuntimeError."""
    started = []
    if bench.peer is not None:
        say("starting Kafka")
        started.append(bench.brokers.start_kafka())
    started += [bench.brokers.start_halfmoon(flush) for flush in HALFMOON]
    time.sleep(REST_S)
    for broker in started:
        broker.idle_mb = broker.anonymous_mb()
    return started


def warm_up(bench: Bench, brokers: Sequence[Broker], say: Callable[[str], None]) -> None:
    """A JVM compiles what it runs often; without this, a Kafka would be measured half interpreted. Raises CellError."""
    for broker in brokers:
        say(f"warming up {broker.name}")
        for size, records in ((100, 1_000_000), (1_000, 200_000)):
            topic, count = bench.topic("warm"), bench.times(records)
            bench.load(broker, "produce", topic=topic, size=size, count=count)
            bench.load(broker, "consume", topic=topic, size=size, count=count)
        bench.load(broker, "one_by_one", topic=bench.topic("warm"), count=bench.times(20_000))
        bench.load(broker, "latency", topic=bench.topic("warm"), count=bench.times(5_000))


def run(
    bench: Bench, brokers: Sequence[Broker], cells: Sequence[Cell], repeat: int, say: Callable[[str], None]
) -> Results:
    results = Results()
    begun = time.monotonic()
    for repetition in range(repeat):
        for position, cell in enumerate(cells):
            if cell.once and repetition:
                continue
            chosen = [broker for broker in brokers if broker.name in cell.on]
            if bench.rocketmq is not None and ROCKETMQ in cell.on:
                # It runs during its cells only: it takes more than a gigabyte.
                chosen.append(Broker(ROCKETMQ, "", 0, 0.0))
            # Another one begins each time.
            turn = (repetition + position) % max(1, len(chosen))
            for broker in chosen[turn:] + chosen[:turn]:
                _run_one(bench, cell, broker, results, say)
    results.seconds = time.monotonic() - begun
    return results


def _run_one(bench: Bench, cell: Cell, broker: Broker, results: Results, say: Callable[[str], None]) -> None:
    os.sync()
    begun = time.monotonic()
    (_, steal_before) = readings.machine_cpu_s()
    try:
        figures = cell.run(bench, broker)
    except CellSkippedError as reason:
        line = f"{cell.name}: {reason}"
        if line not in results.skipped:
            results.skipped.append(line)
            say(f"{cell.name}: skipped, {reason}")
        return
    except (CellError, PeerError, RuntimeError, OSError) as error:
        results.errors.append(f"{cell.name} on {broker.name}: {error}")
        say(f"{cell.name} on {broker.name}: FAILED {error}")
        return
    took_s = time.monotonic() - begun
    (_, steal_after) = readings.machine_cpu_s()
    results.add(broker.name, figures)
    results.add(broker.name, {f"{cell.name}.steal": (steal_after - steal_before) / took_s})
    said = "  ".join(f"{name}={value:.4g}" for name, value in figures.items())
    say(f"{cell.name:12} {broker.name:9} {took_s:5.1f} s  {said}")
