"""A conformance program with RocketMQ's Java client, which passes against a real RocketMQ.

It is not part of this repository: ROCKETMQ_PEER names its folder (benchmarks/rocketmq_peer.py says what is expected of
it). It needs Maven. tests/clients/rocketmq does most of the same without it, in a tenth of the time.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from benchmarks import rocketmq_peer
from halfmoon.testing import Broker

SCENARIOS = 30

pytestmark = pytest.mark.interop


@pytest.fixture
def program() -> Path:
    folder = rocketmq_peer.find(None)
    if folder is None:
        pytest.skip("no conformance program: ROCKETMQ_PEER names no folder, and none lies beside the repository")
    return folder / "conformance" / "run"


def run(program: Path, broker: Broker, **env: str) -> list[str]:
    """The lines of its report. Each scenario passed."""
    done = subprocess.run(
        [str(program), broker.namesrv], env={**os.environ, **env}, capture_output=True, text=True, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith(("PASS", "FAIL", "SKIP"))]
    print(*lines, sep="\n")
    assert done.returncode == 0, "\n".join(lines) + done.stderr[-2_000:]
    return lines


def broker(**sections: object) -> Broker:
    listener = {"bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0"}
    return Broker(config={"listeners": {"rocketmq": listener}, "topics": {"partitions": 4}, **sections})


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("header", ["JSON", "ROCKETMQ"])
def test_all_scenarios(program: Path, header: str) -> None:
    with broker() as started:
        lines = run(program, started, JAVA_ARGS=f"-Drocketmq.serialize.type={header}")
    assert sum(line.startswith("PASS") for line in lines) == SCENARIOS


@pytest.mark.timeout(300)
def test_without_topics_made_by_sending(program: Path) -> None:
    with broker(topics={"auto_create": False}) as started:
        lines = run(program, started, AUTOCREATE="off")
    assert [line.split()[:2] for line in lines] == [["PASS", "unknown-topic-autocreate-off"]]
