"""`halfmoon pipeline`: jobs on Spark. Each is a function of halfmoon.pipeline; here are its options and its result."""

from __future__ import annotations

from typing import Annotated

import typer

from halfmoon.cli import output, pipeline_report
from halfmoon.cli.brokers import Brokers
from halfmoon.cli.option_groups import option_groups
from halfmoon.cli.options import Output, OutputOption, key_values
from halfmoon.cli.spark import (
    BatchOption,
    EveryOption,
    FromTimeOption,
    GroupOption,
    LossOption,
    SparkOptions,
    UntilOption,
    at,
    explained,
    folder,
    moment,
    running,
    show_batch,
    start_at,
)

app = typer.Typer(help="Jobs on Spark: archive topics, replay them, make reports.", no_args_is_help=True)
app.add_typer(pipeline_report.app, name="report")

ArchiveOption = Annotated[
    str, typer.Option("--archive", metavar="DIR", help="The archive; a directory or any URI that Spark can write.")
]


@app.command()
@option_groups
def archive(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", show_default=False)],
    to: ArchiveOption,
    schema: Annotated[
        list[str],
        typer.Option("--schema", metavar="TOPIC=DDL", help="Schema of JSON values: 'orders=id STRING, n INT'."),
    ] = [],
    start: Annotated[
        str, typer.Option("--from", metavar="WHERE", help="Start of new topics: earliest, latest, or a time.")
    ] = "earliest",
    every: EveryOption = None,
    batch_records: BatchOption = 1_000_000,
    group: GroupOption = None,
    allow_data_loss: LossOption = False,
    compacting: Annotated[
        bool, typer.Option("--compact/--no-compact", help="Merge small files into large ones.")
    ] = True,
    *,
    spark: SparkOptions,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Append new records of topics to an archive.

    The archive is Parquet by topic and day, and has every record exactly once. The command may be killed at any time
    and run again.
    """
    schemas, begin = key_values(schema, "--schema"), start_at(start)
    with running("archive", spark, brokers) as command:
        from halfmoon.pipeline.jobs.archive import archive as run

        done = run(
            command.spark, topics, folder(to), bootstrap=command.brokers, start=begin, schemas=schemas,
            every=every, batch_records=batch_records, group=group, allow_data_loss=allow_data_loss,
            compacting=compacting, on_batch=show_batch, on_tick=command.tick,
        )  # fmt: skip
    rows = [{"topic": topic, "records": totals.rows, "batches": totals.batches} for topic, totals in done.items()]
    output.rows(rows, ("topic", "records", "batches"), result)


@app.command()
@option_groups
def replay(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    archive: ArchiveOption,
    to: Annotated[str, typer.Option("--to", metavar="TARGET", help="Target topic.", show_default=False)],
    start: FromTimeOption = None,
    until: UntilOption = None,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.001, help="Limit: records per second.", show_default=False)
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            help="Name of the replay: an interrupted one continues, a finished one needs a new name.",
        ),
    ] = None,
    *,
    spark: SparkOptions,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Send a topic's archived records to a topic.

    They go with timestamps and headers, in order, every record exactly once. The command may be killed at any time; run
    again, it continues.
    """
    if name is None and any(text is not None and text.startswith("-") for text in (start, until)):
        # It would be called after other times at every run, and so never go on.
        raise typer.BadParameter("a relative time needs a --name", param_hint="--from/--until")
    bounds = {"start": moment(start, "--from"), "end": moment(until, "--until")}
    with running("replay", spark, brokers) as command, output.progress(f"{topic} → {to}") as progress:
        from halfmoon.pipeline.jobs.replay import replay as run

        def on_progress(done: int, total: int) -> None:
            command.tick()
            progress.update(done, total)

        done = run(
            command.spark, folder(archive), topic, to, bootstrap=command.brokers, rate=rate, name=name,
            on_progress=on_progress, **bounds,
        )  # fmt: skip
    row = {"topic": topic, "to": to, "sent": done.sent, "already_there": done.found, "name": done.name}
    output.rows([row], ("topic", "to", "sent", "already_there", "name"), result)


@app.command()
@option_groups
def orders(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Created if it does not exist.", show_default=False)],
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="Number of orders.")] = 10_000,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same shop.")] = 1,
    hours: Annotated[float, typer.Option("--hours", min=0.1, help="Time span of the orders, in hours.")] = 48.0,
    partitions: Annotated[int, typer.Option("-p", "--partitions", min=1, help="Partitions of a new topic.")] = 4,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Fill a topic with synthetic orders and payments of a shop.

    The command prints the expected success rate. Orders have the tag TagA, payments TagB; some are late, some are
    duplicates, some are missing. Try `report success-rate`.
    """
    with explained():
        from halfmoon.pipeline.jobs.shop import fill

        filled = fill(topic, count, seed=seed, hours=hours, partitions=partitions, bootstrap=at(brokers))
    output.rows([{"topic": topic, **filled}], ("topic", "records", "orders", "paid", "late", "missing"), result)
