"""`make bench`, which is `python -m benchmarks`."""

from __future__ import annotations

import argparse
import datetime
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import peer as peers
from benchmarks import readings, report, rocketmq_peer
from benchmarks.bench import Bench, Cell, CellError, TogetherCell
from benchmarks.brokers import BARE, Brokers
from benchmarks.cells import CELLS
from benchmarks.peer import ROOT, Peer, PeerError
from benchmarks.rocketmq_peer import RocketmqPeer
from benchmarks.runner import Results, Wanted, run, start_brokers, warm_up
from benchmarks.targets import GROUPS
from tools import compiled_tree

PAGE = ROOT / "docs" / "performance.md"
PAGE_OF_ALL = ROOT / "docs" / "performance-all.md"
JSON = ROOT / "out" / "benchmark.json"
QUICK_SCALE = 0.04


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Speed, beside Kafka and RocketMQ.")
    add = parser.add_argument
    add("--kafka-peer", metavar="SCRIPT", help="runs a Kafka (else $KAFKA_PEER, else looked for beside the repository)")
    add("--no-kafka", action="store_true", help="measure without Kafka")
    add("--rocketmq-peer", metavar="FOLDER", help="runs a RocketMQ (else $ROCKETMQ_PEER, else beside the repository)")
    add("--no-rocketmq", action="store_true", help="measure without RocketMQ, and not by its clients")
    add("--all", action="store_true", help="all cells, not only those of the rows that a user would ask for")
    add("--only", metavar="REGEX", default="", help="cells whose name it finds, of all")
    add("--rounds", type=int, metavar="N", help="at most so many of each cell (default 5, less of what takes long)")
    add("--quick", action="store_true", help="one round, small: a smoke test, figures mean little")
    add("--scale", type=float, metavar="F", help="part of the full amounts of work (default 1)")
    add("--retained-batches", type=int, default=20_000_000, metavar="N", help="for `retained` (default 20000000)")
    add("--cell-limit", type=float, default=600.0, metavar="S", help="a load that takes longer fails (default 600 s)")
    add("--page", type=Path, help="where the page goes, its pictures beside it (default: docs/, by a full run)")
    add("--json", type=Path, default=JSON, help="where the figures go (default: out/benchmark.json)")
    add("--work-dir", type=Path, default=ROOT / "out", help="for the brokers' data: on the disk to be measured")
    add(
        "--leave-mb",
        type=int,
        default=6144,
        metavar="MB",
        help="hold all other memory, fill this with page cache (0: do not)",
    )
    add(
        "--again",
        type=Path,
        nargs="+",
        metavar="JSON",
        help="write the page from the figures of earlier runs, where the last one's count, and do nothing else",
    )
    add("--pure", action="store_true", help="the broker as Python, not compiled")
    add("--list", action="store_true", help="say what is measured, and do nothing")
    return parser.parse_args(given)


def say(line: str) -> None:
    print(line, flush=True)


def wanted_of(cells: Sequence[Cell | TogetherCell], everything: bool) -> Wanted:
    """What is run: of each cell the brokers that a row needs, or all."""
    if everything:
        return {cell.name: cell.on for cell in cells}
    needed = {pair for group in GROUPS for goal in group.goals if goal.asked for pair in goal.cells()}
    found = {cell.name: [broker for broker in cell.on if (cell.name, broker) in needed] for cell in cells}
    return {name: brokers for name, brokers in found.items() if brokers}


def main() -> int:
    options = arguments()
    everything = options.all or bool(options.only)
    wanted = wanted_of([cell for cell in CELLS if re.search(options.only, cell.name)], everything)
    cells = [cell for cell in CELLS if cell.name in wanted]
    if options.list:
        for cell in cells:
            say(f"{cell.name:15} {cell.title} ({', '.join(wanted[cell.name])})")
        return 0
    if options.again:
        about, results = report.together([report.read_json(path, CELLS) for path in options.again], CELLS)
        _write_page(options.page or (PAGE_OF_ALL if about.everything else PAGE), about, results)
        return 0
    if not cells:
        say(f"no cell's name matches {options.only!r}")
        return 2
    if not options.pure and compiled_tree.main([]):
        return 1
    tree = ROOT if options.pure else ROOT / compiled_tree.FOLDER
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options.work_dir.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="bench-", dir=options.work_dir))
    brokers: Brokers | None = None
    ballast: readings.Ballast | None = None
    try:
        script = None if options.no_kafka else peers.find(options.kafka_peer)
        if script is None:
            say("no peer script (--kafka-peer, KAFKA_PEER): no Kafka is measured, nor anything by Java's tools")
        peer = Peer(script, work) if script else None
        folder = None if options.no_rocketmq else rocketmq_peer.find(options.rocketmq_peer)
        rocketmq = RocketmqPeer(folder, work) if folder else None
        brokers = Brokers(work, peer, rocketmq, tree)
        bench = Bench(
            brokers, peer, rocketmq, work,
            scale=options.scale if options.scale is not None else QUICK_SCALE if options.quick else 1.0,
            cell_limit_s=options.cell_limit, retained_batches=options.retained_batches,
            rounds=1 if options.quick else options.rounds,
        )  # fmt: skip
        if options.leave_mb and not options.quick:
            say("taking the memory that is not needed (--leave-mb)")
            bench.ballast = ballast = readings.Ballast(work, options.leave_mb)
            ballast.fill()
        running = start_brokers(bench, {broker for of_cell in wanted.values() for broker in of_cell}, say)
        warm_up(bench, [broker for broker in running if broker.name != BARE], say)
        results = run(bench, running, cells, wanted, say)
    except (PeerError, CellError, RuntimeError) as error:
        say(f"benchmark: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        if brokers is not None:
            brokers.stop_all()
        if ballast is not None:
            ballast.release()
        shutil.rmtree(work, ignore_errors=True)
    about = report.Run(
        date=datetime.datetime.now().strftime("%Y-%m-%d"), command=_command(), machine=readings.machine(),
        scale=bench.scale, kafka_version=peer.kafka_version() if peer else None,
        rocketmq_version=rocketmq.version() if rocketmq else None, cells=cells, everything=everything,
    )  # fmt: skip
    report.write_json(options.json, about, results)
    say("")
    say(report.text(about, results))
    say(f"\nwritten: {options.json}")
    whole = peer is not None and rocketmq is not None and bench.scale >= 1 and not options.only and not bench.rounds
    page = options.page or ((PAGE_OF_ALL if everything else PAGE) if whole else None)
    if page is not None:
        _write_page(page, about, results)
    return 1 if results.errors else 0


def _write_page(path: Path, about: report.Run, results: Results) -> None:
    pictures = None if about.everything else path.parent / "images"
    path.write_text(report.page(about, results, pictures))
    say(f"written: {path}")


def _command() -> str:
    words = sys.argv[1:]
    return "make bench" + (f" ARGS='{' '.join(words)}'" if words else "")


if __name__ == "__main__":
    sys.exit(main())
