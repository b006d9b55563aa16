"""From figures to a table in the terminal, a page in docs/ and a file for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bench import Cell
from benchmarks.brokers import INTERVAL, KAFKA, ROCKETMQ, SYNC
from benchmarks.goals import GOALS, Goal, Medians
from benchmarks.runner import Results

COLUMNS = (
    (KAFKA, "Kafka"), (ROCKETMQ, "RocketMQ"), (INTERVAL, "Halfmoon, interval"), (SYNC, "Halfmoon, sync"),
)  # fmt: skip
NOT_SHOWN = ("steal",)

HOW = """\
## How it is measured

- One run starts a real Kafka (its own default settings, so it leaves flushing to the kernel) and Halfmoon twice,
  with `flush: sync`, which is our default, and with `flush: interval`, which promises what Kafka's default
  promises. All else is at its default. The three run side by side on one machine, idle but for the one that is
  being measured.
- All three are warmed up first: 1.2 million records produced and consumed, 20,000 single requests, 5,000
  deliveries.
- Each cell is run against one broker after the other, beginning with another one each time, and the whole is
  repeated. The figures here are medians.
- What is dirty in the page cache is written out before each cell. The first touch of memory costs a virtual machine
  more than a copy into it, because its host has to find a page, and takes back what is free; that cost is the same
  for every broker and would hide the brokers. So most of the memory is held during the run, and the rest is filled
  with page cache before each cell that moves much: a new page is then an old one, as on a machine that has been in
  use for long (`--leave-mb 0` does without).
- The clients are the same processes for all: librdkafka (through confluent-kafka), Kafka's Java tools, and plain
  sockets where a client library would hide the broker. They share the cores with the broker, so a throughput that
  is the same for all brokers is the client's. librdkafka's queues hold a million records, and
  a consumer that is 64 MB ahead of the program stops for 5 ms, not for a second (`fetch.queue.backoff.ms`).
- CPU is that of the broker's process, user and system. Memory is `RssAnon`: what is the process's own. The page
  cache, where both brokers keep messages, is not counted.
- Starting counts from the start of the process to the first Metadata answer that names a broker, with an empty
  directory.
- "Disk" is a write of 4 KB and an fdatasync on the same file system, with no broker. A single request with `flush:
  sync` cannot take less than that and a request without the disk.
- The cold reader: a broker alone in a control group that limits its memory, page cache included. Single messages are
  produced at 200 a second, while a consumer goes once through a log of twice that size in the same 10 seconds. The
  figures `racing_` are beside a consumer that reads it over and over as fast as it comes, and takes the cores.
- The rows of RocketMQ: its Java client against a real RocketMQ (its own default settings: ASYNC_FLUSH), and against
  brokers of Halfmoon that were started for it. The program's JVM and the broker's are warmed up for eight seconds.
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
    repeat: int
    scale: float
    kafka_version: str | None
    rocketmq_version: str | None
    cells: Sequence[Cell]


def table(medians: Medians) -> list[list[str]]:
    """A row for each goal of which something was measured, the heads first."""
    rows = [["", "compared with", "Halfmoon", "reached", "target", "stretch", ""]]
    for goal in GOALS:
        value = goal.value(medians)
        if value is None:
            continue
        own = medians[goal.of][goal.figure]
        base = goal.base(medians)
        rows.append([
            goal.title,
            "" if base is None else _number(base),
            _number(own),
            _value(goal, value),
            ("≥ " if goal.better == "more" else "≤ ") + _value(goal, goal.target),
            "" if goal.stretch is None else _value(goal, goal.stretch),
            verdict(goal, value),
        ])  # fmt: skip
    return rows


def missed(medians: Medians) -> list[str]:
    """For each target that was missed, what bounds it and what was tried; one paragraph for those of one reason."""
    titles: dict[str, list[str]] = {}
    for goal in GOALS:
        value = goal.value(medians)
        if value is not None and not goal.reached(value, goal.target):
            titles.setdefault(goal.bound or "Not investigated yet.", []).append(goal.title)
    return [f"**{'; '.join(of)}.** {bound}" for bound, of in titles.items()]


def verdict(goal: Goal, value: float) -> str:
    if goal.reached(value, goal.stretch):
        return "stretch"
    return "yes" if goal.reached(value, goal.target) else "**no**"


def read_json(path: Path, cells: Sequence[Cell]) -> tuple[Run, Results]:
    """An earlier run as `write_json` left it. Raises OSError, KeyError, ValueError."""
    content = json.loads(path.read_text())
    ran = [cell for cell in cells if cell.name in content["cells"]]
    run = Run(
        content["date"],
        content["command"],
        content["machine"],
        content["repeat"],
        content["scale"],
        content["kafka"],
        content.get("rocketmq"),
        ran,
    )
    return run, Results(content["values"], content["errors"], content["skipped"], content["seconds"])


