"""`halfmoon schedule`: recurring messages."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from halfmoon.cli import completing, output, times
from halfmoon.cli.asking import ask_about_schedules
from halfmoon.cli.brokers import Brokers
from halfmoon.cli.errors import CliError
from halfmoon.cli.formats import as_text, text_or_base64
from halfmoon.cli.option_groups import option_groups
from halfmoon.cli.options import Output, OutputOption, key_values
from halfmoon.hooks.schedules import Answer, ChangeSchedule, CreateSchedule, ListSchedules, Question, Schedule
from halfmoon.plugins.store.schedule.times import check, next_times

SHOWN_TIMES = 5

app = typer.Typer(help="Send messages on a schedule (cron).", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule in its topic.", show_default=False)]
TopicOption = Annotated[
    str,
    typer.Option(
        "-t",
        "--topic",
        help="Topic that the messages are sent to.",
        show_default=False,
        autocompletion=completing.topics,
    ),
]
PartitionOption = Annotated[
    int | None, typer.Option("-p", "--partition", min=0, help="In this partition only.", show_default=False)
]
ZoneOption = Annotated[str, typer.Option("-z", "--zone", help="Time zone of the expression, as Europe/Berlin.")]


class Missed(StrEnum):
    """What becomes of times that were missed."""

    ONCE = "once"
    SKIP = "skip"


@app.command()
@option_groups
def create(
    name: Name,
    topic: TopicOption,
    cron: Annotated[
        str,
        typer.Option(
            "-c",
            "--cron",
            metavar="CRON",
            help="'0 9 * * 1-5'; with six fields, the first is the second.",
            show_default=False,
        ),
    ],
    value: Annotated[str, typer.Argument(metavar="[VALUE]", help="Value of the message.")] = "",
    zone: ZoneOption = "UTC",
    missed: Annotated[
        Missed | None,
        typer.Option(
            "--missed",
            help="Times missed while the broker was away: send once, or skip. Default: the broker's.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[str | None, typer.Option("-k", "--key", help="Key of the message.", show_default=False)] = None,
    headers: Annotated[
        list[str], typer.Option("-H", "--header", metavar="NAME=VALUE", help="Header of the message. Repeatable.")
    ] = [],
    file: Annotated[
        Path | None,
        typer.Option("-f", "--file", help="File with the value; - is stdin.", allow_dash=True, show_default=False),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("-p", "--partition", min=0, help="Partition. Default: chosen by the key.", show_default=False),
    ] = None,
    paused: Annotated[bool, typer.Option("--paused", help="Send nothing before it is resumed.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a schedule of this name.")] = False,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Create a schedule.

    The broker sends the message whenever CRON is due, once per time, also over restarts. It does so with your rights:
    what you may not write any more is not sent. A schedule that is there already, and says the same, stays as it is.
    """
    if file is not None and value:
        raise typer.BadParameter("VALUE and --file exclude each other")
    question = CreateSchedule(
        topic, name, cron, zone, "" if missed is None else missed.value, -1 if partition is None else partition,
        None if key is None else _bytes(key), _bytes(value) if file is None else _read(file),
        tuple((header, _bytes(text)) for header, text in key_values(headers, "--header").items()), paused, replace,
    )  # fmt: skip
    (made,) = _schedules(ask_about_schedules(brokers, question))
    if result is Output.JSON:
        output.json_document(_as_json(made))
    else:
        output.line(f"{made.id}: {made.state}{_next(made)}")


