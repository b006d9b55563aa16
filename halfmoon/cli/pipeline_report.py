"""`halfmoon pipeline report`: tables, an HTML page and charts from what topics hold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from halfmoon.cli import output
from halfmoon.cli.brokers import Brokers
from halfmoon.cli.option_groups import option_groups
from halfmoon.cli.options import Output, OutputOption, key_values
from halfmoon.cli.spark import (
    BatchOption,
    EveryOption,
    FromTimeOption,
    GroupOption,
    LossOption,
    Running,
    SparkOptions,
    UntilOption,
    at,
    explained,
    interruptible,
    moment,
    running,
    show_batch,
    steps_shown,
)

if TYPE_CHECKING:
    from halfmoon.pipeline.jobs.report_kinds import Kind
    from halfmoon.pipeline.reports.publish import Published
    from halfmoon.pipeline.reports.report import Report

SHOWN_ROWS = 20
"""Of each table, on the terminal."""

app = typer.Typer(help="Make reports: tables, an HTML page, charts.", no_args_is_help=True)

OutOption = Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory of the tables, charts and the page.")]


@dataclass
class ReportOptions:
    """What the reports over messages have in common. Raises BadParameter for options that contradict each other."""

    out: OutOption = Path("out")
    stream: Annotated[
        bool,
        typer.Option("--stream", help="Keep state under --out, and read only records that are new since the last run."),
    ] = False
    every: EveryOption = None
    start: FromTimeOption = None
    until: UntilOption = None
    batch_records: BatchOption = 1_000_000
    group: GroupOption = None
    allow_data_loss: LossOption = False

    def __post_init__(self) -> None:
        self.is_stream = self.stream or self.every is not None
        if self.is_stream and self.until is not None:
            raise typer.BadParameter("a stream has no end: omit --stream and --every", param_hint="--until")
        if self.group is not None and not self.is_stream:
            raise typer.BadParameter("only a stream has offsets to commit: add --stream", param_hint="--group")
        self.begin = moment(self.start, "--from") or "earliest"
        self.end = moment(self.until, "--until") or "latest"


@app.command("success-rate")
@option_groups
def success_rate(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic of the orders.", show_default=False)],
    payments: Annotated[
        str | None,
        typer.Option("--payments", metavar="TOPIC", help="Topic of the payments. Default: that of the orders."),
    ] = None,
    by: Annotated[
        list[str],
        typer.Option("--by", metavar="NAME[=SQL]", help="Group rates by this header, or by a Spark SQL expression."),
    ] = ["region"],
    orders_tag: Annotated[str, typer.Option("--orders-tag", help="Tag of an order.")] = "TagA",
    payments_tag: Annotated[str, typer.Option("--payments-tag", help="Tag of a payment.")] = "TagB",
    push_down: Annotated[
        bool, typer.Option("--push-down/--no-push-down", help="Let the broker filter these tags, in views.")
    ] = False,
    rule: Annotated[
        list[str],
        typer.Option("--rule", metavar="NAME=VALUE", help="pay_within='1 hour', payments=\"tags = 'paid'\", …"),
    ] = [],
    *,
    options: ReportOptions,
    spark: SparkOptions,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Orders paid in time, late or never.

    Orders and payments are joined, by window and property. An order has one tag, its payment another tag and the same
    KEYS. --rule changes that.
    """
    with explained():
        from halfmoon.pipeline.jobs.report_kinds import SuccessRate

        rules = _rules(by, rule, orders_tag, payments_tag)
        tags = {"orders_tag": orders_tag, "payments_tag": payments_tag} if push_down else {}
        kind = SuccessRate(topic, payments, rules, **tags)
    with running("success-rate", spark, brokers) as command:
        _show(_made(command, kind, options), ("success_rate_by_window",), result)


