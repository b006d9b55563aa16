"""One seed: a broker of several workers, clients, faults; then what is stored is compared with what the clients noted.

The same seed makes the same schedule. Moments differ, since the machine has a part in them.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from msgspec import Struct
from msgspec.structs import astuple

from halfmoon.kafka_wire.messages import REQUESTS
from halfmoon.server import admin_socket
from halfmoon.server.workers.plan import FIRST_NODE
from halfmoon.testing.admin_socket import AdminSocket
from tests.crash.load import QUICK
from tests.crash.serving import wait_until
from tests.torture import histories
from tests.torture.crew import Crew
from tests.torture.histories import Line
from tests.torture.reading_back import Stored, read_back
from tests.torture.worker import HALVES, JOBS, RESULTS, decision
from tests.torture.workers.figures import Fault, Waits, operations, waits
from tests.torture.workers.roles import ACCOUNTS, LATER, PLAIN, RETRIES, ROCKET, ROLES, TOPICS, wants
from tests.torture.workers.serving import MOST_WORKERS, ServingWorkers, pause, send

MODULE = "tests.torture.workers.roles"
COPIES = {
    "feed": 1, "plain": 1, "pipe": 2, "bank": 2, "read": 2, "shared": 2, "share": 2, "later": 1, "outbox": 1,
    "answers": 1, "nack": 2,
}  # fmt: skip
ROCKETMQ = {"rsend": 1, "rtake": 2}
"""These come to them where RocketMQ is on."""
SOURCES = ("feed", "plain", "bank", "later", "outbox", "rsend")
"""What they send others work off."""
WARM = 100
"""Faults begin when a producer has had so many answers."""
EVERY_S = (0.5, 4.0)
SETTLES_S = 60.0
WHOLE_S = 60.0
REOPENED = (2, 1, 5)
"""So many workers, one after the other, read everything again in the end."""
NEVER = ("OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID", "INVALID_TXN_STATE")
"""What no client is told that keeps the rules, whoever dies: it says that something was forgotten."""
DESCRIBE_SHARE_OFFSETS = 90
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
        self.violations: list[str] = []
        self._owners: dict[int, list[int]] = {}
        """Number of workers → by partition of JOBS, whose it is."""

    def play(self) -> Outcome:
        begun_s = time.monotonic()
        everything: Stored = {}
        try:
            self._start(self._first)
            self._make_topics()
            self._look_at_owners()
            self.crew.revive()
            self._wait(self._is_warm, "clients are served")
            self._strike()
            everything = self._settle()
        except (AssertionError, KafkaException, OSError) as error:
            self.violations.append(f"{type(error).__name__}: {str(error)[:500]}")
        finally:
            self.crew.end()
            try:
                self.serving.stop()
            except AssertionError as error:
                self.violations.append(f"it does not stop: {str(error)[-500:]}")
        found = {role: self.crew.history(role) for role in ROLES}
        errors = self.crew.errors()
        self._found([f"{errors[code]} clients ended with the error: {code}" for code in NEVER if code in errors])
        in_flight = self._in_flight(found["feed"])
        if not in_flight:
            self.violations.append("no worker was killed with requests in flight: this run has tested nothing")
        waited = waits(found["feed"], self.faults, self._owners) if self._owners else Waits([], [])
        kinds = [fault.kind for fault in self.faults]
        counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
        counts |= {"client": len(self.crew.killed), "clients that gave up": self.crew.gave_up}
        return Outcome(
            self.seed, self.flush, bool(self.serving.namesrv), self.violations, round(time.monotonic() - begun_s, 1),
            counts, [(round((each.at_ns - self.faults[0].at_ns) / 1e9, 1), *astuple(each)[1:]) for each in self.faults],
            in_flight, errors,
            operations(found), {topic: sum(map(len, parts)) for topic, parts in everything.items()}, waited.killed,
            waited.others,
        )  # fmt: skip

    # -- the broker ----------------------------------------------------------------------------------------------------

    def _start(self, workers: int) -> None:
        self.serving.start_workers(workers)
        self._admin = self._new_admin()

    def _new_admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.serving.address, **QUICK})

    def _make_topics(self) -> None:
        topics = [NewTopic(name, count, 1) for name, count in TOPICS.items()]
        for future in self._admin.create_topics(topics).values():
            future.result(30)

    def _look_at_owners(self) -> None:
        count = self.serving.workers
        if count not in self._owners:
            partitions = self._admin.list_topics(JOBS, timeout=30).topics[JOBS].partitions
            self._owners[count] = [partitions[index].leader - FIRST_NODE for index in range(len(partitions))]

    # -- faults --------------------------------------------------------------------------------------------------------

    def _is_warm(self) -> bool:
        return sum(what[0] == "acked" for _, what in self.crew.history("feed")) >= WARM

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
        """No more faults: what was sent is worked off, and compared. Returns what is stored."""
        serving, crew = self.serving, self.crew
        wait_until(serving.is_whole, WHOLE_S, "all workers run")
        crew.revive()
        self._end(*SOURCES)
        jobs = read_back(serving.address, {JOBS: TOPICS[JOBS]})[JOBS]
        for what, is_done in self._works(jobs).items():
            self._wait(is_done, what)
        self._end()
        self._wait(lambda: not histories.check_ends(self._ends()), "no transaction is open")
        everything = self._read()
        offsets = self._committed()
        self._compare(everything)
        for count in self._reopened:
            serving.stop()
            self._start(count)
            again = self._read()
            for isolation, stored in everything.items():
                self._found(histories.check_same(f"{isolation}, {count} workers", stored, again[isolation]))
            self._found(histories.check_ends(self._ends()))
            if self._committed() != offsets:
                self.violations.append(f"{count} workers: committed offsets are not what they were")
        return everything["read_uncommitted"]

    def _end(self, *roles: str) -> None:
        late = self.crew.end(*roles)
        if late:
            self.violations.append(f"{late} do not end")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        until_s = time.monotonic() + SETTLES_S
        while not condition():
            if time.monotonic() > until_s:
                self.violations.append(f"not within {SETTLES_S} s: {what}")
                return
            self.crew.revive()
            time.sleep(0.5)

    def _works(self, jobs: list[list[histories.Record]]) -> dict[str, Callable[[], bool]]:
        crew, serving = self.crew, self.serving
        count, places = sum(map(len, jobs)), histories.places_of(jobs)
        nacks = sum(wants(value) for value in histories.values_of(jobs))
        ends = {index: part[-1].offset + 1 for index, part in enumerate(jobs) if part}

        def stored(topic: str, partitions: int) -> int:
            return sum(map(len, read_back(serving.address, {topic: partitions})[topic]))

        def got(role: str) -> bool:
            found = {(int(what[1]), int(what[2])) for _, what in crew.history(role) if what[0] == "got"}
            return found >= places

        delayed = {what[1] for _, what in crew.history("later") if what[0] == "acked"}
        halves = {
            what[1] for _, what in crew.history("outbox")
            if what[0] == "prepared" and decision(what[1]) == "commit"
        }  # fmt: skip

        def taken() -> bool:
            found = {what[1] for _, what in crew.history("rtake") if what[0] == "took"}
            return found >= {what[1] for _, what in crew.history("rsend") if what[0] == "stored"}

        return {
            "RocketMQ's consumers have taken all": taken,
            "each job has a result": lambda: stored(RESULTS, TOPICS[RESULTS]) >= count,
            "the classic group has read all": lambda: got("read"),
            "the consumer group has read all": lambda: got("shared"),
            "the share group is at the end": lambda: self._share_offsets() == ends,
            "delays are over": lambda: stored(LATER, TOPICS[LATER]) >= len(delayed),
            "half messages are delivered": lambda: stored(HALVES, TOPICS[HALVES]) >= len(halves),
            "nacked jobs have come again": lambda: stored(RETRIES, self._partitions(RETRIES)) >= nacks,
        }

    def _partitions(self, topic: str) -> int:
        return len(self._admin.list_topics(topic, timeout=30).topics[topic].partitions)

    def _share_offsets(self) -> dict[int, int]:
        """By partition of JOBS, up to where everything is settled."""
        found: dict[int, int] = {}
        for worker in range(self.serving.workers):
            socket = AdminSocket(admin_socket.path_of(self.serving.folder / "data", f"worker-{worker}.sock"))
            request = REQUESTS[DESCRIBE_SHARE_OFFSETS]
            topic = request.DescribeShareGroupOffsetsRequestTopic(topic_name=JOBS, partitions=list(range(TOPICS[JOBS])))
            group = request.DescribeShareGroupOffsetsRequestGroup(group_id="sharers", topics=[topic])
            answer = socket.ask(DESCRIBE_SHARE_OFFSETS, groups=[group])
            for told in answer.groups:
                for each in told.topics:
                    for partition in each.partitions:
                        if partition.error_code == 0 and partition.start_offset >= 0:
                            found[partition.partition_index] = partition.start_offset
        return found

    def _all_topics(self) -> dict[str, int]:
        return TOPICS | {RETRIES: self._partitions(RETRIES)}

    def _read(self) -> dict[str, Stored]:
        topics = self._all_topics()
        return {each: read_back(self.serving.address, topics, each) for each in ("read_committed", "read_uncommitted")}

    def _ends(self) -> dict[tuple[str, int], tuple[int, int]]:
        """By partition, high watermark and last stable offset."""
        places = [TopicPartition(topic, n) for topic, count in self._all_topics().items() for n in range(count)]
        found: list[dict[tuple[str, int], int]] = []
        admin = (
            self._new_admin()
        )  # one that was there before a worker's death has older leader epochs, and does not look
        for level in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED):
            asked = admin.list_offsets({each: OffsetSpec.latest() for each in places}, isolation_level=level)
            found.append({(each.topic, each.partition): future.result(30).offset for each, future in asked.items()})
        return {place: (high, found[1][place]) for place, high in found[0].items()}

    def _committed(self) -> dict[str, dict[int, int]]:
        """Of the groups that read JOBS."""
        found = {}
        for group in ("readers", "shared", "pipeline", "billing"):
            asked = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
            places = asked[group].result(30).topic_partitions or []
            found[group] = {each.partition: each.offset for each in places if each.topic == JOBS}
        return found

    def _found(self, wrong: list[str]) -> None:
        self.violations += wrong

    def _compare(self, everything: dict[str, Stored]) -> None:
        seen, all_of = everything["read_committed"], everything["read_uncommitted"]
        histories_of = {role: self.crew.history(role) for role in ROLES}
        checks = {
            "idempotent producers": histories.check_sent(histories_of["feed"], all_of[JOBS]),
            "other producers": histories.check_sent(histories_of["plain"], all_of[PLAIN], once=False),
            "transactions": histories.check_transactions(histories_of["bank"], seen[ACCOUNTS], all_of[ACCOUNTS]),
            "read-process-write": histories.check_pipeline(seen[JOBS], seen[RESULTS]),
            "classic group": histories.check_group(histories_of["read"], all_of[JOBS]),
            "consumer group": histories.check_group(histories_of["shared"], all_of[JOBS]),
            "share group": histories.check_share(histories_of["share"], all_of[JOBS]),
            "delays": histories.check_delays(histories_of["later"], all_of[LATER]),
            "half messages": histories.check_halves(
                sorted([*histories_of["outbox"], *histories_of["answers"]]), all_of[HALVES], decision
            ),
            "RocketMQ": histories.check_taken(sorted([*histories_of["rsend"], *histories_of["rtake"]]), all_of[ROCKET]),
            "nacks": histories.check_nacks(histories_of["nack"], all_of[RETRIES], wants),
        }
        for name, wrong in checks.items():
            self._found([f"{name}: {each}" for each in wrong])
        for topic, parts in all_of.items():
            self._found([f"{topic}: {each}" for each in histories.check_offsets(parts)])
        committed = self._committed()
        for role, group in (("read", "readers"), ("shared", "shared")):
            for index, offset in histories.highest_commits(histories_of[role]).items():
                if committed[group].get(index, 0) < offset:
                    self.violations.append(
                        f"{group}: {offset} of partition {index} was committed, it is {committed[group].get(index)}"
                    )
