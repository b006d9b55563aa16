"""Clients of other languages, each by a program of its own: kafkajs, and segmentio's kafka-go."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

MESSAGES = 1_000
HERE = Path(__file__).parent

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


def run(command: list[str], cwd: Path | None = None) -> list[str]:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stdout[-1_000:] + done.stderr[-3_000:]
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def kafkajs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    if shutil.which("npm") is None:
        pytest.skip("needs Node.js: npm is not installed (Debian: apt-get install npm)")
    folder = tmp_path_factory.mktemp("node")
    for name in ("package.json", "group.js"):
        shutil.copy(HERE / "node" / name, folder)
    subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund"], cwd=folder, check=True)
    return ["node", str(folder / "group.js")]


@pytest.fixture(scope="module")
def segmentio(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    if shutil.which("go") is None:
        pytest.skip("needs Go: go is not installed (Debian: apt-get install golang)")
    program = tmp_path_factory.mktemp("go") / "segmentio"
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=HERE / "go" / "segmentio", check=True)
    return [str(program)]


def test_kafkajs(kafkajs: list[str], bootstrap_servers: str, name: str) -> None:
    lines = run([*kafkajs, bootstrap_servers, f"{name}-js", name, str(MESSAGES)])
    wanted = {f"got {number}" for number in range(MESSAGES)} | {"got committed"}
    assert set(lines[:-2]) == wanted
    assert lines[-2:] == ["group Empty", "done"]


def test_segmentio(segmentio: list[str], bootstrap_servers: str, name: str) -> None:
    lines = run([*segmentio, bootstrap_servers, f"{name}-go", name, str(MESSAGES)])
    assert set(lines[:-1]) == {f"got {number}" for number in range(MESSAGES)}
    assert lines[-1] == "done"
