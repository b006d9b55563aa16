"""`halfmoon group`: list, describe, configure, reset and delete consumer groups, on Halfmoon or on a Kafka."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from halfmoon.cli import completing, outcomes, output, reset, times
from halfmoon.cli.brokers import Brokers
from halfmoon.cli.connect import admin, patiently
from halfmoon.cli.errors import CliError, describe_code
from halfmoon.cli.option_groups import option_groups
from halfmoon.cli.options import Output, OutputOption, key_values

if TYPE_CHECKING:
    from halfmoon.cli.admin_client import AdminClient

app = typer.Typer(help="List, describe, configure, reset and delete consumer groups.", no_args_is_help=True)

GroupName = Annotated[str, typer.Argument(metavar="GROUP", show_default=False, autocompletion=completing.groups)]
DESCRIBED = ("topic", "partition", "committed", "end", "lag", "member", "client", "host")
PLANNED = ("topic", "partition", "committed", "new", "change")


@app.command("list")
@option_groups
def list_groups(
    state: Annotated[
        list[str], typer.Option("--state", help="Only groups in this state, such as Empty. Repeatable.")
    ] = [],
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """List groups."""
    wanted = {name.lower() for name in state}
    with admin(brokers) as client:
        found = patiently(client.list_groups)
    rows = [
        {
            "group": entry.group_id,
            "state": entry.group_state or None,
            "type": entry.group_type or None,
            "protocol": entry.protocol_type,
        }
        for entry in sorted(found, key=lambda entry: str(entry.group_id))
        if not wanted or entry.group_state.lower() in wanted
    ]
    output.rows(rows, ("group", "state", "type", "protocol"), result)


@app.command()
@option_groups
def describe(
    group: GroupName,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Show a group's state, members, committed offsets and lag."""
    with admin(brokers) as client:
        described = _existing(client, group)
        owners = _owners(described["members"])
        committed = reset.committed_offsets(client, group)
        queues = sorted(set(owners) | set(committed))
        ends = reset.end_offsets(client, queues)
    rows = []
    for queue in queues:
        offset, end = committed.get(queue), ends.get(queue)
        lag = None if offset is None or end is None else max(0, end - offset)
        owner = owners.get(queue, {})
        place = {"topic": queue.topic, "partition": queue.partition}
        rows.append({**place, "committed": offset, "end": end, "lag": lag, **owner})
    known_lags = [row["lag"] for row in rows if row["lag"] is not None]
    summary = {
        "group": group,
        "state": described["group_state"],
        "protocol": described["protocol_data"] or None,
        "members": len(described["members"]),
        "lag": sum(known_lags) if known_lags else None,
    }
    if result is Output.JSON:
        members = [_member(member) for member in described["members"]]
        output.json_document({**summary, "members": members, "partitions": rows})
        return
    output.facts(summary)
    if rows:
        output.line("")
        output.table(rows, DESCRIBED)


