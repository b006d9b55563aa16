"""docs/torture-workers.md from what runs came to: `python -m tests.torture.workers.page RESULTS…`."""

from __future__ import annotations

import argparse
import datetime
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles
from textwrap import shorten
from typing import Protocol

import msgspec

from benchmarks import readings
from tests.torture.workers.figures import APART_NS
from tests.torture.workers.run import REOPENED, Outcome

PAGE = Path(__file__).parents[3] / "docs" / "torture-workers.md"
MOST_CHARACTERS = 200
"""Of what was wrong in a run."""

TRIED = {
    "feed.acked": "records of idempotent producers, acknowledged",
    "plain.acked": "records of producers that are not idempotent, acknowledged",
    "bank.committed": "transactions over several partitions, committed",
    "bank.aborted": "the same, aborted",
    "pipe.piped": "read-process-write transactions",
    "read.got": "records that consumer groups read",
    "shared.got": "records that groups of the new protocol (KIP-848) read",
    "share.accepted": "records that share groups acknowledged",
    "share.released": "records that they gave back",
    "later.acked": "delayed messages",
    "outbox.decided": "half messages whose producer decided",
    "answers.decided": "half messages decided by a check-back",
    "nack.nacked": "negative acknowledgements of records (nack)",
    "rsend.stored": "messages of RocketMQ's producers",
    "rtake.took": "messages that RocketMQ's consumers took",
}
"""Operation → what it is. By these the oracle goes."""

FAULTS = {
    "kill": "kill −9 of one worker, or of two at a time",
    "crash": "kill −9 of all processes",
    "pause": "a worker stopped for some seconds (SIGSTOP)",
    "restart": "stopped in order, and started with another number of workers",
    "client": "kill −9 of a client",
}

ABOUT = f"""\
# Workers that are killed

Written by `python -m tests.torture.workers.page RESULTS`; not by hand. `make torture-workers SEEDS=100` starts one
broker of two to five [workers](workers.md) after the other, with clients of all kinds. Each client notes what it asks
and what it is told. For 45 seconds workers are killed, paused and restarted at random; the seed says which and when.
Then everything is read back, with {REOPENED[0]}, {REOPENED[1]} and {REOPENED[2]} workers after each other, and
compared with the notes:

- What was acknowledged is there once, at the offset that was told, in the order of its producer. What a client does not
  know the outcome of is there once at most. Idempotent producers and transactions never write twice.
- `read_committed` shows complete transactions, and none that was aborted. Progress that a transaction committed is that
  of its records.
- Committed offsets never go back. Every record of a group is read; share groups complete each record once.
- Delayed messages come once, and not early. Half messages are delivered if and only if they were committed.
- No client that keeps the rules is told that something was forgotten (`OUT_OF_ORDER_SEQUENCE_NUMBER`,
  `INVALID_TXN_STATE`, …). librdkafka 2.16 brings both about, with any broker, where it aborts a transaction that
  it has not sent yet ([kafka-transactions.md](kafka-transactions.md)).
"""


def text(outcomes: Sequence[Outcome], where: str) -> str:
    hours = sum(each.seconds for each in outcomes) / 3600
    failed = [each.seed for each in outcomes if each.violations]
    found = "**none** lost, doubled or out of order" if not failed else f"violations with {seeds(failed)} (below)"
    flush = Counter(each.flush for each in outcomes)
    lines = [
        ABOUT,
        f"{len(outcomes)} runs, {hours:.1f} hours in all, {seeds([each.seed for each in outcomes])}: {found}. "
        f"{flush['sync']} had `flush: sync`, {flush['interval']} `interval`; "
        f"{sum(each.rocketmq for each in outcomes)} had RocketMQ's clients, too.",
        "",
        *table(("fault", "times"), named(FAULTS, [each.faults for each in outcomes])),
        "",
        f"In {sum(each.in_flight for each in outcomes):,} of the kills of workers, requests had not been answered.",
        "",
        *table(("what clients did", "times"), named(TRIED, [each.operations for each in outcomes])),
        "",
        "How long a record waited that was sent to a partition of a killed worker, or just then to another's: the "
        "longest of each kill.",
        "",
        "| | kills | median, ms | 90 %, ms | longest, ms |",
        "|---|--:|--:|--:|--:|",
        waits("the killed worker's", [ms for each in outcomes for ms in each.killed_ms]),
        waits("another worker's", [ms for each in outcomes for ms in each.others_ms]),
        "",
        f"A worker that was itself killed more than {APART_NS / 1e9:g} s before counts in the second row, also where "
        "it is still starting. Broker, clients and the oracle share the machine; [workers.md](workers.md) has the "
        "waits of a quiet one.",
        "",
        *failures(outcomes),
        f"{where}.",
        "",
    ]  # fmt: skip
    return "\n".join(lines)


class Judged(Protocol):
    @property
    def seed(self) -> int: ...
    @property
    def violations(self) -> list[str]: ...


def failures(outcomes: Sequence[Judged], causes: Mapping[int, str] = {}) -> list[str]:
    """`causes`: by seed, a sentence about what it was."""
    passed = {each.seed for each in outcomes if not each.violations}
    lines = []
    for each in outcomes:
        if each.violations:
            again = ", which has also passed" if each.seed in passed else ""
            what = shorten("; ".join(each.violations), MOST_CHARACTERS, placeholder=" …")
            lines.append(f"- Seed {each.seed}{again}: `{what}`. {causes.get(each.seed, '')}".rstrip())
    return ["What was wrong:", "", *lines, ""] if lines else []


def named(names: dict[str, str], counts: Sequence[dict[str, int]]) -> list[tuple[str, str]]:
    found: Counter[str] = Counter()
    for each in counts:
        found.update(each)
    return [(what, f"{found[name]:,}") for name, what in names.items() if found[name]]


def table(head: tuple[str, str], rows: Sequence[tuple[str, str]]) -> list[str]:
    return [f"| {head[0]} | {head[1]} |", "|---|--:|", *(f"| {what} | {count} |" for what, count in rows)]


def waits(whose: str, ms: Sequence[float]) -> str:
    if len(ms) < 2:
        return f"| {whose} | {len(ms)} | | | |"
    high = quantiles(ms, n=10, method="inclusive")[-1]
    return f"| {whose} | {len(ms)} | {median(ms):,.0f} | {high:,.0f} | {max(ms):,.0f} |"


def seeds(seeds: Sequence[int]) -> str:
    """`seeds 1–3, 7`."""
    runs: list[list[int]] = []
    for seed in sorted(set(seeds)):
        if runs and seed == runs[-1][1] + 1:
            runs[-1][1] = seed
        else:
            runs.append([seed, seed])
    named = ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in runs)
    return f"seed{'s' * (len(seeds) > 1)} {named}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture.workers.page", description=__doc__)
    parser.add_argument("results", type=Path, nargs="+", help="what `make torture-workers` has written")
    parser.add_argument("--page", type=Path, default=PAGE)
    given = parser.parse_args()
    decoder = msgspec.json.Decoder(Outcome)
    outcomes = [outcome for path in given.results for outcome in decoder.decode_lines(path.read_bytes())]
    machine = readings.machine()
    facts = ", ".join(f"{name} {machine[name]}" for name in ("processor", "memory", "system", "Python", "halfmoon"))
    given.page.write_text(text(outcomes, f"Measured on {datetime.date.today()}; {facts}"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
