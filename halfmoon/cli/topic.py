"""`halfmoon topic`: create, list, describe, alter and delete topics, on Halfmoon or on a Kafka."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any

import typer

from halfmoon.cli import outcomes, output
from halfmoon.cli.connect import admin
from halfmoon.cli.errors import CliError, describe_code, without_number
from halfmoon.cli.options import DEFAULT_BOOTSTRAP_SERVER, BootstrapOption, Output, OutputOption, key_values
from halfmoon.config.kept_configs import KEPT_OF_TOPICS

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

TOPIC_ALREADY_EXISTS = 36
FORCE = "halfmoon.delete.force"
NO_EFFECT = "no effect here"
_WITHOUT_EFFECT = {kept.name for kept in KEPT_OF_TOPICS}

app = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True)

Names = Annotated[list[str], typer.Argument(metavar="TOPIC...", show_default=False)]
ConfigPairs = Annotated[
    list[str], typer.Option("-c", "--config", metavar="NAME=VALUE", help="Configuration of the topic. Repeatable.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Let the broker validate the request without changing anything.")
]


@app.command()
def create(
    topics: Names,
    partitions: Annotated[int, typer.Option("-p", "--partitions", help="-1: the broker's default.")] = -1,
    replicas: Annotated[int, typer.Option("-r", "--replicas", help="-1: the broker's default.")] = -1,
    settings: ConfigPairs = [],
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Succeed if the topic exists.")] = False,
    dry_run: DryRun = False,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP_SERVER,
    result: OutputOption = Output.TEXT,
) -> None:
    """Create topics."""
    wanted = {"num_partitions": partitions, "replication_factor": replicas, "configs": key_values(settings, "--config")}
    with admin(bootstrap_server) as client:
        answer = client.create_topics(dict.fromkeys(topics, wanted), validate_only=dry_run, raise_errors=False)
        if not dry_run:
            created = [entry["name"] for entry in answer["topics"] if entry["error_code"] == 0]
            client.wait_for_topics(created)
    rows = []
    for entry in _in_order(answer["topics"], topics):
        exists = entry["error_code"] == TOPIC_ALREADY_EXISTS and if_not_exists
        state = "exists" if exists else "would be created" if dry_run else "created"
        failed = entry["error_code"] and not exists
        error = describe_code(entry["error_code"], entry["error_message"]) if failed else None
        rows.append(outcomes.row("topic", entry["name"], error, state, partitions=partitions_made(entry)))
    outcomes.report(rows, result)


@app.command("list")
def list_topics(
    pattern: Annotated[str, typer.Argument(metavar="[PATTERN]", help="Shell pattern, such as 'orders.*'.")] = "*",
    internal: Annotated[bool, typer.Option("--internal", help="Show internal topics too.")] = False,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP_SERVER,
    result: OutputOption = Output.TEXT,
) -> None:
    """List topics."""
    with admin(bootstrap_server) as client:
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
def describe(
    topics: Names,
    every: Annotated[bool, typer.Option("--all", help="Show configurations with default values too.")] = False,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP_SERVER,
    result: OutputOption = Output.TEXT,
) -> None:
    """Show a topic's partitions with their offsets, and its configuration."""
    with admin(bootstrap_server) as client:
        described = [read_topic(client, topic, every) for topic in existing(client, topics)]
    output.described(described, _print_topic, result)


@app.command()
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
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP_SERVER,
    result: OutputOption = Output.TEXT,
) -> None:
    """Change a topic's configuration, or add partitions."""
    changes: dict[str, Any] = {name: ("SET", value) for name, value in key_values(settings, "--config").items()}
    changes |= dict.fromkeys(unset, ("DELETE", None))
    if not changes and partitions is None:
        raise typer.BadParameter("nothing to alter: specify --config, --unset or --partitions")
    rows = []
    with admin(bootstrap_server) as client:
        existing(client, topics)
        for name in topics:
            problem = _alter_settings(client, name, changes, dry_run) if changes else None
            if problem is None and partitions is not None:
                problem = _add_partitions(client, name, partitions, dry_run)
            done = "would be altered" if dry_run else "altered"
            rows.append(outcomes.row("topic", name, problem, done))
    outcomes.report(rows, result)


@app.command()
def delete(
    topics: Names,
    force: Annotated[
        bool,
        typer.Option("--force", help="Delete sources of views too. The views keep their records and get no new ones."),
    ] = False,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP_SERVER,
    result: OutputOption = Output.TEXT,
) -> None:
    """Delete topics and their records."""
    with admin(bootstrap_server) as client:
        refused = _allow_deletion(client, topics) if force else {}
        outcome = refused | delete_topics(client, [name for name in topics if name not in refused])
    outcomes.report([outcomes.row("topic", name, outcome[name], "deleted") for name in dict.fromkeys(topics)], result)


def delete_topics(client: KafkaAdminClient, names: list[str]) -> dict[str, str | None]:
    """Delete topics; for each None, or the broker's reason for refusing."""
    if not names:
        return {}
    answer = client.delete_topics(names, raise_errors=False)
    return {
        entry["name"]: describe_code(entry["error_code"], entry.get("error_message")) if entry["error_code"] else None
        for entry in answer["topics"]
    }


