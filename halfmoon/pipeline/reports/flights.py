"""The flights of New York 2013: from the topic's JSON to typed tables, and what is joined to them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

FLIGHT_SCHEMA = """
    year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, sched_arr_time INT,
    arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, air_time INT, distance INT,
    hour INT, minute INT, time_hour TIMESTAMP
"""
"""The source's own columns. Times of day are HHMM, local; delays and air_time are minutes; distance is miles."""

REFERENCE_SCHEMAS = {
    "airlines": "carrier STRING, name STRING",
    "airports": "faa STRING, name STRING, lat DOUBLE, lon DOUBLE, alt INT, tz INT, dst STRING, tzone STRING",
    "weather": (
        "origin STRING, year INT, month INT, day INT, hour INT, temp DOUBLE, dewp DOUBLE, humid DOUBLE,"
        " wind_dir DOUBLE, wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, pressure DOUBLE, visib DOUBLE,"
        " time_hour TIMESTAMP"
    ),
    "planes": (
        "tailnum STRING, year INT, type STRING, manufacturer STRING, model STRING, engines INT, seats INT,"
        " speed INT, engine STRING"
    ),
}

RECORD_COLUMNS = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")
"""Kept beside the typed columns, so that the table can be audited against what was produced, byte by byte."""


@dataclass(slots=True, frozen=True)
class Reference:
    """The four small tables, each typed."""

    airlines: DataFrame
    airports: DataFrame
    weather: DataFrame
    planes: DataFrame


def typed_flights(messages: DataFrame) -> DataFrame:
    """A topic's messages with the flight's own columns added. A value that is no flight leaves them null."""
    parsed = messages.select(*RECORD_COLUMNS, _parse(FLIGHT_SCHEMA).alias("parsed"))
    return parsed.select(*RECORD_COLUMNS, "parsed.*")


def reference_tables(records: DataFrame, topics: dict[str, str]) -> Reference:
    """The small tables out of one DataFrame with all their messages; `topics` maps a table's name to its topic."""

    def table(name: str) -> DataFrame:
        rows = records.where(F.col("topic") == topics[name])
        return rows.select(_parse(REFERENCE_SCHEMAS[name]).alias("row")).select("row.*")

    return Reference(*(table(name) for name in ("airlines", "airports", "weather", "planes")))


def read_table(spark: SparkSession, table: Path) -> DataFrame:
    return spark.read.parquet(str(table))


def enrich(flights: DataFrame, reference: Reference) -> DataFrame:
    """Each flight with its airline, destination, the weather at its origin in the hour it was due, and its aircraft.

    All joins are outer on the flight's side and their keys are unique on the other: as many rows come out as went in.
    Four destinations and some hundred hours of weather are missing in the data; their columns stay null.
    """
    airlines = reference.airlines.select("carrier", F.col("name").alias("airline"))
    airports = reference.airports.select(
        F.col("faa").alias("dest"),
        F.col("name").alias("dest_name"),
        F.col("lat").alias("dest_lat"),
        F.col("lon").alias("dest_lon"),
    )
    weather = reference.weather.select("origin", "time_hour", "temp", "wind_speed", "precip", "visib")
    planes = reference.planes.select("tailnum", F.col("year").alias("plane_year"), "seats")
    own = ("month", "hour", "carrier", "flight", "tailnum", "origin", "dest", "distance", "dep_delay", "arr_delay")
    return (
        flights.select(*own, "time_hour", F.col("dep_time").isNull().alias("cancelled"))
        .join(F.broadcast(airlines), "carrier", "left")
        .join(F.broadcast(airports), "dest", "left")
        .join(F.broadcast(weather), ["origin", "time_hour"], "left")
        .join(F.broadcast(planes), "tailnum", "left")
    )


def _parse(schema: str) -> Column:
    return F.from_json(F.col("value").cast("string"), schema)
