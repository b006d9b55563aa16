"""How long the partitions of a killed worker are away, and what others notice: `python -m benchmarks.deaths`.

A broker with two workers has two partitions, one in each, and records in both. Two clients send one small record after
the other, each to its partition. One of the workers is killed −9, again and again. What is measured is the longest time
between two answers around each death: of the client of the dead worker, and of the other.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks import readings
from benchmarks.brokers import INTERVAL, Broker, Brokers
from benchmarks.clients import wire
from benchmarks.peer import ROOT
from benchmarks.workers import TOPIC, leaders, workers_of

WORKERS = 2
BYTES = 100
IN_A_BATCH = 1_000
PAUSE_S = 0.02
"""Between two attempts to connect."""
LIMIT_S = 60.0
AFTER_S = 2.0
"""Between two deaths: the broker starts a worker again at once only if it has run for a second."""


class Client:
    """Sends to one partition until it is told to end."""

    def __init__(self, address: str, partition: int) -> None:
        self._address = address
        self._frame = wire.produce(TOPIC, [(partition, wire.batch(b"x" * BYTES))])
        self._ends = threading.Event()
        self.longest_s = 0.0
        """Between two answers, since `begin`."""
        self.answered_s = time.perf_counter()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def begin(self) -> None:
        self.longest_s = 0.0

    def end(self) -> None:
        self._ends.set()
        self._thread.join(LIMIT_S)

    def _run(self) -> None:
        while not self._ends.is_set():
            try:
                with wire.Connection(self._address) as connection:
                    while not self._ends.is_set():
                        error, _ = wire.produced(connection.ask(self._frame))
                        if not error:
                            now_s = time.perf_counter()
                            self.longest_s = max(self.longest_s, now_s - self.answered_s)
                            self.answered_s = now_s
            except (OSError, ConnectionError):
                time.sleep(PAUSE_S)


def fill(addresses: list[str], records: int) -> None:
    """So many records into each partition."""
    for partition, address in enumerate(addresses):
        frame = wire.produce(TOPIC, [(partition, wire.batch(b"x" * BYTES, min(records, IN_A_BATCH)))])
        with wire.Connection(address) as connection:
            for _ in range(max(1, records // IN_A_BATCH)):
                error, _ = wire.produced(connection.ask(frame))
                assert not error


def deaths(broker: Broker, rounds: int, records: int) -> list[tuple[float, float]]:
    """(ms that the dead worker's partition was away, longest wait at the other one, ms), of each death."""
    addresses = leaders(broker.bootstrap)
    assert len(set(addresses)) == WORKERS, "partitions lie on all workers"
    fill(addresses, records)
    clients = [Client(address, partition) for partition, address in enumerate(addresses)]
    found = []
    try:
        for number in range(rounds):
            time.sleep(AFTER_S)
            for client in clients:
                client.begin()
            killed_s = time.perf_counter()
            os.kill(random.choice(workers_of(broker.pid)), signal.SIGKILL)
            time.sleep(0.1)
            while min(client.answered_s for client in clients) < killed_s + 0.1:
                if time.perf_counter() > killed_s + LIMIT_S:
                    raise TimeoutError("a worker did not come back")
                time.sleep(0.01)
            other, dead = sorted(client.longest_s * 1e3 for client in clients)
            print(f"death {number + 1}: {dead:.0f} ms, others {other:.1f} ms", file=sys.stderr, flush=True)
            found.append((dead, other))
    finally:
        for client in clients:
            client.end()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.deaths", description="What a killed worker costs.")
    parser.add_argument("--rounds", type=int, default=20, help="workers that are killed (default 20)")
    parser.add_argument("--records", type=int, default=1_000_000, help="in each partition before (default 1000000)")
    parser.add_argument("--tree", type=Path, help="where compiled modules are: build/compiled")
    options = parser.parse_args()
    (ROOT / "out").mkdir(exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="deaths-", dir=ROOT / "out"))
    brokers = Brokers(work, None)
    try:
        tree = options.tree and options.tree.absolute()
        broker = brokers.start_halfmoon(INTERVAL, {"HALFMOON_WORKERS_COUNT": str(WORKERS)}, tree=tree)
        found = deaths(broker, options.rounds, options.records)
    finally:
        brokers.stop_all()
        shutil.rmtree(work, ignore_errors=True)
    print(table(found))
    print(f"\n{json.dumps(readings.machine())}")
    return 0


def table(found: list[tuple[float, float]]) -> str:
    dead, other = (readings.spread(values, ".0f") for values in zip(*found, strict=True))
    rows = {"its partitions are back after": dead, "longest wait at the other worker": other}
    return "\n".join(["| | ms |", "|---|--:|", *(f"| {what} | {ms} |" for what, ms in rows.items())])


if __name__ == "__main__":
    sys.exit(main())
