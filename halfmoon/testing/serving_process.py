"""`halfmoon serve` as a child that ends when this process does (`serving`)."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from halfmoon.errors import StartError
from halfmoon.testing import temporary
from halfmoon.testing.first_line import first_line
from halfmoon.testing.state import STATE, VARIABLE, State

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
KEPT_VARIABLES = ("HALFMOON_LOGLEVEL", "HALFMOON_PURE")


class ServingProcess:
    """Of one start."""

    def __init__(self, config: Mapping[str, Any], options: Sequence[str] = (), state: State | None = None) -> None:
        """`config`: what broker.yaml says. `options`: of the command line. `state`: of the kit's instruments in it;
        None: it has none."""
        self._state = state
        self._config = config
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self.addresses: dict[str, str] = {}
        """`host:port` of kafka, rocketmq, namesrv and http, as far as they are on, once it is ready."""

    @property
    def pid(self) -> int:
        assert self._process is not None, "it is not running"
        return self._process.pid

    def begin(self) -> None:
        self._folder = temporary.make("halfmoon-serving-")
        self.config.write_text(json.dumps(self._config, default=str))  # JSON is YAML
        command = [sys.executable, "-m", "halfmoon.testing.serving", "--config", str(self.config), *self._options]
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("HALFMOON_") or name in KEPT_VARIABLES
        }
        if self._state is not None:
            self.write_state(self._state)
            environment[VARIABLE] = str(self._folder)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )

    def start(self) -> None:
        """Returns when it is ready; else it is ended. Raises StartError, TimeoutError."""
        self.begin()
        try:
            self.wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def wait_until_ready(self) -> None:
        """Raises StartError, TimeoutError."""
        process = self._process
        assert process is not None and process.stdout is not None
        try:
            line = first_line(process.stdout, START_TIMEOUT_S)
        except TimeoutError:
            raise TimeoutError(f"the broker did not start within {START_TIMEOUT_S} s: {self.said()}") from None
        if not line.endswith("\n"):
            raise StartError(self._why_not())
        self.addresses = dict(re.findall(r" (kafka|rocketmq|namesrv|http)=(\S+)", line))
        assert "kafka" in self.addresses, line

    def _why_not(self) -> str:
        said = self.said()
        reasons: list[str] = re.findall(r"^halfmoon: (.*)$", said, re.MULTILINE)
        if reasons and "ended before it was ready" not in reasons[-1]:
            return reasons[-1]
        return f"the broker ended before it was ready: {said}"

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

    def kill(self) -> None:
        """It, and the processes that it has started, which would end in good order without it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)  # or it would start others in their place
            children = _children(self._process.pid)
            self._end(self._process, signal.SIGKILL)
            for pid in children:
                kill(pid)
            self._close()

    def write_state(self, state: State) -> None:
        """For its processes, when they are started."""
        path = self.folder / STATE
        made = path.with_suffix(".new")
        made.write_text(json.dumps(dataclasses.asdict(state)))
        made.replace(path)

    def said(self, lines: int = 20) -> str:
        """The last lines of its log."""
        try:
            return "".join(self._log.read_text(errors="replace").splitlines(keepends=True)[-lines:])
        except FileNotFoundError:
            return ""

    @property
    def config(self) -> Path:
        """Its broker.yaml."""
        return self.folder / "broker.yaml"

    @property
    def folder(self) -> Path:
        assert self._folder is not None, "it is not running"
        return self._folder

    @property
    def _log(self) -> Path:
        return self.folder / "log"

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
            temporary.remove(folder)


def _children(pid: int) -> list[int]:
    found = " ".join(path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    return [int(each) for each in found.split()]


def kill(pid: int) -> None:
    """Returns when the process is gone. It may be no child of this one."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        select.select([watched], [], [], STOP_TIMEOUT_S)
    finally:
        os.close(watched)
