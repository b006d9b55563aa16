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
from benchmarks.bench import Bench, CellError
from benchmarks.brokers import Brokers
from benchmarks.cells import CELLS
from benchmarks.peer import ROOT, Peer, PeerError
from benchmarks.rocketmq_peer import RocketmqPeer
from benchmarks.runner import run, start_brokers, warm_up

PAGE = ROOT / "docs" / "performance.md"
JSON = ROOT / "out" / "benchmark.json"
QUICK_SCALE = 0.04


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Speed, beside Kafka and RocketMQ.")
    add = parser.add_argument
    add("--kafka-peer", metavar="SCRIPT", help="runs a Kafka (else $KAFKA_PEER, else looked for beside the repository)")
    add("--no-kafka", action="store_true", help="measure without Kafka")
    add("--rocketmq-peer", metavar="FOLDER", help="runs a RocketMQ (else $ROCKETMQ_PEER, else beside the repository)")
    add("--no-rocketmq", action="store_true", help="measure without RocketMQ, and not by its clients")
    add("--only", metavar="REGEX", default="", help="cells whose name it finds")
    add("--repeat", type=int, metavar="N", help="times that each cell is run (default 3; quick: 1)")
    add("--quick", action="store_true", help="everything once and small: a smoke test, figures mean little")
    add("--scale", type=float, metavar="F", help="part of the full amounts of work (default 1)")
    add("--retained-batches", type=int, default=20_000_000, metavar="N", help="for `retained` (default 20000000)")
    add("--cell-limit", type=float, default=180.0, metavar="S", help="a cell that takes longer fails (default 180 s)")
    add("--page", type=Path, help="where the page goes (default: docs/performance.md, by a full run beside Kafka)")
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
    add("--list", action="store_true", help="say what is measured, and do nothing")
    return parser.parse_args(given)


def say(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    options = arguments()
    cells = [cell for cell in CELLS if re.search(options.only, cell.name)]
    if options.list:
        for cell in cells:
            say(f"{cell.name:12} {cell.title}")
        return 0
    if options.again:
        page = options.page or PAGE
        write_page(
            page, report.page(*report.together([report.read_json(path, CELLS) for path in options.again], CELLS))
        )
        say(f"written: {page}")
        return 0
    if not cells:
        say(f"no cell's name matches {options.only!r}")
        return 2
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
        brokers = Brokers(work, peer, rocketmq)
        scale = options.scale if options.scale is not None else QUICK_SCALE if options.quick else 1.0
        bench = Bench(brokers, peer, rocketmq, work, scale, options.cell_limit, options.retained_batches)
        if options.leave_mb and not options.quick:
            say("taking the memory that is not needed (--leave-mb)")
            bench.ballast = ballast = readings.Ballast(work, options.leave_mb)
            ballast.fill()
        repeat = options.repeat or (1 if options.quick else 3)
        running = start_brokers(bench, say)
        warm_up(bench, running, say)
        results = run(bench, running, cells, repeat, say)
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
        repeat=repeat, scale=scale, kafka_version=peer.kafka_version() if peer else None,
        rocketmq_version=rocketmq.version() if rocketmq else None, cells=cells,
    )  # fmt: skip
    report.write_json(options.json, about, results)
    say("")
    say(report.as_text(report.table(results.medians())))
    whole = peer is not None and rocketmq is not None and scale >= 1 and len(cells) == len(CELLS)
    page = options.page or (PAGE if whole else None)
    if page is not None:
        write_page(page, report.page(about, results))
    say(f"\nwritten: {options.json}" + (f", {page}" if page else ""))
    return 1 if results.errors else 0


def write_page(path: Path, text: str) -> None:
    """In place of an earlier run's; what `make extremes` has written stays."""
    path.write_text(report.keep_section(text, path.read_text() if path.exists() else ""))


def _command() -> str:
    words = sys.argv[1:]
    return "make bench" + (f" ARGS='{' '.join(words)}'" if words else "")


if __name__ == "__main__":
    sys.exit(main())
