"""One short run, always of the same seed. `make torture-workers` has long ones, with all kinds of faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.workers.__main__ import told
from tests.torture.workers.run import COPIES, Run

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
