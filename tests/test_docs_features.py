"""docs/delays.md, docs/schedules.md, docs/views.md and docs/ttl.md: their commands and programs do what they say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer

import halfmoon.testing
from tests.several_workers import metric

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"<!-- test: (\w+) -->\n```\w+\n(.*?)```", re.DOTALL)


def blocks(page: str, mark: str) -> list[str]:
    text = (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")
    return [block for found, block in BLOCK.findall(text) if found == mark]


@pytest.fixture(scope="module")
def broker() -> Iterator[halfmoon.testing.Broker]:
    config = {"plugins": {"delay": {"levels": "5ms 5ms 5ms"}}, "listeners": {"http": {"bind": "127.0.0.1:0"}}}
    with halfmoon.testing.Broker(config=config) as running:
        yield running


@pytest.mark.parametrize(
    ("page", "last_line"),
    [
        ("delays", "remind me"),
        ("schedules", "schedules/0/tick: cancelled"),
        ("ttl", "123456"),
        ("views", "order 7"),
    ],
)
def test_the_commands(page: str, last_line: str, broker: halfmoon.testing.Broker, tmp_path: Path) -> None:
    assert run(blocks(page, "run")[0].replace("orders", page), broker, tmp_path).splitlines()[-1] == last_line


def test_the_commands_about_what_waits(tmp_path: Path) -> None:
    with halfmoon.testing.Broker() as broker:
        lines = run(blocks("delays", "run")[1], broker, tmp_path).splitlines()
    assert lines[-3:] == [
        "1 message rescheduled (topic orders)",
        "1 message would be cancelled (topic orders)",
        "1 message cancelled (topic orders)",
    ]
    assert [line.split()[0] for line in lines[:-3] if not line.startswith("20")] == ["1", "KIND", "delay", "DUE"]


def run(commands: str, broker: halfmoon.testing.Broker, tmp_path: Path) -> str:
    """What they print."""
    script = tmp_path / "halfmoon"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m halfmoon "$@"\n')
    script.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
        "HALFMOON_BOOTSTRAP_SERVER": broker.bootstrap_servers,
    }
    shell = ["/bin/sh", "-e", "-c", commands]
    done = subprocess.run(shell, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def test_the_programs(broker: halfmoon.testing.Broker) -> None:
    """What is due soon arrives, in the order of the delays; what is cancelled, or due tomorrow, does not."""
    space: dict[str, Any] = {}
    programs = blocks("delays", "python")
    assert "TIMER_DEL_UNIQKEY" in programs[1]
    for program in programs:
        exec(program.replace("127.0.0.1:9092", broker.bootstrap_servers), space)
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "docs", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    messages = consumer.consume(2, timeout=30)
    assert [message.value() for message in messages] == [b"in 10 s", b"in 1.5 s"]
    consumer.close()
    with urlopen(f"http://{broker.http}/metrics", timeout=30) as answer:
        metrics = answer.read().decode()
    assert metric(metrics, "halfmoon_cancelled_messages_total") == 1
    assert metric(metrics, "halfmoon_scheduled_messages") == 1, "what is due tomorrow waits"


def test_the_programs_about_schedules(tmp_path: Path) -> None:
    """A program that has a schedule may send it again; what was cancelled is gone."""
    listeners = {"rocketmq": {"bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0"}}
    with halfmoon.testing.Broker(config={"listeners": listeners}) as running:
        space: dict[str, Any] = {}
        for program in [*blocks("schedules", "python"), blocks("schedules", "python")[0]]:
            exec(program.replace("127.0.0.1:9092", running.bootstrap_servers), space)
        (client,) = blocks("schedules", "client")
        named = client.replace('Producer("reporting")', f'Producer("reporting", namesrv="{running.namesrv}")')
        exec(named, {})
        command = [sys.executable, "-m", "halfmoon", "schedule", "list", "-o", "json"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}
        environment["HALFMOON_BOOTSTRAP_SERVER"] = running.bootstrap_servers
        done = subprocess.run(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True)
        (left,) = json.loads(done.stdout)
        assert (left["topic"], left["name"], left["zone"]) == ("reports", "nightly", "Europe/Berlin")
