"""A program as a user writes it, for the tests that run it in other places than this machine's own Spark.

    program.py WHERE BOOTSTRAP TOPIC FOLDER       WHERE: session()'s arguments as JSON

It reads a topic of {"shop": …, "amount": …} into typed columns, adds the amounts up by shop, puts the records into a
Parquet table by a stream and into an archive, and prints what it found as one line of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import functions as F  # noqa: N812

from halfmoon.pipeline import session, stop
from halfmoon.pipeline.ingest import ingest
from halfmoon.pipeline.jobs.archive import archive, read_archive
from halfmoon.pipeline.session import spark_errors
from halfmoon.pipeline.tasks import tasks_told
from halfmoon.pipeline.topics import read_stream, read_topic

ORDERS = 60
SHOPS = {"north": [285.0, 20], "south": [295.0, 20], "west": [305.0, 20]}
"""What the program finds in the topic of `produce_orders`: by shop, the sum of the amounts and how many there are."""


def produce_orders(bootstrap: str, topic: str) -> None:
    """Fill a topic of two partitions."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(ORDERS):
        order = {"shop": list(SHOPS)[n % 3], "amount": n / 2}
        producer.produce(topic, json.dumps(order), partition=n % 2)
    assert producer.flush(20) == 0


def run(command: list[str], where: dict[str, Any], rest: tuple[str, str, Path], environment: dict[str, str]) -> Any:
    """What the program prints when `command` runs it; `rest` is the broker's address, the topic and a folder.

    A process of its own, since Spark is there once in a process and the tests have theirs.
    """
    words = [*command, __file__, json.dumps(where), *map(str, rest)]
    done = subprocess.run(words, cwd=rest[2], env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-5_000:]
    # Spark 4.0 would print what was refused with two stack traces.
    assert "stacktrace" not in done.stderr, done.stderr[-5_000:]
    return json.loads(done.stdout.splitlines()[-1])


def main(where: str, bootstrap: str, topic: str, folder: str) -> None:
    spark = session("orders", **json.loads(where))
    try:
        orders = read_topic(spark, topic, bootstrap=bootstrap, schema="shop STRING, amount DOUBLE")
        sums = orders.groupBy("data.shop").agg(F.sum("data.amount").alias("amount"), F.count("*").alias("orders"))
        stream = read_stream(spark, topic, bootstrap=bootstrap).select("value", "partition", "offset")
        table = str(Path(folder, "table"))
        with tasks_told(spark, lambda _done, _of: None):
            shops = {row["shop"]: [row["amount"], row["orders"]] for row in sums.collect()}
        found = {
            "shops": shops,
            "streamed": ingest(stream, table, str(Path(folder, "checkpoint"))).rows,
            "in_table": spark.read.parquet(table).count(),
            "archived": [rows(spark, bootstrap, topic, str(Path(folder, "archive"))) for _ in range(2)],
            "zone": spark.conf.get("spark.sql.session.timeZone"),
            "same": session("another name") is spark,
            "refused": refused(orders),
            **driver(spark),
        }
    finally:
        stop(spark)
        stop(spark)  # It may be called again, as the session's user and a `finally` of somebody else's do.
    print(json.dumps(found))


def rows(spark, bootstrap: str, topic: str, path: str) -> list[int]:
    """What a run of the archive adds, and what is there then."""
    added = archive(spark, topic, path, bootstrap=bootstrap, batch_records=20)[topic].rows
    return [added, read_archive(spark, path).count()]


def refused(orders) -> str:
    """What a user reads who misspells a column."""
    try:
        with spark_errors():
            orders.select("shopp").collect()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def driver(spark) -> dict[str, str | None]:
    """How the driver was set up. Spark Connect has none here."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        return {"java": None}
    names = ("spark.master", "spark.app.name", "spark.app.id", "spark.sql.shuffle.partitions", "spark.ui.enabled")
    return {name: spark.sparkContext.getConf().get(name) for name in names}


if __name__ == "__main__":
    main(*sys.argv[1:])
