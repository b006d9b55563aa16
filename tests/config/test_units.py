"""Durations, sizes and addresses: what is read is what was written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.config.units import Address, format_duration, format_size, parse_address, parse_duration, parse_size


@given(st.integers(0, 2**53))
def test_formatted_numbers_are_read_back(number: int) -> None:
    assert parse_duration(format_duration(number)) == number
    assert parse_size(format_size(number)) == number
    assert parse_size(number) == parse_size(str(number)) == number


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [("0s", 0), ("100ms", 100), ("1.5s", 1_500), ("15 m", 900_000), ("2h", 7_200_000), ("7d", 604_800_000)],
)
def test_durations(text: str, duration_ms: int) -> None:
    assert parse_duration(text) == duration_ms


@pytest.mark.parametrize("text", ["", "5", "ms", "-1s", "1 s s", "1e3s", "1w", "1S", "٣s", 5, None, "0.1ms", "1.s"])
def test_no_durations(text: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_duration(text)


@pytest.mark.parametrize("text", ["", "1GB", "1K", "-1", "1.5", "x", True, None, 1.5, "0.3B"])
def test_no_sizes(text: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_size(text)


@pytest.mark.parametrize("text", ["127.0.0.1:9092", "[::1]:0", "localhost:65535", "a.b-c:1"])
def test_addresses_are_written_as_they_were_read(text: str) -> None:
    assert str(parse_address(text)) == text


@pytest.mark.parametrize("text", ["", ":", "h", ":1", "h:", "h:65536", "h:-1", "::1:9", "h h:1", "h:1x", 5, None])
def test_no_addresses(text: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_address(text)


def test_loopback() -> None:
    assert [Address(host, 1).is_loopback for host in ("127.0.0.1", "::1", "localhost", "127.1.2.3")] == [True] * 4
    assert not any(Address(host, 1).is_loopback for host in ("0.0.0.0", "::", "10.0.0.1", "example.org"))
