"""Store Spark's loaded classes in a file that later JVMs map: `python tools/class_archive.py`.

The tests start some 30 JVMs. Each spends half of its start-up time on reading and verifying the same classes. Java
calls the file a dynamic class data sharing archive (JEP 350). It is `.venv/spark.jsa`, 160 MB, and goes with `.venv`.
It is made once: for 20 s of processor time it saves about 6 s in each JVM. tests/java_options.py uses it where it is
there.

A JVM of another version, or with other jars, ignores the file. `.venv/spark.jsa.of` names what it was made of, so that
the next run after an upgrade makes a new one. Nothing depends on the archive: if it cannot be made, one line says so
and the exit code is 0.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVE = Path(sys.prefix, "spark.jsa")
STAMP = Path(sys.prefix, "spark.jsa.of")
DUMP_S = 300
"""How long the JVM may take to write the archive when it ends."""


def main() -> int:
    try:
        made_of = identity()
        if ARCHIVE.exists() and STAMP.exists() and STAMP.read_text() == made_of:
            return 0
        print("halfmoon: storing Spark's classes in .venv, once, so that each JVM of the tests starts faster")
        STAMP.unlink(missing_ok=True)
        ARCHIVE.unlink(missing_ok=True)
        make()
        STAMP.write_text(made_of)
    except Exception as error:
        print(f"halfmoon: the tests' JVMs start without an archive of classes: {error}", file=sys.stderr)
    return 0


def identity() -> str:
    """What the archive is of: this Java, this pyspark, in this place."""
    version = subprocess.run([java(), "-version"], capture_output=True, text=True, check=True).stderr
    return f"{version}pyspark {importlib.metadata.version('pyspark')} {sys.prefix}\n"


def java() -> str:
    """As Spark finds it."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else "java"


def make() -> None:
    """Run what most tests run, and let the JVM write the archive when it ends.

    Spark's Kafka connector is not part of it: Spark loads packages with a class loader that such an archive cannot
    serve. Hence nothing is downloaded.
    """
    from halfmoon.pipeline import jvm, session, stop

    if " " in str(ARCHIVE):
        raise ValueError("a JVM's options cannot name a path with a space")
    with tempfile.TemporaryDirectory(dir=sys.prefix) as folder:
        # Under another name first: a JVM that maps half an archive crashes.
        dumped = Path(folder, "spark.jsa")
        options = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ArchiveClassesAtExit={dumped}"
        os.environ["SPARK_SUBMIT_OPTS"] = options
        jvm.STOP_GRACE_S = DUMP_S
        spark = session("class-archive", packages="", log_file=Path(folder, "log"))
        try:
            use(spark, Path(folder))
        finally:
            stop(spark)
        dumped.rename(ARCHIVE)


def use(spark: SparkSession, folder: Path) -> None:
    """Queries, files and a stream, so that their classes are loaded."""
    columns = ("id", "id % 3 AS k", "CAST(id AS STRING) AS text", "timestamp_millis(id) AS at")
    rows = spark.range(1_000).selectExpr(*columns)
    files, out = str(folder / "files"), str(folder / "out")
    rows.write.partitionBy("k").parquet(files)
    read = spark.read.parquet(files)
    read.groupBy("k").agg({"id": "sum", "text": "max"}).orderBy("k").collect()
    joined = read.join(rows.select("id").dropDuplicates(["id"]), "id")
    joined.selectExpr("from_json(text, 'a INT')", "to_json(struct(at))").collect()
    read.selectExpr("*", "row_number() OVER (PARTITION BY text ORDER BY at)").collect()
    stream = spark.readStream.schema(read.schema).parquet(files).withWatermark("at", "1 minute")
    for name, batches in {"counts": stream.groupBy("k").count(), "rows": stream}.items():
        writer = batches.writeStream.option("checkpointLocation", f"{out}-of-{name}").trigger(availableNow=True)
        if name == "counts":
            writer.outputMode("complete").foreachBatch(lambda batch, _: batch.count()).start().awaitTermination()
        else:
            writer.format("parquet").start(out).awaitTermination()


if __name__ == "__main__":
    sys.exit(main())
