"""`make extremes`, which is `python -m tests.extremes`: what the most that a client may send does to all others.

Each extreme has a broker of its own. It is run several times, and the run whose longest turn of the loop was the
shortest counts. The table goes to docs/longest-turns.md if all of them are run.
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peer import ROOT
from benchmarks.readings import machine
from benchmarks.report import as_markdown
from tests.extremes import control, records, remoting, restarts
from tests.extremes.registry import EXTREMES
from tests.extremes.world import Measured, measure
from tests.fuzz.peer import ClosedError

PAGE = ROOT / "docs" / "longest-turns.md"
RUNS = 10
GOAL_S = 0.020
CATALOGUE = (records, control, remoting, restarts)
"""Their modules, which fill EXTREMES."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.extremes", description=__doc__)
    parser.add_argument("--only", metavar="REGEX", default="", help="extremes whose name it finds")
    parser.add_argument("--runs", type=int, default=RUNS, metavar="N", help=f"of each (default {RUNS})")
    parser.add_argument(
        "--page", type=Path, help="where the table goes (default: docs/longest-turns.md, if all are run)"
    )
    parser.add_argument("--list", action="store_true", help="say what there is, and do nothing")
    options = parser.parse_args()
    wanted = [each for each in EXTREMES.values() if re.search(options.only, each.name)]
    if options.list:
        for extreme in wanted:
            print(f"{extreme.name:28} {extreme.area}: {extreme.what}")
        return 0
    found, failed = [], []
    for extreme in wanted:
        with tempfile.TemporaryDirectory(prefix="extreme-") as folder:
            try:
                one = measure(extreme, options.runs, Path(folder))
            except (AssertionError, OSError, ClosedError) as error:
                failed.append(extreme.name)
                print(f"{extreme.name:28} failed: {error!r}", flush=True)
                continue
        found.append(one)
        print(
            f"{extreme.name:28} {one.best.cpu_s * 1000:7.1f} ms of CPU, {one.best.wall_s * 1000:7.1f} ms: "
            f"{one.best.cause or 'no turn of 2 ms':20} a witness waited {one.waited_s * 1000:7.1f} ms",
            flush=True,
        )
    page = options.page or (PAGE if len(wanted) == len(EXTREMES) and not failed and options.runs >= RUNS else None)
    if page is not None and found:
        page.write_text(text(found, options.runs) + "\n")
        print(f"written: {page}")
    return 1 if failed else 0


def text(found: Sequence[Measured], runs: int) -> str:
    """The page."""
    rows = [["what a client sends", "CPU, ms", "clock, ms", "cause", "witness, ms"]]
    area = ""
    for one in found:
        if one.extreme.area != area:
            area = one.extreme.area
            rows.append([f"**{area}**", "", "", "", ""])
        over = one.best.cpu_s > GOAL_S
        cpu = f"{one.best.cpu_s * 1000:.1f}" if one.best.cause else "< 2"
        rows.append([
            one.extreme.what, f"**{cpu}**" if over else cpu, f"{one.best.wall_s * 1000:.1f}" if one.best.cause else "",
            f"`{one.best.cause}`" if one.best.cause else "", f"{one.waited_s * 1000:.1f}",
        ])  # fmt: skip
    within = sum(one.best.cpu_s <= GOAL_S for one in found)
    about = ", ".join(f"{name} {value}" for name, value in machine().items())
    return "\n\n".join([
        "# The longest turns",
        "Written by `make extremes`. While the loop does one thing, all clients wait. Here clients send the most that "
        f"broker.yaml lets them. The goal: no turn of the loop uses more than {GOAL_S * 1000:.0f} ms of its thread's "
        f"CPU. {within} of {len(found)} are within it.",
        as_markdown(rows),
        "`CPU` and `clock`: the longest turn, by [its metric](metrics.md#turns-of-the-loop), and what caused it. "
        "`witness`: the longest that another client waited for an answer. It produces a record, fetches it, over and "
        f"over, in a process of its own. Each extreme has a broker of its own and is run {runs} times. The best of the "
        "runs counts, since other work on the machine only adds. CPU times may be up to 2 ms too large.",
        f"Measured on {datetime.date.today()}; {about}.",
    ])  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
