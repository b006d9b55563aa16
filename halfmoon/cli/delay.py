"""`halfmoon delay`: what waits, of all topics and groups: delayed messages and redeliveries, found without a key."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer

from halfmoon.cli import completing, output, times
from halfmoon.cli.asking import ask_about_delays
from halfmoon.cli.brokers import Brokers
from halfmoon.cli.errors import CliError
from halfmoon.cli.formats import as_text, in_short, text_or_base64
from halfmoon.cli.option_groups import option_groups
from halfmoon.cli.options import Output, OutputOption
from halfmoon.services.delays import paging
from halfmoon.services.delays.questions import (
    Cancel,
    Changed,
    Kind,
    Reschedule,
    ScheduledCount,
    ScheduledMessage,
    Selection,
    parse_id,
)

_SPAN = re.compile(r"([+-]?)(\d{1,12}(?:\.\d{1,6})?)(ms|s|m|h|d|w)")
WHEN_HELP = "2h (from now), -1h, 2013-01-01T00:00 (UTC), or ms since 1970."

app = typer.Typer(help="List, count, cancel and reschedule scheduled messages.", no_args_is_help=True)


class KindOption(StrEnum):
    DELAY = "delay"
    REDELIVERY = "redelivery"


@dataclass
class Chosen:
    """Which messages."""

    topic: Annotated[
        str | None,
        typer.Option(
            "-t",
            "--topic",
            metavar="PATTERN",
            help="Only those that go to these topics.",
            show_default=False,
            autocompletion=completing.topics,
        ),
    ] = None
    group: Annotated[
        str | None,
        typer.Option(
            "-g",
            "--group",
            metavar="PATTERN",
            help="Only redeliveries to these groups.",
            show_default=False,
            autocompletion=completing.groups,
        ),
    ] = None
    kind: Annotated[KindOption | None, typer.Option("--kind", help="Only this kind.", show_default=False)] = None
    after: Annotated[
        str | None,
        typer.Option(
            "--due-after", metavar="WHEN", help=f"Only those due then or later: {WHEN_HELP}", show_default=False
        ),
    ] = None
    before: Annotated[
        str | None,
        typer.Option(
            "--due-before", metavar="WHEN", help="Only those due earlier; as --due-after.", show_default=False
        ),
    ] = None

    @property
    def is_all(self) -> bool:
        return self == Chosen()

    def selection(self) -> Selection:
        """Raises BadParameter."""
        kind: Kind | None = None
        if self.kind is not None:
            kind = "delay" if self.kind is KindOption.DELAY else "redelivery"
        return Selection(
            self.topic,
            self.group,
            kind,
            **_when("due_after", self.after, "--due-after"),
            **_when("due_before", self.before, "--due-before"),
        )


Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="As `list` shows them.", show_default=False)]
AllOption = Annotated[bool, typer.Option("--all", help="All messages, where nothing selects some.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only count what is selected.")]


@app.command("list")
@option_groups
def list_messages(
    chosen: Chosen,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000_000, help="Limit: those due first.")] = 100,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """List scheduled messages, those due first.

    JSON has one message per line. `halfmoon message show --offset ID` shows one with its value.
    """
    found, more = ask_about_delays(brokers, paging.page(chosen.selection(), limit))
    if result is Output.JSON:
        for message in found:
            output.write(output.json_line(_as_json(message)))
    else:
        output.table([_row(message) for message in found], ("due", "topic", "group", "key", "size", "origin", "id"))
    if more:
        output.note(f"only the first {len(found)} are shown; there may be more (--limit, --due-after)")


@app.command()
@option_groups
def count(chosen: Chosen, *, brokers: Brokers, result: OutputOption = Output.TEXT) -> None:
    """Count scheduled messages by topic.

    With the first and the last due time.
    """
    rows = [_counted(each) for each in ask_about_delays(brokers, paging.count(chosen.selection()))]
    if result is Output.TEXT and len(rows) > 1:
        total = sum(row["count"] for row in rows)
        first, last = min(row["first_due"] for row in rows), max(row["last_due"] for row in rows)
        rows.append({"kind": "total", "count": total, "first_due": first, "last_due": last})
    output.rows(rows, ("kind", "topic", "group", "count", "first_due", "last_due"), result)


@app.command()
@option_groups
def cancel(
    ids: Ids = None,
    *,
    chosen: Chosen,
    every: AllOption = False,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Cancel scheduled messages: they are not delivered.

    By their ids, or all that the options select; then it asks, unless --yes is given.
    """
    if not _is_confirmed("cancelled", ids, chosen, every, yes, dry_run, brokers, result):
        return
    question = Cancel(selection=None if ids else chosen.selection())
    _report("cancelled", _change(brokers, question, ids), result)


