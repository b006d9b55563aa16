"""A broker for tests of several processes: `halfmoon serve --workers N` as a child, which ends when this process does.

It knows where the child's listeners are, and nothing of what is in it.
"""

from __future__ import annotations

import copy
import json
import os
import random
import re
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from halfmoon.config.units import Address
from halfmoon.errors import StartError

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
PORTS = range(16_000, 32_000)
"""Ours are among these, which the system gives to nobody who asks for any port: they are free again after a restart."""
SHARDS = 16
"""As of workers.shards: so many ports RocketMQ's clients are sent to."""
TRIES = 5
IN_USE = "Address already in use"
KEPT_VARIABLES = ("HALFMOON_LOGLEVEL", "HALFMOON_PURE")


class NotInThisProcessError(ValueError):
    """What was asked for is in the broker's process, and this broker has processes of its own."""


class Workers:
    """Use it as often as it is to start, one after the other: it is at the same addresses each time."""

    def __init__(self, count: int, config: Mapping[str, Any]) -> None:
        """`config`: sections as in broker.yaml. Ports that are 0 are chosen here."""
        self._count = count
        self._given = config
        self._config = with_ports(config, count)
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.addresses: dict[str, str] = {}
        """`host:port` of kafka, rocketmq, namesrv and http, as far as they are on."""

    def start(self, data_dir: str) -> None:
        """Returns when it is ready. Raises StartError, TimeoutError."""
        for left in reversed(range(TRIES)):
            try:
                self._start(data_dir)
            except StartError as error:
                # Somebody else was given a port of ours, which nobody has been told of yet.
                if self.addresses or not left or IN_USE not in str(error):
                    raise
                self._config = with_ports(self._given, self._count)
            else:
                return

    def _start(self, data_dir: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="halfmoon-workers-")
        config = Path(self._folder.name) / "broker.yaml"
        node = {**self._config.get("node", {}), "data_dir": data_dir}
        config.write_text(json.dumps({**self._config, "node": node}, default=str))  # JSON is YAML
        command = [sys.executable, "-m", "halfmoon.testing.serving", "--config", str(config)]
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("HALFMOON_") or name in KEPT_VARIABLES
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--workers", str(self._count)], env=environment, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        try:
            self._wait_until_ready(self._process)
        except BaseException:
            self._end(self._process, signal.SIGKILL)
            self._close()
            raise

    def stop(self) -> None:
        """Stop cleanly. Raises RuntimeError where it has ended otherwise."""
        process = self._process
        assert process is not None
        ended = process.poll()
        code = self._end(process, signal.SIGTERM)
        said = self.said()
        self._close()
        if ended is not None or code:
            how = "had ended already" if ended is not None else "was killed" if code < 0 else "did not end cleanly"
            raise RuntimeError(f"the broker {how}, with code {code}: {said}")

    def said(self, lines: int = 20) -> str:
        """The last lines of its log."""
        try:
            return "".join(self._log.read_text(errors="replace").splitlines(keepends=True)[-lines:])
        except FileNotFoundError:
            return ""

    @property
    def _log(self) -> Path:
        assert self._folder is not None
        return Path(self._folder.name) / "log"

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        read, end_s = b"", time.monotonic() + START_TIMEOUT_S
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not read.endswith(b"\n"):
                if not selector.select(max(end_s - time.monotonic(), 0)):
                    raise TimeoutError(f"the broker did not start within {START_TIMEOUT_S} s: {self.said()}")
                more = os.read(process.stdout.fileno(), 4096)
                if not more:
                    raise StartError(self._why_not())
                read += more
        line = read.decode()
        self.addresses = dict(re.findall(r" (kafka|rocketmq|namesrv|http)=(\S+)", line))
        assert "kafka" in self.addresses, line

    def _why_not(self) -> str:
        said = self.said()
        reasons: list[str] = re.findall(r"^halfmoon: (.*)$", said, re.MULTILINE)
        if reasons and "ended before it was ready" not in reasons[-1]:
            return reasons[-1]
        return f"the broker ended before it was ready: {said}"

    def _end(self, process: subprocess.Popen[bytes], number: signal.Signals) -> int:
        """Its exit code. It is killed where it does not end; its workers end when it does."""
        process.send_signal(number)
        try:
            return process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def _close(self) -> None:
        process, folder = self._process, self._folder
        self._process = self._folder = None
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()
        if folder is not None:
            folder.cleanup()


def with_ports(config: Mapping[str, Any], workers: int) -> dict[str, Any]:
    """With ports in the place of 0: workers have several, one behind the other."""
    made = copy.deepcopy(dict(config))
    listeners = made.get("listeners") or {}
    kafka = listeners.get("kafka") or []
    for listener in kafka if isinstance(kafka, list) else [kafka]:
        _choose(listener, "bind", 1 + workers)
    for name, keys in (("rocketmq", {"bind": SHARDS, "namesrv": 1}), ("http", {"bind": 1})):
        for key, count in keys.items():
            _choose(listeners.get(name) or {}, key, count)
    return made


def _choose(listener: dict[str, Any], key: str, count: int) -> None:
    if key not in listener:
        return
    host, _, port = str(listener[key]).rpartition(":")
    if port == "0":
        listener[key] = str(Address(host.strip("[]"), free_ports(host.strip("[]"), count)))


def free_ports(host: str, count: int) -> int:
    """The first of so many in a row on which nobody listens."""
    while True:
        first = random.randrange(PORTS.start, PORTS.stop - count)
        if all(is_free(host, first + number) for number in range(count)):
            return first


def is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
