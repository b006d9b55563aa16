"""One short run, always of the same seed. `make torture-cluster` has long ones, with all kinds of faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.cluster.__main__ import fencing_was_met, told
from tests.torture.cluster.needed import need_servers
from tests.torture.cluster.page import text
from tests.torture.cluster.run import LOGGED, Outcome, Run
from tests.torture.oracle import COPIES

SECONDS = 6.0
KINDS = {"kill": 2, "pause": 1, "database answers lost": 1, "store answers lost": 1}


@pytest.mark.timeout(300)
def test_nothing_is_lost_doubled_or_out_of_order_when_parts_of_a_cluster_fail(tmp_path: Path) -> None:
    need_servers()
    outcome = Run(
        7, SECONDS, tmp_path, kinds=KINDS, copies=dict.fromkeys(COPIES, 1), reopened=(), replicas=1
    ).play()  # fmt: skip
    print(told(outcome))
    assert outcome.violations == []
    assert sum(outcome.faults[kind] for kind in KINDS if kind in outcome.faults) > 2
    for what in ("feed.acked", "bank.committed", "pipe.piped", "share.accepted", "later.acked", "outbox.decided"):
        assert outcome.operations[what] > 0, what


def outcome(seed: int, *, violations: list[str]) -> Outcome:
    faults, operations = {"kill": 3, "wake": 1}, {"feed.acked": 1_000, "feed.sent": 1_100}
    return Outcome(
        seed, seed % 2 == 0, violations, 90.0, faults, [], 2, {}, operations, {},
        dict.fromkeys(LOGGED, 5), {"kill": [100.0 * seed]},
    )  # fmt: skip


def test_the_page_about_many_runs() -> None:
    runs = [outcome(seed, violations=[]) for seed in (4, 5, 6, 9)]
    page = text(runs, "Measured on a machine").splitlines()
    assert (
        "4 runs, 0.1 hours in all, seeds 4–6, 9: **none** lost, doubled or out of order. 2 had RocketMQ's clients, too."
        in page
    )
    assert "| kill −9 of one node | 12 |" in page
    assert "| kill −9 of one node | 4 | 550 | 810 | 900 |" in page
    assert "| records of idempotent producers, acknowledged | 4,000 |" in page
    assert page[-1] == "Measured on a machine."
    runs.append(outcome(8, violations=["feed: lost 1"]))
    assert "- Seed 8: `feed: lost 1`." in text(runs, "")


def test_runs_in_which_no_commit_of_a_paused_node_was_refused_have_not_tested_fencing() -> None:
    refused, untested = outcome(4, violations=[]), outcome(5, violations=[])
    untested.logged["refused commits"] = 0
    assert fencing_was_met([refused, untested])
    assert not fencing_was_met([untested])
    untested.faults.pop("wake")
    assert fencing_was_met([untested]), "a pause may be shorter than the lease"
