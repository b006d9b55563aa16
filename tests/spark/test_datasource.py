"""halfmoon.pipeline.datasource: format("halfmoon"), and which of Spark's conditions become SQL92."""

from __future__ import annotations

from collections import namedtuple

import pytest

pytest.importorskip("pyspark.sql.datasource", reason="Spark before 4.0 has no Python data sources")
from confluent_kafka import Producer
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import BooleanType, DoubleType, IntegerType, LongType, StringType

from halfmoon.pipeline.admin import Admin
from halfmoon.pipeline.datasource import condition, register

TYPES = {"tags": StringType(), "keys": StringType(), "region": StringType(), "amount": IntegerType(),
         "big": LongType(), "price": DoubleType(), "vip": BooleanType(), "a.b": StringType()}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def halfmoon(spark):
    register(spark)
    return spark.read.format("halfmoon")


@pytest.fixture
def orders(bootstrap, make_topic) -> str:
    topic = make_topic(2)
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(100):
        headers = {"TAGS": "paid" if n % 10 == 0 else "open", "amount": str(n), "price": f"{n / 4}", "region": "HZ"}
        if n == 50:
            headers["amount"] = "many"
        producer.produce(topic, b"%d" % n, None, n % 2, timestamp=1_000 * n or 1, headers=headers)
    producer.produce(topic, None, b"key", 0, timestamp=200_000)
    assert producer.flush(10) == 0
    return topic


def test_a_topic(halfmoon, bootstrap, orders: str) -> None:
    frame = halfmoon.option("bootstrap", bootstrap).option("properties", "amount INT, price DOUBLE").load(orders)
    rows = {row["offset"] * 2 + row["partition"]: row for row in frame.collect()}
    assert len(rows) == 101
    row = rows[3]
    assert (row["key"], bytes(row["value"]), row["tags"], row["keys"], row["topic"]) == (
        None,
        b"3",
        "open",
        None,
        orders,
    )
    assert row["properties"] == {"TAGS": "open", "amount": "3", "price": "0.75", "region": "HZ"}
    assert (row["amount"], row["price"], row["timestamp"].timestamp()) == (3, 0.75, 3.0)
    assert (rows[50]["amount"], rows[50]["price"]) == (None, 12.5)
    assert (bytes(rows[100]["key"]), rows[100]["value"], rows[100]["properties"], rows[100]["amount"]) == (
        b"key", None, {}, None
    )  # fmt: skip


def test_filters_as_options(spark, bootstrap, orders: str) -> None:
    reader = spark.read.format("halfmoon").option("bootstrap", bootstrap)
    assert reader.option("tag", "paid").load(orders).count() == 10
    assert any(name.startswith(f"{orders}.tag.paid.") for name in Admin(bootstrap).topics())
    reader = spark.read.format("halfmoon").option("bootstrap", bootstrap)
    assert reader.option("sql", "amount >= 90").load(orders).count() == 10


def test_a_range_of_time(spark, bootstrap, orders: str) -> None:
    reader = spark.read.format("halfmoon").option("bootstrap", bootstrap)
    frame = reader.option("start", "1970-01-01T00:00:20").option("end", "1970-01-01T00:00:30Z").load(orders)
    assert sorted(int(bytes(row["value"])) for row in frame.collect()) == list(range(20, 30))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "there is no topic 'spark-nowhere'"),
        ({"tag": "a", "sql": "b = 1"}, "give one of tag= and sql="),
        ({"start": "soon"}, "option start is a time"),
        ({"properties": "a ARRAY<INT>"}, "a property is STRING, INT, BIGINT, DOUBLE or BOOLEAN, not array<int>"),
    ],
)
def test_what_is_refused(spark, bootstrap, orders: str, options: dict[str, str], said: str) -> None:
    reader = spark.read.format("halfmoon").option("bootstrap", bootstrap).options(**options)
    with pytest.raises(Exception, match=r"(?s)PipelineError: .*") as refused:
        reader.load(orders if options else "spark-nowhere").collect()
    assert said in str(refused.value)


