"""README's commands do what README says: its blocks are run as they stand, with a broker started as it says.

A block is marked by a comment before it: `<!-- test: run -->`. Each block has a mark, and each mark a test (`MARKS`).
Commands run in a shell, with `halfmoon` on the path and the environment's settings in place of the default port, which
another broker may have.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

# Blocks start a dozen processes one after the other, which takes long beside other work.
pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DEFAULT_ADDRESS = "127.0.0.1:9092"

MARKS = {"confluent", "pip", "serve", "run", "output", "python", "spark", "make"}
"""Each is used by a test below."""

_BLOCK = re.compile(
    r"(?:^<!-- test: (?P<mark>\w+) -->\n)?"
    r"(?:^(?P<fence>```+|~~~+).*\n(?P<text>(?s:.*?))^(?P=fence)[ ]*$|(?<=\n\n)(?P<indented>(?:[ ]{4}|\t).*$))",
    re.MULTILINE,
)
"""A fenced block or the first line of an indented one, with the mark if it has one."""


def blocks(mark: str) -> list[str]:
    """The blocks with this mark, in order. None at all would be a test that cannot fail."""
    assert mark in MARKS
    found = [block["text"] for block in _BLOCK.finditer(README) if block["mark"] == mark]
    assert found, f"README has no block marked {mark}"
    return found


def not_run(page: str) -> list[str]:
    """The first line of each block that no test runs."""
    return [
        (block["text"] or block["indented"]).partition("\n")[0]
        for block in _BLOCK.finditer(page)
        if block["mark"] not in MARKS or block["text"] is None
    ]


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
        "HALFMOON_PLUGINS_DELAY_LEVELS": "1ms 1ms 1ms",
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


def test_each_block_is_run() -> None:
    assert not_run(README) == []
    assert {block["mark"] for block in _BLOCK.finditer(README)} == MARKS


def test_a_block_without_a_mark_is_noticed() -> None:
    marked = "<!-- test: run -->\n```sh\nhalfmoon plugins\n```\n"
    assert not_run(f"text\n\n{marked}\n{marked}") == []
    assert not_run(f"{marked}\n```sh\nmake test\n```\n\n~~~\nls\n~~~\n{marked}") == ["make test", "ls"]
    assert not_run("<!-- test: nobody -->\n```sh\nmake demo\n```\n") == ["make demo"]
    assert not_run("<!-- test: run -->\n\n```sh\nmake bench\n```\n") == ["make bench"]
    assert not_run(f"so:\n\n    halfmoon serve\n    halfmoon plugins\n\n{marked}") == ["    halfmoon serve"]


def test_delay_outbox_and_retry(broker: dict[str, str]) -> None:
    """The program under the promise, on a broker whose delay levels take a millisecond."""
    (program,) = blocks("confluent")
    assert DEFAULT_ADDRESS in program
    address = broker["HALFMOON_BOOTSTRAP_SERVER"]
    code = program.replace(DEFAULT_ADDRESS, address)
    space: dict[str, Any] = {}
    exec(code, space)
    taken = space["message"]
    orders = Consumer({"bootstrap.servers": address, "group.id": "readme", "auto.offset.reset": "earliest"})
    orders.subscribe(["orders", "retry.billing"])
    seen: list[tuple[str, bytes]] = []
    while len(seen) < 3:
        (message,) = orders.consume(1, timeout=20)
        assert message.error() is None
        headers = dict(message.headers())
        seen.append((message.topic(), message.value()))
        if message.value() == b"order 7: remind me":
            assert headers["halfmoon.delayed"] == b"DELAY=3"
        if message.topic() == "retry.billing":
            assert headers["RECONSUME_TIME"] == b"1"
            place = f"orders/{taken.partition()}/{taken.offset()}"
            assert headers["ORIGIN_MESSAGE_ID"] == place.encode()
    orders.close()
    asked = Consumer({"bootstrap.servers": address, "group.id": "billing"})
    (committed,) = asked.committed([TopicPartition("orders", taken.partition())], timeout=20)
    asked.close()
    expected = [("orders", b"order 7: remind me"), ("orders", b"order 8: paid"), ("retry.billing", taken.value())]
    assert sorted(seen) == expected
    assert committed.offset == taken.offset() + 1


def test_pip_installs_it(tmp_path: Path) -> None:
    """In a copy of what a source archive has, with everything but the dependencies, which the tests have already."""
    copy, target, scripts = tmp_path / "checkout", tmp_path / "site", tmp_path / "bin"
    leftovers = shutil.ignore_patterns("__pycache__", "_*.c", "*.so")
    shutil.copytree(ROOT / "halfmoon", copy / "halfmoon", ignore=leftovers)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    scripts.mkdir()
    pip = f'"{sys.executable}" -m pip --disable-pip-version-check "$@" --quiet --no-deps --target "{target}"'
    (scripts / "pip").write_text(f"#!/bin/sh\nexec {pip}\n")
    (scripts / "pip").chmod(0o755)
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "HALFMOON_COMPILE": "0"}
    (commands,) = blocks("pip")
    done = subprocess.run(["/bin/sh", "-e", "-c", commands], env=environment, cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    asked = [
        sys.executable,
        "-c",
        "import confluent_kafka, halfmoon; print(confluent_kafka.__file__, halfmoon.__file__)",
    ]
    found = subprocess.run(
        asked,
        env={**os.environ, "PYTHONPATH": str(target)},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert [Path(each).parents[1] for each in found.stdout.split()] == [target, target]
    assert (target / "bin/halfmoon").exists()


def test_the_contributors_commands_exist() -> None:
    """They take minutes, and some are tests of their own: here make only says what it would do."""
    (commands,) = blocks("make")
    done = subprocess.run(
        ["/bin/sh", "-e", "-c", commands], env={**os.environ, "MAKEFLAGS": "n"}, cwd=ROOT, stdout=subprocess.PIPE,
        text=True, check=True,
    )  # fmt: skip
    for module in ("halfmoon.demo", "pytest", "benchmarks"):
        assert f"-m {module} " in done.stdout


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