def together(runs: Sequence[tuple[Run, Results]], cells: Sequence[Cell]) -> tuple[Run, Results]:
    """Runs one after the other as one: of a cell that several have run, the last one's figures."""
    first, _ = runs[0]
    results = Results()
    for run, found in runs:
        again = {cell.name for cell in run.cells}
        for broker, figures in found.values.items():
            results.values.setdefault(broker, {}).update(figures)
        results.errors = [line for line in results.errors if line.partition(" ")[0] not in again] + found.errors
        results.skipped = [line for line in results.skipped if line.partition(":")[0] not in again] + found.skipped
        results.seconds += found.seconds
    ran = {cell.name for run, _ in runs for cell in run.cells}
    last, _ = runs[-1]
    whole = Run(
        date=last.date,
        command="; ".join(dict.fromkeys(run.command for run, _ in runs)),
        machine=last.machine,
        repeat=first.repeat,
        scale=first.scale,
        kafka_version=next((run.kafka_version for run, _ in runs if run.kafka_version), None),
        rocketmq_version=next((run.rocketmq_version for run, _ in runs if run.rocketmq_version), None),
        cells=[cell for cell in cells if cell.name in ran],
    )
    return whole, results


def _value(goal: Goal, value: float) -> str:
    return f"{_number(value)} {goal.unit}" if goal.against is None else f"{value:.2f}x"


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


def figures(medians: Medians) -> list[list[str]]:
    """Every figure of every broker."""
    measured = [(name, title) for name, title in COLUMNS if name in medians]
    names = dict.fromkeys(figure for name, _ in measured for figure in medians[name])
    rows = [["figure", *(title for _, title in measured)]]
    for figure in names:
        if figure.rpartition(".")[2] not in NOT_SHOWN:
            values = (medians[name].get(figure) for name, _ in measured)
            rows.append([f"`{figure}`", *("" if value is None else _number(value) for value in values)])
    return rows


def page(run: Run, results: Results) -> str:
    """docs/performance.md."""
    medians = results.medians()
    rows = table(medians)
    verdicts = [row[-1] for row in rows[1:]]
    peers = [
        f"Apache Kafka {run.kafka_version}" if run.kafka_version else "no Kafka",
        f"Apache RocketMQ {run.rocketmq_version}" if run.rocketmq_version else "no RocketMQ",
    ]
    steals = (values for of in results.values.values() for name, values in of.items() if name.endswith(".steal"))
    steal = max(map(max, steals), default=0.0)
    parts = [
        "# Performance",
        "Written by `make bench`; not by hand. Halfmoon beside a real Kafka and a real RocketMQ, the same "
        "clients doing the same work.",
        f"{sum(v != '**no**' for v in verdicts)} of {len(verdicts)} targets are reached. `x` means times the figure "
        "that it is compared with: Kafka's or, where a row begins with RocketMQ, RocketMQ's, unless the row says "
        "otherwise. Without another word the row is about "
        "`flush: interval`.",
        as_markdown(rows),
        f"Measured on {run.date}: {', '.join(peers)}; "
        f"{', '.join(f'{name} {value}' for name, value in run.machine.items())}. "
        f"Median of {run.repeat} repetitions at scale {run.scale:g}, in {results.seconds / 60:.0f} minutes. "
        f"At most {steal:.0%} of a core was taken away by the machine's host during a cell.",
        f"Command: `{run.command}`",
        *(["## Targets that are missed", *reasons] if (reasons := missed(medians)) else []),
        HOW.rstrip(),
        "## What was run",
        "\n".join(f"- `{cell.name}`: {cell.title}" for cell in run.cells),
        "## All figures",
        "Medians. `rec_s` records, `req_s` requests, `mb_s` MB a second; `_ms` milliseconds; `_mb` MB; "
        "`cpu_ms_per_mb` the broker's CPU time for each MB of records.",
        as_markdown(figures(medians)),
    ]
    if results.skipped:
        parts += ["## Not measured", "\n".join(f"- {line}" for line in results.skipped)]
    if results.errors:
        parts += ["## Failed", "\n".join(f"- {line}" for line in results.errors)]
    return "\n\n".join(parts) + "\n"


BEGIN, END = "<!-- extremes -->", "<!-- /extremes -->"
"""Around the part of the page that is not written here (tests/extremes)."""


def with_section(page: str, section: str) -> str:
    """The page with this instead of the section that it has, or at its end."""
    marked = f"{BEGIN}\n\n{section.strip()}\n\n{END}"
    before, begin, rest = page.partition(BEGIN)
    if begin:
        return before + marked + rest.partition(END)[2]
    return f"{page.rstrip()}\n\n{marked}\n"


def keep_section(page: str, old_page: str) -> str:
    """A new page with the section of the old one, if it has one."""
    _, begin, rest = old_page.partition(BEGIN)
    return with_section(page, rest.partition(END)[0]) if begin else page


def write_json(path: Path, run: Run, results: Results) -> None:
    medians = results.medians()
    goals = []
    for goal in GOALS:
        value = goal.value(medians)
        if value is not None:
            goals.append({
                "title": goal.title, "figure": goal.figure, "of": goal.of, "against": goal.against, "value": value,
                "target": goal.target, "stretch": goal.stretch, "reached": goal.reached(value, goal.target),
            })  # fmt: skip
    content = {
        "date": run.date, "command": run.command, "machine": dict(run.machine), "kafka": run.kafka_version,
        "rocketmq": run.rocketmq_version,
        "repeat": run.repeat, "scale": run.scale, "goals": goals, "values": results.values,
        "errors": results.errors, "skipped": results.skipped, "seconds": results.seconds,
        "cells": [cell.name for cell in run.cells],
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