def of(kind: str, name: str, *value: object) -> object:
    """One of Spark 4.1's conditions (pyspark.sql.datasource.Filter)."""
    fields = "attribute value" if value else "attribute"
    return namedtuple(kind, fields)((name,), *value)


@pytest.mark.parametrize(
    ("wanted", "sql"),
    [
        (of("EqualTo", "tags", "it's"), "TAGS = 'it''s'"),
        (of("EqualTo", "region", ""), None),
        (of("EqualTo", "amount", 5), "amount = 5"),
        (of("GreaterThan", "amount", -5), "amount > -5"),
        (of("LessThanOrEqual", "big", 5), "big <= 5L"),
        (of("GreaterThanOrEqual", "price", 5.0), "price >= 5.0"),
        (of("LessThan", "price", 0.1), "price < 0.10000000000000001"),
        (of("EqualTo", "price", 0.0), None),
        (of("LessThan", "price", float("inf")), None),
        (of("LessThan", "price", 1e9), "price < 1000000000.0"),
        (of("GreaterThan", "region", "A"), None),
        (of("In", "region", ("HZ", "SH", None)), "region IN ('HZ', 'SH')"),
        (of("In", "region", ("HZ", "")), None),
        (of("In", "amount", (1, 2)), None),
        (of("IsNull", "region"), "region IS NULL"),
        (of("IsNull", "amount"), None),
        (of("IsNotNull", "amount"), "amount IS NOT NULL"),
        (of("IsNotNull", "region"), None),
        (of("StringStartsWith", "region", "H"), "region STARTSWITH 'H'"),
        (of("StringContains", "region", ""), None),
        (of("EqualTo", "vip", True), None),
        (of("EqualTo", "a.b", "x"), None),
        (of("EqualTo", "offset", 5), None),
        (of("Not", "region"), None),
    ],
)
def test_conditions(wanted: object, sql: str | None) -> None:
    assert condition(wanted, TYPES) == sql


needs_offers = pytest.mark.skipif(
    not hasattr(DataSourceReader, "pushFilters"),
    reason="Spark before 4.1 offers no conditions to Python data sources; make interop runs this with 4.1",
)


@needs_offers
def test_where_makes_a_view_and_uses_it(spark, halfmoon, bootstrap, orders: str) -> None:
    def views() -> list[str]:
        return [name for name in Admin(bootstrap).topics() if name.startswith(f"{orders}.")]

    def read(**options: str):
        reader = spark.read.format("halfmoon").option("properties", "amount INT, price DOUBLE, region STRING")
        return reader.options(bootstrap=bootstrap, **options).load(orders)

    wanted = "tags = 'paid' AND amount > 25 AND region IN ('HZ', 'SH') AND price < 20.0 AND length(value) > 1"
    assert (read().where(wanted).count(), views()) == (4, []), "30, 40, 60 and 70; nobody has asked for a view"
    assert sorted(int(bytes(row["value"])) for row in read(push_down="true").where(wanted).collect()) == [
        30,
        40,
        60,
        70,
    ]
    (view,) = views()
    assert sum(Admin(bootstrap).ends(view).values()) == 4, "the broker has filtered"
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(orders, b"77", headers={"TAGS": "paid", "amount": "77", "price": "3.5", "region": "SH"})
    assert producer.flush(10) == 0
    found = read().where(wanted)
    assert (found.count(), views()) == (5, [view]), "it is there, and so it is used"
    assert read(sql="region = 'HZ'").where("amount >= 90").count() == 10
    assert read(tag="paid").where("amount >= 90").count() == 1
    assert read(push_down="true").where("timestamp < '1970-01-01T00:00:20Z' AND keys IS NULL").count() == 20


@needs_offers
def test_where_still_works_for_those_who_do_not_want_it_pushed_down(spark, bootstrap, orders: str) -> None:
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "false")
    try:
        register(spark)
        reader = spark.read.format("halfmoon").option("push_down", "true").option("bootstrap", bootstrap)
        assert reader.load(orders).where("tags = 'paid'").count() == 10
    finally:
        spark.conf.unset(setting)
        register(spark)
