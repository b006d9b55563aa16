"""As tests/crash/test_dying_disk.py, by Java's client and franz-go: a disk dies under idempotent producers, the power
goes, and nothing is lost or stored twice.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.crash.dying_broker import check_once, dying_broker, stored, until
from tests.crash.dying_disk import PARTITIONS, TOPIC
from tests.interop.java_programs import jars, source

PRODUCERS = "6"
LIVES = 8
GO = Path(__file__).parent / "go" / "sending"

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def franz(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    if shutil.which("go") is None:
        pytest.skip("needs Go: go is not installed (Debian: apt-get install golang)")
    program = tmp_path_factory.mktemp("go") / "sending"
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=GO, check=True)
    return [str(program)]


@pytest.fixture(scope="module")
def java() -> list[str]:
    return ["java", "-Xmx512m", "-cp", f"{jars('kafka')}/*", source("kafka", "Sending.java")]


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("client", ["java", "franz"])
def test_everything_is_stored_once(client: str, seed: int, request: pytest.FixtureRequest) -> None:
    command: list[str] = request.getfixturevalue(client)
    with dying_broker(seed, LIVES) as (servers, broker):
        until(broker, "ready")
        program = subprocess.Popen(
            [*command, servers, TOPIC, str(PARTITIONS), PRODUCERS],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        try:
            until(program, "sending")
            until(broker, "well")
            program.send_signal(signal.SIGTERM)
            told, _ = program.communicate(timeout=90)
        finally:
            program.kill()
        sent, failed = map(int, re.findall(r"sent (\d+) failed (\d+)", told)[0])
        assert failed == 0
        check_once(stored(servers), sent)
