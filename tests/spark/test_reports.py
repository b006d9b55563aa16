"""halfmoon.pipeline.reports: delays and dead letters, over records that are known."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from halfmoon.pipeline import PipelineError
from halfmoon.pipeline.reports.dead_letters import dead_letter_reports, dead_letters, group_of
from halfmoon.pipeline.reports.delays import delay_reports, delayed_messages, levels_ms
from halfmoon.pipeline.reports.windows import window_ms

AT_MS = 1_767_225_600_000
"""2026-01-01, UTC."""


def messages(spark, rows: list[tuple[str, int, dict[str, str]]]):
    """Of (topic, timestamp in ms after 2026, properties) the columns that reports look at."""
    data = [(topic, 0, n, AT_MS + at, properties) for n, (topic, at, properties) in enumerate(rows)]
    frame = spark.createDataFrame(
        data, "topic STRING, partition INT, offset BIGINT, ms BIGINT, properties MAP<STRING, STRING>"
    )
    return frame.selectExpr("*", "timestamp_millis(ms) AS timestamp")


def delayed(asked: str, sent: int) -> dict[str, str]:
    return {"halfmoon.delayed": asked, "halfmoon.original-timestamp": str(AT_MS + sent)}


def test_delays(spark) -> None:
    rows = [("t", 1_000 * n + 10_000 + n, delayed("DELAY=3", 1_000 * n)) for n in range(101)]
    rows += [("t", 7_203_000, delayed("DELAY=18", 0)), ("t", 7_201_000, delayed("DELAY=40", 0))]
    rows += [("t", 2_500, delayed("TIMER_DELAY_MS=1500", 999)), ("t", 1_200, delayed("TIMER_DELAY_SEC=1", 300))]
    rows += [("t", 70, delayed(f"TIMER_DELIVER_MS={AT_MS + 50}", 0)), ("t", 5, {}), ("t", 5, delayed("DELAY=x", 0))]
    by_level, over_time = delay_reports(delayed_messages(messages(spark, rows)))
    assert by_level.rows == (
        ("DELAY=3", 10.0, 101, 0, 50.0, 90.0, 99.0, 100),
        ("DELAY=18", 7200.0, 1, 0, 3000.0, 3000.0, 3000.0, 3000),
        ("DELAY=40", 7200.0, 1, 0, 1000.0, 1000.0, 1000.0, 1000),
        ("TIMER_DELAY_MS", None, 1, 0, 1.0, 1.0, 1.0, 1),
        ("TIMER_DELAY_SEC", None, 1, 1, -100.0, -100.0, -100.0, -100),
        ("TIMER_DELIVER_MS", None, 1, 0, 20.0, 20.0, 20.0, 20),
    )
    assert over_time.columns == ("window_start", "messages", "p50_ms", "p99_ms")
    assert [row[0].tzinfo for row in over_time.rows] == [UTC] * len(over_time.rows)
    assert sum(row[1] for row in over_time.rows) == 106


def test_delays_with_levels_of_its_own(spark) -> None:
    by_level, _ = delay_reports(
        delayed_messages(messages(spark, [("t", 250, delayed("DELAY=2", 0))]), levels="100ms 200ms")
    )
    assert by_level.rows == (("DELAY=2", 0.2, 1, 0, 50.0, 50.0, 50.0, 50),)
    assert levels_ms("1s 2h") == [1_000, 7_200_000]
    for wrong in ("", "1s soon"):
        with pytest.raises(PipelineError, match="levels are durations"):
            levels_ms(wrong)


def test_no_delays(spark) -> None:
    reports = delay_reports(delayed_messages(messages(spark, [])))
    assert [report.rows for report in reports] == [(), ()]


def letter(reason: str | None, topic: str | None) -> dict[str, str]:
    said = {"halfmoon.reason": reason, "RETRY_TOPIC": topic, "RECONSUME_TIME": "16"}
    return {name: text for name, text in said.items() if text is not None}


def test_dead_letters(spark) -> None:
    rows = [("dlq.billing", 1_000 * n, letter("negatively acknowledged 16 times", "orders")) for n in range(5)]
    rows += [
        ("dlq.billing_x20_team", 59_000, letter(None, None)),
        ("dlq.billing", 90_000, letter("DELAY=-1", "orders")),
    ]
    by_group, by_reason, over_time = dead_letter_reports(dead_letters(messages(spark, rows)))
    first = datetime(2026, 1, 1, tzinfo=UTC)
    assert by_group.rows == (
        ("billing", 6, first, datetime(2026, 1, 1, 0, 1, 30, tzinfo=UTC)),
        ("billing team", 1, first.replace(second=59), first.replace(second=59)),
    )
    assert by_reason.rows == (
        ("billing", "negatively acknowledged 16 times", "orders", 5),
        ("billing", "DELAY=-1", "orders", 1),
        ("billing team", "?", "?", 1),
    )
    assert over_time.columns == ("window_start", "group", "letters")
    assert over_time.rows[0] == (first, "billing", 5), "windows of 5 s"
    assert sum(row[2] for row in over_time.rows) == 7


def test_names_of_groups() -> None:
    assert group_of("dlq.billing_x20_team") == "billing team"
    assert group_of("dlq._xE4__xFF_") == "\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"


def test_lengths_of_windows(spark) -> None:
    def length(*times: int) -> int:
        return window_ms(spark.createDataFrame([(at,) for at in times], "at BIGINT"), "at")

    assert (length(), length(5), length(0, 59_999), length(0, 60_000)) == (1_000, 1_000, 1_000, 5_000)
    assert length(0, 400 * 86_400_000) == 7 * 86_400_000
