"""Three plugins as a newcomer writes them, from docs/plugins.md and docs/hooks.md alone: pip installs them, and a
broker that is a process of its own takes them.
"""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.hooks.installed import ROOT, Node, install, until, wheel

pytestmark = pytest.mark.timeout(240)

NAMES = {"message_ttl": "message-ttl", "filter_path": "filter-path", "topic_counter": "topic-counter"}


def example(plugin: str) -> Path:
    return ROOT / "examples" / f"halfmoon-{NAMES[plugin]}"


def module(plugin: str) -> Path:
    return example(plugin) / f"halfmoon_{plugin}" / "__init__.py"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("newcomers")
    wheels = []
    for plugin in NAMES:
        project = tomllib.loads((example(plugin) / "pyproject.toml").read_text())["project"]
        points = "\n".join(f"{name} = {value}" for name, value in project["entry-points"]["halfmoon"].items())
        modules = {f"halfmoon_{plugin}/__init__.py": module(plugin).read_bytes()}
        wheels.append(wheel(folder, project["name"].replace("-", "_"), modules, f"[halfmoon]\n{points}\n"))
    return install(folder, *wheels)


def new_node(folder: Path, environment: dict[str, str]) -> Node:
    views = {"orders.germany": {"source": "orders", "path": '$.customer.country == "DE"'}}
    return Node(folder, environment, {"plugins": {name: {} for name in NAMES}, "views": views}, http=True)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Iterator[Node]:
    made = new_node(tmp_path_factory.mktemp("node"), environment)
    made.start()
    yield made
    made.end()


@pytest.mark.parametrize("plugin", NAMES)
def test_it_is_small_and_imports_what_a_plugin_may(plugin: str) -> None:
    text = module(plugin).read_text(encoding="utf-8")
    assert len(text.splitlines()) < 80
    tree = ast.walk(ast.parse(text))
    imported = {each.module for each in tree if isinstance(each, ast.ImportFrom) and each.module is not None}
    assert {name for name in imported if name.startswith("halfmoon")} == {"halfmoon.plugin"}


@pytest.mark.parametrize("plugin", NAMES)
def test_its_own_tests_pass(plugin: str, environment: dict[str, str]) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        str(example(plugin) / "tests"),
    ]
    done = subprocess.run(
        command, cwd=example(plugin), env={**os.environ, **environment}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_what_is_older_than_its_ttl_is_not_delivered(node: Node, codec: str) -> None:
    topic = f"news-{codec}"
    node.create(topic)
    producer = Producer({"bootstrap.servers": node.address, "compression.type": codec, "linger.ms": 50})
    for _ in range(3):  # batches of which nothing is left
        producer.produce(topic, b"long ago", headers=[("TTL", b"1")], timestamp=1_000)
        producer.flush(20)
    now_ms = int(time.time() * 1000)
    for number in range(9):  # the last is expired, too
        ttl = (b"1000", b"3600000", None)[(number + 1) % 3] if number < 8 else b"1"
        headers: Any = None if ttl is None else [("TTL", ttl)]
        producer.produce(topic, b"%d" % number, headers=headers, timestamp=now_ms - 60_000)
    producer.flush(20)
    assert node.read(topic, 6) == [b"0", b"1", b"3", b"4", b"6", b"7"]
    producer.produce(topic, b"after")
    producer.flush(20)
    assert node.read(topic, 7)[-1] == b"after"
    assert node.metric("halfmoon_plugin_total", plugin="message_ttl", name=f"expired.{topic}") >= 3


def test_its_time_comes_while_the_message_lies_there(node: Node) -> None:
    node.create("soon")
    producer = Producer({"bootstrap.servers": node.address})
    producer.produce("soon", b"short", headers=[("TTL", b"5000")])
    producer.produce("soon", b"long", headers=[("TTL", b"3600000")])
    producer.flush(20)
    assert node.read("soon", 2) == [b"short", b"long"]
    until(lambda: node.read("soon", 1) == [b"long"])


def test_a_view_and_a_consumer_filter_by_a_path(node: Node) -> None:
    node.create("orders")  # the view of broker.yaml has waited for it
    producer = Producer({"bootstrap.servers": node.address})
    for country in ("DE", "FR", "DE"):
        producer.produce("orders", f'{{"customer": {{"country": "{country}"}}}}'.encode())
    producer.flush(20)
    assert len(node.read("orders.germany", 2)) == 2
    command = ("consume", "orders", "--filter", 'path:$.customer.country == "FR"', "--from", "beginning")
    done = node.halfmoon(*command, "--bootstrap-server", node.address, "--count", "1")
    assert '"FR"' in done.stdout, done.stderr


def test_the_counter_equals_the_end_offsets_after_kill_9(tmp_path: Path, environment: dict[str, str]) -> None:
    node = new_node(tmp_path, environment)
    node.start()
    stopping = threading.Event()
    try:
        node.create("load", 2)
        producer = Producer({
            "bootstrap.servers": node.address, "enable.idempotence": True, "linger.ms": 1, "retry.backoff.ms": 10,
            "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50,
        })  # fmt: skip

        def produce() -> None:
            number = 0
            while not stopping.is_set():
                if len(producer) < 1_000:
                    producer.produce("load", b"%d" % number, partition=number % 2)
                    number += 1
                producer.poll(0.0005)

        def counted() -> float:
            return node.metric("halfmoon_plugin_total", plugin="topic_counter", name="load")

        load = threading.Thread(target=produce)
        load.start()
        for _ in range(3):
            enough = counted() + 300
            until(lambda enough=enough: counted() >= enough)
            node.end(signal.SIGKILL)
            node.start()
        stopping.set()
        load.join()
        producer.flush(30)
        consumer = Consumer({"bootstrap.servers": node.address, "group.id": "none"})
        ends = sum(consumer.get_watermark_offsets(TopicPartition("load", at), timeout=20)[1] for at in range(2))
        consumer.close()
        until(lambda: counted() >= ends)
        for how in (signal.SIGTERM, signal.SIGKILL):
            node.end(how)
            node.start()
            until(lambda: counted() >= ends)
            assert counted() == ends
    finally:
        stopping.set()
        node.end(signal.SIGKILL)
