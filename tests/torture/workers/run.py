"""One seed: a broker of several workers, clients, faults; then what is stored is compared with what the clients noted.

The same seed makes the same schedule. Moments differ, since the machine has a part in them.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from msgspec import Struct
from msgspec.structs import astuple

from halfmoon.server.workers.plan import FIRST_NODE
from tests.crash.serving import wait_until
from tests.torture import histories
from tests.torture.crew import Crew
from tests.torture.histories import Line
from tests.torture.oracle import COPIES, ROCKETMQ, Oracle
from tests.torture.reading_back import Stored
from tests.torture.worker import JOBS
from tests.torture.workers.figures import Fault, Waits, operations, waits
from tests.torture.workers.roles import ROLES
from tests.torture.workers.serving import MOST_WORKERS, ServingWorkers, pause, send

MODULE = "tests.torture.workers.roles"
EVERY_S = (0.5, 4.0)
WHOLE_S = 60.0
REOPENED = (2, 1, 5)
"""So many workers, one after the other, read everything again in the end."""
AT_THEIR_START = 0.2
"""So many of those who are killed may not be ready yet."""
READY_S = 10.0
"""For so long it is waited for others to be."""
STUMBLES = 0.6
"""So many of those who are killed were paused just before: much has come to them, and they die in the midst of it, …"""
STUMBLES_S = 0.04
"""… after so long at most. Else few die between having stored something and having said so."""
UNANSWERED_S = 0.5
FAULTS = {"kill": 52, "two": 10, "pause": 14, "crash": 4, "restart": 5, "client": 15}
"""How often what happens, of 100."""


class Outcome(Struct):
    seed: int
    flush: str
    rocketmq: bool
    violations: list[str]
    seconds: float
    faults: dict[str, int]
    schedule: list[tuple[float, str, tuple[int, ...], int]]
    """When (seconds after the first), what, which workers, of how many."""
    in_flight: int
    """Kills of a worker that had not answered something."""
    gave_up: dict[str, int]
    """Why clients ended by themselves."""
    operations: dict[str, int]
    stored: dict[str, int]
    killed_ms: list[float]
    others_ms: list[float]


class Run:
    def __init__(
        self,
        seed: int,
        seconds: float,
        folder: Path,
        *,
        kills: int | None = None,
        workers: int = 0,
        rocketmq: bool = False,
        copies: Mapping[str, int] = COPIES,
        reopened: Sequence[int] = REOPENED,
    ) -> None:
        """`seconds`: of faults. `kills`: so many workers are killed, and nothing else happens. `workers`: how many
        there are in the beginning; 0 is by chance. `reopened`: so many, one after the other, read everything again."""
        self.seed = seed
        self._seconds = seconds
        self._reopened = reopened
        self._kills = kills
        self._dice = dice = random.Random(seed)
        self._first = workers or dice.randint(2, 4)
        self.flush = dice.choice(["sync", "interval"])
        self.serving = ServingWorkers(
            folder, rocketmq=rocketmq, log_flush=self.flush, log_segment_bytes=dice.choice(["64KiB", "256KiB", "1MiB"]),
            log_index_checkpoint_bytes="256KiB", groups_share_auto_offset_reset="earliest",
            groups_share_record_lock_duration="3s", groups_share_delivery_count_limit="10",
            groups_consumer_session_timeout="6s", groups_share_session_timeout="6s",
            groups_consumer_heartbeat_max="1s", groups_share_heartbeat_interval="1s",
            plugins_transaction_timeout="3s", plugins_transaction_check_interval="2s",
            plugins_transaction_check_max="1000", transactions_max_timeout="60s",
        )  # fmt: skip
        copies = {**copies, **(ROCKETMQ if rocketmq else {})}
        self.crew = Crew(
            self.serving.address, folder, copies, module=MODULE, named=("pipe", "bank"),
            environment={"NAMESRV_ADDR": self.serving.namesrv},
        )  # fmt: skip
        self.faults: list[Fault] = []
        self.oracle = Oracle(self.crew, self.serving.address, self.serving.admin_sockets)
        self._owners: dict[int, list[int]] = {}
        """Number of workers → by partition of JOBS, whose it is."""

    def play(self) -> Outcome:
        begun_s = time.monotonic()
        everything: Stored = {}
        try:
            self._start(self._first)
            self.oracle.make_topics({}, {})
            self._look_at_owners()
            self.crew.revive()
            self.oracle.wait(self.oracle.is_warm, "clients are served")
            self._strike()
            everything = self._settle()
        except (AssertionError, KafkaException, OSError) as error:
            self.oracle.violations.append(f"{type(error).__name__}: {str(error)[:500]}")
        finally:
            self.crew.end()
            try:
                self.serving.stop()
            except AssertionError as error:
                self.oracle.violations.append(f"it does not stop: {str(error)[-500:]}")
        found = {role: self.crew.history(role) for role in ROLES}
        errors = self.oracle.look_at_errors()
        in_flight = self._in_flight(found["feed"])
        if not in_flight:
            self.oracle.violations.append("no worker was killed with requests in flight: this run has tested nothing")
        waited = waits(found["feed"], self.faults, self._owners) if self._owners else Waits([], [])
        kinds = [fault.kind for fault in self.faults]
        counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
        counts |= {
            "client": len(self.crew.killed),
            "clients that gave up": self.crew.gave_up,
            "clients stuck": self.crew.stuck,
        }
        return Outcome(
            self.seed, self.flush, bool(self.serving.namesrv), self.oracle.violations,
            round(time.monotonic() - begun_s, 1), counts,
            [(round((each.at_ns - self.faults[0].at_ns) / 1e9, 1), *astuple(each)[1:]) for each in self.faults],
            in_flight, errors,
            operations(found), {topic: sum(map(len, parts)) for topic, parts in everything.items()}, waited.killed,
            waited.others,
        )  # fmt: skip

    # -- the broker ----------------------------------------------------------------------------------------------------

    def _start(self, workers: int) -> None:
        self.serving.start_workers(workers)
        self.oracle.renew()

    def _look_at_owners(self) -> None:
        count = self.serving.workers
        if count not in self._owners:
            partitions = self.oracle.admin.list_topics(JOBS, timeout=30).topics[JOBS].partitions
            self._owners[count] = [partitions[index].leader - FIRST_NODE for index in range(len(partitions))]

    # -- faults --------------------------------------------------------------------------------------------------------

    def _strike(self) -> None:
        dice = self._dice
        if self._kills is not None:
            for number in range(self._kills):
                self._kill(1, unanswered=number == 0)
                time.sleep(dice.uniform(*EVERY_S))
                self.crew.revive()
            return
        until_s = time.monotonic() + self._seconds
        while time.monotonic() < until_s:
            kind = dice.choices(list(FAULTS), list(FAULTS.values()))[0]
            if kind in ("kill", "two"):
                self._kill(1 if kind == "kill" else 2)
            elif kind == "pause":
                self._pause()
            elif kind == "client":
                self.crew.kill(dice.choice(self.crew.roles)[1])
            else:
                self._begin_anew(kind)
            time.sleep(dice.uniform(*EVERY_S))
            self.crew.revive()

    def _kill(self, count: int, *, unanswered: bool = False) -> None:
        """`unanswered`: something has come to them before they die, and they have not answered it."""
        serving = self.serving
        look = serving.find if self._dice.random() < AT_THEIR_START else serving.find_ready
        until_s = time.monotonic() + READY_S
        while len(running := look()) < count and time.monotonic() < until_s:
            time.sleep(0.05)
        chosen = self._dice.sample(sorted(running), min(count, len(running)))
        if not chosen:
            return
        if unanswered:
            for worker in chosen:
                send(running[worker], signal.SIGSTOP)
            time.sleep(UNANSWERED_S)
        elif self._dice.random() < STUMBLES:
            pause([running[worker] for worker in chosen], self._dice.uniform(0.2, 0.8))
            time.sleep(self._dice.uniform(0.0, STUMBLES_S))
        self._note("kill", chosen)
        for worker in chosen:
            send(running[worker], signal.SIGKILL)

    def _pause(self) -> None:
        running = self.serving.find()
        if running:
            worker = self._dice.choice(sorted(running))
            self._note("pause", [worker])
            pause([running[worker]], self._dice.uniform(0.5, 3.0))

    def _begin_anew(self, kind: str) -> None:
        """Of all, with another number of workers."""
        count = self._dice.choice([each for each in range(1, MOST_WORKERS + 1) if each != self.serving.workers])
        self._note(kind, range(self.serving.workers))
        if kind == "crash":
            self.serving.kill_all()
        else:
            self.serving.stop()
        self._start(count)
        self._look_at_owners()

    def _note(self, kind: str, workers: object) -> None:
        assert isinstance(workers, list | range)
        self.faults.append(Fault(time.monotonic_ns(), kind, tuple(workers), self.serving.workers))

    def _in_flight(self, lines: list[Line]) -> int:
        found = 0
        for fault in self.faults:
            if fault.kind == "kill":
                owners = self._owners[fault.count]
                struck = [index for index, worker in enumerate(owners) if worker in fault.workers]
                found += bool(histories.hit_in_flight(lines, fault.at_ns, struck))
        return found

    # -- the end -------------------------------------------------------------------------------------------------------

    def _settle(self) -> Stored:
        """No more faults. Returns what is stored."""
        wait_until(self.serving.is_whole, WHOLE_S, "all workers run")
        everything, offsets = self.oracle.settle()
        for count in self._reopened:
            self.serving.stop()
            self._start(count)
            self.oracle.compare_again(f"{count} workers", everything, offsets)
        return everything["read_uncommitted"]
