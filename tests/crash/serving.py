"""A broker as a process of its own, to be killed: the same data directory and the same port each time it starts."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

START_S = 60.0


def free_port() -> int:
    """A port nobody listens on now; the broker takes it again after each kill."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0


class Serving:
    """`halfmoon serve`. What it logs goes to the file `log` in `folder`."""

    def __init__(self, folder: Path, port: int = 0, **settings: str) -> None:
        """`port`: 0 is any. `settings`: as in the environment, `log_flush="interval"`."""
        self.folder = folder
        self.address = f"127.0.0.1:{port or free_port()}"
        self._environment = {
            **os.environ,
            "HALFMOON_LOG_SEGMENT_BYTES": "4MiB",
            "HALFMOON_GROUPS_INITIAL_REBALANCE_DELAY": "0ms",
            **{f"HALFMOON_{name.upper()}": value for name, value in settings.items()},
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        """Returns when it is ready. `more`: of the command line."""
        command = [sys.executable, "-m", "halfmoon", "serve", *more, "--kafka", self.address, "--data-dir"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, str(self.folder / "data")], env=self._environment, stdout=subprocess.PIPE, stderr=log
            )
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            assert selector.select(START_S), f"not ready within {START_S} s"
        line = self._process.stdout.readline().decode()
        assert line.startswith(f"ready kafka={self.address} "), (line, self.log())

    def kill(self) -> None:
        """kill −9: it can do nothing more, not even flush."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM; it ends cleanly. Nothing happens if it does not run."""
        if self._process is not None:
            assert self._end(signal.SIGTERM) == 0, self.log()

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        assert process is not None
        assert process.poll() is None, f"it ended by itself: {self.log()}"
        process.send_signal(number)
        try:
            return process.wait(START_S)
        finally:
            process.kill()
            process.communicate()


def wait_until(condition: object, deadline_s: float, what: str) -> None:
    """Ask every few ms until `condition()` holds."""
    assert callable(condition)
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"not within {deadline_s} s: {what}"
        time.sleep(0.002)
