"""Kafka's own consumer and tools with `group.protocol=consumer`. `KAFKA_LIB` names the folder of a Kafka's jars (4.0 or
newer); with HALFMOON_TEST_BOOTSTRAP they run against that broker."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from halfmoon.testing import Broker
from tests.clients.polling import until

LIB = os.environ.get("KAFKA_LIB")
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(300),
    pytest.mark.skipif(LIB is None, reason="KAFKA_LIB names no folder of jars"),
]


def java(*arguments: str) -> list[str]:
    return ["java", "-Xmx256m", "-Dlog4j2.level=OFF", "-cp", f"{LIB}/*", *arguments]


@pytest.fixture
def servers() -> Iterator[str]:
    given = os.environ.get("HALFMOON_TEST_BOOTSTRAP")
    with ExitStack() as stack:
        yield given or stack.enter_context(Broker()).bootstrap_servers


@pytest.fixture
def consumer(servers: str, tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """`consumer(group, "--topic", "t")` starts a console consumer; what it writes goes into that file."""
    started: list[subprocess.Popen[bytes]] = []

    def start(group: str, *arguments: str, **settings: str) -> Path:
        out = tmp_path / f"consumer-{len(started)}"
        said = {"group.protocol": "consumer"} | {key.replace("_", "."): value for key, value in settings.items()}
        options = [word for key, value in said.items() for word in ("--consumer-property", f"{key}={value}")]
        command = java(
            CONSUMER, "--bootstrap-server", servers, "--group", group, "--from-beginning", *options, *arguments
        )
        with out.open("wb") as file:
            started.append(subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL))
        return out

    yield start
    for process in started:
        process.terminate()
    for process in started:
        process.wait(30)


def groups(servers: str, *arguments: str) -> str:
    done = subprocess.run(java(GROUPS, "--bootstrap-server", servers, *arguments), capture_output=True, text=True)
    return done.stdout + done.stderr


def values(out: Path) -> list[str]:
    """What a consumer has written, but for what it says of its own options."""
    return sorted(re.findall(r"^\d+$", out.read_text(), re.MULTILINE))


def shares(described: str) -> list[str]:
    """The current assignments of `--describe --members --verbose`, sorted."""
    return sorted(re.findall(r"\d+ +(\S+:[\d,]+) +\d+ +\S+ *$", described, re.MULTILINE))


def test_console_consumers_and_the_group_tool(servers: str, consumer: Callable[..., Path]) -> None:
    topic, group = f"java-{os.getpid()}", f"java-{os.getpid()}-group"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(20)
    producer = Producer({"bootstrap.servers": servers})
    for number in range(40):
        producer.produce(topic, str(number), partition=number % 4)
    assert producer.flush(20) == 0
    first = consumer(group, "--topic", topic, group_remote_assignor="uniform")
    matching = consumer(f"{group}-pattern", "--include", f"{topic}|nothing-.*")
    everything = sorted(map(str, range(40)))
    until(lambda: values(first) == everything == values(matching), deadline_s=60)
    consumer(group, "--topic", topic, group_remote_assignor="uniform", group_instance_id="two")
    members = ["--describe", "--members", "--verbose", "--group"]
    until(lambda: shares(groups(servers, *members, group)) == [f"{topic}:0,1", f"{topic}:2,3"], deadline_s=90)
    state = groups(servers, "--describe", "--state", "--group", group)
    assert re.search(rf"{group} .*uniform +Stable +2", state), state
    assert f"{group} " in groups(servers, "--list", "--type", "consumer").replace("\n", " \n")
    refused = groups(servers, "--reset-offsets", "--to-earliest", "--topic", topic, "--group", group, "--execute")
    assert "inactive, but the current state is Stable" in refused
