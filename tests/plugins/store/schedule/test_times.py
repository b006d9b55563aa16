"""When cron expressions are due: time zones, clocks that are put forward and back, and what was missed."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from itertools import pairwise, takewhile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halfmoon.plugins.store.schedule import times

BERLIN = "Europe/Berlin"
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


def ms(text: str) -> int:
    """Of a time in UTC."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000)


def utc(*found_ms: int) -> list[str]:
    return [f"{datetime.fromtimestamp(each / 1_000, UTC):%m-%d %H:%M:%S}" for each in found_ms]


def next_utc(cron: str, zone: str, after: str, count: int) -> list[str]:
    return utc(*times.next_times(cron, zone, ms(after), count))


def test_five_fields_are_minutes_and_six_seconds() -> None:
    assert next_utc("30 9 * * 1-5", "UTC", "2026-01-02T09:30:00", 2) == ["01-05 09:30:00", "01-06 09:30:00"]
    assert next_utc("*/20 * * * * *", "UTC", "2026-01-02T00:00:20.500", 2) == ["01-02 00:00:40", "01-02 00:01:00"]
    assert next_utc("0 8 L * *", "UTC", "2026-02-01T00:00:00", 2) == ["02-28 08:00:00", "03-31 08:00:00"]
    assert next_utc("0 8 * * FRI#2", "UTC", "2026-01-01T00:00:00", 1) == ["01-09 08:00:00"]


def test_the_zone_says_what_nine_o_clock_is() -> None:
    assert next_utc("0 9 * * *", BERLIN, "2026-01-15T00:00:00", 1) == ["01-15 08:00:00"]
    assert next_utc("0 9 * * *", BERLIN, "2026-07-15T00:00:00", 1) == ["07-15 07:00:00"]
    assert next_utc("0 9 * * *", "Asia/Kathmandu", "2026-07-15T00:00:00", 1) == ["07-15 03:15:00"]


def test_a_time_that_the_clock_leaps_over_is_kept_right_behind_the_leap() -> None:
    """2026-03-29: 02:00 in Berlin is 03:00, and that is 01:00 UTC."""
    found = next_utc("30 2 * * *", BERLIN, "2026-03-28T00:00:00", 3)
    assert found == ["03-28 01:30:00", "03-29 01:00:00", "03-30 00:30:00"]


def test_two_times_that_become_one_are_one() -> None:
    assert next_utc("0,30 2,3 * * *", BERLIN, "2026-03-29T00:00:00", 2) == ["03-29 01:00:00", "03-29 01:30:00"]


def test_a_time_that_the_clock_passes_twice_is_kept_the_first_time() -> None:
    """2026-10-25: 03:00 in Berlin is 02:00 again, and that is 01:00 UTC."""
    found = next_utc("30 2 * * *", BERLIN, "2026-10-24T12:00:00", 2)
    assert found == ["10-25 00:30:00", "10-26 01:30:00"]
    assert next_utc("30 2 * * *", BERLIN, "2026-10-25T00:30:00", 1) == ["10-26 01:30:00"], "from the time itself"
    assert next_utc("30 2 * * *", BERLIN, "2026-10-25T01:10:00", 1) == ["10-26 01:30:00"], "from the second pass"


def test_what_has_a_star_goes_on_at_its_pace() -> None:
    found = times.next_times("*/30 * * * *", BERLIN, ms("2026-10-24T23:00:00"), 8)
    assert [later - sooner for sooner, later in pairwise(found)] == [30 * MINUTE_MS] * 7
    found = times.next_times("*/30 * * * *", BERLIN, ms("2026-03-28T23:00:00"), 8)
    assert [later - sooner for sooner, later in pairwise(found)] == [30 * MINUTE_MS] * 7


