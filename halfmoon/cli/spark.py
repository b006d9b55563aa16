"""What the commands that run Spark share: its options, a session that ends with the command, and the progress.

Ctrl-C and SIGTERM end a command at its next step, batches of a stream being such steps; the session is stopped in
order, and everything that the command does can be run again. A second one ends it at once.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from halfmoon.cli import output
from halfmoon.cli.brokers import Brokers
from halfmoon.cli.errors import CliError
from halfmoon.cli.options import key_values, time_ms
from halfmoon.cli.times import HELP

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from halfmoon.pipeline.brokers import Brokers as There
    from halfmoon.pipeline.queries import Batch
    from halfmoon.pipeline.steps import OnStep, Step

EveryOption = Annotated[
    str | None,
    typer.Option(
        "--every",
        metavar="INTERVAL",
        help="Run continuously, with a batch every '10 seconds'. Default: read what exists, then end.",
        show_default=False,
    ),
]
GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group", metavar="GROUP", help="Commit the offsets for this group, for lag tools.", show_default=False
    ),
]
BatchOption = Annotated[int, typer.Option("--batch-records", min=1, help="Limit: records per batch.")]
LossOption = Annotated[
    bool,
    typer.Option("--allow-data-loss", help="Continue when records were lost before they were read."),
]
FromTimeOption = Annotated[str | None, typer.Option("--from", metavar="TIME", help=HELP, show_default=False)]
UntilOption = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="End time (exclusive).", show_default=False)
]


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Which Spark, and how it is set."""

    master: Annotated[
        str | None,
        typer.Option(
            "--master",
            metavar="URL",
            help="Spark master: local[4], spark://HOST:PORT, …",
            show_default="this machine",
        ),
    ] = None
    remote: Annotated[
        str | None,
        typer.Option("--remote", metavar="sc://HOST:PORT", help="Spark Connect server.", show_default=False),
    ] = None
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="NAME=VALUE", help="Spark configuration. Repeatable.", show_default=False),
    ] = None
    driver_memory: Annotated[
        str, typer.Option("--driver-memory", metavar="SIZE", help="Memory of the driver's JVM.")
    ] = "1g"


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruptible:
    """One command, and whether it was asked to end."""

    def __init__(self) -> None:
        self._asked = False
        self._ticking = False

    def tick(self) -> None:
        """For long work to call some times a second: raises KeyboardInterrupt when the command is to end."""
        self._ticking = True
        if self._asked:
            raise KeyboardInterrupt

    def listen(self) -> None:
        """Take the signals, from whoever has them."""
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        # While something ticks, the end waits for the tick: an exception out of nowhere may strike in one of py4j's
        # finalisers, where Python drops it.
        if self._asked or not self._ticking:
            raise KeyboardInterrupt
        self._asked = True


class Running(Interruptible):
    """One command that runs Spark, over these brokers."""

    def __init__(self, spark: SparkSession, brokers: There) -> None:
        super().__init__()
        self.spark = spark
        self.brokers = brokers


@contextmanager
def interruptible() -> Iterator[Interruptible]:
    """For a command that runs no Spark, and works long."""
    with _signals_restored():
        command = Interruptible()
        command.listen()
        yield command


@contextmanager
def explained() -> Iterator[None]:
    """Raises CliError, one line, for what the pipeline has against something in the block, and for what is missing."""
    from halfmoon.pipeline.errors import PipelineError

    try:
        yield
    except PipelineError as failed:
        raise CliError(str(failed)) from failed
    except ImportError as missing:
        if os.environ.get("HALFMOON_DEBUG"):
            raise
        said = f"{missing.name} is not installed: pip install 'halfmoon[spark]'" if missing.name else str(missing)
        raise CliError(said) from None


@contextmanager
def running(name: str, options: SparkOptions, brokers: Brokers) -> Iterator[Running]:
    """A session for the block, which raises as in `explained`."""
    with explained(), _session(name, options, at(brokers)) as command:
        yield command


@contextmanager
def _session(name: str, options: SparkOptions, there: There) -> Iterator[Running]:
    settings = key_values(options.conf or [], "--conf")
    from halfmoon.pipeline import session, stop
    from halfmoon.pipeline.failures import spark_errors

    # py4j tells the log of every call that was under way when the JVM was ended; what matters comes as an exception.
    logging.getLogger().addHandler(logging.NullHandler())
    with _warnings_told(), _signals_restored():
        with output.status("starting Spark (the first time it downloads its Kafka connector)"):
            spark = session(
                f"halfmoon-{name}", master=options.master, remote=options.remote,
                driver_memory=options.driver_memory, config=settings,
            )  # fmt: skip
        command = Running(spark, there)
        command.listen()  # After pyspark has put a handler of its own there.
        try:
            with spark_errors():
                yield command
        finally:
            stop(spark)


@contextmanager
def _warnings_told() -> Iterator[None]:
    log, told = logging.getLogger("halfmoon"), logging.StreamHandler()
    told.setFormatter(logging.Formatter("halfmoon: %(message)s"))
    log.addHandler(told)
    try:
        yield
    finally:
        log.removeHandler(told)


@contextmanager
def _signals_restored() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def at(brokers: Brokers) -> There:
    """The brokers as the pipeline takes them. Raises CliError, SecurityError, OSError, PipelineError."""
    from halfmoon.pipeline.brokers import Brokers as Found

    brokers.tcp_servers()  # what is no address, Spark would say in Java
    return Found(brokers.bootstrap_server, security=brokers.security)


def show_batch(batch: Batch) -> None:
    """A line for each batch, on stderr."""
    from halfmoon.pipeline.progress import batch_line

    output.note(batch_line(batch))


@contextmanager
def steps_shown(what: str, wanted: bool = True) -> Iterator[OnStep]:
    """A bar for the steps of long work, on stderr; nothing where that is no terminal, or not `wanted`."""
    with output.progress(f"{what}: asking the broker", wanted=wanted, alike=False) as progress:

        def on_step(step: Step) -> None:
            # Never a whole step: of Spark's tasks, those of later stages are not known yet.
            part = min(step.done / step.of, 0.99) if step.of else 0.0
            note = f" · {step.note}" if step.note else ""
            progress.update(step.number - 1 + part, len(step.plan), f"{what}: {step.what}{note}")

        yield on_step


def moment(text: str | None, option: str) -> datetime | None:
    """A time on the command line."""
    return None if text is None else datetime.fromtimestamp(time_ms(text, option) / 1000, UTC)


def start_at(text: str) -> Any:
    """`earliest`, `latest`, or a time."""
    return text if text in ("earliest", "latest") else moment(text, "--from")


def folder(path: str) -> str:
    """A directory as Spark is to find it: what has no scheme is on this machine, from the working directory on."""
    return path if "://" in path else str(Path(path).expanduser().absolute())
