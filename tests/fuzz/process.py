"""A broker in a process of its own, watched from outside: is it alive, how much memory has it, what has it logged."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import readings
from tests.fuzz.peer import OPENED

READY_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 20.0
SAMPLE_S = 0.02

PEER = re.compile(r"\bpeer=(\S+)")
BROKEN = re.compile(r"Traceback|level=(ERROR|CRITICAL)|MemoryError")


class BrokerProcess:
    """`halfmoon serve` on a free port. Use it as a context manager."""

    def __init__(self, folder: Path, module: str = "halfmoon", **sections: Any) -> None:
        """`module`: what runs the broker. `sections`: as in broker.yaml. The data directory, the configuration and the
        log lie in `folder`."""
        self._folder = folder
        self._module = module
        folder.mkdir(parents=True, exist_ok=True)
        # JSON is YAML.
        (folder / "broker.yaml").write_text(json.dumps(sections))
        self._log = folder / "broker.log"
        self._log_read = 0
        self._tail = ""
        self._lines_by_peer: Counter[str] = Counter()
        self.host, self.port = "127.0.0.1", 0
        self.http = ""
        """Where /metrics is, if `sections` have an http listener."""
        self.rocketmq, self.names = ("", 0), ("", 0)
        """Where RocketMQ's clients connect, and their name service, if `sections` have such a listener."""
        self.lines: list[str] = []
        """Everything logged so far, as far as `read_log` has looked."""

    def __enter__(self) -> BrokerProcess:
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable, "-m", self._module, "serve", "--config", str(self._folder / "broker.yaml"),
                    "--data-dir", str(self._folder / "data"), "--kafka", "127.0.0.1:0",
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )  # fmt: skip
        assert self._process.stdout is not None
        watchdog = threading.Timer(READY_TIMEOUT_S, self._process.kill)
        watchdog.start()
        line = self._process.stdout.readline()
        watchdog.cancel()
        match = re.match(r"ready kafka=127\.0\.0\.1:(\d+)", line)
        if match is None:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"the broker did not start: {line!r} {self._log.read_text()}")
        self.port = int(match[1])
        others = dict(re.findall(r" (\w+)=(\S+)", line))
        self.http = others.get("http", "")
        self.rocketmq, self.names = _address(others.get("rocketmq")), _address(others.get("namesrv"))
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def line(self) -> str:
        """The next that it prints."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def stop(self) -> int:
        """End it with SIGTERM; the exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(STOP_TIMEOUT_S)

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """Raises AssertionError if it has died, logged a programmer's error, or said two things on a connection."""
        code = self._process.poll()
        assert code is None, f"the broker ended with {code}: {self._log.read_text()[-4000:]}"
        for peer, line in self._read_lines():
            self._lines_by_peer[peer] += 1
            most = max(OPENED[peer], 1)
            assert self._lines_by_peer[peer] <= most, f"more than one line on {peer}: {line}"

    def _read_lines(self) -> Iterator[tuple[str, str]]:
        """The new lines about connections, each with its peer. Raises AssertionError where it logged an error."""
        for line in self.read_log():
            assert not BROKEN.search(line), f"logged: {line}\n{self._log.read_text()[-4000:]}"
            assert re.match(r"\d{4}-\d\d-\d\d ", line), f"a log entry of several lines: {line!r}"
            peer = PEER.search(line)
            if peer is not None:
                yield peer[1], line

    def forget_peers(self) -> None:
        """Ports are used again after a while: lines on other connections that had them count no more, those included
        that were not read yet."""
        for _ in self._read_lines():
            pass
        self._lines_by_peer.clear()
        OPENED.clear()

    def read_log(self) -> list[str]:
        """The lines logged since the last call."""
        with self._log.open() as log:
            log.seek(self._log_read)
            text = self._tail + log.read()
            self._log_read = log.tell()
        *lines, self._tail = text.split("\n")
        self.lines += lines
        return lines

    def anonymous_bytes(self) -> int:
        """Memory that is the process's own (RssAnon): not the mapped log, which is page cache."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no RssAnon in /proc")

    def sockets(self) -> int:
        """How many it has open, those that it listens on among them."""
        return len(readings.sockets(self.pid))

    def cpu_s(self) -> float:
        """Seconds of processor time used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100


def _address(text: str | None) -> tuple[str, int]:
    host, _, port = (text or ":0").rpartition(":")
    return host, int(port)


class MemoryWatch:
    """Samples a broker's anonymous memory in a thread; `peak_bytes` is the largest seen. A context manager."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.before_bytes = broker.anonymous_bytes()
        self.peak_bytes = self.before_bytes

    @property
    def grown_bytes(self) -> int:
        return self.peak_bytes - self.before_bytes

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(OSError, AssertionError):  # it has ended: `check` says so better
                self.peak_bytes = max(self.peak_bytes, self._broker.anonymous_bytes())
            self._over.wait(SAMPLE_S)


def eventually(condition: Any, timeout_s: float = 10.0) -> None:
    """Wait until `condition()` is true, which another process will make it."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)
