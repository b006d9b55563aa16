"""The demo against a cluster of three nodes, of which one is killed every ten seconds: `make cluster-demo`.

PostgreSQL and versitygw run as real processes. The demo itself checks that every flight is there once; this says how
often a node was killed meanwhile.
"""

from __future__ import annotations

import argparse
import itertools
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from halfmoon.demo.__main__ import SIGNALS
from halfmoon.errors import StartError
from halfmoon.testing.cluster import ClusterProcesses

NODES = 3
EVERY_S, AWAY_S = 10.0, 3.0


class Killing:
    """Kills one node after the other (SIGKILL), and starts it again."""

    def __init__(self, cluster: ClusterProcesses, every_s: float) -> None:
        self._cluster = cluster
        self._every_s = every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="killing", daemon=True)
        self.kills = 0
        self.problem = ""

    def __enter__(self) -> Killing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        for number in itertools.cycle(self._cluster.nodes):
            if self._ended.wait(self._every_s - AWAY_S):
                return
            node = self._cluster.nodes[number]
            node.kill()
            self.kills += 1
            self._ended.wait(AWAY_S)
            try:
                node.start()
            except (StartError, TimeoutError) as error:
                self.problem = str(error)
                return


def _demo(arguments: list[str]) -> int:
    """Its exit code. In a process of its own: at its end it ends all that it finds started."""
    with subprocess.Popen([sys.executable, "-m", "halfmoon.demo", *arguments]) as child:
        for each in SIGNALS:
            if signal.getsignal(each) is not signal.SIG_IGN:
                signal.signal(each, lambda number, _frame: child.send_signal(number))
        return child.wait()


def main(arguments: list[str]) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="halfmoon.demo.cluster", description=__doc__)
    parser.add_argument("--every", type=float, default=EVERY_S, metavar="SECONDS", help="a node is killed so often")
    own, rest = parser.parse_known_args(arguments)
    with tempfile.TemporaryDirectory(prefix="halfmoon-cluster-", ignore_cleanup_errors=True) as folder:
        print("starting PostgreSQL, an object store and three nodes", flush=True)
        try:
            with ClusterProcesses(Path(folder), NODES) as cluster:
                cluster.wait_until_shared()
                begun_s = time.monotonic()
                with Killing(cluster, own.every) as killing:
                    code = _demo(["--bootstrap-server", cluster.bootstrap, *rest])
                took_s = time.monotonic() - begun_s
                if killing.problem:
                    print(f"a node could not be started again: {killing.problem}", file=sys.stderr)
                    return 1
        except StartError as error:
            print(f"halfmoon.demo.cluster: {error}", file=sys.stderr)
            return 1
    print(f"killed {killing.kills} times (SIGKILL) in {took_s:.0f} s, one node after the other")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
