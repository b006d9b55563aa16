"""Transaction success rate: which orders were paid in time, late or never, exact to the record; batch and stream.

    orders ───┐  matches: left outer join on the id        outcomes: a row per order,      reports: rates by window
              ├─ paid_at from ordered_at - clock_skew  ──►  copies and second payments  ──►  and property, and lists of
    payments ─┘          to ordered_at + late_within        put right                        late, missing, paid twice

An order is *paid* if its first payment came up to pay_within after it, *late* if up to late_within, else *missing*;
both limits belong to the earlier side. Clocks differ: a payment dated up to clock_skew before its order counts too.
Copies of an order (a producer's retries) are one order, at the earliest of their times. Payments are told apart by
their ids; those without one count as one. A payment later than late_within is to no order's credit, nor does it make
an order *paid twice*.

**Decided.** Nothing can change an order any more when ordered_at + late_within < W, the watermark; only such orders
count. That is to the millisecond what Spark's join does: a stream puts out an order that found no payment in the first
batch whose watermark W fulfils this, and reads every record dated after W. So a stream misses nothing if records are
*less* than `watermark` behind the latest before them. Both sides hold W back: it is the older of the two sides' latest
event times, less `watermark`. While nobody pays at all, nothing is decided, which is right: payments may be on their
way. For a stream W is `checkpoint.watermark_of`, for a batch `batch_watermark`. The first may be the lower one: Spark
remembers W over a restart but not the two latest times, so W stands still until both sides have gone past it.

What "before them" means is up to the reader: Spark takes from each partition a share of a batch in proportion to what
is left there. Partitions in which the same share of the records spans different times are so far apart in a backlog,
and `watermark` must cover that as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from halfmoon.pipeline.errors import PipelineError
from halfmoon.pipeline.reports.parts import Part, made
from halfmoon.pipeline.reports.report import Report, heading
from halfmoon.pipeline.reports.windows import collected, window_start
from halfmoon.pipeline.times import utc

PAID, LATE, MISSING, WITHOUT_ID = "paid", "late", "missing", "without_id"

_OWN_COLUMNS = {
    *("order_id", "paying_for", "ordered_at", "payment_id", "paid_at", "outcome", "payments", "first", "made"),
    *("window", "window_start", "orders", PAID, LATE, MISSING, WITHOUT_ID, "twice", "success_share", "late_min"),
}
_NOT_DECIDED = (
    "No order is decided yet. An order counts once records have come that are dated so long after it"
    " that it can no longer be paid (the rules late_within and watermark)."
)
_UNITS_MS = {"millisecond": 1, "second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_DURATION = re.compile(rf"(\d+)\s*({'|'.join(_UNITS_MS)})s?", re.IGNORECASE)


@dataclass(slots=True, frozen=True)
class Rules:
    """What an order is, what a payment, and how long one may take: Spark SQL over the columns of `message_columns`.

    `by` maps the names of properties to expressions over an order's record. `time` is when a record happened; where it
    is null the record's timestamp counts, for a record without a time would be in no window. A stream's checkpoint
    and table belong to the rules they were begun with. Raises PipelineError where rules contradict each other; wrong
    SQL is found by Spark.
    """

    order_id: str = "keys"
    orders: str = "tags = 'TagA'"
    payments: str = "tags = 'TagB' AND properties['status'] = 'paid'"
    payment_id: str = "properties['payment_id']"
    time: str = "timestamp"
    pay_within: str = "15 minutes"
    late_within: str = "2 hours"
    clock_skew: str = "1 minute"
    watermark: str = "30 minutes"
    window: str = "1 hour"
    by: Mapping[str, str] = field(default_factory=lambda: {"region": "properties['region']"})

    def __post_init__(self) -> None:
        for name in ("pay_within", "late_within", "clock_skew", "watermark", "window"):
            if self.ms(name) == 0 and name != "clock_skew":
                raise PipelineError(f"{name} must be longer than {getattr(self, name)!r}")
        if self.ms("late_within") < self.ms("pay_within"):
            raise PipelineError(f"late_within ({self.late_within}) is shorter than pay_within ({self.pay_within})")
        seen: set[str] = set()
        for name in self.by:
            if re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) is None:
                raise PipelineError(f"the property name {name!r} is not made of letters, digits and underscores")
            if name.lower() in _OWN_COLUMNS:
                raise PipelineError(f"the reports have a column {name!r} of their own; give the property another name")
            if name.lower() in seen:
                raise PipelineError(f"there are two properties {name!r}: upper and lower case are the same to Spark")
            seen.add(name.lower())

    def ms(self, name: str) -> int:
        """The duration called `name`, in milliseconds."""
        text = getattr(self, name)
        parts = _DURATION.findall(text)
        if not parts or _DURATION.sub("", text).strip():
            raise PipelineError(f"{name} must be a duration like '90 seconds' or '1 hour 30 minutes', not {text!r}")
        return sum(int(count) * _UNITS_MS[unit.lower()] for count, unit in parts)


def tagged(orders: str, payments: str) -> dict[str, str]:
    """The rules `orders` and `payments` for these two tags; a payment counts if its header `status` says paid."""

    def has(tag: str) -> str:
        return "tags = '" + tag.replace("\\", "\\\\").replace("'", "\\'") + "'"

    return {"orders": has(orders), "payments": f"{has(payments)} AND properties['status'] = 'paid'"}


def orders_in(messages: DataFrame, rules: Rules) -> DataFrame:
    """The orders among messages with the columns of `message_columns`: order_id, ordered_at, properties …"""
    by = [F.expr(sql).alias(name) for name, sql in rules.by.items()]
    return messages.where(rules.orders).select(_id(rules).alias("order_id"), _time(rules).alias("ordered_at"), *by)


def payments_in(messages: DataFrame, rules: Rules) -> DataFrame:
    """The payments among such messages, which may be the same: paying_for, payment_id, paid_at."""
    payment_id = F.expr(rules.payment_id).cast("string").alias("payment_id")
    columns = [_id(rules).alias("paying_for"), payment_id, _time(rules).alias("paid_at")]
    # A payment for no order in particular matches nothing; a stream need not remember it.
    return messages.where(rules.payments).select(*columns).where("paying_for IS NOT NULL")


def matches(orders: DataFrame, payments: DataFrame, rules: Rules, *, streaming: bool = False) -> DataFrame:
    """Orders with each of their payments: order_id, ordered_at, properties …, payment_id, paid_at.

    An order without payment has a row whose last two columns are null; so has each order without an id (null or empty),
    which is never joined. Copies of orders and payments multiply rows: `outcomes` puts that right. With `streaming`
    Spark drops what a watermark has passed.
    """
    if streaming:
        delay = f"{rules.ms('watermark')} milliseconds"
        orders, payments = orders.withWatermark("ordered_at", delay), payments.withWatermark("paid_at", delay)
    condition = (
        f"order_id = paying_for AND paid_at >= ordered_at {_interval('-', rules.ms('clock_skew'))}"
        f" AND paid_at <= ordered_at {_interval('+', rules.ms('late_within'))}"
    )
    return orders.join(payments, F.expr(condition), "left_outer").drop("paying_for")


def outcomes(matches: DataFrame, rules: Rules) -> DataFrame:
    """A row per order, from a batch of `matches`: order_id, ordered_at, properties …, outcome, paid_at, payments.

    `outcome` is 'paid', 'late' or 'missing'; `paid_at` is when the first payment came, `payments` how many different
    ones did. Orders without an id have a row for each of their records, with the outcome 'without_id'. Orders that are
    not decided yet have the outcome they would have if nothing more came.
    """
    payment = F.struct(F.coalesce(F.col("payment_id"), F.lit("")).alias("id"), F.col("paid_at").alias("at"))
    known = matches.where("order_id IS NOT NULL").groupBy("order_id")
    orders = known.agg(
        F.min(F.struct("ordered_at", *rules.by)).alias("first"),
        F.collect_set(F.when(F.col("paid_at").isNotNull(), payment)).alias("made"),
    ).select("order_id", "first.*", "made")

    def after_order_ms(time: Column) -> Column:
        return F.unix_millis(time) - F.unix_millis("ordered_at")

    # A copy of the order with a later time may have found payments that are too late for the order itself.
    made = F.filter("made", lambda one: after_order_ms(one["at"]) <= rules.ms("late_within"))
    paid_at = F.array_min(F.transform(made, lambda one: one["at"]))
    outcome = (
        F.when(paid_at.isNull(), MISSING).when(after_order_ms(paid_at) <= rules.ms("pay_within"), PAID).otherwise(LATE)
    )
    payments = F.size(F.array_distinct(F.transform(made, lambda one: one["id"])))
    columns = ["order_id", "ordered_at", *rules.by]
    unknown = matches.where("order_id IS NULL").select(
        *columns, F.lit(WITHOUT_ID).alias("outcome"), "paid_at", F.lit(0).alias("payments")
    )
    decided = orders.select(*columns, outcome.alias("outcome"), paid_at.alias("paid_at"), payments.alias("payments"))
    return decided.unionByName(unknown)


def batch_watermark(orders: DataFrame, payments: DataFrame, rules: Rules) -> int:
    """The watermark, in ms, of a stream that read all of these records in one run; 0 if a side has none."""
    sides = ((orders, "ordered_at"), (payments, "paid_at"))
    latest_ms = [frame.agg(F.unix_millis(F.max(time))).collect()[0][0] for frame, time in sides]
    return 0 if None in latest_ms else max(0, min(latest_ms) - rules.ms("watermark"))


def success_rate_reports(
    outcomes: DataFrame, rules: Rules, as_of_ms: int | None, *, max_listed: int = 100_000
) -> list[Report]:
    """All reports at once: those of `success_rate_parts`."""
    return made(success_rate_parts(outcomes, rules, lambda: as_of_ms, max_listed=max_listed))


def success_rate_parts(
    outcomes: DataFrame, rules: Rules, as_of: Callable[[], int | None], *, max_listed: int = 100_000
) -> list[Part]:
    """All reports over the DataFrame of `outcomes`, which should be cached: it is read four times.

    Only orders decided before the watermark `as_of()` (ms) count; with None all do. Times are UTC, whatever the
    session's time zone, and Python datetimes that say so; windows begin at multiples of their length since 1970. Lists
    name up to `max_listed` orders, the earliest: they are collected here. `orders_without_id` counts records, for their
    copies cannot be told apart.
    """
    by = tuple(rules.by)
    late_ms = F.unix_millis("paid_at") - F.unix_millis("ordered_at") - rules.ms("pay_within")
    late_min = F.round(late_ms / 60_000, 2).alias("late_min")

    @cache
    def decided() -> DataFrame:
        as_of_ms = as_of()
        if as_of_ms is None:
            return outcomes
        return outcomes.where(F.unix_millis("ordered_at") + rules.ms("late_within") < as_of_ms)

    @cache
    def cells() -> Sequence[dict[str, Any]]:
        return _cells(decided(), rules)

    def rates() -> list[Report]:
        by_window = f"Success rate by {_and('window', *map(heading, by))}"
        return [
            _rates("success_rate_by_window", "Success rate over time", cells(), ("window_start",)),
            _rates("success_rate", by_window, cells(), ("window_start", *by)),
            *(_rates(f"success_rate_by_{name}", f"Success rate by {heading(name)}", cells(), (name,)) for name in by),
        ]

    def listed(name: str, title: str, which: Column, count: str, *columns: str | Column) -> Part:
        def make() -> list[Report]:
            total = sum(cell[count] for cell in cells())
            cut = f" (the first {max_listed:,} of {total:,})" if total > max_listed else ""
            frame = decided().where(which).orderBy("ordered_at", "order_id").limit(max_listed)
            frame = frame.select("order_id", "ordered_at", *columns, *by)
            times = tuple(column for column in ("ordered_at", "paid_at") if column in frame.columns)
            frame = frame.withColumns({time: F.unix_millis(time) for time in times})
            return [collected(name, f"{title}{cut}", frame, 1, times)]

        return Part(title, make)

    outcome = F.col("outcome")
    return [
        Part("Success rates", rates),
        listed("late_payments", "Orders paid late", outcome == LATE, LATE, "paid_at", late_min),
        listed("missing_payments", "Orders without payment", outcome == MISSING, MISSING),
        listed("paid_twice", "Orders paid more than once", F.col("payments") > 1, "twice", "payments"),
        Part("Orders without an id", lambda: [_without_id(cells(), by)]),
    ]


def _id(rules: Rules) -> Column:
    found = F.expr(rules.order_id).cast("string")
    return F.when(found != "", found)


def _time(rules: Rules) -> Column:
    """Cut to milliseconds, in which Spark counts watermarks: what is decided must not hang on a microsecond."""
    return F.timestamp_millis(
        F.unix_millis(F.coalesce(F.expr(f"try_cast(({rules.time}) AS TIMESTAMP)"), F.col("timestamp")))
    )


def _interval(sign: str, ms: int) -> str:
    """SQL that adds or subtracts `ms`, in pieces of less than a day.

    Spark adds the whole days of an interval on the session's calendar: where the clocks change, 48 hours take 47. And
    its checker of outer joins of streams understands sums of interval literals, but not make_interval.
    """
    half_days, rest_ms = divmod(ms, 43_200_000)
    return " ".join([f"{sign} INTERVAL '12' HOUR"] * half_days + [f"{sign} INTERVAL '{rest_ms / 1000:.3f}' SECOND"])


def _cells(decided: DataFrame, rules: Rules) -> list[dict[str, Any]]:
    """Counts of each window and combination of properties: the smallest table, of which the others are sums."""
    counted = {
        "orders": F.col("outcome") != WITHOUT_ID,
        **{name: F.col("outcome") == name for name in (PAID, LATE, MISSING, WITHOUT_ID)},
        "twice": F.col("payments") > 1,
    }
    counts = [F.sum(which.cast("int")).alias(name) for name, which in counted.items()]
    start = window_start(F.unix_millis("ordered_at"), rules.ms("window")).alias("window_start")
    rows = decided.groupBy(start, *rules.by).agg(*counts).collect()
    return [{**row.asDict(), "window_start": utc(row["window_start"])} for row in rows]


def _rates(name: str, title: str, cells: Sequence[dict[str, Any]], keys: tuple[str, ...]) -> Report:
    columns = ("orders", PAID, LATE, MISSING)
    rows = [(*key, *sums, round(sums[1] / sums[0], 4)) for key, sums in _summed(cells, keys, columns)]
    return Report(name, title, (*keys, *columns, "success_share"), tuple(rows), len(keys), _NOT_DECIDED)


def _and(*words: str) -> str:
    """One, two and three."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _without_id(cells: Sequence[dict[str, Any]], by: tuple[str, ...]) -> Report:
    keys = ("window_start", *by)
    rows = [(*key, *sums) for key, sums in _summed(cells, keys, (WITHOUT_ID,))]
    return Report("orders_without_id", "Order records without an id", (*keys, "orders"), tuple(rows), len(keys))


def _summed(
    cells: Sequence[dict[str, Any]], keys: tuple[str, ...], counts: tuple[str, ...]
) -> list[tuple[tuple[Any, ...], list[int]]]:
    """`counts` summed by `keys`, in the order of these, nulls first; without those where the first count is zero."""
    sums: dict[tuple[Any, ...], list[int]] = {}
    for cell in cells:
        so_far = sums.setdefault(tuple(cell[key] for key in keys), [0] * len(counts))
        for n, count in enumerate(counts):
            so_far[n] += cell[count]
    present = [(key, found) for key, found in sums.items() if found[0]]
    return sorted(present, key=lambda pair: [(value is not None, value) for value in pair[0]])