@app.command()
@option_groups
def delay(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", show_default=False)],
    levels: Annotated[
        str | None,
        typer.Option(
            "--levels", help="Delay levels of the broker, if not the default: '1s 5s 1m'.", show_default=False
        ),
    ] = None,
    *,
    options: ReportOptions,
    spark: SparkOptions,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Lateness of delayed messages.

    By requested delay, and over time.
    """
    with explained():
        from halfmoon.pipeline.jobs.report_kinds import Delays

        kind = Delays(topics, levels) if levels else Delays(topics)
    with running("delay", spark, brokers) as command:
        _show(_made(command, kind, options), ("delay_by_level",), result)


@app.command()
@option_groups
def dlq(
    *,
    options: ReportOptions,
    spark: SparkOptions,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Dead letters of consumer groups.

    By group, reason and topic, and over time.
    """
    with running("dlq", spark, brokers) as command:
        from halfmoon.pipeline.jobs.report_kinds import DeadLetters

        _show(_made(command, DeadLetters(), options), ("dlq_by_group", "dlq_by_reason"), result)


@app.command()
@option_groups
def lag(
    groups: Annotated[str, typer.Argument(metavar="[REGEX]", help="Groups to report.")] = ".*",
    every_s: Annotated[
        float | None,
        typer.Option(
            "--every-s", min=0.1, help="Repeat at this interval in seconds, until Ctrl-C.", show_default=False
        ),
    ] = None,
    out: OutOption = Path("out"),
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Lag of consumer groups.

    Now and, from the samples of earlier runs, over time. Spark queries appear if they commit their offsets for a group:
    --group of the other jobs. This report itself needs no Spark.
    """
    with explained(), interruptible() as command:
        from halfmoon.pipeline.jobs.lag import lag_report

        def on_sample(samples: list[Any]) -> None:
            behind = sum(sample.lag for sample in samples)
            output.note(f"groups {len({sample.group for sample in samples}):,}  lag {behind:,}")

        with steps_shown("lag", wanted=every_s is None) as on_step:
            published = lag_report(
                out, bootstrap=at(brokers), groups=groups, every_s=every_s, on_sample=on_sample, on_tick=command.tick,
                on_step=on_step,
            )  # fmt: skip
        _show(published, ("lag_now",), result)


@app.command()
@option_groups
def flights(
    topic: Annotated[str, typer.Argument(metavar="[TOPIC]", help="The topic that `make demo` fills.")] = "flights",
    out: OutOption = Path("out"),
    *,
    spark: SparkOptions,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Report of the demo: delays of flights.

    By carrier, hour, route and weather.
    """
    with running("flights", spark, brokers) as command:
        from halfmoon.pipeline.jobs.reporting import flight_report

        with steps_shown("flights") as on_step:
            published = flight_report(command.spark, topic, out, bootstrap=command.brokers, on_step=on_step)
        _show(published, ("overview",), result)


def _made(command: Running, kind: Kind, options: ReportOptions) -> Published:
    from halfmoon.pipeline.jobs.reporting import report, report_stream

    bootstrap = command.brokers
    source = f"{kind.title}, from {bootstrap}"
    with steps_shown(kind.name) as on_step:
        if not options.is_stream:
            return report(
                command.spark, kind, options.out, bootstrap=bootstrap, start=options.begin, end=options.end,
                source=source, on_step=on_step,
            )  # fmt: skip
        return report_stream(
            command.spark, kind, options.out, bootstrap=bootstrap, start=options.begin, every=options.every,
            batch_records=options.batch_records, group=options.group,
            allow_data_loss=options.allow_data_loss, source=source, on_batch=show_batch,
            on_publish=lambda published: output.note(f"{published.page} is up to date"), on_tick=command.tick,
            on_step=on_step,
        )  # fmt: skip


def _rules(by: list[str], rules: list[str], orders_tag: str, payments_tag: str) -> Any:
    from halfmoon.pipeline.reports.success_rate import Rules, tagged

    given: dict[str, Any] = tagged(orders_tag, payments_tag) | key_values(rules, "--rule")
    unknown = set(given) - (set(Rules.__dataclass_fields__) - {"by"})
    if unknown:
        known = ", ".join(name for name in Rules.__dataclass_fields__ if name != "by")
        raise typer.BadParameter(f"there is no rule {min(unknown)!r} (there are: {known})", param_hint="--rule")
    properties = {}
    for text in by:
        name, equals, expression = text.partition("=")
        properties[name] = expression if equals else f"properties['{name}']"
    return Rules(**given, by=properties)


def _show(published: Published, names: tuple[str, ...], result: Output) -> None:
    if result is Output.JSON:
        reports = {report.name: _jsonable(report) for report in published.reports}
        output.json_document({"page": str(published.page), "facts": dict(published.facts), "reports": reports})
        return
    output.facts(dict(published.facts) | {"page": str(published.page)})
    for report in published.reports:
        if report.name in names and report.rows:
            _print(report)


def _print(report: Report) -> None:
    from halfmoon.pipeline.reports.report import numeric, shown

    output.line("")
    output.line(report.title)
    there = len(report.rows)
    if there > SHOWN_ROWS:
        output.line(f"(the last {SHOWN_ROWS} of {there:,} rows; all are in tables/{report.name}.parquet)")
    rows = [dict(zip(report.columns, cells, strict=True)) for cells in shown(report, slice(-SHOWN_ROWS, None))]
    numbers = {name for name, is_number in zip(report.columns, numeric(report), strict=True) if is_number}
    output.table(rows, report.columns, numbers)


def _jsonable(report: Report) -> list[dict[str, Any]]:
    return [
        {name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in row.items()}
        for row in report.dicts()
    ]
