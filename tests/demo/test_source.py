"""halfmoon.demo.source over the real data: times, order, strict JSON, headers."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pandas as pd
import pytest

from halfmoon.demo import source
from halfmoon.pipeline.checksum import record_number

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def flights() -> source.Dataset:
    return source.flights_dataset()


def ms(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=UTC).timestamp() * 1000)  # type: ignore[arg-type]


def schedule(*rows: tuple[int, int, int]) -> pd.DataFrame:
    return pd.DataFrame([(2013, *row) for row in rows], columns=["year", "month", "day", "sched_dep_time"])


def test_local_times_become_utc_by_the_rules_of_their_day() -> None:
    table = schedule((1, 1, 515), (7, 1, 515), (3, 9, 2359), (3, 10, 500), (11, 3, 545), (7, 27, 106))
    assert source.scheduled_ms(table) == [
        ms(2013, 1, 1, 10, 15),
        ms(2013, 7, 1, 9, 15),
        ms(2013, 3, 10, 4, 59),
        ms(2013, 3, 10, 9, 0),
        ms(2013, 11, 3, 10, 45),
        ms(2013, 7, 27, 5, 6),
    ]


@pytest.mark.parametrize("row", [(3, 10, 230), (11, 3, 130)], ids=["skipped", "repeated"])
def test_an_hour_that_summer_time_skips_or_repeats_is_not_guessed(row: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"2013-(03|11)-"):
        source.scheduled_ms(schedule(row))


def test_every_flight_agrees_with_the_datas_own_hour(flights: source.Dataset) -> None:
    assert len(flights) == 336_776
    before = 0
    for index in range(0, len(flights), 17):
        record = flights.record(index)
        row = json.loads(record.value)
        hour_ms = int(datetime.fromisoformat(row["time_hour"]).timestamp() * 1000)
        assert record.timestamp_ms == hour_ms + row["minute"] * 60_000
        assert record.timestamp_ms >= before
        before = record.timestamp_ms


def test_a_flights_record() -> None:
    row = {"carrier": "UA", "flight": 1545, "tailnum": "N14228", "origin": "EWR", "dest": "IAH", "dep_delay": 2}
    record = source.flight_record(row, 5)
    assert record == (
        5,
        b"N14228",
        b'{"carrier":"UA","flight":1545,"tailnum":"N14228","origin":"EWR","dest":"IAH","dep_delay":2}',
        (("TAGS", b"UA"), ("KEYS", b"1545"), ("origin", b"EWR"), ("dest", b"IAH"), ("dep_delay", b"2")),
    )


def test_what_is_missing_is_null_and_left_out() -> None:
    row = {"carrier": "UA", "flight": 1, "tailnum": None, "origin": "EWR", "dest": "IAH", "dep_delay": None}
    record = source.flight_record(row, 5)
    assert record.key is None
    assert json.loads(record.value)["tailnum"] is None
    assert [name for name, _ in record.headers] == ["TAGS", "KEYS", "origin", "dest"]


def test_json_is_strict() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        source.strict_json({"x": float("nan")})
    assert source.strict_json({"name": "Zürich"}) == '{"name":"Zürich"}'.encode()


@pytest.mark.parametrize(("cell", "value"), [(float("nan"), None), (2.0, 2), (2.5, 2.5), ("x", "x"), (7, 7)])
def test_cells_become_plain(cell: object, value: object) -> None:
    assert source.plain(cell) == value
    assert type(source.plain(cell)) is type(value)


def test_the_datas_holes_are_where_they_are_known_to_be(flights: source.Dataset) -> None:
    assert sum(key is None for key in flights.keys) == 2_512
    cancelled = json.loads(next(r for r in map(flights.record, range(len(flights))) if r.key is None).value)
    assert cancelled["dep_time"] is None


def test_a_key_always_goes_to_one_partition_and_keyless_ones_take_turns() -> None:
    keys = [b"A", None, b"B", None, b"A"]
    data = source.Dataset("t", 2, keys, lambda index: source.Record(index, keys[index], b"", ()))
    places = [data.partition(index, 4) for index in range(5)]
    assert places[0] == places[4]
    assert (places[1], places[3]) == (1, 3)


def test_the_small_tables() -> None:
    tables = {data.topic: data for data in source.reference_datasets()}
    assert {topic: len(data) for topic, data in tables.items()} == {
        "flights.airlines": 16,
        "flights.airports": 1_458,
        "flights.weather": 26_115,
        "flights.planes": 3_322,
    }
    weather = tables["flights.weather"]
    assert len(set(weather.keys)) == len(weather)
    first = weather.record(0)
    assert first.timestamp_ms % HOUR_MS == 0
    assert json.loads(first.value)["wind_gust"] is None
    assert all(record_number(0, i, *data.record(i)) for data in tables.values() for i in range(10))
