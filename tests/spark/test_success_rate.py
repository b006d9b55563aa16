"""halfmoon.pipeline.reports.success_rate: exact to the record against the generator's truth, as batch and as stream."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame

from halfmoon.pipeline import PipelineError
from halfmoon.pipeline.checkpoint import watermark_of
from halfmoon.pipeline.ingest import ingest
from halfmoon.pipeline.orders import CART, HOUR_MS, MINUTE_MS, ORDER, PAYMENT, Counts, Shop, Truth
from halfmoon.pipeline.reports.success_rate import (
    Rules,
    batch_watermark,
    matches,
    orders_in,
    outcomes,
    payments_in,
    success_rate_reports,
)
from halfmoon.pipeline.topics import read_stream, read_topic

START_MS = 1_772_323_200_000  # 2026-03-01, midnight in UTC
PARTITIONS = 3
# Records are nearly as late as a watermark of 30 minutes allows, and many of them.
SHOP = Shop(7, 3_000, START_MS, hours=12, outage_after_h=5, max_lateness_ms=28 * MINUTE_MS, slow_share=0.3)
BY = {"region": "properties['region']", "tier": "properties['tier']"}
RULES = Rules(by=BY)
TRUTH_RULES = {"pay_within_ms": 15 * MINUTE_MS, "late_within_ms": 2 * HOUR_MS, "window_ms": HOUR_MS, "by": tuple(BY)}

RECORD = "tags STRING, keys STRING, properties MAP<STRING, STRING>, timestamp TIMESTAMP"


def sides(messages: DataFrame, rules: Rules) -> tuple[DataFrame, DataFrame]:
    return orders_in(messages, rules), payments_in(messages, rules)


def at(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def produce(bootstrap: str, topic: str, records) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 1_000_000})
    for r in records:
        headers = list(r.headers)
        producer.produce(topic, r.value, r.key, r.partition(PARTITIONS), timestamp=r.timestamp_ms, headers=headers)
    assert producer.flush(30) == 0


def reports_of(matched, rules: Rules, as_of_ms: int | None, **limits):
    decided = outcomes(matched, rules).cache()
    try:
        return {report.name: report for report in success_rate_reports(decided, rules, as_of_ms, **limits)}
    finally:
        decided.unpersist()


def said_by(reports) -> Truth:
    """Reports as the generator writes its truth."""
    said = Truth()
    for row in reports["success_rate"].rows:
        window, *values, orders, paid, late, missing, share = row
        said.counts[round(window.timestamp() * 1000), *values] = Counts(orders, paid, late, missing)
        assert share == round(paid / orders, 4)
    for row in reports["late_payments"].dicts():
        said.late[row["order_id"]] = round(row["paid_at"].timestamp() * 1000)
        late = row["paid_at"] - row["ordered_at"] - timedelta(minutes=15)
        assert row["late_min"] == pytest.approx(late / timedelta(minutes=1), abs=0.006)
    said.missing = {row["order_id"] for row in reports["missing_payments"].dicts()}
    said.paid_twice = {row["order_id"]: row["payments"] for row in reports["paid_twice"].dicts()}
    said.without_id = sum(reports["orders_without_id"].column("orders"))
    return said


def test_a_batch_over_a_topic_says_the_truth(spark, bootstrap, make_topic) -> None:
    topic = make_topic(PARTITIONS)
    produce(bootstrap, topic, replace(SHOP, closing=True).records())
    messages = read_topic(spark, topic, bootstrap=bootstrap).cache()
    all_ms = batch_watermark(*sides(messages, RULES), RULES)
    assert all_ms > START_MS + 7 * 24 * HOUR_MS
    matched = matches(*sides(messages, RULES), RULES).cache()
    for as_of_ms in (all_ms, START_MS + 8 * HOUR_MS):
        said = said_by(reports_of(matched, RULES, as_of_ms))
        assert said == SHOP.truth(**TRUTH_RULES, as_of_ms=as_of_ms)
        assert min(len(said.late), len(said.missing), len(said.paid_twice)) > 0
    matched.unpersist()
    messages.unpersist()


def test_a_stream_says_the_truth_whenever_it_is_asked(spark, bootstrap, make_topic, tmp_path) -> None:
    """Stopped in the middle of a batch, at the end of what there was, and when the last order is just decided."""
    topic, table, checkpoint = make_topic(PARTITIONS), tmp_path / "table", tmp_path / "checkpoint"
    records = list(SHOP.records())
    last_ms = max(r.timestamp_ms for r in records if r.tag == ORDER)
    # The watermark that these two bring is one millisecond past the last order's time to be paid.
    end_ms = last_ms + 2 * HOUR_MS + 30 * MINUTE_MS + 1
    records += [r._replace(timestamp_ms=end_ms) for r in replace(SHOP, closing=True).records()][-2:]

    def run(on_batch=None) -> int:
        orders, payments = (read_stream(spark, topic, bootstrap=bootstrap, batch_records=1_100) for _ in range(2))
        stream = matches(orders_in(orders, RULES), payments_in(payments, RULES), RULES, streaming=True)
        return ingest(stream, table, checkpoint, on_batch=on_batch).batches

    def check() -> int:
        as_of_ms = watermark_of(checkpoint)
        said = said_by(reports_of(spark.read.parquet(str(table)), RULES, as_of_ms))
        assert said == SHOP.truth(**TRUTH_RULES, as_of_ms=as_of_ms)
        assert said.missing
        return as_of_ms

    def stop_early(batch) -> None:
        if batch.number == 3:
            raise PipelineError("enough")

    assert watermark_of(checkpoint) == 0
    produce(bootstrap, topic, records[:5_500])
    with pytest.raises(PipelineError, match="enough"):
        run(stop_early)
    stopped_ms = check()
    run()
    # Stopped in between, a stream's watermark may be behind a batch's: it does not remember both sides' latest times.
    assert stopped_ms <= check() <= watermark_after(records[:5_500])
    produce(bootstrap, topic, records[5_500:])
    assert run() > 1
    # Spark ended with a batch that had no data but this watermark.
    assert check() == watermark_after(records) == last_ms + 2 * HOUR_MS + 1


def watermark_after(records) -> int:
    paid = (r for r in records if r.tag == PAYMENT and ("status", b"paid") in r.headers)
    ordered = (r for r in records if r.tag == ORDER)
    return min(max(r.timestamp_ms for r in side) for side in (paid, ordered)) - 30 * MINUTE_MS


ORDERED_MS = 1_774_735_200_000 - 30 * MINUTE_MS  # 2026-03-28, 21:30 UTC; 4.5 hours later Berlin's clocks go forward


def message(tag: str, key: str | None, after_ms: int, **properties: str) -> tuple[object, ...]:
    return tag, key, properties, at(ORDERED_MS + after_ms)


def order(key: str | None, after_ms: int = 0, region: str = "north") -> tuple[object, ...]:
    return message(ORDER, key, after_ms, region=region)


def payment(key: str | None, after_ms: int, payment_id: str | None = None, status: str = "paid") -> tuple[object, ...]:
    named = {} if payment_id is None else {"payment_id": payment_id}
    return message(PAYMENT, key, after_ms, status=status, **named)


def outcome_of(spark, rules: Rules, *rows) -> dict[str, tuple[object, ...]]:
    """{order id: (outcome, payments)} of a batch of messages."""
    messages = spark.createDataFrame(list(rows), RECORD)
    found = outcomes(matches(*sides(messages, rules), rules), rules).collect()
    assert len({row["order_id"] for row in found}) == len(found)
    return {row["order_id"]: (row["outcome"], row["payments"]) for row in found}


def test_limits_belong_to_the_earlier_side(spark) -> None:
    pay, late, skew = 15 * MINUTE_MS, 2 * HOUR_MS, MINUTE_MS
    after = {"a": pay, "b": pay + 1, "c": late, "d": late + 1, "e": -skew, "f": -skew - 1}
    rows = [row for key, ms in after.items() for row in (order(key), payment(key, ms, "p"))]
    found = outcome_of(spark, Rules(), *rows)
    assert {key: outcome for key, (outcome, _) in found.items()} == {
        "a": "paid",
        "b": "late",
        "c": "late",
        "d": "missing",
        "e": "paid",
        "f": "missing",
    }


def test_copies_and_second_payments(spark) -> None:
    late = 2 * HOUR_MS
    rows = [
        *(order("copied"), order("copied"), payment("copied", 5, "p"), payment("copied", 5, "p")),
        *(order("restamped"), order("restamped", 9, region="south"), payment("restamped", late + 5, "p")),
        *(order("twice"), payment("twice", late, "q"), payment("twice", 7, "p"), payment("twice", late + 1, "r")),
        *(order("nameless"), payment("nameless", 6), payment("nameless", 8)),
        *(order("declined"), payment("declined", 6, "p", "declined"), message(CART, "declined", 6, status="paid")),
        payment("unknown", 5, "p"),
    ]
    assert outcome_of(spark, Rules(), *rows) == {
        "copied": ("paid", 1),
        "restamped": ("missing", 0),
        "twice": ("paid", 2),
        "nameless": ("paid", 1),
        "declined": ("missing", 0),
    }


def test_orders_without_an_id_are_counted_and_not_joined(spark) -> None:
    rows = [
        order(None),
        order(""),
        order(None, HOUR_MS, "south"),
        order("a"),
        payment(None, 5, "p"),
        payment("", 5, "p"),
    ]
    messages = spark.createDataFrame(rows, RECORD)
    reports = reports_of(matches(*sides(messages, Rules()), Rules()), Rules(), None)
    assert [row[1:] for row in reports["orders_without_id"].rows] == [("north", 2), ("south", 1)]
    assert [row[1:] for row in reports["success_rate"].rows] == [("north", 1, 0, 0, 1, 0.0)]
    assert reports["missing_payments"].column("order_id") == ["a"]


@pytest.fixture(params=["true", "false"])
def in_berlin(spark, request):
    """The session in a time zone with summer time, in ANSI mode and without."""
    wanted = {"spark.sql.session.timeZone": "Europe/Berlin", "spark.sql.ansi.enabled": request.param}
    before = {name: spark.conf.get(name) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


def test_neither_time_zone_nor_ansi_mode_matter(in_berlin) -> None:
    rules = Rules(late_within="2 days", window="1 day", by={})
    days = 48 * HOUR_MS
    rows = [
        order("a"),
        payment("a", days, "p"),
        order("b"),
        payment("b", days + 1, "p"),
        (ORDER, "c", None, at(ORDERED_MS)),
    ]
    messages = in_berlin.createDataFrame(rows, RECORD)
    matched = matches(*sides(messages, rules), rules)
    reports = reports_of(matched, rules, ORDERED_MS + days + 1)
    day = datetime(2026, 3, 28, tzinfo=UTC)
    assert reports["success_rate"].rows == reports["success_rate_by_window"].rows == ((day, 3, 0, 1, 2, 0.0),)
    assert reports["late_payments"].rows == (("a", at(ORDERED_MS), at(ORDERED_MS + days), 2 * 24 * 60 - 15.0),)
    undecided = reports_of(matched, rules, ORDERED_MS + days)["success_rate"]
    assert undecided.rows == ()
    assert undecided.if_empty.startswith("No order is decided yet")


def test_reports(spark) -> None:
    rules = Rules(by={"region": "properties['region']", "size": "length(keys)"})
    rows = [
        *(order("a"), payment("a", 1, "p"), payment("a", 2, "q"), order("b", region="south"), order("c")),
        *(order("dd", HOUR_MS), payment("dd", HOUR_MS + 20 * MINUTE_MS, "p"), (ORDER, "e", {}, at(ORDERED_MS))),
    ]
    messages = spark.createDataFrame(rows, RECORD)
    reports = reports_of(matches(*sides(messages, rules), rules), rules, None, max_listed=2)
    first, second = at(ORDERED_MS - 30 * MINUTE_MS), at(ORDERED_MS + 30 * MINUTE_MS)
    assert list(reports)[:2] == ["success_rate_by_window", "success_rate"], "the page has the line chart first"
    rates = reports["success_rate"]
    assert rates.title == "Success rate by window, region and size"
    assert rates.columns == ("window_start", "region", "size", "orders", "paid", "late", "missing", "success_share")
    assert rates.key_columns == 3
    assert rates.rows == (
        (first, None, 1, 1, 0, 0, 1, 0.0),
        (first, "north", 1, 2, 1, 0, 1, 0.5),
        (first, "south", 1, 1, 0, 0, 1, 0.0),
        (second, "north", 2, 1, 0, 1, 0, 0.0),
    )
    assert reports["success_rate_by_window"].rows == ((first, 4, 1, 0, 3, 0.25), (second, 1, 0, 1, 0, 0.0))
    assert reports["success_rate_by_region"].column("orders") == [1, 3, 1]
    assert reports["success_rate_by_size"].rows == ((1, 4, 1, 0, 3, 0.25), (2, 1, 0, 1, 0, 0.0))
    assert reports["late_payments"].dicts() == [
        {
            "order_id": "dd",
            "ordered_at": at(ORDERED_MS + HOUR_MS),
            "paid_at": at(ORDERED_MS + HOUR_MS + 20 * MINUTE_MS),
            "late_min": 5.0,
            "region": "north",
            "size": 2,
        }
    ]
    missing = reports["missing_payments"]
    assert missing.column("order_id") == ["b", "c"]
    assert missing.title.endswith("(the first 2 of 3)")
    assert reports["paid_twice"].rows == (("a", at(ORDERED_MS), 2, "north", 1),)


def test_a_time_of_ones_own(spark) -> None:
    rules = Rules(time="timestamp_millis(try_cast(properties['at'] AS BIGINT))")
    rows = [
        message(ORDER, "a", 0, at=str(ORDERED_MS)),
        message(ORDER, "b", 0, at="never"),
        message(PAYMENT, "a", 9 * HOUR_MS, at=str(ORDERED_MS + 1), status="paid"),
        message(PAYMENT, "b", 1, status="paid"),
    ]
    assert outcome_of(spark, rules, *rows) == {"a": ("paid", 1), "b": ("paid", 1)}


def test_no_records_no_watermark(spark) -> None:
    nothing = spark.createDataFrame([], RECORD)
    some = spark.createDataFrame([order("a"), payment("a", 5, "p")], RECORD)
    (no_orders, no_payments), (orders, payments) = sides(nothing, Rules()), sides(some, Rules())
    assert batch_watermark(no_orders, payments, Rules()) == batch_watermark(orders, no_payments, Rules()) == 0
    assert batch_watermark(orders, payments, Rules()) == ORDERED_MS - 30 * MINUTE_MS
    assert reports_of(matches(*sides(nothing, Rules()), Rules()), Rules(), 0)["success_rate"].rows == ()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"late_within": "10 minutes"}, r"late_within \(10 minutes\) is shorter than pay_within \(15 minutes\)"),
        ({"window": "0 hours"}, "window must be longer than '0 hours'"),
        ({"watermark": "soon"}, "watermark must be a duration like '90 seconds' .* not 'soon'"),
        ({"pay_within": "1 month"}, "pay_within must be a duration"),
        ({"pay_within": "5 minutes or so"}, "pay_within must be a duration"),
        ({"by": {"orders": "tags"}}, "a column 'orders' of their own"),
        ({"by": {"Paid_At": "tags"}}, "a column 'Paid_At' of their own"),
        ({"by": {"a b": "tags"}}, "the property name 'a b' is not made of letters"),
        ({"by": {"region": "tags", "Region": "keys"}}, "two properties 'Region'"),
    ],
)
def test_rules_that_contradict_are_refused(wrong, said) -> None:
    with pytest.raises(PipelineError, match=said) as caught:
        Rules(**wrong)
    assert "\n" not in str(caught.value)


def test_durations() -> None:
    rules = Rules(
        pay_within="1 hour 30 minutes", late_within="2 Days", clock_skew="0 seconds", window="1500 milliseconds"
    )
    assert [rules.ms(name) for name in ("pay_within", "late_within", "clock_skew", "window")] == [
        90 * MINUTE_MS,
        48 * HOUR_MS,
        0,
        1_500,
    ]