@app.command()
@option_groups
def configs(
    group: GroupName,
    every: Annotated[bool, typer.Option("--all", help="Show configurations with default values too.")] = False,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Show a group's configurations, whether it exists or not."""
    from halfmoon.cli.admin_client import Resource

    with admin(brokers) as client:
        found = client.configs([Resource("GROUP", group)], every=True).get(group, {})
    if not found:
        raise CliError(f"group {group}: the broker has no configurations of groups")
    shown = {name: config for name, config in sorted(found.items()) if every or config["source"] != "DEFAULT_CONFIG"}
    if result is Output.JSON:
        output.json_document({"group": group, "configs": shown})
        return
    rows = [{"setting": name, **config} for name, config in shown.items()]
    output.table(rows, ("setting", "value", "source"))


@app.command()
@option_groups
def alter(
    groups: Annotated[
        list[str], typer.Argument(metavar="GROUP...", show_default=False, autocompletion=completing.groups)
    ],
    settings: Annotated[
        list[str],
        typer.Option("-c", "--config", "--set", metavar="NAME=VALUE", help="Configuration of the group. Repeatable."),
    ] = [],
    unset: Annotated[
        list[str], typer.Option("--unset", metavar="NAME", help="Reset this configuration to its default. Repeatable.")
    ] = [],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Let the broker validate the request without changing anything.")
    ] = False,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Change configurations of groups, whether they exist or not."""
    from halfmoon.cli.admin_client import Resource

    changes: dict[str, str | None] = {**key_values(settings, "--config"), **dict.fromkeys(unset)}
    if not changes:
        raise typer.BadParameter("nothing to alter: specify --set or --unset")
    done = "would be altered" if dry_run else "altered"
    rows = []
    with admin(brokers) as client:
        for name in dict.fromkeys(groups):
            answer = client.alter_configs([(Resource("GROUP", name), changes)], validate_only=dry_run)[name]
            refused = answer.error_message or describe_code(answer.error_code, None) if answer.error_code else None
            rows.append(outcomes.row("group", name, refused, done))
    outcomes.report(rows, result, "group")


@app.command()
@option_groups
def delete(
    groups: Annotated[
        list[str], typer.Argument(metavar="GROUP...", show_default=False, autocompletion=completing.groups)
    ],
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Delete groups without members, and their committed offsets."""
    with admin(brokers) as client:
        answers = patiently(lambda: client.delete_groups(groups))
    outcomes.report(
        [outcomes.row("group", name, _problem(answers.get(name)), "deleted") for name in groups], result, "group"
    )


@app.command("reset")
@option_groups
def reset_offsets(
    group: GroupName,
    topic: Annotated[
        list[str],
        typer.Option(
            "--topic",
            metavar="TOPIC[:PARTITION,…]",
            help="Only this topic, or these partitions. Repeatable.",
            autocompletion=completing.topics,
        ),
    ] = [],
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end of the partition.")] = False,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", min=0, help="To this offset in every partition.", show_default=False)
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option("--to-time", metavar="TIME", help=times.HELP, show_default=False),
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", help="Forward by this many records; negative: back.", show_default=False)
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="Commit the new offsets, or only show them.")
    ] = False,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Reset the committed offsets of a group without members. Shows the plan; --execute applies it.

    Without --topic: every partition with a committed offset. New offsets stay within the partition's bounds.
    """
    try:
        target = reset.target(to_earliest, to_latest, to_offset, to_time, shift_by, time.time_ns() // 1_000_000)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    with admin(brokers) as client:
        _refuse_members(client, group)
        committed = reset.committed_offsets(client, group)
        queues = reset.scope(client, topic) if topic else sorted(committed)
        if not queues:
            raise CliError(f"group {group} has no committed offsets: specify --topic")
        changes = reset.plan(client, queues, committed, target)
        if execute:
            reset.carry_out(client, group, changes)
    rows = [
        {"topic": c.topic, "partition": c.partition, "committed": c.committed, "new": c.new, "change": c.change}
        for c in changes
    ]
    if result is Output.JSON:
        output.json_document({"group": group, "executed": execute, "partitions": rows})
        return
    output.table(rows, PLANNED)
    if execute:
        output.note("The new offsets are committed.")
    else:
        output.note("This is the plan; nothing was changed. --execute applies it.")


def _describe(client: AdminClient, group: str) -> dict[str, Any]:
    return patiently(lambda: client.describe_group(group))


def _existing(client: AdminClient, group: str) -> dict[str, Any]:
    """The group as described. CliError if there is none: Kafka says so with an error, or with the state Dead."""
    described = _describe(client, group)
    if described["group_state"] == "Dead":
        raise CliError(f"there is no group {group}")
    if described["error_code"]:
        raise CliError(f"group {group}: {describe_code(described['error_code'], described['error_message'])}")
    return described


def _refuse_members(client: AdminClient, group: str) -> None:
    """A live member would commit over the new offsets, and the broker refuses; say how to get there. New is fine."""
    described = _describe(client, group)
    if described["group_state"] not in ("Dead", "Empty"):
        count = len(described["members"])
        state = described["group_state"]
        raise CliError(f"group {group} is {state} with {count} member{'s' if count != 1 else ''}: stop them first")


def _owners(members: list[dict[str, Any]]) -> dict[Any, dict[str, str]]:
    """Who has which partition. A member whose assignment is of no consumer (Kafka Connect's) owns none here."""
    from kafka import TopicPartition

    found = {}
    for member in members:
        who = {"member": member["member_id"], "client": member["client_id"], "host": member["client_host"]}
        for topic, partitions in (member["assigned"] or {}).items():
            found.update({TopicPartition(topic, partition): who for partition in partitions})
    return found


def _member(member: dict[str, Any]) -> dict[str, Any]:
    return {
        "member": member["member_id"],
        "instance": member["group_instance_id"],
        "client": member["client_id"],
        "host": member["client_host"],
    }


def _problem(error_code: int | None) -> str | None:
    """None, or the broker's reason for refusing."""
    if error_code is None:
        return "the broker did not answer"
    return describe_code(error_code, None) if error_code else None
