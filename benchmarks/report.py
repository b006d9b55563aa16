"""From figures to a table in the terminal, a page in docs/ with pictures, and a file for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks import pictures
from benchmarks.bench import Cell, TogetherCell
from benchmarks.brokers import BARE, INTERVAL, KAFKA, KAFKA_SYNC, ROCKETMQ, SYNC
from benchmarks.goals import Goal, Group, Reached, Verdict
from benchmarks.runner import FLOOR, Results
from benchmarks.targets import GROUPS

COLUMNS = (
    (KAFKA, "Kafka"), (KAFKA_SYNC, "Kafka, flushing"), (ROCKETMQ, "RocketMQ"), (INTERVAL, "Halfmoon, interval"),
    (SYNC, "Halfmoon, sync"), (BARE, "bare loop"),
)  # fmt: skip

GROWTH = Path("images") / "performance-growth.png"
"""Drawn by benchmarks/growth.py."""
ABOUT = """\
Written by `make bench`; not by hand. Halfmoon beside a real Kafka and a real RocketMQ, the same clients doing the same
work. Without another word a row is about `flush: interval`, which promises what Kafka's and RocketMQ's defaults
promise, and is compared with Kafka, or with RocketMQ where it begins with its name.

- **times**: Halfmoon's figure divided by the other one's, round by round: the median, and the range of all rounds.
- **yes**, **stretch**: each round reaches the target, or the second, higher one.
- **client**: the target is missed because of the client. In each round, Halfmoon reaches nine tenths of what the same
  client reaches at a [bare loop](#how-it-is-measured) that does nothing but receive, check, write and answer. Where
  the row is about the broker's CPU, it is the kernel: Halfmoon takes at most 1.3 times what the bare loop takes.
- **unsure**: the median reaches the target, or is bound so, but not each round.
"""

HOW = """\
## How it is measured

- One run starts a real Kafka with its own default settings, which leave flushing to the kernel, one with
  `log.flush.interval.messages=1`, and Halfmoon twice, with `flush: interval` and with `flush: sync`, our default. All
  else is at its default. They run side by side on one machine, idle but for the one that is being measured. Halfmoon
  is compiled (`ARGS=--pure`: it is not).
- The brokers are warmed up first: 1.2 million records produced and consumed (but for the Kafka that flushes), 20,000
  single requests, 5,000 deliveries.
- In each round each cell is run against one broker after the other, beginning with another one each time, so that what
  changes on the machine meets all of them. There are five rounds, three of what takes long, one of what kills.
- The bare loop (`benchmarks/bare_loop.py`): a server in Python with uvloop that receives Produce requests, checks each
  batch's CRC-32C, writes it into a file that is overwritten over and over, and answers; it fetches from that file. It
  keeps no index, knows no producers, and never syncs. For RocketMQ's clients there is one, too
  (`benchmarks/bare_rocketmq.py`): it keeps messages unchanged, and throws half messages away.
- What is dirty in the page cache is written out before each cell. The first touch of memory costs a virtual machine
  more than a copy into it, because its host has to find a page, and takes back what is free; that cost is the same
  for every broker and would hide the brokers. So most of the memory is held during the run, and the rest is filled
  with page cache before each cell that moves much: a new page is then an old one, as on a machine that has been in
  use for long (`--leave-mb 0` does without).
- The clients are the same processes for all: librdkafka (through confluent-kafka), Kafka's Java tools, and programs in
  C or over plain sockets where a client library would hide the broker. They share the cores with the broker.
  librdkafka's queues hold a million records, and a consumer that is 64 MB ahead of the program stops for 5 ms, not for
  a second (`fetch.queue.backoff.ms`).
- CPU is that of the broker's process, user and system. Memory is `RssAnon`: what is the process's own. The page
  cache, where all brokers keep messages, is not counted.
- Starting counts from the start of the process to the first Metadata answer that names a broker, with an empty
  directory.
- The cold reader: a broker alone in a control group that limits its memory, page cache included. Single messages are
  produced at 200 a second, while a consumer goes once through a log of twice that size in the same 10 seconds. The
  figures `racing_` are beside a consumer that reads it over and over as fast as it comes, and takes the cores.
- The rows of RocketMQ: its Java client against a real RocketMQ (its own default settings: ASYNC_FLUSH), and against
  brokers of Halfmoon that were started for it. Both first
  take sends, batches and transactions for a minute: a RocketMQ's own JVM is half as quick in its first.
- Kafka's transactions and commits: one producer, one consumer, each call after the one before, for three seconds
  after a second of warming up. A client that comes back too early after a commit (CONCURRENT_TRANSACTIONS) waits as
  long as it itself thinks right, and that is most of the time of a small transaction against a Kafka.
- Joins: from `subscribe` until the member has its half of the partitions, by a client that is connected. The second
  member comes at moments that are spread over a heartbeat interval.
- Compaction: in a broker of its own, with segments of 64 MiB, which is filled before the topic is told to compact. Time
  counts until the allocated bytes of the broker's directory are down to 35 %; what is left is read and counted.
- Idle consumers: connections that each fetch from the end of a quiet topic with the default wait of 500 ms, in a
  process of their own.

What TLS and access rules cost is measured by programs of their own: [security.md](security.md#what-it-costs).
"""


@dataclass(frozen=True, slots=True)
class Run:
    """What a report says beside the figures."""

    date: str
    command: str
    machine: Mapping[str, str]
    scale: float
    kafka_version: str | None
    rocketmq_version: str | None
    cells: Sequence[Cell | TogetherCell]
    everything: bool
    """All rows, not only those that a user would ask for."""


Row = tuple[Goal, Reached]


def measured(group: Group, results: Results, everything: bool) -> list[Row]:
    """The rows of which something was measured."""
    goals = (goal for goal in group.goals if everything or goal.asked)
    return [(goal, found) for goal in goals if (found := goal.reached(results.values)) is not None]


def table(rows: Sequence[Row]) -> list[list[str]]:
    """The heads first."""
    found = [["", "compared with", "Halfmoon", "times", "target", ""]]
    for goal, reached in rows:
        stretch = "" if goal.stretch is None else f" ({_value(goal, goal.stretch)})"
        found.append([
            goal.title,
            _number(median(reached.base)) if reached.base else "",
            _number(median(reached.own)),
            _spread(goal, reached.ratios),
            f"{'≥' if goal.better == 'more' else '≤'} {_value(goal, goal.target)}{stretch}",
            goal.verdict(reached),
        ])  # fmt: skip
    return found


def missed(rows: Sequence[Row]) -> list[str]:
    """For each target that was missed, what bounds it and what was tried; one paragraph for those of one reason."""
    titles: dict[str, list[str]] = {}
    for goal, reached in rows:
        verdict = goal.verdict(reached)
        if verdict.is_reached:
            continue
        title = goal.title
        if reached.beside_bare:
            title += f" ({median(reached.beside_bare):.2f} times the bare loop's)"
        titles.setdefault(goal.bound or "Not investigated yet.", []).append(title)
    return [f"**{'; '.join(of)}.** {bound}" for bound, of in titles.items()]


def read_json(path: Path, cells: Sequence[Cell | TogetherCell]) -> tuple[Run, Results]:
    """An earlier run as `write_json` left it. Raises OSError, KeyError, ValueError."""
    content = json.loads(path.read_text())
    ran = [cell for cell in cells if cell.name in content["cells"]]
    run = Run(
        content["date"], content["command"], content["machine"], content["scale"], content["kafka"],
        content["rocketmq"], ran, content["everything"],
    )  # fmt: skip
    values = {
        broker: {name: {int(number): value for number, value in of.items()} for name, of in figures.items()}
        for broker, figures in content["values"].items()
    }
    return run, Results(values, content["errors"], content["skipped"], content["seconds"], content["steal"])


def together(runs: Sequence[tuple[Run, Results]], cells: Sequence[Cell | TogetherCell]) -> tuple[Run, Results]:
    """Runs one after the other as one: of a cell that several have run, the last one's figures."""
    first, _ = runs[0]
    results = Results()
    for run, found in runs:
        again = {cell.name for cell in run.cells}
        for of_broker in results.values.values():
            for name in [name for name in of_broker if name.partition(".")[0] in again or name == FLOOR]:
                del of_broker[name]
        for broker, figures in found.values.items():
            results.values.setdefault(broker, {}).update(figures)
        results.errors = [line for line in results.errors if line.partition(" ")[0] not in again] + found.errors
        results.skipped = [line for line in results.skipped if line.partition(":")[0] not in again] + found.skipped
        results.seconds += found.seconds
        results.steal = max(results.steal, found.steal)
    results.add_floor()
    ran = {cell.name for run, _ in runs for cell in run.cells}
    last, _ = runs[-1]
    whole = Run(
        date=last.date,
        command="; ".join(dict.fromkeys(run.command for run, _ in runs)),
        machine=last.machine,
        scale=first.scale,
        kafka_version=next((run.kafka_version for run, _ in runs if run.kafka_version), None),
        rocketmq_version=next((run.rocketmq_version for run, _ in runs if run.rocketmq_version), None),
        cells=[cell for cell in cells if cell.name in ran],
        everything=first.everything,
    )
    return whole, results


def _value(goal: Goal, value: float) -> str:
    return f"{_number(value)} {goal.unit}".rstrip() if goal.against is None else f"{value:.2f}x"


def _spread(goal: Goal, values: Sequence[float]) -> str:
    middle = _value(goal, median(values))
    if len(values) == 1:
        return middle
    least, most = (_number(value) if goal.against is None else f"{value:.2f}" for value in (min(values), max(values)))
    return f"{middle} ({least}–{most})"


def _number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def as_text(rows: Sequence[Sequence[str]]) -> str:
    """For the terminal."""
    return _aligned(rows, lambda row, widths: "  ".join(_padded(row, widths)).rstrip().replace("**", ""))


def as_markdown(rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    rule = "|---|" + "--:|" * (len(rows[0]) - 1)
    return "\n".join([lines[0], rule, *lines[1:]])


def _aligned(rows: Sequence[Sequence[str]], line: Callable[[Sequence[str], list[int]], str]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(line(row, widths) for row in rows)


def _padded(row: Sequence[str], widths: list[int]) -> list[str]:
    return [row[0].ljust(widths[0]), *(text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True))]


def figures(results: Results) -> list[list[str]]:
    """Every figure of every broker."""
    medians = results.medians()
    columns = [(name, title) for name, title in COLUMNS if name in medians]
    names = dict.fromkeys(figure for name, _ in columns for figure in medians[name])
    rows = [["figure", *(title for _, title in columns)]]
    for figure in names:
        values = (medians[name].get(figure) for name, _ in columns)
        rows.append([f"`{figure}`", *("" if value is None else _number(value) for value in values)])
    return rows


def text(run: Run, results: Results) -> str:
    """For the terminal: all groups in one table."""
    return as_text(table([row for group in GROUPS for row in measured(group, results, run.everything)]))


def page(run: Run, results: Results, folder: Path | None = None) -> str:
    """docs/performance.md; `folder`: where its pictures go."""
    every = [row for group in GROUPS for row in measured(group, results, run.everything)]
    return (
        "\n\n".join([*_begin(run, results, every), *_groups(run, results, folder), *_end(run, results, every)]) + "\n"
    )


def _begin(run: Run, results: Results, rows: Sequence[Row]) -> Iterator[str]:
    counts = Counter(goal.verdict(found) for goal, found in rows)
    reached = counts[Verdict.YES] + counts[Verdict.STRETCH]
    yield "# Performance" + (": all rows" if run.everything else "")
    yield ABOUT.rstrip()
    yield (
        f"Of {len(rows)} targets, {reached} are reached, {counts[Verdict.CLIENT]} are bound by the client, "
        f"{counts[Verdict.UNSURE]} are unsure, {counts[Verdict.NO]} are missed."
    )
    peers = [
        f"Apache Kafka {run.kafka_version}" if run.kafka_version else "no Kafka",
        f"Apache RocketMQ {run.rocketmq_version}" if run.rocketmq_version else "no RocketMQ",
    ]
    yield (
        f"Measured on {run.date}: {', '.join(peers)}; "
        f"{', '.join(f'{name} {value}' for name, value in run.machine.items())}. "
        f"Scale {run.scale:g}, in {results.seconds / 60:.0f} minutes. "
        f"At most {results.steal:.0%} of a core was taken away by the machine's host during a cell. "
        f"Command: `{run.command}`."
    )
    if not run.everything:
        yield "`make bench ARGS=--all` measures more, and writes docs/performance-all.md."
        yield ""
        yield "What a cluster of nodes does has a page of its own: [Figures of a cluster](cluster-figures.md)."


def _groups(run: Run, results: Results, folder: Path | None) -> Iterator[str]:
    for group in GROUPS:
        rows = measured(group, results, run.everything)
        if not rows:
            continue
        yield f"## {group.title}"
        if folder is not None:
            pictures.draw(folder / f"performance-{group.name}.png", rows)
            yield f"![{group.title}]({folder.name}/performance-{group.name}.png)"
        yield as_markdown(table(rows))


def _end(run: Run, results: Results, rows: Sequence[Row]) -> Iterator[str]:
    if not run.everything:
        yield "## Growth"
        yield (
            "What a request costs as partitions, connections, groups, scheduled messages and backlog grow, by "
            "`make bench-growth`: [growth.md](growth.md)."
        )
        yield f"![What a request costs, by size]({GROWTH})"
    if reasons := missed(rows):
        yield from ("## Targets that are missed or unsure", *reasons)
    yield HOW.rstrip()
    if run.everything:
        yield "## What was run"
        yield "\n".join(f"- `{cell.name}`: {cell.title}" for cell in run.cells)
        yield "## All figures"
        yield (
            "Medians. `rec_s` records, `req_s` requests, `mb_s` MB a second; `_ms` milliseconds; `_us` microseconds; "
            "`_mb` MB; `cpu_ms_per_mb` the broker's CPU time for each MB of records."
        )
        yield as_markdown(figures(results))
    if results.skipped:
        yield "## Not measured"
        yield "\n".join(f"- {line}" for line in results.skipped)
    if results.errors:
        yield "## Failed"
        yield "\n".join(f"- {line}" for line in results.errors)


def write_json(path: Path, run: Run, results: Results) -> None:
    goals = [
        {
            "title": goal.title, "figure": goal.figure, "of": goal.of, "against": goal.against,
            "ratios": found.ratios, "beside_bare": found.beside_bare, "target": goal.target, "stretch": goal.stretch,
            "verdict": goal.verdict(found).strip("*"),
        }
        for group in GROUPS
        for goal, found in measured(group, results, everything=True)
    ]  # fmt: skip
    content = {
        "date": run.date, "command": run.command, "machine": dict(run.machine), "kafka": run.kafka_version,
        "rocketmq": run.rocketmq_version, "scale": run.scale, "goals": goals, "values": results.values,
        "errors": results.errors, "skipped": results.skipped, "seconds": results.seconds, "steal": results.steal,
        "took_s": results.took_s, "cells": [cell.name for cell in run.cells], "everything": run.everything,
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
