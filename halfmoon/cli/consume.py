"""`halfmoon consume`: print records, as kcat does or as JSON lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from halfmoon.cli import completing, output, output_files, reading, rocketmq_consume, times, topic_patterns
from halfmoon.cli.away import AwayWatch
from halfmoon.cli.brokers import Brokers
from halfmoon.cli.connect import consumer
from halfmoon.cli.formats import DEFAULT_FORMAT, Formatter, as_json, compile_format
from halfmoon.cli.option_groups import option_groups
from halfmoon.cli.options import (
    DEFAULT_NAMESRV,
    NamesrvOption,
    Output,
    OutputOption,
    Protocol,
    ProtocolOption,
    SqlOption,
    TagOption,
    refuse_address_of_another,
)
from halfmoon.cli.rocketmq_connect import client_options

if TYPE_CHECKING:
    from kafka import KafkaConsumer

FETCH_BYTES = 8 << 20
NEW_TOPICS_MS = 5_000
"""How often a member of a group looks for new topics that match a pattern."""


@option_groups
def consume(
    context: typer.Context,
    topics: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC...",
            help="Topics, or shell patterns, such as 'orders-*'. With --group, new topics that match are read too.",
            show_default=False,
            autocompletion=completing.topics,
        ),
    ],
    where: Annotated[str, typer.Option("--from", metavar="WHERE", help=f"beginning, end, {times.HELP}")] = "beginning",
    offset: Annotated[
        int | None,
        typer.Option("--offset", help="Start at this offset. Negative: this many before the end.", show_default=False),
    ] = None,
    partitions: Annotated[
        list[int], typer.Option("-p", "--partition", help="Read this partition only. Repeatable.", show_default=False)
    ] = [],
    count: Annotated[
        int | None, typer.Option("-c", "--count", min=1, help="Stop after this many records.", show_default=False)
    ] = None,
    last: Annotated[
        int | None,
        typer.Option("--last", min=1, help="Print the newest records, this many, sorted by time.", show_default=False),
    ] = None,
    exit_at_end: Annotated[bool, typer.Option("-e", "--exit", help="Stop at the current end.")] = False,
    group: Annotated[
        str | None,
        typer.Option(
            "-g",
            "--group",
            help="Read as a member of this group, and commit.",
            show_default=False,
            autocompletion=completing.groups,
        ),
    ] = None,
    tag: TagOption = None,
    sql: SqlOption = None,
    language: Annotated[
        str | None,
        typer.Option(
            "--filter",
            metavar="LANG:EXPR",
            help="Only records that a plugin's filter language lets through.",
            show_default=False,
        ),
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "-f", "--format", help="%t topic %p partition %o offset %T time %k key %s value %h headers %K %S sizes %n"
        ),
    ] = DEFAULT_FORMAT,
    to_files: Annotated[
        Path | None,
        typer.Option(
            "--to-files",
            metavar="DIR",
            help="Write each value to a file in DIR, and print the file's path.",
            file_okay=False,
            show_default=False,
        ),
    ] = None,
    file_name: Annotated[
        str, typer.Option("--file-name", metavar="FORMAT", help="With --to-files: the files' names, as of --format.")
    ] = output_files.DEFAULT_NAME,
    *,
    brokers: Brokers,
    protocol: ProtocolOption = Protocol.KAFKA,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    result: OutputOption = Output.TEXT,
) -> None:
    """Print records. Without -e, -c or --last the command runs until Ctrl-C."""
    refuse_address_of_another(protocol, context)
    filtered = any(each is not None for each in (tag, sql, language))
    _refuse_contradictions(where, offset, partitions, last, group, count, filtered=filtered)
    if protocol is Protocol.ROCKETMQ:
        _refuse_what_rocketmq_has_not(topics, where, group, tag, sql, language)
    formatter = _formatter(form, result) if to_files is None else _file_writer(to_files, file_name, form, result)
    keep = (
        header_filter(tag, sql)
        if language is None or protocol is Protocol.ROCKETMQ
        else _also(header_filter(tag, sql), language_filter(language))
    )
    try:
        start = reading.Start(where, offset, time.time_ns() // 1_000_000)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--from") from None
    settings: dict[str, Any] = {"max_partition_fetch_bytes": FETCH_BYTES, "max_poll_records": reading.MAX_RECORDS}
    if group is not None:
        settings |= {"group_id": group, "auto_offset_reset": "latest" if start.at_end else "earliest"}
        if topic_patterns.any_pattern(topics):
            settings["metadata_max_age_ms"] = NEW_TOPICS_MS
    try:
        if protocol is Protocol.ROCKETMQ:
            wanted = rocketmq_consume.Wanted(
                topics, partitions, start, exit_at_end, count, last, group, tag, sql, language
            )
            _print(rocketmq_consume.read(client_options(namesrv, brokers), wanted), formatter, count)
            return
        with consumer(brokers, **settings) as client, AwayWatch(brokers.tcp_servers(), output.note, brokers.security):
            wanted_topics = topic_patterns.expand(topics, client.topics)
            found = reading.partitions_of(client, wanted_topics, partitions)
            if last is not None:
                first, end = reading.last_offsets(client, found, last)
                records = [r for batch in reading.read_assigned(client, first, end, None) for r in batch]
                records.sort(key=lambda r: (r.timestamp, r.topic, r.partition, r.offset))
                output.write(b"".join(map(formatter, records[-last:])))
            elif group is not None:
                _print(reading.read_group(client, topics, exit_at_end, count, keep), formatter, count)
            else:
                _read(client, start.offsets(client, found), exit_at_end, count, keep, formatter)
    except KeyboardInterrupt:
        # The ordinary end of a command that goes on for ever, but it cuts short one that had an end of its own.
        if exit_at_end or count is not None or last is not None:
            raise


def _read(
    client: KafkaConsumer,
    first: dict[Any, int],
    exit_at_end: bool,
    count: int | None,
    keep: reading.Keep,
    formatter: Formatter,
) -> None:
    end = reading.end_offsets(client, list(first)) if exit_at_end else None
    total = count
    if end is not None and keep is reading.every:
        there = sum(end[partition] - first[partition] for partition in first)
        total = there if count is None else min(count, there)
    _print(reading.read_assigned(client, first, end, count, keep), formatter, total)


def _print(batches: Iterator[list[Any]], formatter: Formatter, total: int | None) -> None:
    # On a terminal the records themselves show how far it is.
    show = total is not None and not sys.stdout.isatty()
    with closing(batches), output.progress("records", total, show) as progress:  # type: ignore[type-var]
        for records in batches:
            output.write(b"".join(map(formatter, records)))
            progress.advance(len(records))


def header_filter(tag: str | None, sql: str | None) -> reading.Keep:
    """Which records --tag and --sql want.

    These filters look at headers and values alone, and kafka-python's records have them as the broker's own do.
    """
    if tag is None and sql is None:
        return reading.every
    from halfmoon.plugin import FilterSyntaxError
    from halfmoon.plugins.filter.sql92 import compile_sql
    from halfmoon.plugins.filter.tag import compile_tags

    filters = []
    for option, expression, compiler in (("--tag", tag, compile_tags), ("--sql", sql, compile_sql)):
        if expression is not None:
            try:
                filters.append(compiler(expression))
            except FilterSyntaxError as error:
                raise typer.BadParameter(str(error), param_hint=option) from None
    return lambda record: all(each.match(record) for each in filters)


def split_language(given: str) -> tuple[str, str]:
    """LANG:EXPR as two."""
    name, colon, expression = given.partition(":")
    if not colon or not name.strip():
        raise typer.BadParameter(f"{given!r}: expected LANG:EXPR, such as jsonpath:$.price", param_hint="--filter")
    return name.strip(), expression


def language_filter(given: str) -> reading.Keep:
    """Which records --filter wants, by a language of a plugin that is built in or installed here."""
    from halfmoon.errors import StartError
    from halfmoon.hooks.outside import find_filter
    from halfmoon.plugin import FilterSyntaxError
    from halfmoon.plugins import BUILT_IN

    name, expression = split_language(given)
    try:
        found = find_filter(BUILT_IN, name)(expression)
    except (FilterSyntaxError, StartError) as error:
        raise typer.BadParameter(str(error), param_hint="--filter") from None
    return lambda record: bool(found.match(record))


def _also(one: reading.Keep, other: reading.Keep) -> reading.Keep:
    return lambda record: one(record) and other(record)


def _formatter(form: str, result: Output) -> Formatter:
    if result is Output.JSON:
        return lambda record: output.json_line(as_json(record))
    try:
        return compile_format(form)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--format") from None


def _file_writer(directory: Path, name: str, form: str, result: Output) -> Formatter:
    if form != DEFAULT_FORMAT:
        raise typer.BadParameter("--format and --to-files exclude each other: a file has the value as it is")
    try:
        return output_files.writer(directory, compile_format(name), result)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--file-name") from None


def _refuse_contradictions(
    where: str,
    offset: int | None,
    partitions: list[int],
    last: int | None,
    group: str | None,
    count: int | None,
    filtered: bool,
) -> None:
    if offset is not None and where not in reading.BEGINNING:
        raise typer.BadParameter("--from and --offset exclude each other")
    if last is not None and (offset is not None or where not in reading.BEGINNING or group is not None or count):
        raise typer.BadParameter("--last excludes --from, --offset, --count and --group")
    if last is not None and filtered:
        raise typer.BadParameter("--last excludes --tag, --sql and --filter")
    if group is not None and (partitions or offset is not None or where not in (*reading.BEGINNING, *reading.END)):
        raise typer.BadParameter(
            "the broker assigns partitions to a group's members, which continue at the committed offsets: --group "
            "excludes --partition and --offset, and --from takes only beginning or end, for a new group"
        )


def _refuse_what_rocketmq_has_not(
    topics: list[str], where: str, group: str | None, tag: str | None, sql: str | None, language: str | None
) -> None:
    if topic_patterns.any_pattern(topics):
        raise typer.BadParameter("patterns of topics are not supported with --protocol rocketmq")
    if language is not None:
        split_language(language)
        if tag is not None or sql is not None:
            raise typer.BadParameter(
                "--filter goes with neither --tag nor --sql with --protocol rocketmq: "
                "its subscriptions have one expression"
            )
    if tag is not None and sql is not None:
        raise typer.BadParameter(
            "--tag and --sql exclude each other with --protocol rocketmq: its subscriptions have one expression "
            "(SQL92 knows the tag as TAGS)"
        )
    if group is not None and where in reading.END:
        # Brokers say 0 of a group that has no progress, as long as the queue's first message is in memory.
        raise typer.BadParameter(
            f"--from {where} is not supported with --group and --protocol rocketmq: a new group begins at the beginning"
        )
