"""Which of a group's dead letters a command is about: its options, and the records that they select."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any

import typer

from halfmoon.cli import completing, reading
from halfmoon.cli.brokers import Brokers
from halfmoon.cli.connect import admin, consumer
from halfmoon.cli.consume import header_filter
from halfmoon.cli.errors import CliError
from halfmoon.cli.options import SqlOption, TagOption
from halfmoon.error_classes import CLASS_HEADER
from halfmoon.schema.group_topics import dead_letter_topic, giving_up_group

if TYPE_CHECKING:
    from kafka import KafkaConsumer

    from halfmoon.cli.admin_client import AdminClient

WHOSE = "__dlq.errors.group"
"""The header with the name of the group, of a dead letter in another topic than `dlq.<group>`."""
CONFIGURED = ("errors.deadletterqueue.topic.name", "halfmoon.retry.dead.letter.topic")
"""Configurations of a share group, and of every other group, that name another topic."""
GROUPS_AT_ONCE = 500

Place = tuple[str, int, int]
"""Topic, partition, offset."""


Group = Annotated[str, typer.Argument(metavar="GROUP", show_default=False, autocompletion=completing.groups)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count them.")]
Note = Annotated[str, typer.Option("--note", help="Why: shown with the mark.", show_default=False)]


@dataclass(frozen=True)
class Selection:
    """Options that select dead letters; without any, all of a group's."""

    tag: TagOption = None
    sql: SqlOption = None
    error: Annotated[
        str | None,
        typer.Option("--error", metavar="PATTERN", help="Only errors of this class: '*.BadOrder'.", show_default=False),
    ] = None
    offset: Annotated[
        list[int] | None,
        typer.Option("--offset", min=0, help="Only the one at this offset. Repeatable.", show_default=False),
    ] = None
    from_offset: Annotated[
        int | None, typer.Option("--from-offset", min=0, help="First offset.", show_default=False)
    ] = None
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", min=0, help="Last offset (inclusive).", show_default=False)
    ] = None
    partition: Annotated[
        int | None,
        typer.Option("-p", "--partition", min=0, help="Only in this partition.", show_default=False),
    ] = None

    @property
    def first(self) -> int | None:
        """No offset below is selected."""
        return max(filter(None, (self.from_offset, min(self.offset) if self.offset else None)), default=None)

    @property
    def last(self) -> int | None:
        """No offset above is selected."""
        found = [each for each in (self.to_offset, max(self.offset) if self.offset else None) if each is not None]
        return min(found, default=None)

    def keep(self) -> reading.Keep:
        """Raises BadParameter where an expression cannot be read."""
        headers = header_filter(self.tag, self.sql)

        def wanted(record: Any) -> bool:
            if self.partition is not None and record.partition != self.partition:
                return False
            if self.offset and record.offset not in self.offset:
                return False
            if self.error is not None and not any(fnmatchcase(each, self.error) for each in error_classes(record)):
                return False
            return headers(record)

        return wanted


def many(count: int) -> str:
    return "1 dead letter" if count == 1 else f"{count} dead letters"


def place_of(record: Any) -> Place:
    return record.topic, record.partition, record.offset


def whose(record: Any) -> str:
    """The group of this dead letter."""
    said = dict(record.headers).get(WHOSE)
    return str(giving_up_group(record.topic) or record.topic) if said is None else said.decode("utf-8", "replace")


def error_classes(record: Any) -> list[str]:
    """The class of the error that its last negative acknowledgement told of, and its bases."""
    said = dict(record.headers).get(CLASS_HEADER) or b""
    return [each.strip() for each in said.decode("utf-8", "replace").split(",")] if said else []


def configured_topics(client: AdminClient, groups: list[str]) -> dict[str, list[str]]:
    """Group → topics that it writes its dead letters into beside, or instead of, `dlq.<group>`."""
    from halfmoon.cli.admin_client import Resource

    found: dict[str, list[str]] = {}
    for at in range(0, len(groups), GROUPS_AT_ONCE):
        resources = [Resource("GROUP", group) for group in groups[at : at + GROUPS_AT_ONCE]]
        for group, configs in client.configs(resources, [*CONFIGURED], every=True).items():
            topics = {config["value"] for config in configs.values()} - {"", None, dead_letter_topic(group)}
            if topics:
                found[group] = sorted(topics)
    return found


def topics_of(client: AdminClient, group: str) -> list[str]:
    """The topics that have, or may have, dead letters of the group. Raises CliError where there is none of them."""
    names = sorted({dead_letter_topic(group), *configured_topics(client, [group]).get(group, ())})
    there = [topic["name"] for topic in client.describe_topics(names) if not topic["error_code"]]
    if not there:
        missing = " and no topic ".join(names)
        raise CliError(f"{group}: the group has no dead letters; there is no topic {missing}")
    return there


def selected(brokers: Brokers, group: str, selection: Selection) -> list[Any]:
    """The group's dead letters, by offset. Raises CliError where it has no topic for them."""
    wanted = selection.keep()
    with admin(brokers) as asked:
        topics = topics_of(asked, group)
    with consumer(brokers) as client:
        found = read(
            client, topics, lambda record: whose(record) == group and wanted(record), selection.first, selection.last
        )
        return sorted(found, key=place_of)


def read(
    client: KafkaConsumer,
    topics: Iterable[str],
    keep: reading.Keep = reading.every,
    first_offset: int | None = None,
    last_offset: int | None = None,
) -> Iterator[Any]:
    """The records of these topics that are there now, in each partition by offset."""
    parts = reading.partitions_of(client, [*topics], [])
    first, end = reading.last_offsets(client, parts, 1 << 62)
    if first_offset is not None:
        first = {part: min(max(first_offset, offset), end[part]) for part, offset in first.items()}
    if last_offset is not None:
        end = {part: max(min(last_offset + 1, offset), first[part]) for part, offset in end.items()}
    for records in reading.read_assigned(client, first, end, None, keep):
        yield from records
