"""kill −9 under a running Spark stream: it goes on, by itself or from its checkpoint; its table has everything once.

The stream keeps `failOnDataLoss`, Spark's default: an offset that came back smaller, or a record that is gone, ends it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient, NewTopic

from tests.chance import seeded
from tests.crash.load import PARTITIONS, QUICK, TOPIC, Load
from tests.crash.serving import Serving, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

DEADLINE_S = 180.0
KILLS = 2


def stream(spark: SparkSession, servers: str, folder: Path) -> StreamingQuery:
    """Topic → Parquet, from the checkpoint if there is one."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("kafka.reconnect.backoff.ms", "10")
        .option("kafka.reconnect.backoff.max.ms", "100")
        .load()
    )
    return (
        records.selectExpr("partition", "offset", "CAST(split(CAST(value AS STRING), ' ')[0] AS INT) AS number")
        .writeStream.format("parquet")
        .option("path", str(folder / "table"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="100 milliseconds")
        .start()
    )


def rows(query: StreamingQuery) -> int:
    """How many records its batches had, since it was started."""
    failure = query.exception()
    assert failure is None, failure
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def test_a_stream_goes_on_after_each_kill(spark: SparkSession, tmp_path: Path) -> None:
    dice = seeded()
    serving = Serving(tmp_path)
    serving.start()
    admin = AdminClient({"bootstrap.servers": serving.address, **QUICK})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(10)
    load = Load(serving.address, random.Random(dice.getrandbits(32)))
    query = stream(spark, serving.address, tmp_path)
    try:
        load.start()
        for kill in range(1, KILLS + 1):
            more_than(lambda: rows(query), rows(query), "the stream reads")  # noqa: B023
            further = len(load.acknowledged) + dice.randrange(3_000)
            wait_until(lambda: len(load.acknowledged) >= further, DEADLINE_S, "a moment to kill it")  # noqa: B023
            serving.kill()
            if kill == KILLS:
                query.stop()
            serving.start()
            if kill == KILLS:
                query = stream(spark, serving.address, tmp_path)
            more_than(lambda: len(load.acknowledged), len(load.acknowledged), "the producer goes on")
        more_than(lambda: rows(query), rows(query), "the stream goes on")
        load.stopping.set()
        load.join(DEADLINE_S)
        assert not load.is_alive()
        query.processAllAvailable()
        table = spark.read.parquet(str(tmp_path / "table")).orderBy("partition", "offset").collect()
    finally:
        load.stopping.set()
        query.stop()
        load.join(DEADLINE_S)
        serving.stop()
    assert not load.errors
    # In offset order, each partition holds 0, 1, 2, … as they were sent: no hole, nothing twice, nothing swapped.
    found = [(row["partition"], row["offset"], row["number"]) for row in table]
    assert found == [(partition, n, n) for partition in range(PARTITIONS) for n in range(load.sent[partition])]
    assert set(load.acknowledged) == set(found)


def more_than(count: Callable[[], int], before: int, what: str) -> None:
    wait_until(lambda: count() > before, DEADLINE_S, what)
