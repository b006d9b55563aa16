"""The checksum of `checksum.py` in Spark's built-in functions, and the questions that "exactly once" comes down to."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (what everybody calls it)

from halfmoon.pipeline.checksum import HEX_DIGITS, Checksum


def _binary(column: Column) -> Column:
    return column.cast("string").cast("binary")


def _field(column: Column) -> Column:
    data = column.cast("binary")
    written = F.concat(_binary(F.length(data)), _binary(F.lit(":")), data, _binary(F.lit(";")))
    return F.when(data.isNull(), _binary(F.lit("-;"))).otherwise(written)


def record_number() -> Column:
    """`checksum.record_number` over the columns partition, offset, timestamp, key, value and headers of a topic."""
    semicolon = _binary(F.lit(";"))
    place = [_binary(part) for part in (F.col("partition"), F.col("offset"), F.unix_millis("timestamp"))]
    numbers = [piece for part in place for piece in (part, semicolon)]
    head = F.concat(*numbers, _field(F.col("key")), _field(F.col("value")))
    headers = F.coalesce(F.col("headers"), F.array().cast("array<struct<key:string,value:binary>>"))
    tail = F.aggregate(
        headers,
        F.lit("").cast("binary"),
        lambda written, header: F.concat(written, _field(header["key"]), _field(header["value"])),
    )
    digest = F.sha2(F.concat(head, tail), 256)
    return F.conv(F.substring(digest, 1, HEX_DIGITS), 16, 10).cast("decimal(20,0)")


@dataclass(slots=True, frozen=True)
class Audit:
    """What a table of records holds. `places` counts distinct (topic, partition, offset)."""

    checksum: Checksum
    places: int

    @property
    def duplicates(self) -> int:
        return self.checksum.count - self.places


def audit(records: DataFrame) -> dict[str, Audit]:
    """By topic: count, checksum and distinct places of a table with a topic's columns (see `topics.py`)."""
    rows = (
        records.select("topic", F.struct("partition", "offset").alias("place"), record_number().alias("number"))
        .groupBy("topic")
        .agg(F.count("*").alias("count"), F.sum("number").alias("total"), F.countDistinct("place").alias("places"))
        .collect()
    )
    return {row["topic"]: Audit(Checksum(row["count"], int(row["total"])), row["places"]) for row in rows}
