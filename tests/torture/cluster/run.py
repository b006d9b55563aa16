"""One seed: three nodes over PostgreSQL and an object store, clients, faults; then what is stored is compared with what
the clients noted.

The same seed makes the same schedule. Moments differ, since the machine has a part in them.
"""

from __future__ import annotations

import contextlib
import random
import re
import signal
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from msgspec import Struct

from halfmoon.errors import StartError
from halfmoon.schema import control
from halfmoon.schema.durability import DURABILITY, OBJECT
from halfmoon.testing.object_store import BUCKET
from tests.crash.load import QUICK
from tests.crash.serving import wait_until
from tests.torture import histories
from tests.torture.cluster.faults import KINDS, Fault, Faults
from tests.torture.cluster.roles import ROLES, SENDERS, TOPICS
from tests.torture.cluster.serving import NODES, PROGRAM, ServingCluster
from tests.torture.cluster.stored import check_frames, check_logs, check_read
from tests.torture.crew import Crew
from tests.torture.oracle import COPIES, ROCKETMQ, Oracle
from tests.torture.reading_back import Stored
from tests.torture.workers import roles
from tests.torture.workers.figures import operations

MODULE = "tests.torture.cluster.roles"
EVERY_S = (0.3, 3.0)
TURN_S = 0.1
WHOLE_S = 60.0
SETTINGS = {
    "log_index_checkpoint_bytes": "256KiB", "groups_share_auto_offset_reset": "earliest",
    "groups_share_record_lock_duration": "3s", "groups_share_delivery_count_limit": "10",
    "groups_consumer_session_timeout": "6s", "groups_share_session_timeout": "6s",
    "groups_consumer_heartbeat_max": "1s", "groups_share_heartbeat_interval": "1s",
    "groups_initial_rebalance_delay": "0ms",
    "plugins_transaction_timeout": "3s", "plugins_transaction_check_interval": "2s",
    "plugins_transaction_check_max": "1000", "transactions_max_timeout": "60s",
}  # fmt: skip
LOGGED = {
    "refused commits": re.compile(r"event=storage_failed .*shard \d+ (has epoch|is another)"),
    "shards lost": re.compile("event=shard_lost "),
    "shards taken": re.compile("event=shard_taken "),
    "shards given": re.compile("event=shard_given "),
    "calls tried again": re.compile("event=tried_again "),
    "database that lost commits": re.compile("the database has lost commits"),
    "failed commits": re.compile("event=commit_failed "),
    "exceptions": re.compile(r"^Traceback ", re.MULTILINE),
}


NEVER = ("database that lost commits", "failed commits")
"""What no node says, whatever happens: the database and the order of its commits are not what they should be."""


def never(logged: Mapping[str, int]) -> list[str]:
    return [f"nodes tell {logged[what]} times of a {what}" for what in NEVER if logged[what]]


def told_by(logs: Iterable[str]) -> dict[str, int]:
    """How often these say what."""
    counts: Counter[str] = Counter(dict.fromkeys(LOGGED, 0))
    for log in logs:
        counts.update({what: len(found.findall(log)) for what, found in LOGGED.items()})
    return dict(counts)


class Outcome(Struct):
    seed: int
    rocketmq: bool
    violations: list[str]
    seconds: float
    faults: dict[str, int]
    schedule: list[tuple[float, str, tuple[int, ...], float]]
    """When (seconds after the first), what, which nodes, for how long."""
    in_flight: int
    """Faults with records on their way."""
    gave_up: dict[str, int]
    """Why clients ended by themselves."""
    operations: dict[str, int]
    stored: dict[str, int]
    logged: dict[str, int]
    """How often nodes said so."""
    waits_ms: dict[str, list[float]]
    """By kind of fault: the longest time that a record waited which met it."""


