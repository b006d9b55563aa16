"""docs/torture-cluster.md from what runs came to: `python -m tests.torture.cluster.page RESULTS…`."""

from __future__ import annotations

import argparse
import datetime
import gzip
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks import readings
from tests.torture.cluster.mutated import MUTATIONS
from tests.torture.cluster.run import Outcome
from tests.torture.workers.page import TRIED, failures, named, seeds, table, waits

PAGE = Path(__file__).parents[3] / "docs" / "torture-cluster.md"
RUNS = PAGE.with_suffix(".jsonl.gz")
"""What all the runs came to that the page speaks of."""

FAULTS = {
    "kill": "kill −9 of one node",
    "two": "kill −9 of two nodes at a time",
    "all": "kill −9 of all nodes",
    "pause": "a node stopped for 0.3 to 9 s (SIGSTOP); its lease is 3 s",
    "wake": "a node stopped, and woken just when others had its shards",
    "stop": "a node stopped in order, and started later",
    "database restarted": "PostgreSQL stopped at once (`pg_ctl -m immediate`), and started",
    "database slow": "PostgreSQL slow for one node (60 to 1,200 ms)",
    "database mute": "PostgreSQL does not answer one node",
    "database refuses": "PostgreSQL refuses one node",
    "database answers lost": "PostgreSQL does what one node asks, and its answers are lost",
    "store slow": "the object store slow, for one node or all",
    "store mute": "the object store does not answer",
    "store refuses": "the object store refuses",
    "store answers lost": "the object store stores, and its answers are lost",
    "store down": "the object store killed, and started",
    "deaf": "a node that the others cannot reach",
    "apart": "no node reaches another one",
    "client": "kill −9 of a client",
    "clients stuck": "a client that stood still, by librdkafka's issue 5476, and was killed",
}

ABOUT = """\
# Clusters whose parts fail

Written by `python -m tests.torture.cluster.page RESULTS`; not by hand. `make torture-cluster SEEDS=100` starts one
cluster of three nodes after the other ([cluster.md](cluster.md)), over a PostgreSQL and a versitygw as processes. Each
node reaches the database, the store and the other nodes through a proxy of its own (toxiproxy). Clients of all kinds
note what they ask and what they are told. For half a minute faults come at random, several at a time; the seed says
which and when, how large segments are, and which topics are `object`. Then everything is worked off, read back,
compared with the notes, and read again after all nodes were killed, and once more after they were stopped. The rules
are those of [torture-workers.md](torture-workers.md), and:

- Each node is in a rack of its own, each partition has a replica in each, and consumers are in one of them: two of
  three read from a node that does not lead.
- Two more producers write seldom, to each shard, so that idle shards are among those that move.
- The logs are read past the nodes: pieces follow each other up to the head's end, each piece and file is in its object
  or row with the CRC that was noted, frames follow each other, generations never fall, offsets have no hole, and what
  clients read is there.
- No node says that the database has lost commits.

What each run came to is in [torture-cluster.jsonl.gz](torture-cluster.jsonl.gz), a line of JSON for each.
"""

MUTATED = """\
Does it find anything? `make torture-cluster` first runs nodes from which something was taken
(`tests/torture/cluster/mutated.py`), and a scenario for each that has to find it, and finds nothing with nodes as they
are:
"""
FOUND = {
    "no epoch": "a commit does not compare the epoch: a node that wakes between a takeover and the new owner's first "
    "commit acknowledges; the new owner then says that the database has lost commits",
    "no position": "a commit does not compare where the log ends: one that comes late takes the end back",
    "neither": "both: a node that wakes long after takes the end back, and its records overlap others'",
    "no lock": "the mover of rows into objects compares no epoch, and does not count what it replaces: pieces overlap",
    "acknowledged too soon": "told before the commit: lost with the node",
    "committed anew": "a commit of unknown outcome is made anew with what came meanwhile, instead of the same bytes",
    "not confirmed": "OffsetFetch does not wait for a look at the database: a paused coordinator tells an old offset",
    "not stored": "an object that could not be stored is committed: its pieces are missing",
}


_OVERLOAD = (
    "Late, not lost. The rig's clients took both processors: some 50 of librdkafka tried 20 to 100 times a second to "
    "reach a node that was away. From seed 116000 on they try twice a second."
)
CAUSES = {
    109000: _OVERLOAD,
    110017: _OVERLOAD,
    112004: _OVERLOAD,
    114000: "A link between two nodes stayed dead though it counted as connected: uvloop does not tell of the end of a "
    "connection whose time to connect is over just when TLS is agreed. From seed 116000 on links do without being "
    "told.",
}
"""What failed runs came from, by seed."""


def text(outcomes: Sequence[Outcome], where: str) -> str:
    hours = sum(each.seconds for each in outcomes) / 3600
    failed = [each.seed for each in outcomes if each.violations]
    result = "**none** lost, doubled or out of order" if not failed else f"violations with {seeds(failed)} (below)"
    lines = [
        ABOUT,
        f"{len(outcomes)} runs, {hours:.1f} hours in all, {seeds([each.seed for each in outcomes])}: {result}. "
        f"{sum(each.rocketmq for each in outcomes)} had RocketMQ's clients, too.",
        "",
        *table(("fault", "times"), named(FAULTS, [each.faults for each in outcomes])),
        "",
        f"In {sum(each.in_flight for each in outcomes):,} of them records were on their way. Nodes took "
        f"{_logged(outcomes, 'shards taken')} shards, gave {_logged(outcomes, 'shards given')} away in order, tried "
        f"calls of unknown outcome again {_logged(outcomes, 'calls tried again')} times, and were refused "
        f"{_logged(outcomes, 'refused commits')} commits of shards that they had lost.",
        "",
        *table(("what clients did", "times"), named(TRIED, [each.operations for each in outcomes])),
        "",
        "How long records waited that were on their way when something failed: the longest of each time.",
        "",
        "| | times | median, ms | 90 %, ms | longest, ms |",
        "|---|--:|--:|--:|--:|",
        *(waits(what, [ms for each in outcomes for ms in each.waits_ms.get(kind, ())]) for kind, what in FAULTS.items()
          if "client" not in kind),
        "",
        "Other faults are among the waits: several happen at a time, and clients, nodes, PostgreSQL, versitygw and the "
        "oracle share two processors.",
        "",
        MUTATED,
        *(f"- {FOUND[name][0].upper()}{FOUND[name][1:]}." for name in MUTATIONS),
        "",
        *failures(outcomes, CAUSES),
        f"{where}.",
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def _logged(outcomes: Sequence[Outcome], what: str) -> str:
    return f"{sum(each.logged[what] for each in outcomes):,}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture.cluster.page", description=__doc__)
    parser.add_argument("results", type=Path, nargs="*", help="what `make torture-cluster` has written")
    parser.add_argument("--add", action="store_true", help="to the runs that the page speaks of already")
    parser.add_argument("--page", type=Path, default=PAGE)
    given = parser.parse_args()
    lines = [path.read_bytes() for path in given.results]
    if given.add:
        lines.insert(0, gzip.decompress(RUNS.read_bytes()))
    outcomes = msgspec.json.Decoder(Outcome).decode_lines(b"".join(lines))
    RUNS.write_bytes(gzip.compress(b"".join(lines), mtime=0))
    machine = readings.machine()
    facts = ", ".join(f"{name} {machine[name]}" for name in ("processor", "memory", "system", "Python", "halfmoon"))
    given.page.write_text(text(outcomes, f"Measured on {datetime.date.today()}; {facts}"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
