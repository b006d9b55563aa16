"""The orders of a shop that does not exist, into a topic: to try the success rate on."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Producer

from halfmoon.pipeline.admin import Admin
from halfmoon.pipeline.errors import PipelineError
from halfmoon.pipeline.orders import CLOSING_AFTER_MS, HOUR_MS, Shop
from halfmoon.pipeline.reports.success_rate import Rules

DELIVERY_TIMEOUT_S = 60


def shop_of(orders: int, *, seed: int, hours: float, now_ms: int | None = None) -> Shop:
    """A shop whose last order, a week after the others so that all of them are decided, is still in the past."""
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    start_ms = now_ms - CLOSING_AFTER_MS - int((hours + 12) * HOUR_MS)
    # From midnight on, so that the night is where it belongs, and the outage of a long time comes when many buy.
    outage_after_h = 20.25 if hours >= 24 else 0.4 * hours
    day_ms = 24 * HOUR_MS
    return Shop(seed, orders, start_ms // day_ms * day_ms, hours=hours, outage_after_h=outage_after_h, closing=True)


def fill(
    topic: str, orders: int, *, seed: int = 1, hours: float = 48.0, partitions: int = 4, bootstrap: str | None = None
) -> dict[str, int]:
    """Write the records of a shop to a topic, which is made if it is not there. What a report over it must say:
    `records`, `orders`, `paid`, `late` and `missing`, by the default rules. Raises PipelineError."""
    admin = Admin(bootstrap)
    count = admin.ensure_topic(topic, partitions)
    shop, rules = shop_of(orders, seed=seed, hours=hours), Rules()
    failures: list[str] = []

    def on_delivery(error: Any, _message: Any) -> None:
        if error is not None:
            failures.append(error.str())

    producer = Producer(
        {
            "bootstrap.servers": admin.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 20,
            "compression.type": "lz4",
            "delivery.report.only.error": True,
            "log_level": 0,
        }
    )
    records = 0
    for record in shop.records():
        headers: list[tuple[str, str | bytes | None]] = list(record.headers)
        while True:
            try:
                producer.produce(
                    topic, record.value, record.key, record.partition(count),
                    timestamp=record.timestamp_ms, headers=headers, on_delivery=on_delivery,
                )  # fmt: skip
                break
            except BufferError:
                producer.poll(0.05)
        records += 1
        if records % 1_000 == 0:
            producer.poll(0)
    if producer.flush(DELIVERY_TIMEOUT_S) or failures:
        raise PipelineError(f"topic {topic} did not take all records: {(failures or ['no answer'])[0]}")
    truth = shop.truth(
        pay_within_ms=rules.ms("pay_within"), late_within_ms=rules.ms("late_within"), window_ms=rules.ms("window"),
        clock_skew_ms=rules.ms("clock_skew"),
    )  # fmt: skip
    counts = truth.counts.values()
    names = ("orders", "paid", "late", "missing")
    return {"records": records} | {name: sum(getattr(each, name) for each in counts) for name in names}
