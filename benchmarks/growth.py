"""What a request costs as things grow: `make bench-growth`, which is `python -m benchmarks.growth`.

For each size a broker (compiled, `flush: interval`) is filled, and a client in C asks it with five requests in the air.
Cost is the broker's CPU for a request, the median of three loads after one that warms up. Beside that the longest turn
of the loop is read, and anonymous memory. What else the machine has to do can only make a turn longer, so a size with a
turn over the goal is measured again, and the try whose longest turn was the shortest counts. It writes docs/growth.md
and its picture. There is no time limit: ten minutes to an hour.
"""

from __future__ import annotations

import argparse
import datetime
import json
import random
import re
import shutil
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from benchmarks import readings
from benchmarks.bench import Bench
from benchmarks.brokers import INTERVAL, Broker, Brokers
from benchmarks.cells.bulk import IN_FLIGHT
from benchmarks.clients import topics, wire
from benchmarks.peer import ROOT
from benchmarks.report import GROWTH, as_markdown
from halfmoon.core.records.batches import build_batch
from halfmoon.pipeline.reports.drawing import SERIES, styled
from tools import compiled_tree

PAGE = ROOT / "docs" / "growth.md"
JSON = ROOT / "out" / "growth.json"
GOAL_MS = 20.0
TRIES = 3
"""Of a size, at most."""
LOADS = 3
REQUESTS = 20_000
VARIED = 2_000
"""So many requests are made before, and sent over and over."""
CLOSED_S = 2.0
"""Then the broker has noticed that thousands of connections are closed."""
SAMPLE_S = 15.0
"""The metric of the longest turn looks back one to two minutes."""
SETTINGS = {"HALFMOON_LISTENERS_HTTP_BIND": "127.0.0.1:0", "HALFMOON_LIMITS_MAX_CONNECTIONS": "20000"}
DAY_MS = 86_400_000
SCHEDULED_BATCH = 500
BACKLOG_BYTES = 16_000


