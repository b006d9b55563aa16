"""The reports over messages: what each keeps of a topic, and what it makes of that. `reporting.py` runs them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Protocol

from pyspark.sql import DataFrame

from halfmoon.pipeline.reports import dead_letters, delays, success_rate
from halfmoon.pipeline.reports.parts import Part
from halfmoon.pipeline.reports.publish import Fact
from halfmoon.pipeline.reports.report import Report, show
from halfmoon.pipeline.reports.success_charts import FEWEST_ORDERS
from halfmoon.pipeline.reports.success_rate import Rules


class Read(Protocol):
    """Messages of topics, as a batch or as a stream: `tag` has the broker filter."""

    streaming: bool

    def __call__(self, topics: str | Sequence[str] | re.Pattern[str], tag: str | None = None) -> DataFrame: ...

    def once(self, frame: DataFrame) -> DataFrame:
        """The same rows, read from topics once, however often they are needed. (A stream's are, in each batch.)"""
        ...


@dataclass(slots=True, frozen=True)
class Kept:
    """What the reports are made from."""

    rows: DataFrame
    as_of: Callable[[], int | None] = lambda: None
    """Of a batch: the time (ms) up to which it is certain what happened. None: all is."""


class Kind(Protocol):
    """A report. What it keeps is written to a table where it is made from a stream."""

    name: str
    title: str
    topics: Sequence[str]
    """Those that it reads by name."""

    def said(self) -> dict[str, object]:
        """What else it was made with, as JSON has it: what was kept with one thing does not fit another."""
        ...

    def keep(self, read: Read) -> Kept:
        """What of the messages the reports are made from; batch or stream."""
        ...

    def parts(self, kept: DataFrame, as_of: Callable[[], int | None]) -> AbstractContextManager[list[Part]]:
        """What is made of what was kept, which is read several times; `as_of` as in `Kept`."""
        ...

    def facts(self, reports: dict[str, Report]) -> list[Fact]:
        """What is said first."""
        ...


class SuccessRate:
    """Orders and payments: of one topic, told apart by tags, or of two topics.

    `orders_tag` and `payments_tag` have the broker filter, so that nothing else is read; the rules say what an order
    and a payment is in any case.
    """

    name, title = "success-rate", "Transaction success rate"

    def __init__(
        self, orders: str, payments: str | None = None, rules: Rules | None = None, *,
        orders_tag: str | None = None, payments_tag: str | None = None,
    ) -> None:  # fmt: skip
        self.rules = rules or Rules()
        self._orders = orders, orders_tag
        self._payments = payments or orders, payments_tag
        self.topics: Sequence[str] = tuple(dict.fromkeys((orders, payments or orders)))

    def said(self) -> dict[str, object]:
        return {"filters": [self._orders[1], self._payments[1]], **asdict(self.rules)}

    def keep(self, read: Read) -> Kept:
        orders = read.once(success_rate.orders_in(read(*self._orders), self.rules))
        payments = read.once(success_rate.payments_in(read(*self._payments), self.rules))
        matches = success_rate.matches(orders, payments, self.rules, streaming=read.streaming)
        return Kept(matches, lambda: success_rate.batch_watermark(orders, payments, self.rules))

    @contextmanager
    def parts(self, kept: DataFrame, as_of: Callable[[], int | None]) -> Iterator[list[Part]]:
        # Cached: it is an aggregation, and four tables are made of it.
        outcomes = success_rate.outcomes(kept, self.rules).cache()
        try:
            yield success_rate.success_rate_parts(outcomes, self.rules, as_of)
        finally:
            outcomes.unpersist()

    def facts(self, reports: dict[str, Report]) -> list[Fact]:
        rows = reports["success_rate_by_window"].dicts()
        sums = {name: sum(row[name] for row in rows) for name in ("orders", "paid", "late", "missing")}
        share = sums["paid"] / sums["orders"] if sums["orders"] else None
        of_windows = [row["success_share"] for row in rows if row["orders"] >= FEWEST_ORDERS]
        return [
            ("success rate", show(share, "success_share")),
            ("lowest window", show(min(of_windows, default=None), "success_share")),
            *((name, show(total)) for name, total in sums.items()),
        ]


class Delays:
    """Delayed messages of some topics. `levels` are the broker's, where they are not RocketMQ's."""

    name, title = "delay", "How late delayed messages came"

    def __init__(self, topics: str | Sequence[str], levels: str = delays.LEVELS) -> None:
        delays.levels_ms(levels)  # It is of no use to start Spark first.
        self.topics: Sequence[str] = (topics,) if isinstance(topics, str) else tuple(topics)
        self._levels = levels

    def said(self) -> dict[str, object]:
        return {"levels": self._levels}

    def keep(self, read: Read) -> Kept:
        return Kept(delays.delayed_messages(read(self.topics), self._levels))

    def parts(self, kept: DataFrame, as_of: Callable[[], int | None]) -> AbstractContextManager[list[Part]]:
        return nullcontext(delays.delay_parts(kept))

    def facts(self, reports: dict[str, Report]) -> list[Fact]:
        rows = reports["delay_by_level"].dicts()
        worst = max((row["max_ms"] for row in rows), default=None)
        return [("delayed messages", show(sum(row["messages"] for row in rows))), ("latest of all (ms)", show(worst))]


class DeadLetters:
    """Everything that groups have given up."""

    name, title = "dlq", "Dead letters"
    topics: Sequence[str] = ()

    def said(self) -> dict[str, object]:
        return {}

    def keep(self, read: Read) -> Kept:
        return Kept(dead_letters.dead_letters(read(re.compile(dead_letters.TOPICS))))

    def parts(self, kept: DataFrame, as_of: Callable[[], int | None]) -> AbstractContextManager[list[Part]]:
        return nullcontext(dead_letters.dead_letter_parts(kept))

    def facts(self, reports: dict[str, Report]) -> list[Fact]:
        rows = reports["dlq_by_group"].dicts()
        return [("dead letters", show(sum(row["letters"] for row in rows))), ("groups", show(len(rows)))]
