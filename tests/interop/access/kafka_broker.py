"""A real Kafka with users (SCRAM) and StandardAuthorizer: one node, started and stopped by a test."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import time
from pathlib import Path

from tests.interop.java_programs import Program, jars, properties

USER, PASSWORD = "admin", "admin-secret"
"""A super user."""


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class KafkaBroker:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        controller, internal, clients = _free_ports(3)
        self.bootstrap = f"127.0.0.1:{clients}"
        settings = properties(folder / "server.properties", {
            "process.roles": "broker,controller", "node.id": 1, "log.dirs": folder / "data",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "listeners": f"CONTROLLER://127.0.0.1:{controller},INTERNAL://127.0.0.1:{internal},"
                         f"CLIENTS://127.0.0.1:{clients}",
            "advertised.listeners": f"INTERNAL://127.0.0.1:{internal},CLIENTS://127.0.0.1:{clients}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL", "controller.listener.names": "CONTROLLER",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.clients.scram-sha-256.sasl.jaas.config":
                "org.apache.kafka.common.security.scram.ScramLoginModule required;",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            # The node's own requests have no user.
            "super.users": f"User:{USER};User:ANONYMOUS",
            "delegation.token.secret.key": "a secret",
            "offsets.topic.replication.factor": 1, "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1, "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "share.coordinator.state.topic.replication.factor": 1, "share.coordinator.state.topic.min.isr": 1,
            "share.coordinator.state.topic.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            # For InitProducerId 6, which asks for TwoPhaseCommit.
            "transaction.two.phase.commit.enable": "true", "unstable.api.versions.enable": "true",
        })  # fmt: skip
        lib = jars("broker")
        cluster = base64.urlsafe_b64encode(b"halfmoon" + os.urandom(8)).rstrip(b"=").decode()
        subprocess.run(
            [
                "java", "-Xmx256m", "-cp", f"{lib}/*", "kafka.tools.StorageTool", "format", "--standalone",
                "-t", cluster, "-c", str(settings),
                "--add-scram", f"SCRAM-SHA-256=[name={USER},password={PASSWORD}]",
            ],
            check=True, capture_output=True,
        )  # fmt: skip
        self._program = Program(folder, "kafka", lib, "kafka.Kafka", str(settings), heap_mb=512)
        try:
            self._wait(clients)
        except BaseException:
            self.stop()
            raise

    def _wait(self, port: int, timeout_s: float = 120) -> None:
        end = time.monotonic() + timeout_s
        while True:
            assert self._program.process.poll() is None, self._program.report()
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                assert time.monotonic() < end, self._program.report()
                time.sleep(0.2)

    def stop(self) -> None:
        self._program.stop()