@app.command("list")
@option_groups
def list_schedules(
    topic: Annotated[
        str | None,
        typer.Option("-t", "--topic", help="Of this topic only.", show_default=False, autocompletion=completing.topics),
    ] = None,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """List schedules."""
    found = _all(brokers, topic, None, 1)
    rows = [_row(each) for each in found]
    if result is Output.JSON:
        output.json_document([_as_json(each) for each in found])
        return
    columns: tuple[str, ...] = ("topic", "partition", "name", "cron", "zone", "state", "next", "last", "sent", "missed")
    if any(each.problem for each in found):
        columns = (*columns, "refused", "problem")
    output.table(rows, columns)


@app.command()
@option_groups
def show(
    name: Name,
    topic: TopicOption,
    count: Annotated[
        int, typer.Option("-n", "--times", min=0, max=100, help="How many of the next times to show.")
    ] = SHOWN_TIMES,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Show a schedule, its message, and when it is sent next."""
    found = _all(brokers, topic, name, count)
    if not found:
        raise CliError(f"topic '{topic}' has no schedule '{name}'")
    output.described([_as_json(each) for each in found], _described, result)


@app.command()
@option_groups
def pause(
    name: Name,
    topic: TopicOption,
    partition: PartitionOption = None,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Send nothing until the schedule is resumed."""
    _report(brokers, ChangeSchedule(topic, name, "paused", _partition(partition)), "paused", result)


@app.command()
@option_groups
def resume(
    name: Name,
    topic: TopicOption,
    partition: PartitionOption = None,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Let a paused schedule go on, from now on."""
    _report(brokers, ChangeSchedule(topic, name, "active", _partition(partition)), "active", result)


@app.command()
@option_groups
def cancel(
    name: Name,
    topic: TopicOption,
    partition: PartitionOption = None,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """End a schedule."""
    _report(brokers, ChangeSchedule(topic, name, "cancelled", _partition(partition)), "cancelled", result)


@app.command("next")
def next_(
    cron: Annotated[str, typer.Argument(metavar="CRON", show_default=False)],
    zone: ZoneOption = "UTC",
    count: Annotated[int, typer.Option("-n", "--times", min=1, max=1_000, help="How many.")] = SHOWN_TIMES,
    result: OutputOption = Output.TEXT,
) -> None:
    """Show when a cron expression is due next. No broker is asked."""
    try:
        check(cron, zone)
    except ValueError as error:
        raise CliError(str(error)) from None
    found = next_times(cron, zone, time.time_ns() // 1_000_000, count)
    if result is Output.JSON:
        output.json_document(found)
    else:
        for at_ms in found:
            output.line(_time(at_ms) or "")


# -- asking ------------------------------------------------------------------------------------------------------------


def _all(brokers: Brokers, topic: str | None, name: str | None, count: int) -> list[Schedule]:
    found: list[Schedule] = []
    while True:
        after = found[-1].id if found else ""
        answer = ask_about_schedules(brokers, ListSchedules(topic, name, count, after))
        found += _schedules(answer)
        if not answer.more or not answer.schedules:
            return found


def _schedules(answer: Answer) -> Sequence[Schedule]:
    if answer.schedules is None:
        raise CliError("the broker sent an unexpected response")
    return answer.schedules


def _report(brokers: Brokers, question: Question, done: str, result: Output) -> None:
    changed = _schedules(ask_about_schedules(brokers, question))
    if result is Output.JSON:
        output.json_document([{**_as_json(each), "state": done} for each in changed])
        return
    for each in changed:
        output.line(f"{each.id}: {done}{_next(each) if done == 'active' else ''}")


def _partition(given: int | None) -> int:
    return -1 if given is None else given


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _read(file: Path) -> bytes:
    if str(file) == "-":
        return sys.stdin.buffer.read()
    try:
        return file.read_bytes()
    except OSError as error:
        raise CliError(f"{file}: {error.strerror or error}") from None


# -- showing -----------------------------------------------------------------------------------------------------------


def _next(schedule: Schedule) -> str:
    return f", next {_time(schedule.next_ms[0])}" if schedule.next_ms else ""


def _time(at_ms: int | None) -> str | None:
    """Schedules are kept by the second."""
    return None if at_ms is None or at_ms < 0 else times.format_time(at_ms).replace(".000", "")


def _row(schedule: Schedule) -> dict[str, Any]:
    return {
        "topic": schedule.topic,
        "partition": schedule.partition,
        "name": schedule.name,
        "cron": schedule.cron,
        "zone": schedule.zone,
        "state": schedule.state,
        "next": _time(schedule.next_ms[0]) if schedule.next_ms else None,
        "last": _time(schedule.last_ms),
        "sent": schedule.fired,
        "missed": schedule.missed_times,
        "refused": schedule.refused,
        "problem": schedule.problem,
    }


def _as_json(schedule: Schedule) -> dict[str, Any]:
    message: dict[str, Any] = {}
    if schedule.shows:
        message = {
            **text_or_base64("key", schedule.key),
            **text_or_base64("value", schedule.value),
            "headers": [{"name": name, **text_or_base64("value", value)} for name, value in schedule.headers],
        }
    return {
        "topic": schedule.topic,
        "partition": schedule.partition,
        "name": schedule.name,
        "cron": schedule.cron,
        "zone": schedule.zone,
        "missed": schedule.missed,
        "state": schedule.state,
        "creator": schedule.creator,
        "created": schedule.created_ms,
        "next": list(schedule.next_ms),
        "last": schedule.last_ms if schedule.last_ms >= 0 else None,
        "sent": schedule.fired,
        "missed_times": schedule.missed_times,
        "refused": schedule.refused,
        "problem": schedule.problem or None,
        **message,
    }


def _described(row: dict[str, Any]) -> None:
    facts = {
        "schedule": f"{row['topic']}/{row['partition']}/{row['name']}",
        "cron": f"{row['cron']} ({row['zone']})",
        "missed": row["missed"],
        "state": row["state"],
        "creator": row["creator"],
        "created": _time(row["created"]),
        "sent": row["sent"],
        "last": _time(row["last"]),
        "missed times": row["missed_times"],
        "refused": row["refused"],
        "problem": row["problem"],
    }
    if "headers" in row:
        facts["key"] = row.get("key", row.get("key_base64"))
        for header in row["headers"]:
            facts[f"header {header['name']}"] = header.get("value", header.get("value_base64"))
        facts["value"] = as_text(None if row.get("value") is None else row["value"].encode()) or row.get("value_base64")
    output.facts(facts)
    for at_ms in row["next"]:
        output.line(f"next  {_time(at_ms)}")
