"""`halfmoon topic`: create, list, describe, alter and delete topics, on Halfmoon or on a Kafka."""

from __future__ import annotations

import sys
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any

import typer

from halfmoon.cli import completing, outcomes, output, topic_patterns
from halfmoon.cli.brokers import Brokers
from halfmoon.cli.connect import admin, offsets_of
from halfmoon.cli.errors import CliError, describe_code
from halfmoon.cli.option_groups import option_groups
from halfmoon.cli.options import Output, OutputOption, key_values
from halfmoon.config.kept_configs import KEPT_OF_TOPICS

if TYPE_CHECKING:
    from halfmoon.cli.admin_client import AdminClient

TOPIC_ALREADY_EXISTS = 36
FORCE = "halfmoon.delete.force"
NO_EFFECT = "no effect here"
_WITHOUT_EFFECT = {kept.name for kept in KEPT_OF_TOPICS}

app = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True)

NewNames = Annotated[list[str], typer.Argument(metavar="TOPIC...", show_default=False)]
Names = Annotated[
    list[str],
    typer.Argument(
        metavar="TOPIC...",
        help="Topics, or shell patterns, such as 'orders-*'.",
        show_default=False,
        autocompletion=completing.topics,
    ),
]
ConfigPairs = Annotated[
    list[str], typer.Option("-c", "--config", metavar="NAME=VALUE", help="Configuration of the topic. Repeatable.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Let the broker validate the request without changing anything.")
]


