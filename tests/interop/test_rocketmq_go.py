"""RocketMQ's Go client subscribes to tags, and gets their messages: its heartbeats say numbers as strings."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from halfmoon.testing import Broker

PROGRAM = Path(__file__).parent / "go" / "tags"
MESSAGES = 20

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    if shutil.which("go") is None:
        pytest.skip("needs Go: go is not installed (Debian: apt-get install golang)")
    program = tmp_path_factory.mktemp("go") / "tags"
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=PROGRAM, check=True)
    return str(program)


@pytest.mark.parametrize("mode", ["clustering", "broadcasting", "orderly"])
def test_a_subscription_to_tags_gets_their_messages(program: str, mode: str) -> None:
    listener = {"bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0"}
    with Broker(config={"listeners": {"rocketmq": listener}, "topics": {"partitions": 4}}) as broker:
        done = subprocess.run(
            [program, broker.namesrv, "orders", "readers", mode, str(MESSAGES)],
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        lines = done.stdout.splitlines()
        assert lines[-1:] == ["done"], done.stdout + done.stderr[-2_000:]
    wanted = {f"got {tag} {number}" for tag in ("TagA", "TagC") for number in range(MESSAGES)}
    got = Counter(lines[:-1])
    assert got == dict.fromkeys(wanted, 1)
