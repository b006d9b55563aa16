"""Clients that are processes of their own, and are killed: whoever is gone is followed by another one of its role."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

from tests.crash.load import QUICK
from tests.torture.histories import Line, lines_of

ROOT = Path(__file__).parents[2]
ENDS_S = 60.0
AFTER_OTHERS = ("nice", "-n", "10")
"""Some twenty clients begin anew together after a fault. The database, the store and the proxies share two processors
with them, and are not what fails just then."""
PATIENT = {**QUICK, "reconnect.backoff.max.ms": 500}
"""Some twenty clients with a thread for each broker try again and again while one is away. At 50 ms they took both
processors for half a minute, so that the nodes lost their leases."""
DEBUG = os.environ.get("HALFMOON_TORTURE_DEBUG", "")
"""What librdkafka tells of itself (its setting `debug`), each client in a file of its own beside the histories."""


class Crew:
    """Each has a *place*: a role and a number."""

    def __init__(
        self,
        servers: str,
        folder: Path,
        copies: Mapping[str, int],
        *,
        module: str = "tests.torture.worker",
        named: Collection[str] = ("pipe",),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`copies`: how many of each role. `module`: what is run, as `tests.torture.worker` is. `named`: roles whose
        name stays with the place, since it is a transactional id: the next one ends what the killed one left open.
        `environment`: more of it."""
        self._environment = {**os.environ, **(environment or {})}
        self._servers = servers
        self._folder = folder
        self._module = module
        self._named = named
        self._count = 0
        self.roles: list[tuple[str, str]] = [
            (role, f"{role}-{n}") for role, count in copies.items() for n in range(count)
        ]
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.killed: list[tuple[int, str]] = []
        """When (monotonic ns), and the place."""
        self._logs: dict[str, Path] = {}
        self.stuck = 0
        """So many had to be killed for a bug of librdkafka's (`is_stuck`)."""
        self.gave_up = 0
        """So many ended by themselves."""

    def start(self, role: str, place: str) -> None:
        self._count += 1
        name = place if role in self._named else f"{place}-{self._count}"
        command = [*AFTER_OTHERS, sys.executable, "-m", self._module, role, self._servers, name]
        log = self._logs[place] = self._folder / (f"errors-{name}" if DEBUG else "errors")
        with log.open("ab") as errors:
            self._running[place] = subprocess.Popen(
                [*command, str(self._folder / f"{role}.history")], cwd=ROOT, stdin=subprocess.PIPE, stderr=errors,
                env=self._environment,
            )  # fmt: skip

    def kill(self, place: str) -> None:
        process = self._running.pop(place, None)
        if process is not None:
            process.kill()
            process.communicate()
            self.killed.append((time.monotonic_ns(), place))

    def revive(self) -> None:
        """A client may have given up by itself: it was fenced, or the broker was away for too long."""
        for role, place in self.roles:
            if place not in self._running or self._running[place].poll() is not None:
                if place in self._running:
                    self._running.pop(place).communicate()
                    self.gave_up += 1
                self.start(role, place)

    def kill_stuck(self) -> int:
        """How many there were."""
        stuck = [place for place in self._running if DEBUG and is_stuck(self._logs[place])]
        for place in stuck:
            self.kill(place)
        self.stuck += len(stuck)
        return len(stuck)

    def end(self, *roles: str) -> list[str]:
        """Those of some roles; of all, where none is named. They end together. Returns places of those that had to be
        killed."""
        ending = [place for role, place in self.roles if not roles or role in roles]
        self.roles = [each for each in self.roles if each[1] not in ending]
        processes = {place: self._running.pop(place) for place in ending if place in self._running}
        for process in processes.values():
            assert process.stdin is not None
            process.stdin.close()
        late = []
        until_s = time.monotonic() + ENDS_S
        for place, process in processes.items():
            try:
                process.wait(max(until_s - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                if is_stuck(self._logs[place]):
                    self.stuck += 1
                else:
                    late.append(place)
                process.send_signal(signal.SIGUSR1)  # it says where it is
                time.sleep(0.5)
                process.kill()
                process.wait()
        return late

    def describe(self) -> None:
        """Where each client is, for whoever looks for the reason: its Python threads among the errors, and those of
        librdkafka in a file of their own, where there is gdb."""
        gdb = shutil.which("gdb")
        for place, process in self._running.items():
            process.send_signal(signal.SIGUSR1)
            if gdb is not None:
                with (self._folder / f"stacks-{place}").open("wb") as stacks:
                    command = [gdb, "-p", str(process.pid), "-batch", "-ex", "thread apply all backtrace"]
                    subprocess.run(command, stdout=stacks, stderr=subprocess.DEVNULL, timeout=60, check=False)

    def errors(self) -> dict[str, int]:
        """Why clients gave up: Kafka's error codes, or the names of exceptions."""
        files = sorted(self._folder.glob("errors*"))
        lines = [line for path in files for line in path.read_text(errors="replace").splitlines()]
        found = (re.match(r"[\w.]*?(\w+(?:Error|Exception)): (?:.*?code=(\w+))?", line) for line in lines)
        return dict(Counter(each[2] or each[1] for each in found if each is not None))

    def history(self, role: str) -> list[Line]:
        return lines_of(self._folder / f"{role}.history")


def is_stuck(log: Path) -> bool:
    """Whether this is the last that the main thread of one of librdkafka's instances has told, where they tell
    (`DEBUG`): it waits for another thread, which waits for it (issue 5476 of librdkafka 2.16)."""
    last: dict[str, str] = {}
    with log.open(errors="replace") as lines:
        for line in lines:
            told = re.match(r"%\d\|[^|]*\|\w+\|(\S+)\| \[thrd:main\]: (.*)", line)
            if told is not None:
                last[told[1]] = told[2]
    return any(
        "OffsetForLeaderEpoch requested failed: Local: Broker handle destroyed" in each for each in last.values()
    )