@app.command()
@option_groups
def create(
    topics: NewNames,
    partitions: Annotated[int, typer.Option("-p", "--partitions", help="-1: the broker's default.")] = -1,
    replicas: Annotated[int, typer.Option("-r", "--replicas", help="-1: the broker's default.")] = -1,
    settings: ConfigPairs = [],
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Succeed if the topic exists.")] = False,
    dry_run: DryRun = False,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Create topics."""
    wanted = {"num_partitions": partitions, "replication_factor": replicas, "configs": key_values(settings, "--config")}
    with admin(brokers) as client:
        answers = client.create_topics(dict.fromkeys(topics, wanted), validate_only=dry_run)
        if not dry_run:
            client.wait_for_topics([entry.name for entry in answers if entry.error_code == 0])
    rows = []
    # In the order asked: Kafka answers in an order of its own.
    for entry in sorted(answers, key=lambda entry: topics.index(entry.name)):
        exists = entry.error_code == TOPIC_ALREADY_EXISTS and if_not_exists
        state = "exists" if exists else "would be created" if dry_run else "created"
        failed = entry.error_code and not exists
        error = describe_code(entry.error_code, entry.error_message) if failed else None
        rows.append(outcomes.row("topic", entry.name, error, state, partitions=partitions_made(entry)))
    outcomes.report(rows, result)


@app.command("list")
@option_groups
def list_topics(
    pattern: Annotated[str, typer.Argument(metavar="[PATTERN]", help="Shell pattern, such as 'orders.*'.")] = "*",
    internal: Annotated[bool, typer.Option("--internal", help="Show internal topics too.")] = False,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """List topics."""
    with admin(brokers) as client:
        described = client.describe_topics()
    rows = [
        {
            "topic": topic["name"],
            "partitions": len(topic["partitions"]),
            "replicas": max((len(partition["replica_nodes"]) for partition in topic["partitions"]), default=0),
            "internal": topic["is_internal"],
        }
        for topic in sorted(described, key=lambda topic: str(topic["name"]))
        if fnmatchcase(topic["name"], pattern) and (internal or not topic["is_internal"])
    ]
    output.rows(rows, ("topic", "partitions", "replicas", *(("internal",) if internal else ())), result)


@app.command()
@option_groups
def describe(
    topics: Names,
    every: Annotated[bool, typer.Option("--all", help="Show configurations with default values too.")] = False,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Show a topic's partitions, offsets and configuration."""
    with admin(brokers) as client:
        described = [read_topic(client, topic, every) for topic in existing(client, _expanded(client, topics))]
    output.described(described, _print_topic, result)


@app.command()
@option_groups
def alter(
    topics: Names,
    settings: ConfigPairs = [],
    unset: Annotated[
        list[str], typer.Option("--unset", metavar="NAME", help="Reset this configuration to its default. Repeatable.")
    ] = [],
    partitions: Annotated[
        int | None,
        typer.Option("-p", "--partitions", help="New number of partitions. It can only grow.", show_default=False),
    ] = None,
    dry_run: DryRun = False,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Change a topic's configuration, or add partitions."""
    changes: dict[str, str | None] = {**key_values(settings, "--config"), **dict.fromkeys(unset)}
    if not changes and partitions is None:
        raise typer.BadParameter("nothing to alter: specify --config, --unset or --partitions")
    rows = []
    with admin(brokers) as client:
        topics = _expanded(client, topics)
        existing(client, topics)
        for name in topics:
            problem = _alter_settings(client, name, changes, dry_run) if changes else None
            if problem is None and partitions is not None:
                problem = _add_partitions(client, name, partitions, dry_run)
            done = "would be altered" if dry_run else "altered"
            rows.append(outcomes.row("topic", name, problem, done))
    outcomes.report(rows, result)


@app.command()
@option_groups
def delete(
    topics: Names,
    force: Annotated[
        bool,
        typer.Option("--force", help="Delete sources of views too. The views keep their records and get no new ones."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before deleting what a pattern matches.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Delete topics and their records. Asks before it deletes what a pattern matches."""
    with admin(brokers) as client:
        by_pattern = topic_patterns.any_pattern(topics)
        topics = _expanded(client, topics)
        if dry_run:
            absent = missing(client, topics)
            rows = [outcomes.row("topic", name, absent.get(name), "would be deleted") for name in topics]
            outcomes.report(rows, result)
            return
        if by_pattern and not yes:
            _confirm(topics)
        refused = _allow_deletion(client, topics) if force else {}
        outcome = refused | delete_topics(client, [name for name in topics if name not in refused])
    for name, problem in outcome.items():
        if problem is not None and FORCE in problem and not force:
            outcome[name] = f"{problem} (halfmoon topic delete --force)"
    outcomes.report([outcomes.row("topic", name, outcome[name], "deleted") for name in dict.fromkeys(topics)], result)


def _confirm(topics: list[str]) -> None:
    """Raises CliError unless a person agrees. Not by typer.confirm, which writes to stdout, too."""
    output.note("\n".join(topics))
    print(f"Delete {len(topics)} topic{'s' if len(topics) != 1 else ''}? [y/N]: ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer:
        output.note("")
        raise CliError("nothing was deleted: specify --yes where nobody can be asked")
    if answer.strip().lower() not in ("y", "yes"):
        raise CliError("nothing was deleted")


def _expanded(client: AdminClient, names: list[str]) -> list[str]:
    """Raises CliError for a pattern that no topic matches."""
    return topic_patterns.expand(
        names, lambda: [topic["name"] for topic in client.describe_topics() if not topic["is_internal"]]
    )


def delete_topics(client: AdminClient, names: list[str]) -> dict[str, str | None]:
    """Delete topics; for each None, or the broker's reason for refusing."""
    if not names:
        return {}
    return {
        entry.name: describe_code(entry.error_code, entry.error_message) if entry.error_code else None
        for entry in client.delete_topics(names)
    }


def missing(client: AdminClient, names: list[str]) -> dict[str, str | None]:
    """Those of the topics that the broker does not have, with what it says of them."""
    described = client.describe_topics(names)
    return {topic["name"]: describe_code(topic["error_code"], None) for topic in described if topic["error_code"]}


def partitions_made(entry: Any) -> int | None:
    """How many partitions a topic got, where the broker's answer to its creation says so."""
    count: int = entry.num_partitions
    return count if count > 0 else None


def existing(client: AdminClient, names: list[str]) -> list[dict[str, Any]]:
    """Metadata of topics that must exist; CliError names the first that does not."""
    described = {topic["name"]: topic for topic in client.describe_topics(names)}
    for name in names:
        if described[name]["error_code"]:
            raise CliError(f"{name}: {describe_code(described[name]['error_code'], None)}")
    return [described[name] for name in names]


def read_topic(client: AdminClient, topic: dict[str, Any], every: bool) -> dict[str, Any]:
    from kafka import TopicPartition

    from halfmoon.cli.admin_client import EARLIEST, LATEST

    name = topic["name"]
    parts = sorted(topic["partitions"], key=lambda part: int(part["partition_index"]))
    queues = [TopicPartition(name, part["partition_index"]) for part in parts]
    start, end = offsets_of(client, queues, EARLIEST, LATEST)
    return {
        "topic": name,
        "id": str(topic["topic_id"]) if topic.get("topic_id") else None,
        "internal": topic["is_internal"],
        "partitions": [
            {
                "partition": part["partition_index"],
                "leader": part["leader_id"],
                "epoch": part["leader_epoch"] if part["leader_epoch"] >= 0 else None,
                "replicas": part["replica_nodes"],
                "start": start[queue],
                "end": end[queue],
                "records": end[queue] - start[queue],
            }
            for part, queue in zip(parts, queues, strict=True)
        ],
        "configs": _read_configs(client, name, every),
    }


def _read_configs(client: AdminClient, name: str, every: bool) -> dict[str, Any]:
    """Empty where the broker's service for configurations is off."""
    from kafka.errors import UnsupportedVersionError

    from halfmoon.cli.admin_client import Resource

    try:
        found = client.configs([Resource("TOPIC", name)], every=every)[name]
        idle = _WITHOUT_EFFECT & found.keys()
        if idle and not any(
            key.startswith("halfmoon.") for key in client.configs([Resource("TOPIC", name)], every=True)[name]
        ):
            idle = set()  # this is a Kafka
    except UnsupportedVersionError:
        return {}
    return {key: config | ({"note": NO_EFFECT} if key in idle else {}) for key, config in sorted(found.items())}


def _print_topic(topic: dict[str, Any]) -> None:
    partitions = topic["partitions"]
    output.facts(
        {
            "topic": topic["topic"],
            "id": topic["id"],
            "internal": topic["internal"],
            "partitions": len(partitions),
            "records": sum(partition["records"] for partition in partitions),
        }
    )
    output.line("")
    output.table(partitions, ("partition", "leader", "epoch", "replicas", "start", "end", "records"))
    print_settings(topic["configs"])


def print_settings(configs: dict[str, Any]) -> None:
    """A paragraph with a topic's settings, if there are any."""
    if configs:
        output.line("")
        noted = any("note" in config for config in configs.values())
        rows = [{"setting": name, "note": "", **config} for name, config in configs.items()]
        output.table(rows, ("setting", "value", "source", *(("note",) if noted else ())))


def _allow_deletion(client: AdminClient, names: list[str]) -> dict[str, str | None]:
    """Have the topics deleted whatever needs them; those that cannot, with the broker's reason for refusing."""
    from halfmoon.cli.admin_client import Resource

    # Deleting will say of those that are missing that they are.
    absent = missing(client, names)
    resources = [(Resource("TOPIC", name), {FORCE: "true"}) for name in names if name not in absent]
    if not resources:
        return {}
    answers = client.alter_configs(resources)
    return {name: _reason(answer) for name, answer in answers.items() if answer.error_code}


def _alter_settings(client: AdminClient, name: str, changes: dict[str, str | None], dry_run: bool) -> str | None:
    """None, or the broker's reason for refusing."""
    from halfmoon.cli.admin_client import Resource

    answer = client.alter_configs([(Resource("TOPIC", name), changes)], validate_only=dry_run)[name]
    return _reason(answer) if answer.error_code else None


def _reason(answer: Any) -> str:
    """Of an answer to a change of configurations: the broker says what it refuses; else the error's name."""
    return str(answer.error_message or describe_code(answer.error_code, None))


def _add_partitions(client: AdminClient, name: str, total: int, dry_run: bool) -> str | None:
    """None, or the broker's reason for refusing."""
    entry = client.add_partitions(name, total, validate_only=dry_run)
    return describe_code(entry.error_code, entry.error_message) if entry.error_code else None
