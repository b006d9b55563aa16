"""`halfmoon view`: create, list, describe and delete filtered views.

A view is a topic, and its definition stands in the topic's settings (plugins/store/view). So `halfmoon topic` can do
all of this too; here it takes fewer words, and topics that are no views are kept apart.
"""

from __future__ import annotations

from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any

import typer

from halfmoon.cli import completing, outcomes, output, topic
from halfmoon.cli.brokers import Brokers
from halfmoon.cli.connect import admin
from halfmoon.cli.errors import CliError, describe_code
from halfmoon.cli.option_groups import option_groups
from halfmoon.cli.options import Output, OutputOption, key_values
from halfmoon.cli.reset import end_offsets
from halfmoon.plugins.store.view.definition import (
    VIEW_FROM,
    VIEW_POSITION,
    VIEW_PREFIX,
    VIEW_SHOWN,
    VIEW_SOURCE,
    VIEW_STATE,
)

if TYPE_CHECKING:
    from halfmoon.cli.admin_client import AdminClient

ASKED_AT_ONCE = 5_000
"""Topics in a request: a broker limits what one may name."""

DEFINED = ("source", "language", "expression", "start")
SHOWN = {"state": VIEW_STATE, "position": VIEW_POSITION}
FILLED = "filled"
"""What the broker says of a view that is in order."""
NO_VIEW = "that topic is not a view"

app = typer.Typer(help="Create, list, describe and delete filtered views.", no_args_is_help=True)

Names = Annotated[list[str], typer.Argument(metavar="VIEW...", show_default=False, autocompletion=completing.topics)]


class Start(StrEnum):
    """Where in its source a view begins."""

    EARLIEST = "earliest"
    LATEST = "latest"


@app.command()
@option_groups
def create(
    name: Annotated[str, typer.Argument(metavar="VIEW", show_default=False)],
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="SOURCE",
            help="Source topic of the view.",
            show_default=False,
            autocompletion=completing.topics,
        ),
    ],
    tag: Annotated[
        list[str],
        typer.Option("--tag", metavar="TAGS", help="Records with this tag (header TAGS): 'paid || refunded'."),
    ] = [],
    sql: Annotated[
        list[str],
        typer.Option("--sql", metavar="SQL92", help="Records with such headers, JSON fields: 'a = 1 OR value.b > 5'."),
    ] = [],
    other: Annotated[
        list[str],
        typer.Option("--filter", metavar="LANGUAGE=EXPRESSION", help="Filter in the language of a plugin."),
    ] = [],
    start: Annotated[
        Start, typer.Option("--start", help="earliest: existing records of the source too. latest: new records only.")
    ] = Start.EARLIEST,
    settings: topic.ConfigPairs = [],
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Succeed if the same view exists.")] = False,
    dry_run: topic.DryRun = False,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Create a view.

    A view is a topic that the broker fills with the records of a source topic that match a filter. It has one filter,
    and as many partitions as its source.
    """
    filters = [*(("tag", text) for text in tag), *(("sql", text) for text in sql)]
    filters += [pair for text in other for pair in key_values([text], "--filter").items()]
    more = key_values(settings, "--config")
    _refuse_contradictions(filters, more)
    ((language, expression),) = filters
    wanted = {VIEW_SOURCE: source, VIEW_PREFIX + language: expression, VIEW_FROM: start.value}
    with admin(brokers) as client:
        (entry,) = client.create_topics({name: {"configs": wanted | more}}, validate_only=dry_run)
        problem, done = None, "would be created" if dry_run else "created"
        if entry.error_code == topic.TOPIC_ALREADY_EXISTS and if_not_exists:
            problem, done = _difference(client, name, wanted), "exists"
        elif entry.error_code:
            problem = describe_code(entry.error_code, entry.error_message)
        elif not dry_run:
            client.wait_for_topics([name])
    row = outcomes.row("view", name, problem, done, partitions=topic.partitions_made(entry))
    outcomes.report([row], result, "view")


@app.command("list")
@option_groups
def list_views(
    pattern: Annotated[str, typer.Argument(metavar="[PATTERN]", help="Shell pattern, such as 'orders.*'.")] = "*",
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """List views."""
    with admin(brokers) as client:
        partitions = {entry["name"]: len(entry["partitions"]) for entry in client.describe_topics()}
        found = _definitions(client, sorted(name for name in partitions if fnmatchcase(name, pattern)))
    rows: list[dict[str, Any]] = [
        {"view": name, **defined, "partitions": partitions[name]} for name, defined in found.items()
    ]
    for row in rows:
        del row["position"]  # of single partitions: `describe` makes something of it
    if result is Output.JSON:
        output.json_document(rows)
        return
    columns: tuple[str, ...] = ("view", "source", "partitions", "start", "language", "expression")
    if any(row["state"] != FILLED for row in rows):
        columns = (*columns, "state")
    output.table([row | {"expression": _unbroken(row["expression"])} for row in rows], columns)


@app.command()
@option_groups
def describe(
    views: Names,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Show a view's definition, partitions, lag and configuration."""
    with admin(brokers) as client:
        there = topic.existing(client, views)
        defined = _definitions(client, views)
        for name in views:
            if name not in defined:
                raise CliError(f"{name}: {NO_VIEW}")
        described = [_described(topic.read_topic(client, entry, False), defined[entry["name"]]) for entry in there]
        for view in described:
            _add_lag(client, view)
    output.described(described, _print, result)


