"""Kafka Connect's workers, and how they are told what to do."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.clients.polling import until
from tests.crash.serving import free_port
from tests.interop.java_programs import Program, jars, properties

CLI = "org.apache.kafka.connect.cli"
TEXTS = "org.apache.kafka.connect.storage.StringConverter"


def worker(servers: str, rest_port: int, **more: object) -> dict[str, object]:
    return {
        "bootstrap.servers": servers, "listeners": f"http://127.0.0.1:{rest_port}",
        "key.converter": TEXTS, "value.converter": TEXTS, "offset.flush.interval.ms": 500,
        # Where plugins are looked for: among the other jars.
        "plugin.discovery": "only_scan",
        "consumer.auto.offset.reset": "earliest",
        **{name.replace("_", "."): value for name, value in more.items()},
    }  # fmt: skip


class Cluster:
    """Workers that share a group and its three topics, and whose source connectors may be exactly once."""

    def __init__(self, folder: Path, servers: str, name: str, project: str = "kafka") -> None:
        """`project`: the folder of the jars (java_programs.jars)."""
        self.name = name
        self._jars = jars(project)
        self.topics = {what: f"{name}-connect-{what}" for what in ("configs", "offsets", "status")}
        self._folder = folder
        self._servers = servers
        self._workers: dict[int, Program] = {}

    def start_worker(self) -> int:
        """Its REST port, once it answers."""
        port = free_port()
        settings = worker(
            self._servers, port, group_id=f"{self.name}-connect", exactly_once_source_support="enabled",
            config_storage_topic=self.topics["configs"], config_storage_replication_factor=1,
            offset_storage_topic=self.topics["offsets"], offset_storage_replication_factor=1,
            offset_storage_partitions=5,
            status_storage_topic=self.topics["status"], status_storage_replication_factor=1,
            status_storage_partitions=2,
            scheduled_rebalance_max_delay_ms=1_000, session_timeout_ms=6_000, heartbeat_interval_ms=1_000,
            consumer_isolation_level="read_committed",
        )  # fmt: skip
        path = properties(self._folder / f"worker-{port}.properties", settings)
        self._workers[port] = Program(
            self._folder, f"worker-{port}", self._jars, f"{CLI}.ConnectDistributed", str(path)
        )
        until(lambda: self.ask(port, "GET", "/connectors") is not None, deadline_s=90)
        return port

    def ask(self, port: int, method: str, path: str, body: object = None) -> Any:
        """None where it cannot answer now: it is starting, or in a rebalance."""
        assert self._workers[port].process.poll() is None, self._workers[port].report()
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read() or b"[]")
        except urllib.error.HTTPError as error:
            with error:
                if error.code not in (404, 409, 500, 503):
                    raise AssertionError(error.read()) from None
        except urllib.error.URLError:
            pass
        return None

    def create(self, port: int, name: str, settings: dict[str, object]) -> None:
        texts = {key: str(value) for key, value in settings.items()}
        until(lambda: self.ask(port, "PUT", f"/connectors/{name}/config", texts), deadline_s=60)

    def task_worker(self, port: int, name: str) -> int | None:
        """The REST port of the worker that runs the connector's only task; None while nobody does."""
        status = self.ask(port, "GET", f"/connectors/{name}/status")
        running = [task for task in (status or {}).get("tasks", ()) if task["state"] == "RUNNING"]
        return int(running[0]["worker_id"].rpartition(":")[2]) if running else None

    def kill(self, port: int) -> None:
        self._workers.pop(port).kill()

    def close(self) -> None:
        for port in list(self._workers):
            self.kill(port)

    def report(self) -> str:
        return "".join(program.report() for program in self._workers.values())
