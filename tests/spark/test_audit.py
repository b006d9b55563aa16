"""halfmoon.pipeline.audit: Spark's number is Python's number, over odd records."""

from __future__ import annotations

from datetime import UTC, datetime

from halfmoon.pipeline.audit import audit, record_number
from halfmoon.pipeline.checksum import Checksum
from halfmoon.pipeline.checksum import record_number as in_python

SCHEMA = (
    "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY,"
    " headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
ODD = [
    (0, 0, 0, None, None, ()),
    (0, 1, 1, b"", b"", (("", b""),)),
    (3, 2, 1_357_034_400_123, b"\x00\xff", "Zürich;-;3:".encode(), (("TAGS", None), ("ключ", b"\xfe"))),
    (12, 2**40, 2**41, b"k" * 300, b"v" * 5_000, tuple((f"h{n}", b"%d" % n) for n in range(20))),
    (0, 3, -5, b"before 1970", b"{}", (("a", b"1"), ("a", b"1"))),
]


def frame(spark, records, topic="t"):
    rows = [
        (topic, partition, offset, datetime.fromtimestamp(ms / 1000, UTC), key, value, list(headers))
        for partition, offset, ms, key, value, headers in records
    ]
    return spark.createDataFrame(rows, SCHEMA)


def test_the_numbers_agree(spark) -> None:
    rows = frame(spark, ODD).select("partition", "offset", record_number().alias("number")).collect()
    found = {(row["partition"], row["offset"]): int(row["number"]) for row in rows}
    assert found == {record[:2]: in_python(*record) for record in ODD}


def test_missing_headers_are_no_headers(spark) -> None:
    without = frame(spark, ODD[:1]).selectExpr(
        "* EXCEPT (headers)", "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers"
    )
    assert int(without.select(record_number()).first()[0]) == in_python(*ODD[0])


def test_an_audit_is_by_topic_and_sees_what_came_twice(spark) -> None:
    found = audit(frame(spark, ODD).union(frame(spark, [*ODD[:2], ODD[0]], "u")))
    assert found["t"].checksum == Checksum.of(in_python(*record) for record in ODD)
    assert (found["t"].duplicates, found["u"].duplicates) == (0, 1)
    assert found["u"].checksum.count == 3
    assert audit(frame(spark, [])) == {}
