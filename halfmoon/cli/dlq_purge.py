"""`halfmoon dlq purge` and `halfmoon dlq expire`: dead letters are deleted, now or after a time.

A partition's records go from the oldest on, up to an offset. In a topic that several groups share, the first dead
letter of another group ends that; so does the first that is not to be deleted.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from halfmoon.cli import output
from halfmoon.cli.brokers import Brokers
from halfmoon.cli.connect import admin, consumer
from halfmoon.cli.dlq_selection import DryRun, Group, configured_topics, many, place_of, read, topics_of, whose
from halfmoon.cli.dlq_state import Marks, Replays
from halfmoon.cli.errors import CliError, describe_code
from halfmoon.cli.option_groups import option_groups
from halfmoon.cli.options import Output, OutputOption
from halfmoon.cli.times import parse_time
from halfmoon.config.units import format_duration, parse_duration
from halfmoon.schema.group_topics import dead_letter_topic

OF_GROUP, OF_TOPIC = "halfmoon.retry.dead.letter.retention.ms", "retention.ms"
NEVER = "never"
AS_OTHERS = "-2"
"""What a group says that has no retention of its own for its dead letters."""


@dataclass
class Purge:
    """What would be deleted."""

    before: dict[tuple[str, int], int]
    """(topic, partition) → the offset up to which records go."""
    dead_letters: int = 0
    open: int = 0
    """Those of them that are neither replayed nor handled."""
    kept: int = 0
    """The group's dead letters that stay, and would not if they stood alone."""


def planned(records: Iterable[Any], group: str, goes: Callable[[Any], bool], is_open: Callable[[Any], bool]) -> Purge:
    """`records`: all of the topics, in each partition by offset. `goes`: whether a dead letter of the group is to be
    deleted."""
    found = Purge({})
    stopped: set[tuple[str, int]] = set()
    for record in records:
        part = record.topic, record.partition
        is_own = whose(record) == group
        wanted = is_own and goes(record)
        if part in stopped or not wanted:
            stopped.add(part)
            found.kept += wanted
            continue
        found.before[part] = record.offset + 1
        found.dead_letters += 1
        found.open += is_open(record)
    return found


@option_groups
def purge(
    group: Group,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", min=0, help="Last offset (inclusive).", show_default=False)
    ] = None,
    partition: Annotated[
        int | None, typer.Option("-p", "--partition", min=0, help="Only in this partition.", show_default=False)
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="AGE", help="Only records older than 30d, 12h, …", show_default=False),
    ] = None,
    done: Annotated[bool, typer.Option("--done", help="Only those that are replayed or handled.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    dry_run: DryRun = False,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Delete dead letters, from the oldest on.

    The first that is not to be deleted, or is another group's, ends it: Kafka's brokers delete the first records of a
    partition, and none in between.
    """
    before_ms = None if older_than is None else _ago_ms(older_than)
    with admin(brokers) as client:
        topics = topics_of(client, group)
    replays, marks = Replays(brokers, topics), Marks(brokers, topics)

    def is_open(record: Any) -> bool:
        place = place_of(record)
        return not replays.has(group, place) and marks.of(place) is None

    def goes(record: Any) -> bool:
        return (
            (partition is None or record.partition == partition)
            and (to_offset is None or record.offset <= to_offset)
            and (before_ms is None or record.timestamp < before_ms)
            and not (done and is_open(record))
        )

    with consumer(brokers) as client:
        plan = planned(read(client, topics), group, goes, is_open)
    if plan.dead_letters and not dry_run:
        if not yes:
            _confirm(group, plan.dead_letters, plan.open)
        from kafka import TopicPartition

        with admin(brokers) as client:
            client.delete_records({TopicPartition(*part): offset for part, offset in plan.before.items()})
        marks.sweep(topics)
    if result is Output.JSON:
        counts = {"dead_letters": plan.dead_letters, "open": plan.open, "kept": plan.kept}
        output.json_document({"group": group, **counts, "dry_run": dry_run})
        return
    said = f"{many(plan.dead_letters)} {'would be ' if dry_run else ''}deleted"
    if plan.open:
        said += f", {plan.open} of them neither replayed nor handled"
    output.line(f"{said}; {plan.kept} kept behind others that stay" if plan.kept else said)


@option_groups
def expire(
    group: Group,
    after: Annotated[
        str | None, typer.Option("--after", metavar="AGE", help="30d, 12h, … or never.", show_default=False)
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="After the same time as other topics' records.")] = False,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Show, or set, after which time a group's dead letters are deleted.

    Sets `retention.ms` of the dead-letter topics that are there, and for those that the broker will create
    `halfmoon.retry.dead.letter.retention.ms` of the group. The time counts from when a dead letter was stored.
    """
    from halfmoon.cli.admin_client import Resource

    if after is not None and reset:
        raise typer.BadParameter("--after and --reset exclude each other")
    retention_ms = None if after is None else _age_ms(after)
    with admin(brokers) as client:
        names = sorted({dead_letter_topic(group), *configured_topics(client, [group]).get(group, ())})
        there = [topic["name"] for topic in client.describe_topics(names) if not topic["error_code"]]
        if after is not None or reset:
            stated = None if retention_ms is None else str(retention_ms)
            of_topics = [(Resource("TOPIC", name), {OF_TOPIC: stated}) for name in there]
            for resource, configs in [(Resource("GROUP", group), {OF_GROUP: stated}), *of_topics]:
                answer = client.alter_configs([(resource, configs)])[resource.name]
                if answer.error_code:
                    raise CliError(f"{resource.name}: {describe_code(answer.error_code, answer.error_message)}")
        found = client.configs([Resource("TOPIC", name) for name in there], [OF_TOPIC], every=True) if there else {}
        future = client.configs([Resource("GROUP", group)], [OF_GROUP], every=True).get(group, {})
    rows = [{"topic": name, **_retention(found[name][OF_TOPIC]["value"])} for name in there]
    if not there:
        rows.append({"topic": names[-1], **_retention(future.get(OF_GROUP, {}).get("value") or AS_OTHERS)})
    if result is Output.JSON:
        output.json_document({"group": group, "topics": rows})
        return
    output.table(rows, ("topic", "retention"))


def _retention(value: str) -> dict[str, Any]:
    if value == AS_OTHERS:
        return {"retention_ms": None, "retention": "as other topics"}
    time_ms = int(value)
    return {"retention_ms": time_ms, "retention": NEVER if time_ms < 0 else format_duration(time_ms)}


def _age_ms(age: str) -> int:
    """−1: for ever."""
    if age == NEVER:
        return -1
    try:
        found = parse_duration(age)
    except ValueError:
        found = 0
    if found < 1:
        raise typer.BadParameter(f"{age!r} is no age such as 30d or 12h, nor {NEVER}", param_hint="--after")
    return found


def _ago_ms(age: str) -> int:
    now_ms = time.time_ns() // 1_000_000
    try:
        return parse_time(f"-{age}", now_ms)
    except ValueError:
        raise typer.BadParameter(f"{age!r} is no age such as 30d or 12h", param_hint="--older-than") from None


def _confirm(group: str, count: int, still_open: int) -> None:
    """Raises CliError where nobody agrees."""
    what = many(count) + (f", {still_open} of them neither replayed nor handled," if still_open else "")
    if not sys.stdin.isatty():
        raise CliError(f"{group}: {what} would be deleted: --yes")
    if not typer.confirm(f"{group}: delete {what.rstrip(',')}?", err=True):
        raise CliError("nothing was deleted")
