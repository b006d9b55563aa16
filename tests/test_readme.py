"""README's commands do what README says: the marked blocks are run as they stand, with a broker started as it says.

A block is marked by a comment before it: `<!-- test: run -->`. Commands run in a shell, with `halfmoon` on the path and
the environment's settings in place of the default port, which another broker may have.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DEFAULT_ADDRESS = "127.0.0.1:9092"

_BLOCK = re.compile(r"<!-- test: (\w+) -->\n```\w+\n(.*?)```", re.DOTALL)


def blocks(mark: str) -> list[str]:
    """The marked blocks, in order. None at all would be a test that cannot fail."""
    found = [text for name, text in _BLOCK.findall(README) if name == mark]
    assert found, f"README has no block marked {mark}"
    return found


@pytest.fixture(scope="module")
def shell_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment whose `halfmoon` is this checkout's, in a directory of its own."""
    folder = tmp_path_factory.mktemp("bin")
    script = folder / "halfmoon"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m halfmoon "$@"\n')
    script.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HALFMOON_LISTENERS_KAFKA_BIND": "127.0.0.1:0",
    }


@pytest.fixture(scope="module")
def broker(shell_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """README's way to start a broker; the environment of a second terminal."""
    (command,) = blocks("serve")
    process = subprocess.Popen(
        ["/bin/sh", "-c", f"exec {command}"],
        env=shell_environment,
        cwd=tmp_path_factory.mktemp("serve"),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        match = re.fullmatch(r"ready kafka=(\S+) data=\./data\n", ready)
        assert match is not None, ready
        yield {**shell_environment, "HALFMOON_BOOTSTRAP_SERVER": match[1]}
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0, "Ctrl-C ends it cleanly"
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def said(broker: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What each block of commands printed, in order."""
    folder = tmp_path_factory.mktemp("client")
    return [
        subprocess.run(
            ["/bin/sh", "-e", "-c", block], env=broker, cwd=folder, stdout=subprocess.PIPE, text=True, check=True
        ).stdout
        for block in blocks("run")
    ]


def test_the_first_60_seconds_print_what_is_shown(said: list[str]) -> None:
    (shown,) = blocks("output")
    assert said[0] == shown


def test_the_other_commands_work(said: list[str]) -> None:
    assert '"value": "and once more"' in said[1]
    assert "PARTITION" in said[1]


def test_the_broker_for_tests(tmp_path: Path) -> None:
    (code,) = blocks("python")
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=tmp_path, check=True)


@pytest.mark.spark
@pytest.mark.timeout(180)
def test_eight_lines_of_spark(
    broker: dict[str, str], said: list[str], spark: object, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = blocks("spark")
    assert DEFAULT_ADDRESS in code
    exec(code.replace(DEFAULT_ADDRESS, broker["HALFMOON_BOOTSTRAP_SERVER"]), {})
    assert "and once more" in capsys.readouterr().out


def test_every_link_into_the_repository_leads_somewhere() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
