"""Nodes whose clocks are hours apart (libfaketime): leases, delays and the order of records are as with right ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.cluster.__main__ import told
from tests.torture.cluster.needed import need_servers
from tests.torture.cluster.run import Run

LIBRARY = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
AHEAD = {1: "+3h", 2: "-2h"}
KINDS = {"kill": 2, "wake": 1, "stop": 1}


@pytest.mark.torture
@pytest.mark.timeout(300)
def test_clocks_that_are_hours_apart_change_nothing_that_clients_see(tmp_path: Path) -> None:
    need_servers()
    if not LIBRARY.exists():
        pytest.skip("libfaketime is not installed (Debian: apt-get install faketime)")
    clocks = {
        number: {"LD_PRELOAD": str(LIBRARY), "FAKETIME": ahead, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        for number, ahead in AHEAD.items()
    }
    outcome = Run(11, 12.0, tmp_path, kinds=KINDS, reopened=(), clocks=clocks).play()
    print(told(outcome))
    assert outcome.violations == []
