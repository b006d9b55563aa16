"""Runs cells against brokers: interleaved, so that what changes on the machine meets them all, and repeated."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

from benchmarks import readings
from benchmarks.bench import Bench, Cell, CellSkippedError, Figures, TogetherCell
from benchmarks.brokers import BARE, INTERVAL, KAFKA, KAFKA_SYNC, ROCKETMQ, SYNC, Broker

FLOOR = "disk.floor_ms"
REST_S = 4.0
"""Between the start of the brokers and the reading of their idle memory."""
Say = Callable[[str], None]
Wanted = Mapping[str, Sequence[str]]
"""Cell → the brokers that are wanted of it."""


@dataclass(slots=True)
class Results:
    """All figures of a run: broker → figure → number of the round → value."""

    values: dict[str, dict[str, dict[int, float]]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    seconds: float = 0.0
    steal: float = 0.0
    """The most of a core that the machine's host took away during a cell."""
    took_s: dict[str, float] = field(default_factory=dict)
    """Of each cell, in all."""

    def add(self, broker: str, number: int, figures: Figures) -> None:
        of_broker = self.values.setdefault(broker, {})
        for name, value in figures.items():
            of_broker.setdefault(name, {})[number] = value

    def add_floor(self) -> None:
        """What one request with `flush: sync` takes at least: a request without the disk, and the disk."""
        request_ms = self.values.get(INTERVAL, {}).get("one_by_one_c.p50_ms", {})
        disk_ms = self.values.get(SYNC, {}).get("disk.fdatasync_p50_ms", {})
        for number in request_ms.keys() & disk_ms.keys():
            self.add(SYNC, number, {FLOOR: request_ms[number] + disk_ms[number]})

    def medians(self) -> dict[str, dict[str, float]]:
        return {
            broker: {name: median(values.values()) for name, values in figures.items()}
            for broker, figures in self.values.items()
        }


def start_brokers(bench: Bench, names: set[str], say: Say) -> list[Broker]:
    """Those that stay for the whole run. Raises PeerError, RuntimeError."""
    started = []
    if bench.peer is not None and KAFKA in names:
        say("starting Kafka")
        started.append(bench.brokers.start_kafka())
    if bench.peer is not None and KAFKA_SYNC in names:
        started.append(bench.brokers.start_kafka_that_flushes())
    started += [bench.brokers.start_halfmoon(flush) for flush in (INTERVAL, SYNC) if flush in names]
    if BARE in names:
        started.append(bench.brokers.start_bare())
    time.sleep(REST_S)
    for broker in started:
        broker.idle_mb = broker.anonymous_mb()
    return started


def warm_up(bench: Bench, brokers: Sequence[Broker], say: Say) -> None:
    """A JVM compiles what it runs often; without this, a Kafka would be measured half interpreted. Raises CellError."""
    for broker in brokers:
        say(f"warming up {broker.name}")
        for size, records in ((100, 1_000_000), (1_000, 200_000)) if broker.name != KAFKA_SYNC else ():
            topic, count = bench.topic("warm"), bench.times(records)
            bench.load(broker, "produce", topic=topic, size=size, count=count)
            bench.load(broker, "consume", topic=topic, size=size, count=count)
        bench.load(broker, "one_by_one", topic=bench.topic("warm"), count=bench.times(20_000))
        bench.load(broker, "latency", topic=bench.topic("warm"), count=bench.times(5_000))


def run(
    bench: Bench, brokers: Sequence[Broker], cells: Sequence[Cell | TogetherCell], wanted: Wanted, say: Say
) -> Results:
    """Round after round, in each one cell after the other, and of each cell one broker after the other."""
    results = Results()
    begun = time.monotonic()
    rounds = {cell.name: min(cell.rounds, bench.rounds or cell.rounds) for cell in cells}
    for number in range(max(rounds.values(), default=0)):
        for position, cell in enumerate(cells):
            if number >= rounds[cell.name]:
                continue
            chosen = [broker for broker in brokers if broker.name in wanted[cell.name]]
            if bench.rocketmq is not None and ROCKETMQ in wanted[cell.name]:
                # It runs during its cells only: it takes more than a gigabyte.
                chosen.append(Broker(ROCKETMQ, "", 0, 0.0))
            # Another one begins each time.
            turn = (number + position) % max(1, len(chosen))
            turned = chosen[turn:] + chosen[:turn]
            if isinstance(cell, TogetherCell):
                _run_together(bench, cell, turned, results, say)
            else:
                for broker in turned:
                    _run_one(bench, cell, broker, number, results, say)
    results.add_floor()
    results.seconds = time.monotonic() - begun
    return results


def _run_one(bench: Bench, cell: Cell, broker: Broker, number: int, results: Results, say: Say) -> None:
    with _measuring(cell, broker.name, results, say):
        _note(cell, broker.name, number, cell.run(bench, broker), results, say)


def _run_together(bench: Bench, cell: TogetherCell, brokers: Sequence[Broker], results: Results, say: Say) -> None:
    with _measuring(cell, "all", results, say):
        for number, found in enumerate(cell.run(bench, brokers)):
            for broker, figures in found.items():
                _note(cell, broker, number, figures, results, say)


def _note(cell: Cell | TogetherCell, broker: str, number: int, figures: Figures, results: Results, say: Say) -> None:
    results.add(broker, number, {f"{cell.name}.{name}": value for name, value in figures.items()})
    said = "  ".join(f"{name}={value:.4g}" for name, value in figures.items())
    say(f"{number + 1} {cell.name:14} {broker:10} {said}")


@contextmanager
def _measuring(cell: Cell | TogetherCell, broker: str, results: Results, say: Say) -> Iterator[None]:
    """Around a cell: what it cannot do is told, and what the machine's host takes away meanwhile is noted."""
    os.sync()
    begun = time.monotonic()
    (_, steal_before) = readings.machine_cpu_s()
    try:
        yield
    except CellSkippedError as reason:
        line = f"{cell.name}: {reason}"
        if line not in results.skipped:
            results.skipped.append(line)
            say(f"{cell.name}: skipped, {reason}")
    except Exception as error:  # one cell's, whatever it is: an hour's other figures are not for nothing
        results.errors.append(f"{cell.name} on {broker}: {error}")
        say(f"{cell.name} on {broker}: FAILED {error}")
    took_s = time.monotonic() - begun
    (_, steal_after) = readings.machine_cpu_s()
    results.steal = max(results.steal, (steal_after - steal_before) / took_s)
    results.took_s[cell.name] = results.took_s.get(cell.name, 0.0) + took_s
