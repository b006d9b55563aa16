"""`halfmoon dlq`: list, show and replay the dead letters of groups.

A replay produces each dead letter to the retry topic of its group (docs/retry.md), and names the dead letter as the
source (RETRY_OF). So the broker accepts each of them once, however often the command is run, and its log says where a
redelivered record came from.

A share group may be configured to write its dead letters into another topic than `dlq.<group>`, and several groups may
share that topic. Its dead letters have a header with the group's name; in `dlq.<group>` those without it are that
group's.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any

import typer

from halfmoon.cli import completing, output, reading
from halfmoon.cli.asking import ask
from halfmoon.cli.brokers import Brokers
from halfmoon.cli.connect import admin, consumer, offsets_of, patiently, producer
from halfmoon.cli.consume import header_filter
from halfmoon.cli.errors import CliError, describe_code
from halfmoon.cli.formats import as_json, in_short
from halfmoon.cli.option_groups import option_groups
from halfmoon.cli.options import Output, OutputOption, SqlOption, TagOption
from halfmoon.cli.topic import TOPIC_ALREADY_EXISTS
from halfmoon.schema.group_topics import dead_letter_topic, giving_up_group, retry_topic
from halfmoon.services.keyindex.questions import Nacked

if TYPE_CHECKING:
    from kafka import KafkaConsumer

    from halfmoon.cli.admin_client import AdminClient

ACKNOWLEDGED_S = 30.0
DROPPED = ("RECONSUME_TIME", "RETRY_OF", "MAX_RECONSUME_TIMES")
DROPPED_PREFIX = "__dlq.errors."
"""Headers of earlier attempts; those of the second kind are a share group's. The broker removes its own (halfmoon.…)
itself."""
WHOSE = "__dlq.errors.group"
"""The header with the name of the share group."""
CONFIGURED = "errors.deadletterqueue.topic.name"

app = typer.Typer(help="List, show and replay dead letters.", no_args_is_help=True)

Group = Annotated[str, typer.Argument(metavar="GROUP", show_default=False, autocompletion=completing.groups)]
FromOption = Annotated[int | None, typer.Option("--from-offset", min=0, help="First offset.", show_default=False)]
UptoOption = Annotated[
    int | None, typer.Option("--to-offset", min=0, help="Last offset (inclusive).", show_default=False)
]


@app.command("list")
@option_groups
def list_groups(
    pattern: Annotated[str, typer.Argument(metavar="[PATTERN]", help="Shell pattern of group names.")] = "*",
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """List groups with dead letters, and count these and the replayed.

    In JSON the count is `dead_letters`; `letters` is its deprecated name.
    """
    from kafka import TopicPartition

    from halfmoon.cli.admin_client import EARLIEST, LATEST

    found: list[tuple[str, str, dict[int, tuple[int, int]]]] = []
    """Group, topic, and its partitions' first offsets and ends."""
    counts: list[tuple[str, str, int, int | None]] = []
    with admin(brokers) as client:
        configured = _configured(client, [entry.group_id for entry in patiently(client.list_groups)])
        mixed = []
        for described in client.describe_topics():
            name = described["name"]
            group = giving_up_group(name)
            if name in configured.values():
                mixed.append(name)
            elif group is not None:
                queues = [TopicPartition(name, part["partition_index"]) for part in described["partitions"]]
                start, end = offsets_of(client, queues, EARLIEST, LATEST)
                found.append((group, name, {queue.partition: (start[queue], end[queue]) for queue in queues}))
    replays = Replays(brokers, [*mixed, *(topic for _, topic, _ in found)])
    for group, topic, bounds in found:
        count = sum(end - start for start, end in bounds.values())
        counts.append((group, topic, count, replays.count(group, topic, bounds)))
    if mixed:
        with consumer(brokers) as client:
            letters: dict[tuple[str, str], list[Any]] = {}
            for letter in _read(client, mixed):
                letters.setdefault((_whose(letter), letter.topic), []).append(replays.has(_whose(letter), letter))
        for (group, topic), replayed in letters.items():
            counts.append((group, topic, len(replayed), sum(replayed) if replays.known else None))
    rows = [
        {"group": group, "dead_letters": count, "letters": count, "replayed": replayed, "topic": topic}
        for group, topic, count, replayed in sorted(counts)
        if fnmatchcase(group, pattern)
    ]
    output.rows(rows, ("group", "dead_letters", "replayed", "topic"), result)


