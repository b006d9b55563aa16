"""docs/cluster.md: the commands by which a cluster is filled, copied, brought back and upgraded do what it says."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from halfmoon.testing import Broker
from halfmoon.testing.cluster import ClusterProcesses, NodeProcess
from tests.crash.load import QUICK
from tests.server.nodes.load import need_services

PAGE = (Path(__file__).parents[1] / "docs" / "cluster.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"<!-- test: run ?(\w*) -->\n```sh\n(.*?)```", PAGE, re.DOTALL)
REBUILD, FILL, SAVE, RESTORE, RESUME, UPGRADE = (text for _, text in BLOCKS)
WAIT_S = 30.0


class Reader:
    """Runs what it reads, with paths of its own."""

    def __init__(self, folder: Path) -> None:
        script = folder / "halfmoon"
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m halfmoon "$@"\n')
        script.chmod(0o755)
        self._folder = folder
        self._environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
        self.configs: dict[str, Path] = {}

    def run(self, block: str) -> str:
        for name, path in self.configs.items():
            block = re.sub(rf"(--config )\b{name}\b", rf"\1{path}", block)
        commands = re.sub(r" /(var|backup)/", rf" {self._folder}/\1/", block)
        done = subprocess.run(
            ["/bin/sh", "-e", "-c", commands], env=self._environment, capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout


def send(bootstrap: str, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, **QUICK})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(WAIT_S) == 0


def read(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", **QUICK})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() for message in consumer.consume(count, WAIT_S)]
    finally:
        consumer.close()


def another(cluster: ClusterProcesses, number: int, database: str, **more: str) -> NodeProcess:
    """A node over another database, with the same keys. `more`: of its settings in `$.cluster`."""
    node = cluster.add(number)
    sections = json.loads(node.config.read_text())
    sections["cluster"] |= {"database": cluster.database.dsn(database), **more}
    sections["node"]["id"] = 1
    node.config.write_text(json.dumps(sections))

    async def make() -> None:
        import asyncpg

        connection = await asyncpg.connect(cluster.database.dsn())
        await connection.execute(f"create database {database}")
        await connection.close()

    asyncio.run(make())
    return node


@pytest.mark.timeout(240)
def test_its_commands(tmp_path: Path) -> None:
    need_services()
    (tmp_path / "var/lib").mkdir(parents=True)
    reader = Reader(tmp_path)
    with Broker(data_dir=str(tmp_path / "var/lib/halfmoon")) as broker:
        admin = AdminClient(broker.client_config())
        for each in admin.create_topics([NewTopic("clicks-2026", 1), NewTopic("orders", 1)]).values():
            each.result(WAIT_S)
        for topic in ("clicks-2026", "orders"):
            send(broker.bootstrap_servers, topic, b"1", b"2")

    def fill(cluster: ClusterProcesses) -> None:
        node = cluster.nodes[1]
        node.config.write_text(
            node.config.read_text().replace(f'"{cluster.store.url}"', f'"{cluster.store.url}/first"')
        )
        reader.configs["broker.yaml"] = node.config
        reader.run(FILL)

    with ClusterProcesses(tmp_path / "cluster", 1, durable=False, make=fill) as cluster:
        cluster.wait_until_shared()
        bootstrap = cluster.nodes[1].bootstrap
        assert read(bootstrap, "orders", 2) == read(bootstrap, "clicks-2026", 2) == [b"1", b"2"]
        admin = AdminClient({"bootstrap.servers": bootstrap})
        (found,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "clicks-2026")]).values()
        assert found.result(WAIT_S)["halfmoon.durability"].value == "object"
        send(bootstrap, "orders", b"3")
        said = reader.run(SAVE)
        assert said.count("\nwhole\n") == 2
        linked = [int(number) for number in re.findall(r"^linked +(\d+)$", said, re.MULTILINE)]
        assert linked[0] == 0
        assert linked[1] > 0
        assert "the tables have format" in reader.run(UPGRADE)
        send(bootstrap, "orders", b"4")
        other = another(cluster, 7, "restored", store=f"{cluster.store.url}/other")
        reader.configs["restored.yaml"] = other.config
        reader.run(RESTORE)
        other.start()
        assert read(other.bootstrap, "orders", 3) == [b"1", b"2", b"3"]
        send(other.bootstrap, "orders", b"5")
        assert read(other.bootstrap, "orders", 4) == [b"1", b"2", b"3", b"5"]
        assert other.stop() == 0
        assert cluster.nodes[1].stop() == 0
        assert "32 shards begin anew" in reader.run(RESUME)
        cluster.nodes[1].start()
        assert read(bootstrap, "orders", 4) == [b"1", b"2", b"3", b"4"]
        send(bootstrap, "clicks-2026", b"3")
        assert cluster.nodes[1].stop() == 0
        rebuilt = another(cluster, 8, "rebuilt", store=f"{cluster.store.url}/first")
        reader.configs["broker.yaml"] = rebuilt.config
        assert len(reader.run(REBUILD).splitlines()) == 33
        rebuilt.start()
        assert read(rebuilt.bootstrap, "clicks-2026", 3) == [b"1", b"2", b"3"]


def test_it_says_what_a_pooler_must_let_pass() -> None:
    """PgBouncer knows the name of an application itself, and refuses what else it is not told to ignore."""
    pytest.importorskip("asyncpg", reason="asyncpg is not installed: pip install 'halfmoon[cluster]'")
    from halfmoon.cluster.postgres.connecting import _SERVER_SETTINGS

    (ignored,) = re.findall(r"^ignore_startup_parameters = (.*)$", PAGE, re.MULTILINE)
    assert ignored.split(", ") == [name for name in _SERVER_SETTINGS if name != "application_name"]
    limits = dict(re.findall(r"^ALTER ROLE halfmoon SET (\w+) = '(\d+)s';$", PAGE, re.MULTILINE))
    sent = {name: value for name, value in _SERVER_SETTINGS.items() if not name.startswith("tcp_")}
    del sent["application_name"]
    assert {name: f"{value}000" for name, value in limits.items()} == sent