@pytest.mark.parametrize(
    ("cron", "zone", "problem"),
    [
        ("", "UTC", "wrong number of fields"),
        ("* * * *", "UTC", "wrong number of fields"),
        ("61 * * * *", "UTC", "bad minute"),
        ("* * * * * * *", "UTC", "wrong number of fields"),
        ("@daily", "UTC", "wrong number of fields"),
        ("0 0 30 2 *", "UTC", "bad day-of-month"),
        ("*/0 * * * *", "UTC", "bad minute"),
        ("² * * * *", "UTC", "not ASCII"),
        ("0 " * 200, "UTC", "at most 200 characters"),
        ("9" * 100 + " * * * *", "UTC", "bad minute"),
        ("* * * * *", "Europe/Belrin", "no time zone 'Europe/Belrin'"),
        ("* * * * *", "../etc/passwd", "no time zone"),
        ("* * * * *", "", "no time zone"),
        ("* * * * *", "Europe", "no time zone"),
        ("* * * * *", "a\0b", "no time zone"),
    ],
)
def test_what_is_wrong_is_said(cron: str, zone: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        times.check(cron, zone)


def due(cron: str, after: str, now: str, *, once: bool = True, zone: str = "UTC") -> times.Due:
    return times.due(cron, zone, ms(after), ms(now), late_ms=MINUTE_MS, once=once)


def test_what_is_late_by_less_than_the_bound_is_sent_one_after_the_other() -> None:
    found = due("* * * * * *", "2026-01-01T12:00:00", "2026-01-01T12:00:03")
    assert found == times.Due(ms("2026-01-01T12:00:01"), 0, ms("2026-01-01T12:00:01"))


def test_of_what_was_missed_the_newest_is_sent_once() -> None:
    newest_ms = ms("2026-01-05T09:00:00")
    assert due("0 9 * * *", "2026-01-02T09:00:00", "2026-01-05T12:00:00") == times.Due(newest_ms, 2, newest_ms)


def test_or_none_is() -> None:
    newest_ms = ms("2026-01-05T09:00:00")
    found = due("0 9 * * *", "2026-01-02T09:00:00", "2026-01-05T12:00:00", once=False)
    assert found == times.Due(None, 3, newest_ms)


def test_none_of_the_missed_is_sent_beside_one_that_is_not() -> None:
    now_ms = ms("2026-01-01T12:10:00")
    found = due("* * * * *", "2026-01-01T12:00:00", "2026-01-01T12:10:00")
    assert found == times.Due(now_ms - MINUTE_MS, 8, now_ms - MINUTE_MS), "the bound itself is in time"


def test_a_minute_late_to_the_millisecond() -> None:
    assert due("0 9 * * *", "2026-01-01T00:00:00", "2026-01-01T09:01:00", once=False).missed == 0
    assert due("0 9 * * *", "2026-01-01T00:00:00", "2026-01-01T09:01:00.001", once=False).missed == 1


def test_years_of_seconds_are_not_counted_one_by_one() -> None:
    found = due("* * * * 1-11 *", "2016-01-01T00:00:00", "2025-12-15T00:00:00", once=False)
    assert found == times.Due(None, times.MOST_COUNTED, ms("2025-11-30T23:59:59"))


def test_nothing_is_due() -> None:
    assert due("0 9 * * *", "2026-01-01T09:00:00", "2026-01-01T12:00:00").send_ms is None
    assert due("0 9 * * *", "2026-01-02T09:00:00", "2026-01-01T12:00:00").send_ms is None, "the clock was set back"


CRONS = ["30 2 * * *", "*/20 * * * *", "0,30 1,2,3 * * *", "0 */3 * * *", "15 2 * * SUN", "*/7 30 2 * * *", "0 0 1 * *"]
ZONES = ["UTC", BERLIN, "America/Havana", "Australia/Lord_Howe", "Africa/Casablanca"]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(CRONS),
    st.sampled_from(ZONES),
    st.integers(ms("2026-01-01T00:00:00"), ms("2026-12-01T00:00:00")),
    st.lists(st.integers(1, 40 * HOUR_MS), min_size=1, max_size=12),
)
def test_wherever_somebody_looks_from_there_are_the_same_times(
    cron: str, zone: str, begin_ms: int, steps_ms: list[int]
) -> None:
    """Those that were found from the beginning are found again from any time between."""
    end_ms = begin_ms + sum(steps_ms)
    whole = list(takewhile(end_ms.__ge__, times._times(cron, zone, begin_ms)))
    at_ms, found = begin_ms, []
    for step_ms in steps_ms:
        until_ms = at_ms + step_ms
        while (next_ms := times.next_after(cron, zone, at_ms)) is not None and next_ms <= until_ms:
            found.append(next_ms)
            at_ms = next_ms
        at_ms = until_ms
    assert found == whole


@pytest.mark.parametrize("cron", ["0 0 29 2 *", "0 0 29 2 */6", "0 0 31 * 1", "0 0 29 2 MON#5"])
def test_rare_times_are_found_soon(cron: str) -> None:
    """So that no expression holds up the loop."""
    began = time.process_time()
    found = times.next_after(cron, BERLIN, ms("2026-03-01T00:00:00"))
    assert found is None or found > 0
    assert time.process_time() - began < 0.5