@app.command()
@option_groups
def show(
    group: Group,
    tag: TagOption = None,
    sql: SqlOption = None,
    from_offset: FromOption = None,
    to_offset: UptoOption = None,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Show a group's dead letters.

    With the original topic, the number of attempts, the reason, and whether it is replayed.
    """
    letters = _letters(brokers, group, header_filter(tag, sql), from_offset, to_offset)
    replays = _replays_of(brokers, letters)
    if result is Output.JSON:
        for letter in letters:
            output.write(output.json_line({**as_json(letter), "replayed": replays.has(group, letter)}))
        return
    rows = [_row(letter) | {"replayed": replays.has(group, letter)} for letter in letters]
    output.table(rows, ("offset", "topic", "times", "reason", "replayed", "key", "value"))


@app.command()
@option_groups
def replay(
    group: Group,
    tag: TagOption = None,
    sql: SqlOption = None,
    from_offset: FromOption = None,
    to_offset: UptoOption = None,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.001, help="Limit: records per second.", show_default=False)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Replay dead letters to the group's retry topic.

    Their attempt counter begins at zero. The broker accepts each of them once, so those that are replayed already are
    left out, and counted as `already_replayed`. They stay in the dead-letter topic. In JSON the count is
    `dead_letters`; `letters` is its deprecated name.
    """
    selected = _letters(brokers, group, header_filter(tag, sql), from_offset, to_offset)
    replays = _replays_of(brokers, selected)
    letters = [letter for letter in selected if not replays.has(group, letter)]
    before = len(selected) - len(letters)
    target = retry_topic(group)
    if not dry_run and letters:
        with admin(brokers) as client:
            _ensure(client, target)
        _send(brokers, letters, target, rate)
    if result is Output.JSON:
        counts = dict.fromkeys(("dead_letters", "letters"), len(letters))
        output.json_document(
            {"group": group, **counts, "already_replayed": before, "topic": target, "dry_run": dry_run}
        )
        return
    what = "1 dead letter" if len(letters) == 1 else f"{len(letters)} dead letters"
    said = f"{what} would be replayed to {target}" if dry_run else f"{what} replayed to {target}"
    output.line(f"{said}; {before} replayed already" if before else said)


class Replays:
    """Which dead letters the broker would ignore if they were replayed again."""

    def __init__(self, brokers: Brokers, topics: Sequence[str]) -> None:
        self.known = True
        """The broker tells."""
        self._runs: dict[tuple[str, str, int], tuple[tuple[int, int], ...]] = {}
        try:
            found = ask(brokers, Nacked(tuple(topics))).nacked if topics else ()
        except CliError as error:
            output.note(f"the broker does not tell which dead letters are replayed: {error}")
            found = None
        self.known = found is not None
        for each in found or ():
            self._runs[each.group, each.topic, each.partition] = each.runs

    def has(self, group: str, letter: Any) -> bool | None:
        """Whether a dead letter is replayed; None where nobody knows."""
        if not self.known:
            return None
        runs = self._runs.get((group, letter.topic, letter.partition), ())
        at = bisect_right(runs, letter.offset, key=lambda run: run[0]) - 1
        return at >= 0 and letter.offset < runs[at][0] + runs[at][1]

    def count(self, group: str, topic: str, bounds: Mapping[int, tuple[int, int]]) -> int | None:
        """How many of a topic's are, by partition from the first offset to the end."""
        if not self.known:
            return None
        return sum(
            max(0, min(end, first + count) - max(start, first))
            for partition, (start, end) in bounds.items()
            for first, count in self._runs.get((group, topic, partition), ())
        )


def _replays_of(brokers: Brokers, letters: Iterable[Any]) -> Replays:
    return Replays(brokers, sorted({letter.topic for letter in letters}))


def _letters(
    brokers: Brokers, group: str, keep: reading.Keep, from_offset: int | None, to_offset: int | None
) -> list[Any]:
    """The group's dead letters, by offset. Raises CliError where it has none."""
    with admin(brokers) as asked:
        topics = {dead_letter_topic(group), *_configured(asked, [group]).values()}
    with consumer(brokers) as client:
        there = [topic for topic in sorted(topics) if client.partitions_for_topic(topic)]
        if not there:
            missing = " and no topic ".join(sorted(topics))
            raise CliError(f"{group}: the group has no dead letters; there is no topic {missing}")
        found = _read(client, there, lambda letter: _whose(letter) == group and keep(letter), from_offset, to_offset)
        return sorted(found, key=lambda letter: (letter.topic, letter.partition, letter.offset))


def _read(
    client: KafkaConsumer,
    topics: list[str],
    keep: reading.Keep = reading.every,
    from_offset: int | None = None,
    to_offset: int | None = None,
) -> Iterator[Any]:
    parts = reading.partitions_of(client, topics, [])
    first, end = reading.last_offsets(client, parts, 1 << 62)
    if from_offset is not None:
        first = {part: min(max(from_offset, offset), end[part]) for part, offset in first.items()}
    if to_offset is not None:
        end = {part: max(min(to_offset + 1, offset), first[part]) for part, offset in end.items()}
    for letters in reading.read_assigned(client, first, end, None, keep):
        yield from letters


def _configured(client: AdminClient, groups: list[str]) -> dict[str, str]:
    """Group → topic, of those that are configured to write their dead letters into one."""
    from halfmoon.cli.admin_client import Resource

    described = client.configs([Resource("GROUP", group) for group in groups], [CONFIGURED]) if groups else {}
    found = {group: configs[CONFIGURED]["value"] for group, configs in described.items() if CONFIGURED in configs}
    return {group: topic for group, topic in found.items() if topic}


def _whose(letter: Any) -> str:
    """The group of this dead letter."""
    said = dict(letter.headers).get(WHOSE)
    return str(giving_up_group(letter.topic) or letter.topic) if said is None else said.decode("utf-8", "replace")


def _row(letter: Any) -> dict[str, Any]:
    headers = dict(letter.headers)
    return {
        "offset": letter.offset,
        "topic": in_short(headers.get("RETRY_TOPIC")),
        "times": in_short(headers.get("RECONSUME_TIME")),
        "reason": in_short(headers.get("halfmoon.reason")),
        "key": in_short(letter.key),
        "value": in_short(letter.value),
    }


def _is_dropped(name: str) -> bool:
    return name in DROPPED or name.startswith(DROPPED_PREFIX)


def _ensure(client: AdminClient, topic: str) -> None:
    (entry,) = client.create_topics({topic: {"num_partitions": 1}})
    if entry.error_code not in (0, TOPIC_ALREADY_EXISTS):
        raise CliError(f"{topic}: {describe_code(entry.error_code, entry.error_message)}")
    client.wait_for_topics([topic])


def _send(brokers: Brokers, letters: list[Any], target: str, rate: float | None) -> None:
    """Raises KafkaError where the broker refuses one."""
    begun_s = time.monotonic()
    with producer(brokers, acks="all") as client, output.progress("dead letters", len(letters)) as progress:
        waiting = []
        for number, letter in enumerate(letters):
            if rate is not None:
                time.sleep(max(0.0, begun_s + number / rate - time.monotonic()))
            kept = [header for header in letter.headers if not _is_dropped(header[0])]
            source = f"{letter.topic}/{letter.partition}/{letter.offset}".encode()
            headers = [*kept, ("RETRY_OF", source), ("TIMER_DELAY_MS", b"0")]
            waiting.append(client.send(target, value=letter.value, key=letter.key, headers=headers))
            progress.advance()
        for sent in waiting:
            sent.get(ACKNOWLEDGED_S)
