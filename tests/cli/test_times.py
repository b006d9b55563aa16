from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.cli.times import format_time, parse_time

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("2013-01-01", 1_356_998_400_000),
        ("2013-01-01T00:00", 1_356_998_400_000),
        ("2013-01-01T00:00:00.250Z", 1_356_998_400_250),
        ("2013-01-01T02:00+02:00", 1_356_998_400_000),
        ("1356998400000", 1_356_998_400_000),
        ("0", 0),
        ("-90s", NOW_MS - 90_000),
        ("-1.5h", NOW_MS - 5_400_000),
        ("-7d", NOW_MS - 604_800_000),
    ],
)
def test_points_in_time(text: str, time_ms: int) -> None:
    assert parse_time(text, NOW_MS) == time_ms


@pytest.mark.parametrize("text", ["", "yesterday", "-1", "1h", "-1y", "2013-13-01", "٣"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="such as 2013-01-01T00:00"):
        parse_time(text, NOW_MS)


@given(st.integers(0, 4_000_000_000_000))
def test_what_is_written_is_read_back(time_ms: int) -> None:
    assert parse_time(format_time(time_ms), NOW_MS) == time_ms
