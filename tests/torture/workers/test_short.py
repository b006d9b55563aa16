"""One short run, always of the same seed. `make torture-workers` has long ones, with all kinds of faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.workers.__main__ import told
from tests.torture.workers.page import text
from tests.torture.workers.run import COPIES, Outcome, Run

KILLS = 3


@pytest.mark.timeout(300)
def test_nothing_is_lost_doubled_or_out_of_order_when_workers_are_killed(tmp_path: Path) -> None:
    outcome = Run(
        3, 0, tmp_path, kills=KILLS, workers=2, copies=dict.fromkeys(COPIES, 1), reopened=(1,)
    ).play()  # fmt: skip
    print(told(outcome))
    assert outcome.violations == []
    assert outcome.faults["kill"] == KILLS
    for what in ("feed.acked", "bank.committed", "pipe.piped", "share.accepted", "later.acked", "outbox.decided"):
        assert outcome.operations[what] > 0, what


def outcome(seed: int, *, waited_ms: float, violations: list[str]) -> Outcome:
    faults, operations = {"kill": 3, "pause": 1}, {"feed.acked": 1_000, "feed.sent": 1_100}
    return Outcome(
        seed, "sync", seed % 2 == 0, violations, 90.0, faults, [], 2, {}, operations, {}, [waited_ms], [1.0],
    )  # fmt: skip


def test_the_page_about_many_runs() -> None:
    runs = [outcome(seed, waited_ms=100.0 * seed, violations=[]) for seed in (4, 5, 6, 9)]
    page = text(runs, "Measured on a machine").splitlines()
    assert (
        "4 runs, 0.1 hours in all, seeds 4–6, 9: **none** lost, doubled or out of order. 4 had `flush: sync`, 0 "
        "`interval`; 2 had RocketMQ's clients, too."
    ) in page
    assert "| kill −9 of one worker, or of two at a time | 12 |" in page
    assert "| a worker stopped for some seconds (SIGSTOP) | 4 |" in page
    assert "| records of idempotent producers, acknowledged | 4,000 |" in page
    assert "| the killed worker's | 4 | 550 | 810 | 900 |" in page
    assert page[-1] == "Measured on a machine."
    runs.append(outcome(8, waited_ms=1.0, violations=["feed: lost 1"]))
    assert ": violations with seed 8 (below). " in text(runs, "")
    assert "- Seed 8: `feed: lost 1`." in text(runs, "")
    runs.append(outcome(8, waited_ms=1.0, violations=[]))
    assert "- Seed 8, which has also passed: `feed: lost 1`." in text(runs, "")