@app.command()
@option_groups
def delete(
    views: Names,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Delete views and their records. Sources and ordinary topics are not touched."""
    with admin(brokers) as client:
        defined = _definitions(client, views)
        outcome: dict[str, str | None] = {name: NO_VIEW for name in views if name not in defined}
        outcome |= topic.missing(client, views)
        outcome |= topic.delete_topics(client, [name for name in views if name not in outcome])
    rows = [outcomes.row("view", name, outcome[name], "deleted") for name in dict.fromkeys(views)]
    outcomes.report(rows, result, "view")


def _refuse_contradictions(filters: list[tuple[str, str]], settings: dict[str, str]) -> None:
    if len(filters) != 1:
        raise typer.BadParameter("a view has one filter: specify one of --tag, --sql and --filter")
    language = filters[0][0]
    if VIEW_PREFIX + language in (VIEW_SOURCE, VIEW_FROM):
        raise typer.BadParameter(f"'{language}' is not a filter language", param_hint="--filter")
    for name in settings:
        if name.startswith(VIEW_PREFIX):
            raise typer.BadParameter(
                f"{name} is part of the definition: use --from, --start and a filter option", param_hint="--config"
            )


def _definitions(client: AdminClient, names: list[str]) -> dict[str, dict[str, str]]:
    """Those of the topics that are views, in this order, with their definitions. What is not there is no view."""
    # Of all topics only what tells views apart; of those, all.
    sourced = _settings(client, names, [VIEW_SOURCE])
    settings = _settings(client, [name for name in names if sourced.get(name)])
    return {
        name: {**_definition(settings[name]), **{key: settings[name].get(config, "") for key, config in SHOWN.items()}}
        for name in names
        if settings.get(name)
    }


def _settings(client: AdminClient, names: list[str], keys: list[str] | None = None) -> dict[str, dict[str, str]]:
    """What these topics say themselves; of that only what `keys` names, if given."""
    from halfmoon.cli.admin_client import Resource

    found: dict[str, dict[str, str]] = {}
    for first in range(0, len(names), ASKED_AT_ONCE):
        resources = [Resource("TOPIC", name) for name in names[first : first + ASKED_AT_ONCE]]
        for name, configs in client.configs(resources, keys).items():
            found[name] = {key: config["value"] for key, config in configs.items()}
    return found


def _definition(settings: dict[str, str]) -> dict[str, str]:
    """What these settings make of a topic, which must be a view: by `DEFINED`."""
    from halfmoon.plugins.store.view.definition import definition

    view = definition({name: value for name, value in settings.items() if name not in VIEW_SHOWN})
    assert view is not None
    start = Start.LATEST if view.from_latest else Start.EARLIEST
    return dict(zip(DEFINED, (view.source, view.language, view.expression.strip(), start.value), strict=True))


def _difference(client: AdminClient, name: str, wanted: dict[str, str]) -> str | None:
    """None, or in what a topic that exists differs from the view that these settings define."""
    there = _definitions(client, [name]).get(name)
    if there is None:
        return "a topic of that name exists, and is not a view"
    asked = _definition(wanted)
    if there["state"] != FILLED:
        return f"it exists, but {there['state']}"
    differing = [f"{key} {there[key]!r}, not {asked[key]!r}" for key in DEFINED if there[key] != asked[key]]
    return f"it exists, but with {'; '.join(differing)}" if differing else None


def _described(entry: dict[str, Any], defined: dict[str, str]) -> dict[str, Any]:
    """`topic.read_topic`, with the definition instead of the settings that it stands in."""
    configs = {key: config for key, config in entry.pop("configs").items() if not key.startswith(VIEW_PREFIX)}
    return {"view": entry.pop("topic"), **defined, **entry, "configs": configs}


def _add_lag(client: AdminClient, view: dict[str, Any]) -> None:
    """To each partition: the source's offset that is looked at next, and how many there are; None where it is gone."""
    from kafka import TopicPartition

    source_offsets = [int(pair.partition(":")[0]) for pair in view.pop("position").split(",") if pair]
    ends = end_offsets(client, [TopicPartition(view["source"], number) for number in range(len(source_offsets))])
    for partition in view["partitions"]:
        number = partition["partition"]
        partition["source"] = source_offsets[number] if number < len(source_offsets) else None
        end = ends.get(TopicPartition(view["source"], number))
        known = end is not None and partition["source"] is not None and view["state"] == FILLED
        partition["lag"] = max(0, end - partition["source"]) if known else None


def _print(view: dict[str, Any]) -> None:
    partitions = view["partitions"]
    output.facts(
        {
            "view": view["view"],
            "source": view["source"],
            "language": view["language"],
            "expression": _unbroken(view["expression"]),
            "start": view["start"],
            "state": view["state"],
            "partitions": len(partitions),
            "records": sum(partition["records"] for partition in partitions),
        }
    )
    output.line("")
    output.table(partitions, ("partition", "start", "end", "records", "source", "lag"))
    topic.print_settings(view["configs"])


def _unbroken(expression: str) -> str:
    """An expression on one line, for people."""
    return " ".join(expression.splitlines())
