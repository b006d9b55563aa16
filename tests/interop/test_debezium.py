"""Debezium's connector for PostgreSQL, on distributed Connect: each change of a table is a record, once the worker was
killed too.

The topic's configurations are those that Debezium's documentation shows, `compression.type` among them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from tests.clients.polling import until
from tests.crash.serving import free_port
from tests.interop.committed import committed_values
from tests.interop.connect import Cluster

ROWS = 200
JSON = "org.apache.kafka.connect.json.JsonConverter"

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]


class Postgres:
    """A server of its own, with logical decoding."""

    def __init__(self, folder: Path) -> None:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
        if not found and shutil.which("initdb") is None:
            pytest.skip("needs PostgreSQL: initdb is not installed (Debian: apt-get install postgresql)")
        self._bin = found[-1] if found else Path(shutil.which("initdb") or "").parent
        self._data = folder / "data"
        # It refuses to run as root.
        self._user = "postgres" if os.geteuid() == 0 else None
        self.port = free_port()
        self._run("initdb", "--auth=trust", "--username=postgres", "--pgdata", str(self._data))
        options = f"-p {self.port} -c wal_level=logical -c listen_addresses=127.0.0.1 -c unix_socket_directories="
        self._run("pg_ctl", "start", "-w", "-D", str(self._data), "-l", str(folder / "log"), "-o", options)

    def _run(self, program: str, *words: str) -> None:
        subprocess.run(
            [str(self._bin / program), *words], cwd="/", user=self._user, check=True, stdout=subprocess.DEVNULL
        )

    def sql(self, *statements: str) -> None:
        words = [word for statement in statements for word in ("-c", statement)]
        self._run(
            "psql", "-q", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", *words
        )

    def stop(self) -> None:
        self._run("pg_ctl", "stop", "-m", "immediate", "-D", str(self._data))


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    # Not pytest's folder, which the server's user may not enter.
    folder = Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    try:
        server = Postgres(folder)
        yield server
        server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def cluster(tmp_path: Path, bootstrap_servers: str, name: str, admin: AdminClient) -> Iterator[Cluster]:
    made = Cluster(tmp_path, bootstrap_servers, name, "debezium")
    yield made
    made.close()
    topics = [topic for topic in admin.list_topics(timeout=10).topics if topic.startswith(name)]
    for future in admin.delete_topics(topics).values():
        future.exception(10)


def connector(postgres: Postgres, name: str) -> dict[str, object]:
    converters = {
        f"{which}.converter{more}": value
        for which in ("key", "value")
        for more, value in (("", JSON), (".schemas.enable", "false"))
    }
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "plugin.name": "pgoutput",
        "database.hostname": "127.0.0.1", "database.port": postgres.port, "database.user": "postgres",
        "database.password": "none", "database.dbname": "postgres", "topic.prefix": name,
        "table.include.list": "public.orders", "heartbeat.interval.ms": 1_000,
        "topic.creation.default.replication.factor": 1, "topic.creation.default.partitions": 2,
        "topic.creation.default.compression.type": "lz4", "topic.creation.default.cleanup.policy": "delete",
        "topic.creation.default.retention.ms": 86_400_000, **converters,
    }  # fmt: skip


def changes(servers: str, topic: str) -> list[tuple[str, Any]]:
    """(operation, the order's number) of each record but tombstones."""
    found = []
    for value in committed_values(servers, topic, 2):
        change = json.loads(value)
        found.append((change["op"], (change["after"] or change["before"])["id"]))
    return found


def test_changes_of_a_table(
    postgres: Postgres, cluster: Cluster, name: str, bootstrap_servers: str, admin: AdminClient
) -> None:
    postgres.sql(
        "create table orders (id int primary key, what text)",
        f"insert into orders select each, 'first' from generate_series(1, {ROWS}) each",
    )
    port = cluster.start_worker()
    cluster.create(port, "orders", connector(postgres, name) | {"tombstones.on.delete": "false"})
    topic = f"{name}.public.orders"

    def stored(count: int) -> Callable[[], bool]:
        return lambda: topic in admin.list_topics(timeout=10).topics and len(changes(bootstrap_servers, topic)) >= count

    until(stored(ROWS), deadline_s=120)
    assert len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 2
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    assert admin.describe_configs([resource])[resource].result(10)["compression.type"].value == "lz4"

    postgres.sql("update orders set what = 'second' where id <= 50", "delete from orders where id > 150")
    until(stored(ROWS + 100), deadline_s=60)
    cluster.kill(port)
    postgres.sql("insert into orders values (1000, 'while the worker was away')")
    cluster.start_worker()
    until(stored(ROWS + 101), deadline_s=120)

    found = changes(bootstrap_servers, topic)
    assert {number for operation, number in found if operation == "r"} == set(range(1, ROWS + 1))
    assert {number for operation, number in found if operation == "u"} == set(range(1, 51))
    assert {number for operation, number in found if operation == "d"} == set(range(151, ROWS + 1))
    assert ("c", 1000) in found
