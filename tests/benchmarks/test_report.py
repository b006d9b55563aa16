"""Goals, medians, the page: from figures to verdicts."""

from __future__ import annotations

import json

import pytest

from benchmarks.bench import Cell
from benchmarks.goals import GOALS, Goal
from benchmarks.report import (
    Run,
    as_text,
    keep_section,
    missed,
    page,
    read_json,
    table,
    together,
    with_section,
    write_json,
)
from benchmarks.runner import Results


def results() -> Results:
    found = Results()
    for mb_s in (100.0, 300.0, 200.0):
        found.add("kafka", {"produce_1k.mb_s": mb_s})
    found.add("interval", {"produce_1k.mb_s": 320.0, "partitions.create_ms": 250.0, "single_raw.p50_ms": 0.05})
    found.add("sync", {"produce_1k.mb_s": 150.0, "disk.fdatasync_p50_ms": 0.2, "single_raw.p50_ms": 0.3})
    return found


def row(title: str) -> list[str]:
    return next(row for row in table(results().medians()) if row[0] == title)


def test_the_median_is_compared_with_the_target_and_the_stretch() -> None:
    assert row("produce 1 KB, MB/s") == ["produce 1 KB, MB/s", "200", "320", "1.60x", "≥ 1.50x", "2.50x", "yes"]


def test_sync_is_compared_with_interval() -> None:
    assert row("produce 1 KB, MB/s, sync beside interval")[1:5] == ["320", "150", "0.47x", "≥ 0.80x"]
    assert row("produce 1 KB, MB/s, sync beside interval")[-1] == "**no**"


def test_an_absolute_goal_has_a_unit_and_no_comparison() -> None:
    assert row("1,000 partitions created")[1:] == ["", "250", "250 ms", "≤ 100 ms", "", "**no**"]


def test_a_synced_request_is_compared_with_a_request_and_the_disk() -> None:
    assert row("one by one with sync: p50 beside request + fdatasync")[1:4] == ["0.25", "0.3", "1.20x"]


def test_what_was_not_measured_has_no_row() -> None:
    assert len(table(results().medians())) == 1 + 4


@pytest.mark.parametrize(
    ("better", "value", "reached"),
    [("more", 2.0, True), ("more", 1.9, False), ("less", 2.0, True), ("less", 2.1, False)],
)
def test_a_limit_is_reached_at_the_limit(better: str, value: float, reached: bool) -> None:
    goal = Goal("g", "a.b", 2.0, better=better)
    assert goal.reached(value, goal.target) is reached
    assert not goal.reached(value, goal.stretch)


def test_the_names_of_goals_are_unique() -> None:
    assert len({goal.title for goal in GOALS}) == len(GOALS)


def test_the_page_and_the_file_say_what_was_measured_and_what_not(tmp_path) -> None:
    found = results()
    found.skipped.append("cold: no control group")
    cells = [Cell("bulk", "much", lambda *_: {})]
    run = Run("2025-01-31", "make bench", {"processor": "2 x Thing"}, 3, 1.0, "4.3.1", "5.3.3", cells)
    text = page(run, found)
    row_begins = "| produce 1 KB, MB/s | 200 | 320 |"
    for part in ("Apache Kafka 4.3.1", "2 x Thing", "`make bench`", row_begins, "cold: no control group"):
        assert part in text
    assert "2 of 4 targets are reached" in text
    write_json(tmp_path / "out" / "b.json", run, found)
    written = json.loads((tmp_path / "out" / "b.json").read_text())
    assert written["values"]["kafka"]["produce_1k.mb_s"] == [100.0, 300.0, 200.0]
    assert [goal["reached"] for goal in written["goals"]] == [True, False, True, False]
    assert page(*read_json(tmp_path / "out" / "b.json", cells)) == text


def test_of_several_runs_the_last_one_that_has_a_figure_counts() -> None:
    cells = [Cell("bulk", "much", lambda *_: {}), Cell("rocketmq", "remoting", lambda *_: {})]
    first, second = Results(), Results()
    first.add("interval", {"rocketmq.tx_8_s": 1.0, "produce_1k.mb_s": 2.0})
    first.skipped.append("rocketmq: no scripts")
    first.errors.append("rocketmq on sync: failed")
    second.add("interval", {"rocketmq.tx_8_s": 3.0})
    second.add("rocketmq", {"rocketmq.tx_8_s": 4.0})
    runs = [
        (Run("2025-01-30", "make bench", {"processor": "2 x Thing"}, 3, 1.0, "4.3.1", None, cells), first),
        (Run("2025-01-31", "make bench ARGS=x", {"processor": "2 x Thing"}, 3, 1.0, None, "5.3.3", cells[1:]), second),
    ]
    run, found = together(runs, cells)
    assert found.values == {
        "interval": {"rocketmq.tx_8_s": [3.0], "produce_1k.mb_s": [2.0]}, "rocketmq": {"rocketmq.tx_8_s": [4.0]},
    }  # fmt: skip
    assert (found.skipped, found.errors, run.cells) == ([], [], cells)
    assert (run.command, run.kafka_version, run.rocketmq_version) == ("make bench; make bench ARGS=x", "4.3.1", "5.3.3")


def test_what_is_missed_is_told_with_its_reason_once() -> None:
    found = results()
    for broker, p50_ms in (("kafka", 0.1), ("sync", 0.3)):
        found.add(broker, {"e2e.p50_ms": p50_ms, "e2e_500.p50_ms": p50_ms})
    (told,) = (line for line in missed(found.medians()) if "end to end" in line)
    assert told.startswith(
        "**end to end, 500 messages/s, p50, sync; end to end, one after the other, p50, sync.** The fdatasync"
    )
    assert not any("produce 1 KB, MB/s.**" in line for line in missed(found.medians())), "it is reached"


def test_the_terminal_table_is_aligned() -> None:
    lines = as_text(table(results().medians())).splitlines()
    assert len({line.index("x ") for line in lines if "produce" in line}) == 1


def test_a_section_of_others_survives_a_new_page() -> None:
    old = with_section("# Performance\n\nold\n", "## Turns\n\n1 ms")
    new = keep_section("# Performance\n\nnew\n", old)
    assert new.startswith("# Performance\n\nnew\n\n<!-- ")
    assert new.count("## Turns\n\n1 ms\n") == 1
    assert keep_section(new, new).count("## Turns") == 1
    assert keep_section("# Performance\n", "# Performance\n") == "# Performance\n"


def test_a_section_is_replaced_where_it_stands() -> None:
    page = with_section("a\n", "## Turns\n\n1 ms") + "\nb\n"
    again = with_section(page, "## Turns\n\n2 ms")
    assert "1 ms" not in again
    assert again.startswith("a\n")
    assert again.endswith("\nb\n")
    assert again.index("2 ms") < again.index("\nb\n")
