"""The broker as a child process, for as long as a `with` block lasts."""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from halfmoon.pipeline.errors import PipelineError

READY_TIMEOUT_S = 30
STOP_TIMEOUT_S = 20

_READY = re.compile(r"ready kafka=(\S+) data=(.+)")
_PR_SET_PDEATHSIG = 1


class BrokerProcess:
    """A running broker: its address, and whether it still lives."""

    def __init__(self, process: subprocess.Popen[str], address: str, log: Path) -> None:
        self._process = process
        self._log = log
        self.address = address

    def check_alive(self) -> None:
        """Raise PipelineError if the broker has ended."""
        code = self._process.poll()
        if code is not None:
            raise PipelineError(f"the broker ended with code {code}: {last_line(self._log)}")


@contextmanager
def broker(
    data_dir: Path,
    log: Path,
    command: list[str] | None = None,
    on_death: Callable[[], None] = lambda: None,
    config: Path | None = None,
    environment: Mapping[str, str] | None = None,
    workers: int | None = None,
) -> Iterator[BrokerProcess]:
    """Start `halfmoon serve` over `data_dir` on a free port, and stop it when the block is left, however it is left.

    What it writes to standard error goes to `log`. Raises PipelineError with its last words if it is not ready within
    30 s. It gets a session of its own: Ctrl-C must reach this program first, which then stops it in order. If it ends
    while the block runs, `on_death` is called, in another thread. `config`: a broker.yaml; `environment`: what is
    added to this program's; `workers`: so many processes share the topics.
    """
    serve = [sys.executable, "-m", "halfmoon", "serve", "--data-dir", str(data_dir), "--kafka", "127.0.0.1:0"]
    if config is not None:
        serve += ["--config", str(config)]
    if workers is not None:
        serve += ["--workers", str(workers)]
    with log.open("a") as errors:
        process = subprocess.Popen(
            command or serve,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
            preexec_fn=_end_with_parent(),
        )
    leaving = threading.Event()

    def on_end() -> None:
        if not leaving.is_set():
            process.wait()
            on_death()

    try:
        yield BrokerProcess(process, _wait_ready(process, log, on_end), log)
    finally:
        leaving.set()
        _stop(process)


def last_line(log: Path) -> str:
    """The last thing a log says that is not said in passing."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if "level=INFO" not in line]
    return next(filter(None, reversed(lines)), f"see {log}")


def _wait_ready(process: subprocess.Popen[str], log: Path, on_end: Callable[[], None]) -> str:
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        # To the end, not to the ready line: a full pipe would block the broker.
        assert process.stdout is not None
        with contextlib.suppress(ValueError):
            for line in process.stdout:
                lines.put(line)
        lines.put(None)
        on_end()

    threading.Thread(target=read, name="broker-stdout", daemon=True).start()
    try:
        while (line := lines.get(timeout=READY_TIMEOUT_S)) is not None:
            ready = _READY.match(line)
            if ready is not None:
                return ready[1]
    except queue.Empty:
        raise PipelineError(f"the broker was not ready after {READY_TIMEOUT_S} s: {last_line(log)}") from None
    process.wait(STOP_TIMEOUT_S)
    raise PipelineError(f"the broker did not start (code {process.returncode}): {last_line(log)}")


def _stop(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _end_with_parent() -> Callable[[], None] | None:
    """On Linux, have the kernel end the broker if this program is killed without a chance to clean up.

    Otherwise a killed demo would leave a broker that holds the data directory's lock, and could not be run again.
    """
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def preexec() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # It died before the wish was made.
            os._exit(1)

    return preexec
