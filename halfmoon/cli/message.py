"""`halfmoon message`: messages found by a key or by their offset, and their history."""

from __future__ import annotations

import re
import time
from typing import Annotated, Any

import msgspec
import typer

from halfmoon.cli import completing, output, times
from halfmoon.cli.asking import ask
from halfmoon.cli.brokers import Brokers
from halfmoon.cli.errors import CliError
from halfmoon.cli.formats import as_json, as_text, in_short
from halfmoon.cli.option_groups import option_groups
from halfmoon.cli.options import Output, OutputOption, time_ms
from halfmoon.services.delays.questions import parse_id
from halfmoon.services.keyindex.questions import EVENTS, Event, Find, Found, Show

CATCH_UP_S = 2.0
"""How long to wait for the index to reach the end of the log."""
CATCH_UP_PAUSE_S = 0.1

_PLACE = re.compile(r"(?:(.+)[/@:-])?([0-9]{1,9})[/@:]([0-9]{1,18})")

app = typer.Typer(help="Find messages, and show their history.", no_args_is_help=True)

TopicOption = Annotated[
    str,
    typer.Option("-t", "--topic", help="Topic of the message.", show_default=False, autocompletion=completing.topics),
]


@app.callback()
def _group() -> None:
    """Find messages, and show their history."""


@app.command()
@option_groups
def find(
    topic: TopicOption,
    key: Annotated[
        str,
        typer.Option("-k", "--key", help="A word of KEYS, a UNIQ_KEY, or a record's key.", show_default=False),
    ],
    since: Annotated[str | None, typer.Option("--from", metavar="WHEN", help=times.HELP, show_default=False)] = None,
    until: Annotated[str | None, typer.Option("--to", metavar="WHEN", help=times.HELP, show_default=False)] = None,
    count: Annotated[int, typer.Option("-c", "--count", min=1, max=10_000, help="Limit: the newest messages.")] = 100,
    ended: Annotated[
        bool, typer.Option("--ended", help="Include scheduled messages that are delivered, cancelled or rolled back.")
    ] = False,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Find messages of a topic by key, newest first.

    That includes messages scheduled for delivery to the topic. A record's own key is indexed if the topic has
    halfmoon.key.index=true. --from and --to compare the time at which the broker stored a message.
    """
    limits: dict[str, Any] = {"most": count, "ended": ended}
    if since is not None:
        limits["from_ms"] = max(0, time_ms(since, "--from"))
    if until is not None:
        limits["to_ms"] = max(0, time_ms(until, "--to"))
    question = Find(topic, key.encode("utf-8", "surrogateescape"), **limits)
    deadline = time.monotonic() + CATCH_UP_S
    while True:
        results = ask(brokers, question).results
        if results is None:
            raise CliError("the broker sent an unexpected response")
        if not results.behind_bytes or time.monotonic() > deadline:
            break
        time.sleep(CATCH_UP_PAUSE_S)
    if result is Output.JSON:
        for message in results.messages:
            output.write(output.json_line(_message(message)))
    else:
        columns = ("topic", "partition", "offset", "stored", "state", "key", "value")
        output.table([_row(message) for message in results.messages], columns)
    if results.more:
        output.note(f"only the newest {len(results.messages)} are shown; there are older ones (--count, --to)")
    if results.behind_bytes:
        output.note(f"{results.behind_bytes} bytes of the log are not indexed yet; their messages are not found")


@app.command()
@option_groups
def show(
    place: Annotated[
        str,
        typer.Option("--offset", metavar="[TOPIC/]PARTITION/OFFSET", help="Offset of the message.", show_default=False),
    ],
    topic: Annotated[
        str | None,
        typer.Option(
            "-t", "--topic", help="Topic of the message.", show_default=False, autocompletion=completing.topics
        ),
    ] = None,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Show one message and its history.

    The history says when it was stored, scheduled, delivered, retried, dead-lettered. With --topic, --offset is
    PARTITION/OFFSET, or OFFSET alone in partition 0.
    """
    shown = ask(brokers, _place(topic, place)).shown
    if shown is None:
        raise CliError("the broker sent an unexpected response")
    if result is Output.JSON:
        # `what` is `event` in the words of the version before; it goes with the next version.
        history = [{"event": EVENTS[event.what], **msgspec.structs.asdict(event)} for event in shown.history]
        output.json_document({**_message(shown.message), "history": history})
        return
    message = shown.message
    output.facts(
        {
            "topic": message.topic,
            "partition": message.partition,
            "offset": message.offset,
            "timestamp": f"{times.format_time(message.timestamp)} ({_timestamp_type(message)})",
            "stored": times.format_time(message.store_ms),
            "state": _state(message),
            "key": as_text(message.key),
            **{f"header {name}": as_text(content) for name, content in message.headers},
            "value": as_text(message.value),
        }
    )
    output.line("")
    output.table(
        [_event(event) for event in shown.history], ("when", "event", "topic", "partition", "offset", "detail")
    )


def _place(topic: str | None, place: str) -> Show:
    scheduled = parse_id(place) if topic is None and "@" in place else None
    if scheduled is not None:  # as `halfmoon delay list` shows it where there are several shards
        return Show(scheduled.topic, scheduled.partition, scheduled.offset, scheduled.shard)
    match = _PLACE.fullmatch(place)
    if topic is not None and place.isascii() and place.isdigit():
        return Show(topic, 0, int(place))
    name = topic if match is None or match[1] is None else match[1]
    if match is None or name is None or (topic is not None and name != topic):
        expected = "TOPIC/PARTITION/OFFSET" if topic is None else "OFFSET or PARTITION/OFFSET"
        raise typer.BadParameter(f"{place!r} is not {expected}", param_hint="--offset")
    return Show(name, int(match[2]), int(match[3]))


def _message(message: Found) -> dict[str, Any]:
    """As `halfmoon consume -o json` has a record, and more."""
    found = as_json(message)
    return {**found, "stored": message.store_ms, "state": _state(message), "due": _due(message.due_ms)}


def _due(due_ms: int) -> int | None:
    return None if due_ms < 0 else due_ms


def _timestamp_type(message: Found) -> str:
    return "LogAppendTime" if message.timestamp_type == 1 else "CreateTime"


def _state(message: Found) -> str | None:
    if message.ended:
        return f"was for {message.waits_for}"
    if message.waits_for is not None and message.due_ms >= 0:
        return f"for {message.waits_for}, {times.format_time(message.due_ms)}"
    return None


def _row(message: Found) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "stored": times.format_time(message.store_ms),
        "state": _state(message),
        "key": in_short(message.key),
        "value": in_short(message.value),
    }


def _event(event: Event) -> dict[str, Any]:
    due = f"until {times.format_time(event.due_ms)}" if event.due_ms >= 0 else ""
    return {
        "when": times.format_time(event.at_ms) if event.at_ms >= 0 else "",
        "event": EVENTS[event.what],
        "topic": event.topic,
        "partition": event.partition if event.topic else None,
        "offset": event.offset if event.topic else None,
        "detail": ", ".join(part for part in (event.detail, due) if part),
    }
