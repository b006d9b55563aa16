"""What a cell has at hand."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from benchmarks import readings
from benchmarks.brokers import BARE, INTERVAL, KAFKA, SYNC, Broker, Brokers
from benchmarks.peer import ROOT, Peer
from benchmarks.rocketmq_peer import RocketmqPeer

Figures = dict[str, float]
ALL = (KAFKA, INTERVAL, SYNC)
AND_BARE = (*ALL, BARE)
HALFMOON = (INTERVAL, SYNC)
ROUNDS = 5
FEW = 3
"""Of what takes half a minute and more."""


PRODUCED = re.compile(r"(\d+) records sent, ([\d.]+) records/sec .*? (\d+) ms 50th.*? (\d+) ms 99th")
"""The last line of ProducerPerformance."""


class CellError(Exception):
    """A cell has no figures; the message says why."""


class CellSkippedError(CellError):
    """This machine or this run cannot have the cell."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Something that is measured. `run` yields figures; each is called `cell.figure`."""

    name: str
    title: str
    run: Callable[[Bench, Broker], Figures]
    on: tuple[str, ...] = ALL
    rounds: int = ROUNDS


@dataclass(frozen=True, slots=True)
class TogetherCell:
    """Something that measures several brokers in turn by itself. `run` yields, for each round, broker → figures."""

    name: str
    title: str
    run: Callable[[Bench, Sequence[Broker]], list[dict[str, Figures]]]
    on: tuple[str, ...] = ALL
    rounds: int = 1


@dataclass(slots=True)
class Bench:
    brokers: Brokers
    peer: Peer | None
    rocketmq: RocketmqPeer | None
    work: Path
    scale: float = 1.0
    """How much of the full amounts of work is done."""
    cell_limit_s: float = 600.0
    """A load that has not ended by then has failed."""
    retained_batches: int = 20_000_000
    rounds: int | None = None
    """At most so many of each cell."""
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
        ran = self._run(name, self._command(broker, name, arguments))
        return _figures(name, ran.returncode, ran.stdout, ran.stderr)

    def java(self, broker: Broker, program: str, *words: str) -> Figures:
        """Run a load of `benchmarks/clients/java` with Kafka's client, which comes with the peer. Raises CellError."""
        source = ROOT / "benchmarks" / "clients" / "java" / f"{program}.java"
        ran = self._java(program, str(source), broker.bootstrap, *words)
        return _figures(program, ran.returncode, ran.stdout, ran.stderr)

    def java_producer(self, broker: Broker, topic: str, count: int, *properties: str) -> Figures:
        """Kafka's ProducerPerformance: `count` records of 100 bytes with acks=1 to a topic that is there. Raises
        CellError."""
        program = "ProducerPerformance"
        ran = self._java(
            program, f"org.apache.kafka.tools.{program}", "--topic", topic, "--num-records", str(count),
            "--record-size", "100", "--throughput", "-1",
            "--producer-props", f"bootstrap.servers={broker.bootstrap}", "acks=1", *properties,
        )  # fmt: skip
        said = PRODUCED.findall(ran.stdout)
        if ran.returncode or not said or int(said[-1][0]) != count:
            raise CellError(f"{program} failed: {(ran.stderr or ran.stdout).strip()[-300:]}")
        _, rec_s, p50_ms, p99_ms = map(float, said[-1])
        return {"rec_s": rec_s, "p50_ms": p50_ms, "p99_ms": p99_ms}

    def _java(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        if self.peer is None:
            raise CellSkippedError("needs the peer script's jars")
        quiet = self.work / "log4j2.properties"
        quiet.write_text("rootLogger.level = error\n")
        java = ["java", "-Xmx512m", f"-Dlog4j2.configurationFile={quiet.as_uri()}", "-cp", f"{self.peer.jars}/*"]
        return self._run(program, [*java, *words])

    def c(self, broker: Broker, frames: bytes, in_flight: int, requests: int, connections: int = 1) -> Figures:
        """Send these requests one after the other, over and over, by benchmarks/clients/c/ask.c. Raises CellError."""
        if shutil.which("cc") is None:
            raise CellSkippedError("needs a C compiler")
        program, request = self.work / "ask", self.work / "frames"
        if not program.exists():
            source = ROOT / "benchmarks" / "clients" / "c" / "ask.c"
            subprocess.run(["cc", "-O2", "-o", str(program), str(source)], check=True)
        request.write_bytes(frames)
        host, _, port = broker.bootstrap.rpartition(":")
        words = [str(program), host, port, str(request), str(in_flight), str(requests), str(connections)]
        ran = self._run(program.name, words)
        return _figures(program.name, ran.returncode, ran.stdout, ran.stderr)

    def _run(self, name: str, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=self.cell_limit_s,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise CellError(f"{name} took longer than {self.cell_limit_s:.0f} s") from None

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

    def settle(self) -> None:
        """Let nothing of what was before weigh on what comes now. For loads that move much, right before them."""
        os.sync()
        if self.ballast is not None:
            self.ballast.fill()


def prefixed(prefix: str, figures: Figures) -> Figures:
    return {f"{prefix}_{name}": value for name, value in figures.items()}


def _figures(name: str, code: int, output: str, errors: str) -> Figures:
    lines = output.strip().splitlines()
    if code or not lines:
        raise CellError(f"{name} failed: {errors.strip()[-300:] or f'exit code {code}'}")
    found: Figures = json.loads(lines[-1])
    return found