@app.command()
@option_groups
def reschedule(
    ids: Ids = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="2013-01-01T00:00 (UTC), or ms.", show_default=False)
    ] = None,
    in_: Annotated[
        str | None, typer.Option("--in", metavar="SPAN", help="From now, such as 2h; 0s is now.", show_default=False)
    ] = None,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="SPAN", help="So much later, or earlier: -30m.", show_default=False),
    ] = None,
    *,
    chosen: Chosen,
    every: AllOption = False,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Give scheduled messages another time, and another id.

    By their ids, or all that the options select; then it asks, unless --yes is given.
    """
    at_ms, in_ms, by_ms = _time(at), _span(in_, "--in"), _span(by, "--by")
    if [at_ms, in_ms, by_ms].count(None) != 2:
        raise typer.BadParameter("one of --at, --in and --by is required")
    if not _is_confirmed("rescheduled", ids, chosen, every, yes, dry_run, brokers, result):
        return
    question = Reschedule((), None if ids else chosen.selection(), at_ms, in_ms, by_ms)
    _report("rescheduled", _change(brokers, question, ids), result)


# -- changing ----------------------------------------------------------------------------------------------------------


def _is_confirmed(
    done: str,
    ids: list[str] | None,
    chosen: Chosen,
    every: bool,
    yes: bool,
    dry_run: bool,
    brokers: Brokers,
    result: Output,
) -> bool:
    """Whether to go on; what a selection means is told first. Raises BadParameter."""
    if ids:
        if not chosen.is_all or every or dry_run:
            raise typer.BadParameter("ids and options that select messages exclude each other, as does --dry-run")
        for text in ids:
            if parse_id(text) is None:
                raise typer.BadParameter(f"{text!r} is no id; `halfmoon delay list` shows them")
        return True
    if chosen.is_all != every:
        raise typer.BadParameter("ids, options that select messages, or --all are required; one of these")
    if yes and not dry_run:
        return True
    rows = ask_about_delays(brokers, paging.count(chosen.selection()))
    total = sum(row.count for row in rows)
    if dry_run:
        if result is Output.JSON:
            output.json_document({done: total, "topics": [_counted(row) for row in rows], "dry_run": True})
        else:
            output.line(f"{_messages(total)} would be {done}" + _of_topics(row.topic for row in rows))
        return False
    if total and not sys.stdin.isatty():
        raise CliError(f"{_messages(total)} would be {done}; --yes does it, --dry-run only counts")
    if total:
        question = f"{_messages(total)}{_of_topics(row.topic for row in rows)} will be {done}. Go on?"
        typer.confirm(question, abort=True, err=True)
    return True


def _change(brokers: Brokers, question: Cancel | Reschedule, ids: list[str] | None) -> Changed:
    """Raises CliError, which says what was changed before."""
    unique = list(dict.fromkeys(ids or ()))
    try:
        return ask_about_delays(brokers, paging.change(question, unique))
    except paging.PartlyChangedError as error:
        said = f"{error.__cause__}; {_messages(error.changed.count)} had been changed before"
        raise CliError(said) from None


def _report(done: str, changed: Changed, result: Output) -> None:
    """Raises CliError where something that was asked for has not been done."""
    problems = []
    if changed.missing:
        problems.append(f"{_messages(len(changed.missing))} no longer waited: {', '.join(changed.missing[:5])}")
    if changed.refused:
        problems.append(f"not allowed for topic {', '.join(changed.refused)}")
    if changed.too_far:
        problems.append(f"{_messages(changed.too_far)} would be due later than max_delay allows")
    if result is Output.JSON:
        output.json_document(
            {
                done: changed.count,
                "topics": list(changed.topics),
                "missing": list(changed.missing),
                "refused": list(changed.refused),
                "too_far": changed.too_far,
                "dry_run": False,
            }
        )
    else:
        output.line(f"{_messages(changed.count)} {done}" + _of_topics(changed.topics))
    if problems:
        raise CliError("; ".join(problems))


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"


def _of_topics(topics: Any) -> str:
    names = sorted(set(topics))
    if not names:
        return ""
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f" (topic {shown})"


# -- times -------------------------------------------------------------------------------------------------------------


def _when(field: str, text: str | None, option: str) -> dict[str, Any]:
    """A time as a field of a selection: from now on by the broker's clock, or a time. Raises BadParameter."""
    if text is None:
        return {}
    span = _SPAN.fullmatch(text)
    if span is not None:
        return {f"{field}_in_ms": _span_ms(span)}
    return {f"{field}_ms": _parsed(text, option)}


def _time(text: str | None) -> int | None:
    return None if text is None else _parsed(text, "--at")


def _parsed(text: str, option: str) -> int:
    try:
        return times.parse_time(text, time.time_ns() // 1_000_000)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is none of these: {WHEN_HELP}", param_hint=option) from None


def _span(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    span = _SPAN.fullmatch(text)
    if span is None:
        raise typer.BadParameter(f"{text!r} is no time span such as 90s, 2h or -30m", param_hint=option)
    return _span_ms(span)


def _span_ms(span: re.Match[str]) -> int:
    ms = round(float(span[2]) * times.UNIT_MS[span[3]])
    return -ms if span[1] == "-" else ms


# -- showing -----------------------------------------------------------------------------------------------------------


def _row(message: ScheduledMessage) -> dict[str, Any]:
    return {
        "due": times.format_time(message.due_ms),
        "topic": f"{message.topic}-{message.partition}",
        "group": message.group,
        "key": in_short(message.key),
        "size": message.size_bytes,
        "origin": message.origin or message.delay,
        "id": message.id,
    }


def _as_json(message: ScheduledMessage) -> dict[str, Any]:
    found = msgspec.structs.asdict(message)
    del found["key"]
    return {
        **found,
        "due": times.format_time(message.due_ms),
        **text_or_base64("key", message.key),
        "uniq_key": as_text(message.uniq_key),
    }


def _counted(waiting: ScheduledCount) -> dict[str, Any]:
    return {
        "kind": waiting.kind,
        "topic": waiting.topic,
        "group": waiting.group,
        "count": waiting.count,
        "first_due": times.format_time(waiting.first_due_ms),
        "last_due": times.format_time(waiting.last_due_ms),
    }