@dataclass(slots=True)
class Point:
    """A broker of one size."""

    bench: Bench
    broker: Broker
    size: int
    requests: int
    longest_ms: tuple[float, str] = (0.0, "")
    """The longest turn of the loop, and its cause."""

    def send(self, frames: bytes, requests: int, connections: int = 1) -> None:
        self.bench.c(self.broker, frames, IN_FLIGHT, max(requests, IN_FLIGHT), connections)

    def cost_us(self, frames: bytes, connections: int = 1) -> float:
        """Without what connections cost that come and go: that is in a load of few requests, too."""
        took = []
        for number in range(1 + LOADS):
            few_s = self._cpu_s(frames, IN_FLIGHT, connections) if connections > 1 else 0.0
            many_s = self._cpu_s(frames, self.requests, connections)
            if number:
                took.append((many_s - few_s) / self.requests * 1e6)
        return median(took)

    def _cpu_s(self, frames: bytes, requests: int, connections: int) -> float:
        before_s = self.broker.cpu_s()
        self.send(frames, requests, connections)
        if connections > 1:
            time.sleep(CLOSED_S)
        return self.broker.cpu_s() - before_s

    @contextmanager
    def watched(self) -> Iterator[None]:
        """The longest turn meanwhile is noted."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(SAMPLE_S):
                self._note()

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            yield
        finally:
            ended.set()
            watching.join()
        self._note()

    def _note(self) -> None:
        with urllib.request.urlopen(f"http://{self.broker.http}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        found = re.findall(r'^halfmoon_loop_longest_turn_cpu_seconds\{cause="([^"]*)"\} (\S+)$', text, re.MULTILINE)
        worst = max(((float(seconds) * 1e3, cause) for cause, seconds in found), default=(0.0, ""))
        self.longest_ms = max(worst, self.longest_ms)


Cost = dict[str, float]
"""What is asked → µs of CPU."""


@dataclass(frozen=True, slots=True)
class Axis:
    name: str
    title: str
    sizes: tuple[int, ...]
    fill: Callable[[Point], None]
    ask: Callable[[Point], Cost]
    expected: str
    """How it may grow, and why."""


def evenly(size: int) -> list[int]:
    """Numbers of what there are so many of: all, or as many as are made before."""
    return sorted({number * size // min(size, VARIED) for number in range(min(size, VARIED))})


def produce(topic: str, partitions: Sequence[int] = (0,), headers: Sequence[tuple[str, bytes]] = ()) -> bytes:
    batch = build_batch([(None, b"x" * 100, 1_700_000_000_000, headers)])
    return b"".join(wire.produce(topic, [(partition, batch)]) for partition in partitions)


def fetch(topic: str, places: Sequence[tuple[int, int]] = ((0, 0),)) -> bytes:
    """One batch at each (partition, offset)."""
    return b"".join(wire.fetch(topic, partition, offset, max_bytes=1) for partition, offset in places)


def many_partitions(at: Point) -> None:
    topics.create(at.broker.bootstrap, "grown", at.size)
    at.send(produce("grown", range(at.size)), at.size)


def ask_partitions(at: Point) -> Cost:
    chosen = evenly(at.size)
    return {
        "Produce": at.cost_us(produce("grown", chosen)),
        "Fetch": at.cost_us(fetch("grown", [(partition, 0) for partition in chosen])),
    }


def one_topic(at: Point) -> None:
    topics.create(at.broker.bootstrap, "grown")
    at.send(produce("grown"), 1_000)


def ask_connections(at: Point) -> Cost:
    return {
        "Produce": at.cost_us(produce("grown"), at.size),
        "Fetch": at.cost_us(fetch("grown"), at.size),
    }


def many_groups(at: Point) -> None:
    one_topic(at)
    at.send(b"".join(wire.offset_commit(f"group-{number}", "grown", 1) for number in range(at.size)), at.size)


def ask_groups(at: Point) -> Cost:
    chosen = b"".join(wire.offset_commit(f"group-{number}", "grown", 2) for number in evenly(at.size))
    return {"OffsetCommit": at.cost_us(chosen), "Produce": at.cost_us(produce("grown"))}


def many_scheduled(at: Point) -> None:
    """Each at a time of its own, from an hour to a month ahead."""
    one_topic(at)
    dice = random.Random(1)
    batches = [
        build_batch([(None, b"x" * 20, 1_700_000_000_000, delay(dice)) for _ in range(SCHEDULED_BATCH)])
        for _ in range(min(200, -(-at.size // SCHEDULED_BATCH)))
    ]
    at.send(b"".join(wire.produce("grown", [(0, batch)]) for batch in batches), at.size // SCHEDULED_BATCH)


def delay(dice: random.Random) -> list[tuple[str, bytes | None]]:
    return [("TIMER_DELAY_MS", b"%d" % dice.randrange(DAY_MS // 24, 30 * DAY_MS))]


def ask_scheduled(at: Point) -> Cost:
    dice = random.Random(2)
    later = [build_batch([(None, b"x" * 20, 1_700_000_000_000, delay(dice))]) for _ in range(VARIED)]
    frames = b"".join(wire.produce("grown", [(0, batch)]) for batch in later)
    return {"Produce, delayed": at.cost_us(frames), "Produce": at.cost_us(produce("grown"))}


def much_backlog(at: Point) -> None:
    topics.create(at.broker.bootstrap, "grown")
    at.send(wire.produce("grown", [(0, wire.batch(b"x" * BACKLOG_BYTES))]), at.size // BACKLOG_BYTES)


def ask_backlog(at: Point) -> Cost:
    dice = random.Random(3)
    places = [(0, offset) for offset in evenly(at.size // BACKLOG_BYTES)]
    dice.shuffle(places)
    return {"Produce": at.cost_us(produce("grown")), "Fetch": at.cost_us(fetch("grown", places))}


AXES = (
    Axis("partitions", "partitions of a topic", (1, 100, 10_000), many_partitions, ask_partitions,
         "Nothing: a partition is found by its number. Processor caches make some difference."),
    Axis("connections", "connections, asked in turn", (1, 1_000, 10_000), one_topic, ask_connections,
         "Nothing for each request. Of one connection the broker reads several requests at once, and answers them by "
         "one write; of many it reads and writes one by one."),
    Axis("groups", "groups with a committed offset", (10, 1_000, 100_000), many_groups, ask_groups,
         "Nothing: a group is found by its name."),
    Axis("scheduled", "scheduled messages, each at its own time", (10_000, 100_000, 1_000_000, 10_000_000),
         many_scheduled, ask_scheduled, "The logarithm: a due time is put in its place among others."),
    Axis("backlog", "bytes of backlog, in batches of 16 KB", (10**6, 10**7, 10**8, 10**9, 10**10), much_backlog,
         ask_backlog, "The logarithm for a Fetch, which looks its offset up. What memory does not hold is read from "
         "the disk."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Grown:
    """What was measured at one size."""

    axis: str
    size: int
    cost_us: Cost
    longest_ms: tuple[float, str]
    memory_mb: float
    tries: int = 1
    """So many times it was measured until no turn was over the goal."""


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__.split("\n")[0])
    parser.add_argument("--only", metavar="REGEX", default="", help="axes whose name it finds")
    parser.add_argument("--largest", type=int, metavar="N", help="no larger sizes")
    parser.add_argument("--requests", type=int, default=REQUESTS, metavar="N", help=f"of a load (default {REQUESTS})")
    parser.add_argument("--page", type=Path, help="where the page goes (default: docs/growth.md, if all is measured)")
    parser.add_argument("--pure", action="store_true", help="the broker as Python, not compiled")
    options = parser.parse_args(words)
    if not options.pure and compiled_tree.main([]):
        return 1
    axes = [axis for axis in AXES if re.search(options.only, axis.name)]
    points = [
        (axis, size) for axis in axes for size in axis.sizes if options.largest is None or size <= options.largest
    ]
    if not points:
        parser.error("nothing is left to be measured")
    grown: list[Grown] = []
    (ROOT / "out").mkdir(exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="growth-", dir=ROOT / "out"))
    brokers = Brokers(work, None, tree=ROOT if options.pure else ROOT / compiled_tree.FOLDER)
    begun = time.monotonic()
    try:
        bench = Bench(brokers, None, None, work, cell_limit_s=1_200.0)
        for axis, size in points:
            grown.append(best(bench, axis, size, options.requests))
            JSON.write_text(json.dumps([[one.axis, one.size, one.cost_us, one.memory_mb] for one in grown]) + "\n")
    finally:
        brokers.stop_all()
        shutil.rmtree(work, ignore_errors=True)
    axes = [axis for axis in axes if any(each is axis for each, _ in points)]
    page = options.page or (PAGE if options.largest is None and len(axes) == len(AXES) else None)
    if page is not None:
        draw(page.parent / GROWTH, axes, grown)
        page.write_text(text(axes, grown, (time.monotonic() - begun) / 60))
        print(f"written: {page}")
    return 0


def best(bench: Bench, axis: Axis, size: int, requests: int) -> Grown:
    found: list[Grown] = []
    while len(found) < TRIES and all(one.longest_ms[0] > GOAL_MS for one in found):
        found.append(measure(bench, axis, size, requests))
    return replace(min(found, key=lambda one: one.longest_ms[0]), tries=len(found))


def measure(bench: Bench, axis: Axis, size: int, requests: int) -> Grown:
    broker = bench.brokers.start_halfmoon(INTERVAL, SETTINGS)
    try:
        at = Point(bench, broker, size, requests)
        with at.watched():
            axis.fill(at)
            cost_us = axis.ask(at)
        memory_mb = broker.anonymous_mb()
    finally:
        bench.brokers.stop(broker)
    found = Grown(axis.name, size, cost_us, at.longest_ms, memory_mb)
    said = ", ".join(f"{name} {us:.1f} µs" for name, us in cost_us.items())
    print(
        f"{axis.name:12} {size:>14,}  {said}; longest turn {found.longest_ms[0]:.1f} ms ({found.longest_ms[1]}); "
        f"{memory_mb:.0f} MB", flush=True,
    )  # fmt: skip
    return found


def draw(path: Path, axes: Sequence[Axis], grown: Sequence[Grown]) -> None:
    with styled():
        figure = Figure(figsize=(10, 2.6 * -(-len(axes) // 2)), layout="constrained")
        for number, axis in enumerate(axes, 1):
            points = [one for one in grown if one.axis == axis.name]
            plot = figure.add_subplot(-(-len(axes) // 2), 2, number)
            for name, colour in zip(points[0].cost_us, SERIES, strict=False):
                plot.plot(
                    [one.size for one in points], [one.cost_us[name] for one in points], "o-", color=colour, label=name
                )
            plot.set_xscale("log")
            plot.set_xticks([one.size for one in points], [_short(one.size) for one in points])
            plot.set_ylim(0, 1.1 * max(1.0, *[us for one in points for us in one.cost_us.values()]))
            plot.xaxis.set_minor_formatter(NullFormatter())
            plot.set_title(axis.title)
            plot.set_ylabel("µs of CPU a request")
            plot.legend()
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=90)


def _short(size: int) -> str:
    for unit, sign in ((10**9, " G"), (10**6, " M"), (10**3, " k")):
        if size >= unit:
            return f"{size // unit}{sign}"
    return str(size)


def text(axes: Sequence[Axis], grown: Sequence[Grown], minutes: float) -> str:
    parts = [
        "# Growth",
        "Written by `make bench-growth`; not by hand. What a request costs the broker as things grow: microseconds of "
        f"its CPU, the median of {LOADS} loads by a client in C that has {IN_FLIGHT} requests in the air. Halfmoon is "
        "compiled, `flush: interval`.",
        f"![What a request costs, by size]({GROWTH})",
    ]
    for axis in axes:
        points = [one for one in grown if one.axis == axis.name]
        names = list(points[0].cost_us)
        rows = [[axis.title, *(f"{name}, µs" for name in names), "longest turn, ms", "memory, MB"]]
        rows += [
            [
                f"{one.size:,}", *(f"{one.cost_us[name]:.1f}" for name in names), _turn(one.longest_ms),
                f"{one.memory_mb:.0f}",
            ]
            for one in points
        ]  # fmt: skip
        parts += [f"## {axis.title[0].upper()}{axis.title[1:]}", f"May grow with: {axis.expected}", as_markdown(rows)]
    worst = max((one.longest_ms for one in grown), default=(0.0, ""))
    about = ", ".join(f"{name} {value}" for name, value in readings.machine().items())
    again = [
        f"{one.size:,} {axis.title} ({one.tries} times)"
        for axis in axes
        for one in grown
        if one.tries > 1 and one.axis == axis.name
    ]
    parts += [
        f"A size with a turn over {GOAL_MS:.0f} ms is measured up to {TRIES} times, and the try whose longest turn was "
        "the shortest counts: what else the machine does can only add. More than once: "
        + ("; ".join(again) or "none")
        + ".",
        f"The longest turn of the loop took {worst[0]:.1f} ms of CPU (`{worst[1]}`); the goal is {GOAL_MS:.0f} ms. "
        "Memory is what is the process's own (`RssAnon`).",
        f"Measured on {datetime.date.today()} in {minutes:.0f} minutes; {about}.",
    ]
    return "\n\n".join(parts) + "\n"


def _turn(found: tuple[float, str]) -> str:
    took_ms, cause = found
    said = f"{took_ms:.1f} `{cause}`" if cause else "< 2"
    return f"**{said}**" if took_ms > GOAL_MS else said


if __name__ == "__main__":
    sys.exit(main())
