"""halfmoon.client against a real RocketMQ: the end-to-end tests that Halfmoon itself passes (tests/client/live)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import rocketmq_peer
from benchmarks.rocketmq_peer import RocketmqPeer
from tests.crash.serving import free_port

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.interop


@pytest.fixture
def namesrv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    folder = rocketmq_peer.find(None)
    if folder is None:
        pytest.skip("no RocketMQ: ROCKETMQ_PEER names no folder, and none lies beside the repository")
    # Its brokers take messages back only where they are told to.
    monkeypatch.setenv("BROKER_EXTRA", "recallMessageEnable=true")
    peer = RocketmqPeer(folder, tmp_path)
    try:
        yield peer.up(free_port(), free_port()).namesrv
    finally:
        peer.down()


@pytest.mark.timeout(600)
def test_the_end_to_end_tests_pass_against_rocketmq(namesrv: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "120", "tests/client/live"],
        cwd=ROOT, env={**os.environ, "ROCKETMQ_NAMESRV": namesrv}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    print(done.stdout[-6_000:])
    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]
