"""What the flights say: delay by carrier and month, by hour, by route, by weather, by the aircraft's age.

Words: a flight is *cancelled* if it never departed; *late* if it left more than 15 minutes after schedule (the U.S.
Department of Transportation's bound). Means are over flights that flew; shares of cancelled ones over all flights.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from halfmoon.pipeline.reports.parts import Part, made
from halfmoon.pipeline.reports.report import Report, collect

LATE_MIN = 15


def fewest_on_a_route(flights: int) -> int:
    """How many flights a route needs to be listed: 100 of the whole year's, in proportion for a part of them."""
    return max(5, round(flights / 3368))


def flight_reports(enriched: DataFrame, *, min_route_flights: int) -> list[Report]:
    """All reports at once: those of `flight_parts`."""
    return made(flight_parts(enriched, min_route_flights=lambda: min_route_flights))


def flight_parts(enriched: DataFrame, *, min_route_flights: Callable[[], int]) -> list[Part]:
    """All reports over the DataFrame of `flights.enrich`, which should be cached: it is read six times.

    Routes with fewer than `min_route_flights()` flights are left out: their means are chance.
    """

    def part(name: str, title: str, key_columns: int, frame: Callable[[DataFrame], DataFrame]) -> Part:
        return Part(title, lambda: [collect(name, title, frame(enriched), key_columns)])

    return [
        part("overview", "The year in one line", 0, lambda flights: flights.agg(*_measures(), *_arrival())),
        part("delay_by_carrier_month", "Delay by carrier and month", 2, _by_carrier_month),
        part("delay_by_hour", "Delay by scheduled hour of departure", 1, _by_hour),
        part("delay_by_route", "Routes, worst first", 2, lambda flights: _by_route(flights, min_route_flights())),
        part("delay_by_weather", "Weather at the origin against delay", 2, _by_weather),
        part("delay_by_plane_age", "Delay by the aircraft's age", 1, _by_plane_age),
    ]


def _measures() -> list[Column]:
    late = (F.col("dep_delay") > LATE_MIN).cast("int")
    return [
        F.count("*").alias("flights"),
        F.sum(F.col("cancelled").cast("int")).alias("cancelled"),
        F.round(F.avg(F.col("cancelled").cast("int")), 4).alias("cancelled_share"),
        F.round(F.avg("dep_delay"), 2).alias("mean_dep_delay_min"),
        F.median("dep_delay").alias("median_dep_delay_min"),
        F.round(F.avg(late), 4).alias("late_share"),
    ]


def _arrival() -> list[Column]:
    return [
        F.round(F.avg("arr_delay"), 2).alias("mean_arr_delay_min"),
        F.percentile("arr_delay", F.lit(0.9)).alias("p90_arr_delay_min"),
    ]


def _by_carrier_month(flights: DataFrame) -> DataFrame:
    return flights.groupBy("carrier", "month", "airline").agg(*_measures()).orderBy("carrier", "month")


def _by_hour(flights: DataFrame) -> DataFrame:
    p90 = F.percentile("dep_delay", F.lit(0.9)).alias("p90_dep_delay_min")
    return flights.groupBy("hour").agg(*_measures(), p90).orderBy("hour")


def _by_route(flights: DataFrame, min_flights: int) -> DataFrame:
    by = flights.groupBy("origin", "dest", "dest_name", "dest_lat", "dest_lon")
    miles = F.max("distance").alias("distance_miles")
    table = by.agg(miles, *_measures(), *_arrival()).where(F.col("flights") >= min_flights)
    return table.orderBy(F.desc_nulls_last("mean_arr_delay_min"), "origin", "dest")


def _by_weather(flights: DataFrame) -> DataFrame:
    """One row per factor and band; flights in hours without a reading are in no band."""
    return _bands(
        flights,
        {
            "visibility": (F.col("visib"), "mi", [0.5, 1, 2, 4, 7, 10]),
            "wind": (F.col("wind_speed"), "mph", [5, 10, 15, 20, 25]),
            "precipitation": (F.col("precip"), "in/h", [0.001, 0.02, 0.05, 0.1, 0.2]),
        },
    )


def _by_plane_age(flights: DataFrame) -> DataFrame:
    age = F.lit(2013) - F.col("plane_year")
    return _bands(flights, {"age": (age, "years", [5, 10, 15, 20, 25])}).drop("factor")


def _bands(flights: DataFrame, factors: dict[str, tuple[Column, str, list[float]]]) -> DataFrame:
    """Measures per band of each factor: band 0 is below the first bound, band n from the n-th bound on."""
    parts = []
    for factor, (reading, unit, bounds) in factors.items():
        number = sum(((reading >= bound).cast("int") for bound in bounds), start=F.lit(0))
        labels = F.array(*(F.lit(label) for label in band_labels(bounds, unit)))
        of_band = flights.where(reading.isNotNull()).withColumn("band_number", number)
        grouped = of_band.groupBy("band_number").agg(*_measures())
        band = F.get(labels, F.col("band_number")).alias("band")
        parts.append(grouped.select(F.lit(factor).alias("factor"), band, "*"))
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.unionByName(part)
    return whole.orderBy("factor", "band_number")


def band_labels(bounds: list[float], unit: str) -> list[str]:
    """[1, 5] → ["under 1 mi", "1–5 mi", "5+ mi"]; a lowest bound that only parts nothing from something → "none"."""
    lowest = "none" if bounds[0] < 0.01 else f"under {bounds[0]:g} {unit}"
    starts = ["0" if bound < 0.01 else f"{bound:g}" for bound in bounds]
    middle = [f"{low}–{high} {unit}" for low, high in pairwise(starts)]
    return [lowest, *middle, f"{starts[-1]}+ {unit}"]