def missing(client: KafkaAdminClient, names: list[str]) -> dict[str, str | None]:
    """Those of the topics that the broker does not have, with what it says of them."""
    described = client.describe_topics(names)
    return {topic["name"]: describe_code(topic["error_code"], None) for topic in described if topic["error_code"]}


def partitions_made(entry: dict[str, Any]) -> int | None:
    """How many partitions a topic got, where the broker's answer to its creation says so."""
    count: int = entry.get("num_partitions", -1)
    return count if count > 0 else None


def _in_order(entries: list[dict[str, Any]], names: list[str]) -> list[dict[str, Any]]:
    """The broker's answers in the order asked: Kafka answers in an order of its own."""
    return sorted(entries, key=lambda entry: names.index(entry["name"]))


def existing(client: KafkaAdminClient, names: list[str]) -> list[dict[str, Any]]:
    """Metadata of topics that must exist; CliError names the first that does not."""
    described = {topic["name"]: topic for topic in client.describe_topics(names)}
    for name in names:
        if described[name]["error_code"]:
            raise CliError(f"{name}: {describe_code(described[name]['error_code'], None)}")
    return [described[name] for name in names]


def read_topic(client: KafkaAdminClient, topic: dict[str, Any], every: bool) -> dict[str, Any]:
    from kafka import TopicPartition
    from kafka.admin import OffsetSpec

    name = topic["name"]
    parts = sorted(topic["partitions"], key=lambda part: int(part["partition_index"]))
    queues = [TopicPartition(name, part["partition_index"]) for part in parts]
    start = client.list_partition_offsets(dict.fromkeys(queues, OffsetSpec.EARLIEST))
    end = client.list_partition_offsets(dict.fromkeys(queues, OffsetSpec.LATEST))
    return {
        "topic": name,
        "id": str(topic["topic_id"]) if topic.get("topic_id") else None,
        "internal": topic["is_internal"],
        "partitions": [
            {
                "partition": part["partition_index"],
                "leader": part["leader_id"],
                "epoch": part.get("leader_epoch"),
                "replicas": part["replica_nodes"],
                "start": start[queue].offset,
                "end": end[queue].offset,
                "records": end[queue].offset - start[queue].offset,
            }
            for part, queue in zip(parts, queues, strict=True)
        ],
        "configs": _read_configs(client, name, every),
    }


def _read_configs(client: KafkaAdminClient, name: str, every: bool) -> dict[str, Any]:
    """Empty where the broker's service for configurations is off."""
    from kafka.errors import UnsupportedVersionError

    try:
        found = _describe_configs(client, name, "all" if every else "modified")
        idle = _WITHOUT_EFFECT & found.keys()
        if idle and not any(key.startswith("halfmoon.") for key in _describe_configs(client, name, "all")):
            idle = set()  # this is a Kafka
    except UnsupportedVersionError:
        return {}
    return {
        key: {"value": config["value"], "source": config["config_source"]}
        | ({"note": NO_EFFECT} if key in idle else {})
        for key, config in sorted(found.items())
    }


def _describe_configs(client: KafkaAdminClient, name: str, kinds: str) -> dict[str, Any]:
    from kafka.admin import ConfigResource

    found: dict[str, Any] = client.describe_configs([ConfigResource("TOPIC", name)], config_filter=kinds)
    return found["topic"][name]  # type: ignore[no-any-return]


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


def _allow_deletion(client: KafkaAdminClient, names: list[str]) -> dict[str, str | None]:
    """Have the topics deleted whatever needs them; those that cannot, with the broker's reason for refusing."""
    from kafka.admin import ConfigResource

    # Deleting will say of those that are missing that they are.
    absent = missing(client, names)
    resources = [ConfigResource("TOPIC", name, {FORCE: ("SET", "true")}) for name in names if name not in absent]
    if not resources:
        return {}
    answer = client.alter_configs(resources, raise_on_unknown=False)
    return {name: without_number(said) for name, said in answer["topic"].items() if said != "OK"}


def _alter_settings(client: KafkaAdminClient, name: str, changes: dict[str, Any], dry_run: bool) -> str | None:
    """None, or the broker's reason for refusing."""
    from kafka.admin import ConfigResource

    resource = ConfigResource("TOPIC", name, dict(changes))
    # raise_on_unknown would be kafka-python's own guess at what the broker knows.
    answer = client.alter_configs([resource], validate_only=dry_run, raise_on_unknown=False)
    said = str(answer["topic"][name])
    return None if said == "OK" else without_number(said)


def _add_partitions(client: KafkaAdminClient, name: str, total: int, dry_run: bool) -> str | None:
    """None, or the broker's reason for refusing."""
    answer = client.create_partitions({name: total}, validate_only=dry_run, raise_errors=False)
    entry = answer.results[0]
    return describe_code(entry.error_code, entry.error_message) if entry.error_code else None
