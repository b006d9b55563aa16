"""Plugins that pip has installed, into a folder of their own; and a broker as a process that has them."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

ROOT = Path(__file__).parents[2]


def wheel(folder: Path, name: str, modules: dict[str, bytes], entry_points: str) -> Path:
    """A wheel, made without a build tool or a network."""
    info = f"{name}-1.0.dist-info"
    files = {
        **modules,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": entry_points.encode(),
    }
    rows = [
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip('=')},{len(data)}"
        for path, data in files.items()
    ]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    made = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for path, data in files.items():
            archive.writestr(path, data)
    return made


def install(folder: Path, *made: Path) -> dict[str, str]:
    """The environment of a process in which the wheels are installed, and Halfmoon is this checkout."""
    packages = folder / "site-packages"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    done = subprocess.run(
        [*command, "--no-deps", "--target", str(packages), *map(str, made)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(packages), str(ROOT)])}


def free_addresses() -> tuple[str, str]:
    with socket.socket() as one, socket.socket() as other:
        for probe in (one, other):
            probe.bind(("127.0.0.1", 0))
        first, second = (f"127.0.0.1:{probe.getsockname()[1]}" for probe in (one, other))
        return first, second


class Node:
    """`halfmoon serve`, which can be killed and started again."""

    def __init__(
        self, folder: Path, environment: dict[str, str], config: dict[str, Any], *, http: bool = False
    ) -> None:
        """`http`: with a port for /metrics, at `http_address`."""
        self.folder = folder
        self.environment = environment
        self.address, self.http_address = free_addresses()
        listeners = {"kafka": {"bind": self.address}} | ({"http": {"bind": self.http_address}} if http else {})
        config = {
            "node": {"data_dir": str(folder / "data")},
            "listeners": listeners,
            "log": {"segment_bytes": "4MiB", "low_disk_bytes": 0, "flush": "interval"},
            **config,
        }
        (folder / "broker.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "halfmoon", "serve", "--config", "broker.yaml"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=log
            )
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            assert selector.select(60), "not ready within 60 s"
        assert self._process.stdout.readline().startswith(b"ready "), self.log()

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(30)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8")

    def halfmoon(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "halfmoon", *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=60
        )

    def ask(self, key: int, body: bytes = b"") -> bytes:
        """A raw request in version 0; the answer's body. Empty where the connection is closed instead."""
        host, _, port = self.address.partition(":")
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            connection.sendall(struct.pack(">ihhih", 10 + len(body), key, 0, 7, -1) + body)
            answer = b""
            while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
                piece = connection.recv(1 << 20)
                if not piece:
                    return b""
                answer += piece
        return answer[8:]

    def metric(self, name: str, /, **labels: str) -> float:
        """Of /metrics; 0 where there is no such sample."""
        with urllib.request.urlopen(f"http://{self.http_address}/metrics", timeout=20) as answer:
            text = answer.read().decode()
        found = re.search(rf"^{name}\{{{_labels(labels)}\}} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0

    def told(self, key: int = 31_001) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ask(key))
        return found

    def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        """`configs` with underscores for dots."""
        named = {key.replace("_", "."): value for key, value in configs.items()}
        admin = AdminClient({"bootstrap.servers": self.address})
        admin.create_topics([NewTopic(topic, partitions, config=named)])[topic].result(20)

    def read(self, topic: str, count: int, wait_ms: int = 500) -> list[bytes]:
        """Values from the first one of partition 0, at least `count` unless they take over 20 s."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.address, "group.id": "none", "fetch.wait.max.ms": wait_ms,
                "enable.auto.commit": False,
            }
        )  # fmt: skip
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[bytes] = []
        end = time.monotonic() + 20
        while len(found) < count and time.monotonic() < end:
            found += [each.value() for each in consumer.consume(count, 0.2) if each.error() is None]
        consumer.close()
        return found


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def _labels(labels: dict[str, str]) -> str:
    return ",".join(f'{name}="{re.escape(value)}"' for name, value in sorted(labels.items()))
