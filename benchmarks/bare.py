"""What a Produce costs beside the least that a loop in Python can do for it: `python -m benchmarks.bare`.

Three servers run: the bare loop (benchmarks/bare_loop.py), a broker as Python and a compiled one (`flush: interval`).
A client in C (benchmarks/clients/c/ask.c, which `cc` compiles) loads them in turn, another one first in each round.
CPU is the server's, user and system. One request at a time a broker also looks for the next without sleeping
(server/eager.py), so its CPU says nothing there. Figures are medians and ranges over the rounds.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks import readings
from benchmarks.brokers import INTERVAL, Brokers
from benchmarks.clients import topics, wire
from benchmarks.peer import ROOT
from tools import compiled_tree

CLIENT = Path(__file__).parent / "clients" / "c" / "ask.c"
BARE, PURE, COMPILED = "bare loop", "pure", "compiled"
VALUES = {"100 B": (b"x" * 100, 1), "16 KB of 100 B": (b"x" * 100, 148), "16 KB of 1 KB": (b"x" * 1_000, 16)}
AT_ONCE = (1, 5)
REQUESTS = 60_000


@dataclass(frozen=True, slots=True)
class Server:
    name: str
    pid: int
    bootstrap: str


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bare", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="times that each load is run (default 5)")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the full amounts of work (default 1)")
    options = parser.parse_args()
    if compiled_tree.main([]):
        return 1
    (ROOT / "out").mkdir(exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="bare-", dir=ROOT / "out"))
    try:
        subprocess.run(["cc", "-O2", "-o", str(work / "ask"), str(CLIENT)], check=True)
        with servers(work) as started:
            found = measured(work, started, options.rounds, int(REQUESTS * options.scale))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(table(found))
    print(f"\n{json.dumps(readings.machine())}")
    return 0


@contextmanager
def servers(work: Path) -> Iterator[list[Server]]:
    brokers = Brokers(work, None)
    bare = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.bare_loop", str(work / "bare")], cwd=ROOT, text=True, stdout=subprocess.PIPE
    )
    try:
        assert bare.stdout is not None
        found = [Server(BARE, bare.pid, bare.stdout.readline().split()[1])]
        for name, tree in ((PURE, ROOT), (COMPILED, ROOT / compiled_tree.FOLDER)):
            broker = brokers.start_halfmoon(INTERVAL, tree=tree)
            topics.create(broker.bootstrap, "bare")
            found.append(Server(name, broker.pid, broker.bootstrap))
        yield found
    finally:
        bare.kill()
        bare.wait()
        brokers.stop_all()


Found = dict[tuple[str, str], list[float]]
"""(server, figure) → a value for each round."""


def measured(work: Path, started: list[Server], rounds: int, requests: int) -> Found:
    found: Found = {}
    for number in range(-1, rounds):
        turn = number % len(started)
        for server in started[turn:] + started[:turn]:
            figures: dict[str, float] = {}
            for what, (value, records) in VALUES.items():
                frame = work / "frame"
                frame.write_bytes(wire.produce("bare", [(0, wire.batch(value, records))]))
                for at_once in AT_ONCE:
                    figures |= loaded(work, server, frame, what, at_once, requests if records == 1 else requests // 4)
            if number < 0:
                continue  # the first round warms what there is to be warmed
            for name, reading in figures.items():
                found.setdefault((server.name, name), []).append(reading)
            said = "  ".join(f"{name}={reading:.4g}" for name, reading in figures.items())
            print(f"round {number + 1}  {server.name:10} {said}", file=sys.stderr, flush=True)
    return found


def loaded(work: Path, server: Server, frame: Path, what: str, at_once: int, requests: int) -> dict[str, float]:
    host, _, port = server.bootstrap.rpartition(":")
    before_s = readings.cpu_s(server.pid)
    said = subprocess.run(
        [str(work / "ask"), host, port, str(frame), str(at_once), str(requests)], check=True, stdout=subprocess.PIPE
    ).stdout
    cpu_us = (readings.cpu_s(server.pid) - before_s) / requests * 1e6
    got = json.loads(said)
    name = f"{what}, {at_once} in the air"
    figures = {f"{name}: requests/s": got["requests_s"], f"{name}: p50 µs": got["p50_us"]}
    return figures | ({f"{name}: CPU µs": cpu_us} if at_once > 1 else {})


def table(found: Found) -> str:
    figures = list(dict.fromkeys(figure for _, figure in found))
    names = (BARE, PURE, COMPILED)
    lines = [f"| median (range) | {' | '.join(names)} | compiled / bare |", "|---|---|---|---|--:|"]
    for figure in figures:
        readings_of = [found[name, figure] for name in names]
        said = [readings.spread(values, ".4g") for values in readings_of]
        ratio = median(readings_of[2]) / median(readings_of[0])
        lines.append(f"| {figure} | {' | '.join(said)} | {ratio:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
