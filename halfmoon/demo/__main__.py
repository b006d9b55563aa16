"""`python -m halfmoon.demo`: the command line, signals and exit codes of the demo.

Exit codes: 0 all went through exactly once · 1 something is wrong, said in one line · 2 wrong arguments ·
128 + signal number when interrupted.

The run has a thread of its own, and the main thread does nothing but wait for it or for a signal. An exception raised
by a signal handler in the middle of the work would not do: Python drops it if it strikes in a finaliser, of which
py4j has many, and Ctrl-C would be lost. So a signal ends the child processes, and the run then ends by itself: whatever
it was doing with them fails, and its own `with` blocks clean up.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from types import FrameType

from rich.console import Console

from halfmoon.demo.children import end_children

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

LOG_WIDTH = 110
"""Columns where nobody watches: rich would take 80, and fold the tables."""

UNWIND_TIMEOUT_S = 30


class Asked:
    """Which signal asked for the end, if one did."""

    def __init__(self) -> None:
        self.signal: int | None = None
        for each in SIGNALS:
            if signal.getsignal(each) is not signal.SIG_IGN:  # nohup's wish
                signal.signal(each, self._on_signal)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.signal = self.signal or number


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    asked = Asked()
    stopping = threading.Event()
    failures: list[str] = []
    worker = threading.Thread(target=_work, args=(options, stopping, failures), name="demo", daemon=True)
    worker.start()
    while worker.is_alive() and asked.signal is None:
        worker.join(0.1)
    if asked.signal is not None:
        stopping.set()
        end_children()
        worker.join(UNWIND_TIMEOUT_S)
        failures = [
            f"interrupted by {signal.Signals(asked.signal).name}; with --data-dir, a later run goes on from here"
        ]
    end_children()
    for failure in failures:
        print(f"halfmoon demo: {' '.join(failure.split())}", file=sys.stderr, flush=True)
    if asked.signal is not None:
        return 128 + asked.signal
    return 1 if failures else 0


def _work(options: argparse.Namespace, stopping: threading.Event, failures: list[str]) -> None:
    """The run; why it failed, if it did, as one line in `failures`."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=LOG_WIDTH)
    try:
        from halfmoon.demo.run import Options, run

        wanted = Options(
            options.data_dir, options.out, options.rows, options.bootstrap_server, options.secure, options.workers
        )
        run(wanted, console, stopping)
    except ImportError as missing:
        failures.append(f"{missing.name} is not installed: pip install 'halfmoon[spark]'")
    except Exception as failed:
        from halfmoon.pipeline.errors import PipelineError

        if isinstance(failed, PipelineError):
            failures.append(str(failed))
        else:
            first = next(iter(str(failed).strip().splitlines()), "")
            failures.append(f"{type(failed).__name__}: {first} (--traceback shows where)")
        if options.traceback:
            traceback.print_exc()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m halfmoon.demo",
        description="336,776 flights of New York 2013 through the broker into Spark: tables and charts under --out.",
    )
    add = parser.add_argument
    add(
        "--data-dir",
        type=Path,
        metavar="D",
        help="keep topics and table here (default: a temporary directory)",
    )
    add("--out", type=Path, default=Path("out"), metavar="DIR", help="where tables and charts go (default: out)")
    add("--rows", type=_positive, metavar="N", help="load only the first N flights (default: all)")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--bootstrap-server", metavar="HOST:PORT", help="use this broker, Kafka or Halfmoon, instead of starting one"
    )
    where.add_argument(
        "--secure", action="store_true", help="TLS, passwords and access rules; users with only the rights they need"
    )
    add("--workers", type=_positive, metavar="N", help="so many broker processes (default: one, alone)")
    add("--traceback", action="store_true", help="on an error, show where it came from")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number


if __name__ == "__main__":
    exit_code = main()
    sys.stdout.flush()
    if exit_code > 128:
        # py4j and pyspark would still try to reach the JVM that has been ended.
        os._exit(exit_code)
    sys.exit(exit_code)
