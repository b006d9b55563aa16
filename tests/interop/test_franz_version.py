"""franz-go's kversion, which tools use to find out what a broker can do: the release of Kafka that it takes us for."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from halfmoon.adapters.kafka.unsupported import UNSUPPORTED
from halfmoon.testing import Broker

PROGRAM = Path(__file__).parent / "go" / "version"

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    if shutil.which("go") is None:
        pytest.skip("needs Go: go is not installed (Debian: apt-get install golang)")
    program = tmp_path_factory.mktemp("go") / "version"
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=PROGRAM, check=True)
    return str(program)


def test_the_release(program: str) -> None:
    with Broker() as broker:
        done = subprocess.run([program, broker.bootstrap_servers], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    guess, *lines = done.stdout.splitlines()
    assert guess == "at least v3.9"
    lacking = {release: {int(key) for key in keys.split()} for release, keys in (line.split(":") for line in lines)}
    assert list(lacking) == ["3.9", "4.0", "4.1", "4.2", "4.3"]
    assert lacking["3.9"] == set()
    assert lacking["4.3"] == {each.key for each in UNSUPPORTED}
