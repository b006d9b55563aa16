"""What a second worker brings: `python -m benchmarks.workers`.

One broker runs with one worker, pinned to the first core; another one with two, each pinned to a core of its own. Two
clients in C, which are pinned nowhere, send Produce requests of one small record, each to a partition of its own: with
one worker both to that, with two each to its partition's leader. The brokers are asked in turn, another one first in
each round. Requests a second are those of both clients together, from the first to the last; the CPU is the workers'.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient

from benchmarks import readings
from benchmarks.brokers import INTERVAL, Broker, Brokers
from benchmarks.clients import topics, wire
from benchmarks.peer import ROOT

TOPIC = "pinned"
CLIENTS = 2
IN_FLIGHT = 32
BYTES = 100


class Pinned:
    """A broker whose workers have a core each."""

    def __init__(self, brokers: Brokers, workers: int, tree: Path | None) -> None:
        self.workers = workers
        self.broker: Broker = brokers.start_halfmoon(INTERVAL, {"HALFMOON_WORKERS_COUNT": str(workers)}, tree=tree)
        self.pids = workers_of(self.broker.pid)
        assert len(self.pids) == workers
        for core, pid in enumerate(self.pids):
            pin(pid, core)
        self.addresses = leaders(self.broker.bootstrap)
        assert len(set(self.addresses)) == workers, "partitions lie on all workers"

    def cpu_s(self) -> float:
        return sum(map(readings.cpu_s, self.pids))


def workers_of(pid: int) -> list[int]:
    """The processes of a broker's workers. One more stands by; it has no socket but the supervisor's."""
    found = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return sorted(each for each in found if _sockets(each) > 1)


def _sockets(pid: int) -> int:
    try:
        if b"halfmoon.server.workers" not in Path(f"/proc/{pid}/cmdline").read_bytes():
            return 0  # it was forked a moment ago, and has everything of the supervisor's
        return len(readings.sockets(pid))
    except FileNotFoundError:
        return 0


def pin(pid: int, core: int) -> None:
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), {core})


def leaders(bootstrap: str) -> list[str]:
    """Of a new topic: HOST:PORT of the leader of each partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics.create_with(admin, TOPIC, CLIENTS)
    found = admin.list_topics(TOPIC, timeout=10)
    partitions = found.topics[TOPIC].partitions
    nodes = [found.brokers[partitions[index].leader] for index in sorted(partitions)]
    return [f"{node.host}:{node.port}" for node in nodes]


class Clients:
    def __init__(self, work: Path) -> None:
        self._program = work / "ask"
        self._work = work
        source = ROOT / "benchmarks" / "clients" / "c" / "ask.c"
        subprocess.run(["cc", "-O2", "-o", str(self._program), str(source)], check=True)

    def ask(self, side: Pinned, requests: int) -> dict[str, float]:
        """`requests` by each client."""
        before_s, begun_s = side.cpu_s(), time.perf_counter()
        running = [self._start(index, address, requests) for index, address in enumerate(side.addresses)]
        outcomes = [process.communicate(timeout=300) for process in running]
        took_s = time.perf_counter() - begun_s
        for process, (_, errors) in zip(running, outcomes, strict=True):
            if process.returncode:
                raise RuntimeError(f"ask: {errors}")
        p99_us = max(json.loads(output)["p99_us"] for output, _ in outcomes)
        total = CLIENTS * requests
        return {
            "requests/s": total / took_s,
            "CPU us": (side.cpu_s() - before_s) / total * 1e6,
            "p99 us": p99_us,
        }

    def _start(self, index: int, address: str, requests: int) -> subprocess.Popen[str]:
        frames = self._work / f"frames-{index}"
        frames.write_bytes(wire.produce(TOPIC, [(index, wire.batch(b"x" * BYTES))]))
        host, _, port = address.rpartition(":")
        words = [str(self._program), host, port, str(frames), str(IN_FLIGHT), str(requests), "1", "together"]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workers", description="What a second worker brings.")
    parser.add_argument("--rounds", type=int, default=9, help="times that each broker is asked (default 9)")
    parser.add_argument("--requests", type=int, default=100_000, help="of each client in a round (default 100000)")
    parser.add_argument("--tree", type=Path, help="where compiled modules are: build/compiled")
    options = parser.parse_args()
    (ROOT / "out").mkdir(exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="workers-", dir=ROOT / "out"))
    brokers = Brokers(work, None)
    found: dict[int, list[dict[str, float]]] = {1: [], 2: []}
    try:
        sides = {count: Pinned(brokers, count, options.tree and options.tree.absolute()) for count in found}
        clients = Clients(work)
        for side in sides.values():
            clients.ask(side, options.requests // 4)
        for number in range(options.rounds):
            for count in (1, 2) if number % 2 else (2, 1):
                figures = clients.ask(sides[count], options.requests)
                found[count].append(figures)
                said = "  ".join(f"{what}={value:.4g}" for what, value in figures.items())
                print(f"round {number + 1}  {count} worker(s)  {said}", file=sys.stderr, flush=True)
    finally:
        brokers.stop_all()
        shutil.rmtree(work, ignore_errors=True)
    print(table(found))
    print(f"\n{json.dumps(readings.machine())}")
    return 0


def table(found: dict[int, list[dict[str, float]]]) -> str:
    lines = ["| | one worker | two workers | two / one |", "|---|--:|--:|--:|"]
    for what in ("requests/s", "CPU us", "p99 us"):
        one, two = ([figures[what] for figures in found[count]] for count in (1, 2))
        ratios = [second / first for first, second in zip(one, two, strict=True)]
        cells = [readings.spread(one, ".1f"), readings.spread(two, ".1f"), readings.spread(ratios, ".2f")]
        lines.append(f"| {what} | {' | '.join(cells)} |")
        assert statistics.median(ratios) > 0
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
