"""Nodes whose clocks are apart (libfaketime): leases, delays and the order of records are as with right ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.cluster.__main__ import told
from tests.torture.cluster.needed import need_servers
from tests.torture.cluster.run import Run

LIBRARY = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
WITHIN, APART = {1: "+14m", 2: "-14m"}, {1: "+3h", 2: "-2h"}
KINDS = {"kill": 2, "wake": 1, "stop": 1}


@pytest.mark.torture
@pytest.mark.timeout(300)
@pytest.mark.parametrize("ahead", [WITHIN, APART], ids=["within what S3 allows", "hours apart"])
def test_clocks_that_are_apart_change_nothing_that_clients_see(tmp_path: Path, ahead: dict[int, str]) -> None:
    """S3, and versitygw, refuse a request whose time is more than 15 minutes off: such nodes have no shards."""
    need_servers()
    if not LIBRARY.exists():
        pytest.skip("libfaketime is not installed (Debian: apt-get install faketime)")
    clocks = {
        number: {"LD_PRELOAD": str(LIBRARY), "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        for number, offset in ahead.items()
    }
    outcome = Run(11, 12.0, tmp_path, kinds=KINDS, reopened=(), clocks=clocks).play()
    print(told(outcome))
    assert outcome.violations == []
