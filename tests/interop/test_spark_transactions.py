"""Spark's Kafka source on a topic with transactions: with read_committed it gives what is committed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

MakeTopic = Callable[..., str]
PARTITIONS = 2

pytestmark = [
    pytest.mark.interop,
    pytest.mark.spark,
    pytest.mark.timeout(180),
    # pyspark leaves the sockets it collects results through to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


class Transactions:
    def __init__(self, servers: str, name: str) -> None:
        self._producer = Producer({"bootstrap.servers": servers, "transactional.id": name, "linger.ms": 0})
        self._producer.init_transactions(30)

    def write(self, topic: str, values: list[str], *, commit: bool) -> None:
        self.begin(topic, values)
        (self._producer.commit_transaction if commit else self._producer.abort_transaction)(30)

    def begin(self, topic: str, values: list[str]) -> None:
        self._producer.begin_transaction()
        for number, value in enumerate(values):
            self._producer.produce(topic, value.encode(), partition=number % PARTITIONS)
        assert self._producer.flush(30) == 0

    def commit(self) -> None:
        self._producer.commit_transaction(30)


@pytest.fixture
def opened(bootstrap_servers: str, name: str) -> Transactions:
    return Transactions(bootstrap_servers, f"{name}-open")


@pytest.fixture
def topic(bootstrap_servers: str, make_topic: MakeTopic, name: str, opened: Transactions) -> str:
    """Five transactions of 50 records, the second and the fourth aborted; and one that is open."""
    made = make_topic(PARTITIONS)
    done = Transactions(bootstrap_servers, f"{name}-done")
    for number in range(5):
        done.write(made, [f"{number}.{each}" for each in range(50)], commit=number % 2 == 0)
    opened.begin(made, [f"open.{each}" for each in range(10)])
    return made


COMMITTED = sorted(f"{number}.{each}" for number in (0, 2, 4) for each in range(50))
ALL = sorted([*(f"{number}.{each}" for number in range(5) for each in range(50)), *(f"open.{n}" for n in range(10))])


def options(servers: str, topic: str, isolation: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest",
        "kafka.isolation.level": isolation,
    }  # fmt: skip


def values(frame: DataFrame) -> list[str]:
    return sorted(row[0] for row in frame.selectExpr("CAST(value AS STRING)").collect())


@pytest.mark.parametrize(("isolation", "wanted"), [("read_committed", COMMITTED), ("read_uncommitted", ALL)])
def test_a_batch(spark: SparkSession, bootstrap_servers: str, topic: str, isolation: str, wanted: list[str]) -> None:
    assert values(spark.read.format("kafka").options(**options(bootstrap_servers, topic, isolation)).load()) == wanted


def test_a_stream(
    spark: SparkSession, bootstrap_servers: str, topic: str, opened: Transactions, name: str, tmp_path: Path
) -> None:
    """In micro-batches of some offsets each, of which many are markers and aborted records; then what comes later."""
    found: list[str] = []

    def take() -> None:
        given = options(bootstrap_servers, topic, "read_committed")
        frame = spark.readStream.format("kafka").options(**given, maxOffsetsPerTrigger="40").load()
        query = (
            frame.writeStream.foreachBatch(lambda batch, _: found.extend(values(batch)))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    take()
    assert sorted(found) == COMMITTED
    # What is behind the open transaction waits for it.
    later = Transactions(bootstrap_servers, f"{name}-later")
    later.write(topic, ["lost"], commit=False)
    later.write(topic, ["later"], commit=True)
    take()
    assert sorted(found) == COMMITTED
    opened.commit()
    take()
    assert sorted(found) == sorted([*COMMITTED, *(f"open.{each}" for each in range(10)), "later"])
