"""Burrow, which watches the lag of groups: it reads `__consumer_offsets`, and asks over HTTP for what it has found.

`BURROW` names its program; without it Go fetches and builds it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from halfmoon.testing import Broker
from tests.crash.serving import free_port

MODULE = "github.com/linkedin/Burrow@v1.9.5"
DEADLINE_S = 60.0
TOPIC = "orders"

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    named = os.environ.get("BURROW")
    if named is not None:
        return named
    if shutil.which("go") is None:
        pytest.skip("needs Burrow or Go: BURROW names no program, and go is not installed")
    folder = tmp_path_factory.mktemp("burrow")
    environment = {**os.environ, "GOBIN": str(folder)}
    built = subprocess.run(["go", "install", MODULE], env=environment, capture_output=True, text=True, check=False)
    if "403" in built.stderr or "404" in built.stderr:
        pytest.skip(f"needs Burrow: BURROW names no program, and Go's proxy has no {MODULE}")
    assert built.returncode == 0, built.stderr[-3_000:]
    return str(folder / "Burrow")


def config(broker: str, port: int) -> str:
    """Burrow's file: what concerns the broker, and short intervals."""
    return f"""
[logging]
level = "info"
[client-profile.here]
kafka-version = "2.5.0"
client-id = "burrow"
[cluster.local]
class-name = "kafka"
client-profile = "here"
servers = ["{broker}"]
topic-refresh = 2
offset-refresh = 1
[consumer.local]
class-name = "kafka"
cluster = "local"
client-profile = "here"
servers = ["{broker}"]
[evaluator.default]
class-name = "caching"
expire-cache = 1
[httpserver.here]
address = "127.0.0.1:{port}"
"""


class Burrow:
    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}/v3/kafka/local"

    def ask(self, path: str) -> Any:
        """What it says; None where it does not know that (yet), or does not listen yet."""
        try:
            with urllib.request.urlopen(f"{self._base}/{path}", timeout=10) as answer:
                return json.load(answer)
        except (urllib.error.HTTPError, urllib.error.URLError):
            return None

    def ends(self) -> list[int] | None:
        """Where the topic's partitions end."""
        answer = self.ask(f"topic/{TOPIC}")
        return answer and answer["offsets"]

    def lags(self, group: str) -> dict[int, int] | None:
        """Partition → lag."""
        answer = self.ask(f"consumer/{group}/lag")
        return answer and {each["partition"]: each["current_lag"] for each in answer["status"]["partitions"]}


def until(read: Callable[[], Any], wanted: object) -> None:
    end = time.monotonic() + DEADLINE_S
    while (found := read()) != wanted:
        assert time.monotonic() < end, found
        time.sleep(0.2)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    """With the topic, which Burrow is to know before a group commits: it drops commits in topics it does not know."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, 2)])[TOPIC].result(20)
    return admin


@pytest.fixture
def burrow(program: str, broker: Broker, admin: AdminClient, tmp_path: Path) -> Iterator[Burrow]:
    port = free_port()
    (tmp_path / "burrow.toml").write_text(config(broker.bootstrap_servers, port))
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([program, "--config-dir", str(tmp_path)], stdout=log, stderr=log, cwd=tmp_path)
        yield Burrow(port)
        process.terminate()
        process.wait(30)
    print((tmp_path / "log").read_text()[-3_000:])


def test_the_lag_of_a_group(broker: Broker, burrow: Burrow) -> None:
    servers = broker.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers})
    reader = Consumer({"bootstrap.servers": servers, "group.id": "readers", "enable.auto.commit": False})

    def produce(count: int) -> None:
        for partition in 0, 1:
            for _ in range(count):
                producer.produce(TOPIC, b"x", partition=partition)
        assert producer.flush(30) == 0

    def commit(*offsets: int) -> None:
        places = [TopicPartition(TOPIC, partition, offset) for partition, offset in enumerate(offsets)]
        reader.commit(offsets=places, asynchronous=False)

    produce(100)
    until(burrow.ends, [100, 100])
    commit(10, 40)
    until(lambda: burrow.lags("readers"), {0: 90, 1: 60})
    assert burrow.ask("consumer")["consumers"].count("readers") == 1
    commit(100, 100)
    until(lambda: burrow.lags("readers"), {0: 0, 1: 0})
    assert burrow.ask("consumer/readers/status")["status"]["status"] == "OK"
    produce(5)
    commit(101, 103)
    until(lambda: burrow.lags("readers"), {0: 4, 1: 2})
    reader.close()
