"""docs/cluster-figures.md: what was measured of a cluster, and as text."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

from benchmarks import readings

LATENCY_S = 30.0
BULK_MB = 200
DURABILITIES = "fast", "object"
BARE = "none: rows straight into the database"
PROBES = 8
"""Partitions that are written to again and again while nodes die."""


class Latency(NamedTuple):
    durability: str
    p50_ms: float
    p99_ms: float
    acknowledged: int
    commits_s: float
    wal_bytes: float
    """Of the database's log, for each byte of messages."""
    objects_s: float
    dollars: float
    """Of the requests that stored them, for 1 GB of messages."""


class Gaps(NamedTuple):
    what: str
    durability: str
    all_s: Sequence[float]
    """Of each event, the longest time between two acknowledgements of a partition that it concerned."""


def page(
    latencies: Sequence[Latency],
    rates: Sequence[tuple[int, str, Sequence[float]]],
    gaps: Sequence[Gaps],
    command: str,
) -> str:
    lines = [
        "# Figures of a cluster",
        "",
        _INTRODUCTION.format(
            **readings.machine(),
            kind="Python" if "--pure" in command else "compiled",
            command=command,
            date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        ),
        "",
        "## Latency",
        "",
    ]
    lines += [
        f"16 producers (librdkafka, `acks=all`, not idempotent), 1 MB/s together in messages of 1 KB, three nodes, 32 "
        f"partitions, {LATENCY_S:.0f} s; median (range) of the rounds.", "",
        "| durability | p50, ms | p99, ms | messages | commits/s | WAL bytes for a byte | objects/h | "
        "their PUTs for 1 GB |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]  # fmt: skip
    lines += [
        _latency_row(durability, [one for one in latencies if one.durability == durability])
        for durability in (*DURABILITIES, BARE)
    ]
    lines += [
        "",
        _BARE,
        "",
        "## Throughput",
        "",
        f"One producer, {BULK_MB} MB in messages of 1 KB; median (range).",
        "",
    ]
    lines += ["| nodes | durability | MB/s |", "|--:|---|--:|"]
    lines += [
        f"| {nodes} | {durability} | {median(found):.0f} ({min(found):.0f}–{max(found):.0f}) |"
        for nodes, durability, found in rates
    ]
    lines += [
        "", "## Takeover and moves", "",
        f"A producer writes to {PROBES} partitions, one message after the other in each. The figure is the longest "
        "time between two acknowledgements of a partition, of the partition for which that was longest: what clients "
        "notice, retries included.", "",
        "| | durability | events | median | range |", "|---|---|--:|--:|--:|",
    ]  # fmt: skip
    lines += [
        f"| {each.what} | {each.durability} | {len(each.all_s)} | {median(each.all_s) * 1e3:.0f} ms | "
        f"{min(each.all_s) * 1e3:.0f}–{max(each.all_s) * 1e3:.0f} ms |"
        for each in gaps
    ]
    return "\n".join([*lines, ""])


def _latency_row(durability: str, rounds: Sequence[Latency]) -> str:
    def column(of: Callable[[Latency], float], layout: str) -> str:
        found = [of(each) for each in rounds]
        return f"{median(found):{layout}} ({min(found):{layout}}–{max(found):{layout}})"

    columns = (
        column(lambda one: one.p50_ms, ".1f"),
        column(lambda one: one.p99_ms, ".0f"),
        f"{sum(one.acknowledged for one in rounds):,}",
        column(lambda one: one.commits_s, ".0f"),
        column(lambda one: one.wal_bytes, ".2f"),
        f"{median(one.objects_s for one in rounds) * 3600:,.0f}",
        f"{median(one.dollars for one in rounds):.3f} $",
    )
    return f"| {durability} | {' | '.join(columns)} |"


_BARE = """\
The last row has no broker: 16 connections of asyncpg insert the same messages at the same rate, each a row with a
commit of its own. What `fast` takes beyond that is Kafka's protocol, the node, and the wait for the commit before,
since the commits of a shard follow each other."""

_INTRODUCTION = """\
PostgreSQL with fsync, versitygw, the nodes and the clients were processes of one machine: {processor}, {memory},
{system}, Python {Python}. The nodes were {kind}. A network between them adds to each figure, and machines of their own
take from each. `{command}`, {date}."""
