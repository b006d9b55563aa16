"""What access rules cost a producer of single records: `python -m benchmarks.access`.

Three brokers run: one without access rules, one with them (1,000, by which a stranger may produce), and another one
without, whose difference from the first is the noise. They are asked in turn, record by record, another one first in
each round. What counts is the CPU time of the broker's process for each request.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import readings
from benchmarks.bench import Bench
from benchmarks.brokers import INTERVAL, Broker, Brokers
from benchmarks.peer import ROOT

RULES = 1_000
REQUESTS = 20_000
WITHOUT, WITH, CONTROL = "without rules", f"{RULES} rules", "without rules, again"
STRANGER = "User:ANONYMOUS"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.access", description="What access rules cost.")
    parser.add_argument("--rounds", type=int, default=9, help="times that each broker is asked (default 9)")
    parser.add_argument("--requests", type=int, default=REQUESTS, help=f"in each round (default {REQUESTS})")
    options = parser.parse_args()
    (ROOT / "out").mkdir(exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="access-", dir=ROOT / "out"))
    brokers = Brokers(work, None)
    try:
        bench = Bench(brokers, None, None, work)
        sides = {name: started(brokers, name == WITH) for name in (WITHOUT, WITH, CONTROL)}
        found = measured(bench, sides, options.rounds, options.requests)
    finally:
        brokers.stop_all()
        shutil.rmtree(work, ignore_errors=True)
    print(table(found))
    print(f"\n{json.dumps(readings.machine())}")
    return 0


def started(brokers: Brokers, rules: bool) -> Broker:
    broker = brokers.start_halfmoon(INTERVAL, {"HALFMOON_SECURITY_AUTHORIZER": "acl" if rules else "none"})
    if rules:
        add_rules(broker)
    return broker


def add_rules(broker: Broker) -> None:
    """999 for others, and one by which a stranger may do everything with topics."""
    others = [word for number in range(RULES - 1) for word in ("--topic", f"topic-of-others-{number}")]
    for words in (["User:bob", "--operation", "Write", *others], [STRANGER, "--operation", "All", "--topic", "*"]):
        command = [sys.executable, "-m", "halfmoon", "acl", "add", "--allow", *words]
        # The administrator's socket is looked for in the data directory.
        environment = {**os.environ, "HALFMOON_NODE_DATA_DIR": str(broker.data)}
        subprocess.run(command, env=environment, check=True, capture_output=True)


Found = dict[str, list[dict[str, float]]]


def measured(bench: Bench, sides: dict[str, Broker], rounds: int, requests: int) -> Found:
    for broker in sides.values():
        asked(bench, broker, requests // 2)
    found: Found = {name: [] for name in sides}
    names = list(sides)
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            figures = asked(bench, sides[name], requests)
            found[name].append(figures)
            said = "  ".join(f"{what}={value:.4g}" for what, value in figures.items())
            print(f"round {number + 1}  {name:22} {said}", file=sys.stderr, flush=True)
    return found


def asked(bench: Bench, broker: Broker, requests: int) -> dict[str, float]:
    before_s = broker.cpu_s()
    figures = bench.load(broker, "one_by_one", topic=bench.topic("access"), count=requests)
    return {"CPU us": (broker.cpu_s() - before_s) / requests * 1e6, "p50 us": figures["p50_ms"] * 1e3}


def table(found: Found) -> str:
    lines = ["| a request | median (range) of CPU, us | median (range) of p50, us |", "|---|---|---|"]
    for name, rounds in found.items():
        cells = [[figures[what] for figures in rounds] for what in ("CPU us", "p50 us")]
        said = [readings.spread(values, ".1f") for values in cells]
        lines.append(f"| {name} | {' | '.join(said)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
