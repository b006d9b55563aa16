"""What a cell has at hand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from benchmarks import readings
from benchmarks.brokers import INTERVAL, KAFKA, SYNC, Broker, Brokers
from benchmarks.peer import ROOT, Peer
from benchmarks.rocketmq_peer import RocketmqPeer

Figures = dict[str, float]
ALL = (KAFKA, INTERVAL, SYNC)
HALFMOON = (INTERVAL, SYNC)


class CellError(Exception):
    """A cell has no figures; the message says why."""


class CellSkippedError(CellError):
    """This machine or this run cannot have the cell."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Something that is measured. `run` yields figures, each named `cell.figure`."""

    name: str
    title: str
    run: Callable[[Bench, Broker], Figures]
    on: tuple[str, ...] = ALL
    once: bool = False
    """Not repeated: it takes long, and does not vary."""


@dataclass(slots=True)
class Bench:
    brokers: Brokers
    peer: Peer | None
    rocketmq: RocketmqPeer | None
    work: Path
    scale: float = 1.0
    """How much of the full amounts of work is done."""
    cell_limit_s: float = 180.0
    """A load that has not ended by then has failed. All but `retained` are made for a minute at most."""
    retained_batches: int = 20_000_000
    ballast: readings.Ballast | None = None
    """A ballast is held, so `settle` can warm what is free."""
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def topic(self, what: str) -> str:
        """A name that was not used before."""
        return f"bench-{what}-{os.getpid()}-{next(self._numbers)}"

    def times(self, amount: int, least: int = 1) -> int:
        return max(least, int(amount * self.scale))

    def load(self, broker: Broker, name: str, **arguments: object) -> Figures:
        """Run a load of `benchmarks.clients` to its end. Raises CellError."""
        try:
            ran = subprocess.run(
                self._command(broker, name, arguments), cwd=ROOT, capture_output=True, text=True, check=False,
                timeout=self.cell_limit_s, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise CellError(f"{name} took longer than {self.cell_limit_s:.0f} s") from None
        return _figures(name, ran.returncode, ran.stdout, ran.stderr)

    def java(self, broker: Broker, program: str, *words: str) -> Figures:
        """Run a load of `benchmarks/clients/java` with Kafka's client, which comes with the peer. Raises CellError."""
        if self.peer is None:
            raise CellSkippedError("needs the peer script's jars")
        source = ROOT / "benchmarks" / "clients" / "java" / f"{program}.java"
        quiet = self.work / "log4j2.properties"
        quiet.write_text("rootLogger.level = error\n")
        try:
            ran = subprocess.run(
                [
                    "java", "-Xmx512m", f"-Dlog4j2.configurationFile={quiet.as_uri()}", "-cp", f"{self.peer.jars}/*",
                    str(source), broker.bootstrap, *words,
                ],
                capture_output=True, text=True, check=False, timeout=self.cell_limit_s, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise CellError(f"{program} took longer than {self.cell_limit_s:.0f} s") from None
        return _figures(program, ran.returncode, ran.stdout, ran.stderr)

    @contextmanager
    def background(self, broker: Broker, name: str, **arguments: object) -> Iterator[Figures]:
        """Run a load beside the block; it has said that it is under way. Its figures are there after the block."""
        found: Figures = {}
        errors = self.work / f"{name}.err"
        with errors.open("w") as stderr:
            process = subprocess.Popen(
                self._command(broker, name, arguments), cwd=ROOT, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr,
            )  # fmt: skip
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "waiting\n":
                raise CellError(f"{name} did not begin: {errors.read_text()[-300:]}")
            yield found
            output, _ = process.communicate(timeout=30)
            found |= _figures(name, process.returncode, output, errors.read_text())
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def _command(self, broker: Broker, name: str, arguments: dict[str, object]) -> list[str]:
        return [sys.executable, "-m", "benchmarks.clients", name, broker.bootstrap, json.dumps(arguments)]

    def cpu_per_mb(self, broker: Broker, megabytes: float, run: Callable[[], Figures]) -> Figures:
        """`run`'s figures, and the broker's CPU time for each MB of records that it moves."""
        before = broker.cpu_s()
        figures = run()
        return figures | {"cpu_ms_per_mb": (broker.cpu_s() - before) * 1e3 / megabytes}

    def perf(self, broker: Broker, section: str, only: str, full: float = 1.0) -> dict[str, Figures]:
        """Cells of the peer's own program, `full` times their usual size at scale 1. Raises PeerError, CellError."""
        if self.peer is None:
            raise CellSkippedError("needs the peer script's Java tools")
        return self.peer.perf(broker.bootstrap, broker.pid, section, only, full * self.scale, self.cell_limit_s)

    def settle(self) -> None:
        """Let nothing of what was before weigh on what comes now. For loads that move much, right before them."""
        os.sync()
        if self.ballast is not None:
            self.ballast.fill()


def named(cell: str, figures: Figures) -> Figures:
    return {f"{cell}.{name}": value for name, value in figures.items()}


def _figures(name: str, code: int, output: str, errors: str) -> Figures:
    lines = output.strip().splitlines()
    if code or not lines:
        raise CellError(f"{name} failed: {errors.strip()[-300:] or f'exit code {code}'}")
    found: Figures = json.loads(lines[-1])
    return found
