"""The orders of a shop that does not exist, into a topic: to try the success rate on."""

from __future__ import annotations

import time

from halfmoon.pipeline.admin import Admin
from halfmoon.pipeline.brokers import Bootstrap
from halfmoon.pipeline.orders import CLOSING_AFTER_MS, HOUR_MS, Shop
from halfmoon.pipeline.reports.success_rate import Rules
from halfmoon.pipeline.sending import Sender


def shop_of(orders: int, *, seed: int, hours: float, now_ms: int | None = None) -> Shop:
    """A shop whose last order, a week after the others so that all of them are decided, is still in the past."""
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    start_ms = now_ms - CLOSING_AFTER_MS - int((hours + 12) * HOUR_MS)
    # From midnight on, so that the night is where it belongs, and the outage of a long time comes when many buy.
    outage_after_h = 20.25 if hours >= 24 else 0.4 * hours
    day_ms = 24 * HOUR_MS
    return Shop(seed, orders, start_ms // day_ms * day_ms, hours=hours, outage_after_h=outage_after_h, closing=True)


def fill(
    topic: str, orders: int, *, seed: int = 1, hours: float = 48.0, partitions: int = 4, bootstrap: Bootstrap = None
) -> dict[str, int]:
    """Write the records of a shop to a topic, which is made if it is not there. What a report over it must say:
    `records`, `orders`, `paid`, `late` and `missing`, by the default rules. Raises PipelineError."""
    admin = Admin(bootstrap)
    count = admin.ensure_topic(topic, partitions)
    shop, rules = shop_of(orders, seed=seed, hours=hours), Rules()
    with Sender(admin.brokers, topic) as sender:
        for record in shop.records():
            where = record.partition(count)
            sender.send(record.value, record.key, where, record.timestamp_ms, record.headers)
    truth = shop.truth(
        pay_within_ms=rules.ms("pay_within"), late_within_ms=rules.ms("late_within"), window_ms=rules.ms("window"),
        clock_skew_ms=rules.ms("clock_skew"),
    )  # fmt: skip
    counts = truth.counts.values()
    names = ("orders", "paid", "late", "missing")
    return {"records": sender.sent} | {name: sum(getattr(each, name) for each in counts) for name in names}
