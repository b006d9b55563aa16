"""Goals, ratios, the page: from figures to verdicts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.__main__ import wanted_of
from benchmarks.bench import Cell
from benchmarks.cells import CELLS
from benchmarks.goals import Goal, Verdict
from benchmarks.report import Run, as_text, measured, missed, page, read_json, table, together, write_json
from benchmarks.runner import Results
from benchmarks.targets import GROUPS, PROCESS, SINGLE, THROUGHPUT

GOALS = [goal for group in GROUPS for goal in group.goals]
MOST_ROWS = 40


def results(**others: list[float]) -> Results:
    """Three rounds of producing 1 KB, by broker; what is not given is this."""
    found = Results()
    values = {"kafka": [100.0, 200.0, 160.0], "interval": [160.0, 340.0, 256.0], "sync": [150.0, 150.0, 150.0]}
    for broker, of_rounds in {**values, **others}.items():
        for number, mb_s in enumerate(of_rounds):
            found.add(broker, number, {"bulk_1k.produce_mb_s": mb_s})
    return found


def row(title: str, found: Results) -> list[str]:
    rows = [row for group in GROUPS for row in measured(group, found, everything=True)]
    return next(row for row in table(rows) if row[0] == title)


PRODUCE = "produce 1 KB, librdkafka, MB/s"


def test_it_is_divided_round_by_round() -> None:
    said = row(PRODUCE, results())
    assert said == [PRODUCE, "160", "256", "1.60x (1.60–1.70)", "≥ 1.50x (2.50x)", "yes"]


def test_sync_is_compared_with_interval() -> None:
    assert row(f"{PRODUCE}, sync beside interval", results())[1:] == [
        "256",
        "150",
        "0.59x (0.44–0.94)",
        "≥ 0.80x",
        "**no**",
    ]


@pytest.mark.parametrize(
    ("interval", "bare", "verdict"),
    [
        ([250.0, 500.0, 400.0], [], Verdict.STRETCH),
        ([150.0, 300.0, 240.0], [], Verdict.YES),
        ([149.0, 300.0, 240.0], [], Verdict.UNSURE),
        ([149.0, 299.0, 240.0], [], Verdict.NO),
        ([120.0, 240.0, 192.0], [133.0, 266.0, 213.0], Verdict.CLIENT),
        ([120.0, 240.0, 192.0], [133.0, 266.0, 220.0], Verdict.UNSURE),
        ([120.0, 240.0, 192.0], [160.0, 300.0, 220.0], Verdict.NO),
    ],
)
def test_each_round_has_to_reach_the_target_or_what_the_client_can(
    interval: list[float], bare: list[float], verdict: Verdict
) -> None:
    assert row(PRODUCE, results(interval=interval, bare=bare))[-1] == verdict


def test_a_round_that_one_of_both_has_not_does_not_count() -> None:
    found = results()
    del found.values["kafka"]["bulk_1k.produce_mb_s"][0]
    assert row(PRODUCE, found)[3] == "1.65x (1.60–1.70)"


@pytest.mark.parametrize(
    ("better", "value", "verdict"),
    [
        ("more", 2.0, Verdict.YES), ("more", 1.9, Verdict.NO), ("less", 2.0, Verdict.YES), ("less", 2.1, Verdict.NO),
    ],
)  # fmt: skip
def test_a_limit_is_reached_at_the_limit(better: str, value: float, verdict: Verdict) -> None:
    goal = Goal("g", "a.b", 2.0, better=better, against=None)  # type: ignore[arg-type]
    reached = goal.reached({"interval": {"a.b": {0: value}}})
    assert reached is not None
    assert goal.verdict(reached) is verdict


def test_an_absolute_goal_has_a_unit_and_no_comparison() -> None:
    found = Results()
    for number, took_ms in enumerate((250.0, 90.0, 260.0)):
        found.add("interval", number, {"partitions.create_ms": took_ms})
    assert row("1,000 partitions created", found)[1:] == ["", "250", "250 ms (90–260)", "≤ 100 ms", "**no**"]


def test_a_synced_request_is_compared_with_a_request_and_the_disk() -> None:
    found = Results()
    found.add("interval", 1, {"one_by_one_c.p50_ms": 0.05})
    found.add("sync", 1, {"disk.fdatasync_p50_ms": 0.2, "one_by_one_c.p50_ms": 0.3})
    found.add_floor()
    assert row("one by one with sync: p50 beside request + fdatasync, ms", found)[1:4] == ["0.25", "0.3", "1.20x"]


def test_what_was_not_measured_has_no_row() -> None:
    assert [len(measured(group, results(), everything=True)) for group in GROUPS] == [2, 0, 0, 0, 0, 0, 0]
    assert [len(measured(group, results(), everything=False)) for group in (THROUGHPUT, PROCESS)] == [2, 0]


def test_names_are_unique() -> None:
    assert len({goal.title for goal in GOALS}) == len(GOALS)
    assert len({group.name for group in GROUPS}) == len(GROUPS)


def test_the_page_has_no_more_rows_than_somebody_reads() -> None:
    assert 30 <= sum(goal.asked for goal in GOALS) <= MOST_ROWS


def test_each_row_is_of_cells_that_run_against_its_brokers() -> None:
    there = {(cell.name, broker) for cell in CELLS for broker in cell.on}
    wrong = {goal.title: needed for goal in GOALS if (needed := goal.cells() - there)}
    assert not wrong


def test_by_default_only_what_a_row_needs_is_run() -> None:
    wanted = wanted_of(CELLS, everything=False)
    assert set(wanted["e2e_500"]) == {"kafka", "kafka_sync", "interval", "sync", "bare"}
    assert set(wanted["spread"]) == {"kafka", "interval", "bare"}
    assert "codecs" not in wanted
    assert set(wanted_of(CELLS, everything=True)) == {cell.name for cell in CELLS}


CELL = Cell("bulk_1k", "much", lambda *_: {})
RUN = Run("2025-01-31", "make bench", {"processor": "2 x Thing"}, 1.0, "4.3.1", "5.3.3", [CELL], everything=False)


def test_the_page_and_the_file_say_what_was_measured_and_what_not(tmp_path: Path) -> None:
    found = results()
    found.skipped.append("cold: no control group")
    text = page(RUN, found)
    for part in ("Apache Kafka 4.3.1", "2 x Thing", "`make bench`", f"| {PRODUCE} | 160 | 256 |", "cold: no control"):
        assert part in text
    assert "Of 2 targets, 1 are reached, 0 are bound by the client, 0 are unsure, 1 are missed." in text
    assert "## All figures" not in text
    assert "| `bulk_1k.produce_mb_s` | 160 | 256 | 150 |" in page(replace(RUN, everything=True), found)
    write_json(tmp_path / "out" / "b.json", RUN, found)
    written = json.loads((tmp_path / "out" / "b.json").read_text())
    assert written["values"]["kafka"]["bulk_1k.produce_mb_s"] == {"0": 100.0, "1": 200.0, "2": 160.0}
    assert [goal["verdict"] for goal in written["goals"]] == ["yes", "no"]
    assert page(*read_json(tmp_path / "out" / "b.json", [CELL])) == text


def test_each_group_that_was_measured_has_a_picture(tmp_path: Path) -> None:
    text = page(RUN, results(), tmp_path / "images")
    assert text.count("![") == 2, "and what grows"
    assert f"![{THROUGHPUT.title}](images/performance-throughput.png)" in text
    (drawn,) = (tmp_path / "images").iterdir()
    assert drawn.read_bytes().startswith(b"\x89PNG")


def test_of_several_runs_the_last_one_that_has_a_figure_counts() -> None:
    cells = [CELL, Cell("rocketmq", "remoting", lambda *_: {})]
    first, second = Results(), Results()
    first.add("interval", 0, {"rocketmq.tx_8_s": 1.0, "bulk_1k.produce_mb_s": 2.0})
    first.skipped.append("rocketmq: no scripts")
    first.errors.append("rocketmq on sync: failed")
    second.add("interval", 0, {"rocketmq.tx_8_s": 3.0})
    second.add("rocketmq", 0, {"rocketmq.tx_8_s": 4.0})
    runs = [
        (replace(RUN, cells=cells, rocketmq_version=None), first),
        (replace(RUN, command="make bench ARGS=x", kafka_version=None, cells=cells[1:]), second),
    ]
    run, found = together(runs, cells)
    assert found.values == {
        "interval": {"rocketmq.tx_8_s": {0: 3.0}, "bulk_1k.produce_mb_s": {0: 2.0}},
        "rocketmq": {"rocketmq.tx_8_s": {0: 4.0}},
    }
    assert (found.skipped, found.errors, run.cells) == ([], [], cells)
    assert (run.command, run.kafka_version, run.rocketmq_version) == ("make bench; make bench ARGS=x", "4.3.1", "5.3.3")


def test_what_was_run_again_is_not_compared_with_an_earlier_run() -> None:
    first, second = results(), Results()
    second.add("interval", 0, {"bulk_1k.produce_mb_s": 400.0})
    again = replace(RUN, command="make bench ARGS=x", everything=True)
    run, found = together([(RUN, first), (again, second)], [CELL])
    assert found.values == {"kafka": {}, "sync": {}, "interval": {"bulk_1k.produce_mb_s": {0: 400.0}}}
    assert not run.everything, "it is the first run's page"


def test_a_round_without_the_bare_loop_does_not_make_it_the_clients() -> None:
    found = results(interval=[120.0, 240.0, 192.0], bare=[133.0, 266.0, 213.0])
    del found.values["bare"]["bulk_1k.produce_mb_s"][2]
    assert row(PRODUCE, found)[-1] == Verdict.UNSURE


def test_what_is_missed_is_told_with_its_reason_once() -> None:
    found = Results()
    for broker, p50_ms in (("kafka", 0.1), ("sync", 0.3)):
        found.add(broker, 0, {"e2e.p50_ms": p50_ms, "e2e_500.p50_ms": p50_ms})
    (told,) = missed(measured(SINGLE, found, everything=True))
    assert told.startswith(
        "**end to end, 500 messages/s, p50, sync, beside a Kafka that does not, ms; "
        "end to end, one after the other, p50, sync, beside a Kafka that does not, ms.** The fdatasync"
    )


def test_what_is_missed_is_told_with_how_far_the_client_could_go() -> None:
    found = results(interval=[120.0, 240.0, 192.0], bare=[160.0, 300.0, 240.0])
    told, _ = missed(measured(THROUGHPUT, found, everything=True))
    assert told.startswith(f"**{PRODUCE} (0.80 times the bare loop's).** ")


def test_the_terminal_table_is_aligned() -> None:
    lines = as_text(table(measured(THROUGHPUT, results(), everything=True))).splitlines()
    assert len({line.index("x (") for line in lines if "produce" in line}) == 1