class Run:
    def __init__(
        self,
        seed: int,
        seconds: float,
        folder: Path,
        *,
        kinds: Mapping[str, int] = KINDS,
        copies: Mapping[str, int] = COPIES,
        program: Sequence[str] = PROGRAM,
        reopened: Sequence[str] = ("kill", "stop"),
        clocks: Mapping[int, Mapping[str, str]] | None = None,
        rocketmq: bool = False,
        replicas: int = NODES,
    ) -> None:
        """`seconds`: of faults. `kinds`: how often what happens, relatively. `program`: what nodes run. `reopened`: how
        all nodes are ended in the end; after each, they are started and read from once more. `clocks`: of nodes, more
        of the environment. `rocketmq`: its clients, too. `replicas`: of each partition, in a rack each."""
        self.seed = seed
        self._seconds = seconds
        self._kinds = kinds
        self._reopened = reopened
        self._replicas = replicas
        self._folder = folder
        self._dice = dice = random.Random(seed)
        segment_bytes = dice.choice(["64KiB", "256KiB", "1MiB"])
        self._objects = {name for name in roles.TOPICS if dice.random() < 0.4}
        self.serving = ServingCluster(
            folder / "cluster",
            program=program,
            clocks=clocks,
            settings={**SETTINGS, "log_segment_bytes": segment_bytes},
            rocketmq=rocketmq,
        )
        self._copies = {**copies, **dict.fromkeys(SENDERS, 1), **(ROCKETMQ if rocketmq else {})}
        self.faults = Faults(self.serving, dice)
        self._violations: list[str] = []

    def play(self) -> Outcome:
        begun_s = time.monotonic()
        everything: Stored = {}
        self._crew: Crew | None = None
        self._oracle: Oracle | None = None
        try:
            with self.serving:
                try:
                    everything = self._play()
                except (AssertionError, KafkaException, OSError):
                    self._describe()
                    raise
                finally:
                    if self._crew is not None:
                        self._crew.end()
        except (AssertionError, KafkaException, OSError, StartError) as error:
            at = " > ".join(frame.name for frame in traceback.extract_tb(error.__traceback__)[-4:])
            self._violations.append(f"{type(error).__name__} in {at}: {str(error)[:500]}")
        crew, oracle = self._crew, self._oracle
        found = {} if crew is None else {role: crew.history(role) for role in ROLES}
        errors = {} if oracle is None else oracle.look_at_errors()
        logged = told_by(map(self.serving.log_of, self.serving.nodes))
        if oracle is not None:
            self._violations += oracle.violations
        self._violations += never(logged)
        done = self.faults.done
        counts = dict(Counter(fault.kind for fault in done))
        if crew is not None:
            counts |= {"client": len(crew.killed), "clients that gave up": crew.gave_up, "clients stuck": crew.stuck}
        first_ns = done[0].at_ns if done else 0
        in_flight, waits = _waits(found.get("feed", []), done)
        return Outcome(
            self.seed, bool(self.serving.namesrv), self._violations, round(time.monotonic() - begun_s, 1), counts,
            [(round((each.at_ns - first_ns) / 1e9, 1), each.kind, each.nodes, each.for_s) for each in done],
            in_flight, errors, operations(found), {topic: sum(map(len, parts)) for topic, parts in everything.items()},
            logged, waits,
        )  # fmt: skip

    def _play(self) -> Stored:
        serving = self.serving
        serving.start_all()
        crew = self._crew = Crew(
            serving.bootstrap, self._folder, self._copies, module=MODULE, named=("pipe", "bank"),
            environment={"NAMESRV_ADDR": serving.namesrv},
        )  # fmt: skip
        oracle = self._oracle = Oracle(crew, serving.bootstrap, serving.admin_sockets, SENDERS, self._describe)
        objects = {name: {DURABILITY: OBJECT} for name in (*self._objects, "seldom-object")}
        oracle.make_topics(TOPICS, objects, self._replicas)
        crew.revive()
        oracle.wait(oracle.is_warm, "clients are served")
        self._strike()
        return self._settle(oracle)

    def _describe(self) -> None:
        """For whoever looks for the reason: who has which shard, what each node tells of it, and what all wait for."""
        lines = []
        if self._crew is not None:
            self._crew.describe()
        for node in self.serving.nodes.values():
            node.signal(signal.SIGUSR2)
        with contextlib.suppress(OSError):
            lines += [f"node {row}" for row in self.serving.tables.ask("select incarnation, number from node")]
            lines += [
                f"shard {row}" for row in self.serving.tables.ask("select shard, epoch, owner from shard order by 1")
            ]
        for number, node in self.serving.nodes.items():
            try:
                told = AdminClient({"bootstrap.servers": node.bootstrap, **QUICK}).list_topics(timeout=5)
            except KafkaException as error:
                lines.append(f"node {number} tells nothing: {error}")
                continue
            for name, topic in told.topics.items():
                leaders = {index: (part.leader, str(part.error)) for index, part in topic.partitions.items()}
                lines.append(f"node {number}, {name}: {leaders}")
        (self._folder / "leaders").write_text("\n".join(lines) + "\n")

    def _strike(self) -> None:
        dice, crew, serving = self._dice, self._crew, self.serving
        assert crew is not None
        until_s = time.monotonic() + self._seconds
        while time.monotonic() < until_s:
            kind = dice.choices(list(self._kinds), list(self._kinds.values()))[0]
            if kind == "client":
                if crew.roles:
                    crew.kill(dice.choice(crew.roles)[1])
            else:
                self.faults.begin(kind)
            next_s = min(until_s, time.monotonic() + dice.uniform(*EVERY_S))
            while time.monotonic() < next_s:
                time.sleep(TURN_S)
                self.faults.turn()
                serving.revive()
                crew.revive()
        self.faults.end()

    def _settle(self, oracle: Oracle) -> Stored:
        serving = self.serving
        wait_until(serving.is_whole, WHOLE_S, "all nodes run, and have all shards")
        everything, offsets = oracle.settle()
        for how in self._reopened:
            if how == "kill":
                serving.kill(serving.running())
            else:
                oracle.found(serving.stop_all())
            serving.start_all()
            oracle.renew()
            oracle.compare_again(f"after {how}", everything, offsets)
        oracle.found(serving.stop_all())
        wrong, logs = check_logs(serving.tables, serving.folder / "store" / BUCKET)
        oracle.found(wrong)
        wrong, batches = check_frames(logs)
        oracle.found(wrong)
        oracle.found(check_read(everything["read_uncommitted"], self._numbers(), batches))
        return everything["read_uncommitted"]

    def _numbers(self) -> dict[str, int]:
        """Topic → its number, as the catalog says it."""
        found = {}
        for _, records in self.serving.catalog():
            for record in map(control.decode, records):
                if isinstance(record, control.TopicCreated):
                    found[record.name] = record.number
        return found


def _waits(lines: Sequence[histories.Line], faults: Sequence[Fault]) -> tuple[int, dict[str, list[float]]]:
    """In how many faults records were on their way; and how long the last of these waited, by kind, ms."""
    sent: dict[str, int] = {}
    took: list[tuple[int, int]] = []
    for at_ns, what in lines:
        if what[0] == "sent":
            sent[what[1]] = at_ns
        elif what[0] == "acked":
            took.append((sent[what[1]], at_ns))
    in_flight, waits = 0, dict[str, list[float]]()
    for fault in faults:
        met = [end_ns - fault.at_ns for sent_ns, end_ns in took if sent_ns < fault.at_ns < end_ns]
        if met:
            in_flight += 1
            waits.setdefault(fault.kind, []).append(round(max(met) / 1e6, 1))
    return in_flight, waits
