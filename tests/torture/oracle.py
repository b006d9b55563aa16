"""What is held against the clients' notes once the faults are over: everything is worked off, read back and compared.

It knows clients, and nothing of the processes that serve them but how they are reached.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from halfmoon.kafka_wire.messages import REQUESTS
from halfmoon.testing.admin_socket import AdminSocket
from tests.torture import histories
from tests.torture.crew import PATIENT, Crew
from tests.torture.reading_back import Stored, read_back
from tests.torture.worker import HALVES, JOBS, RESULTS, decision
from tests.torture.workers.roles import ACCOUNTS, LATER, PLAIN, RETRIES, ROCKET, TOPICS, wants

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
SETTLES_S = 60.0
POLL_S = 0.5
NEVER = ("OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID", "INVALID_TXN_STATE")
"""What no client is told that keeps the rules, whoever dies: it says that something was forgotten."""
GROUPS = ("readers", "shared", "pipeline", "billing")
"""Those that read JOBS and commit offsets."""
DESCRIBE_SHARE_OFFSETS = 90

T = TypeVar("T")


def overslept_s() -> float:
    """Sleeps POLL_S. By how much longer it took, if that was POLL_S or more."""
    before_s = time.monotonic()
    time.sleep(POLL_S)
    late_s = time.monotonic() - before_s - POLL_S
    return late_s if late_s >= POLL_S else 0.0


class Oracle:
    def __init__(
        self,
        crew: Crew,
        servers: str,
        admin_sockets: Callable[[], list[Path]],
        senders: Mapping[str, str] | None = None,
        on_late: Callable[[], None] = lambda: None,
    ) -> None:
        """`servers`: for clients. `admin_sockets`: of the processes that run. `senders`: further idempotent producers,
        by role, and the topic of each. `on_late`: called where something has not come about in time."""
        self._on_late = on_late
        self._crew = crew
        self._servers = servers
        self._admin_sockets = admin_sockets
        self._senders = dict(senders or {})
        self._topics = dict(TOPICS)
        self._admins: list[AdminClient] = []
        """They are kept: librdkafka 2.16 may crash where one goes that waits for answers."""
        self.admin = self._new_admin()
        self.violations: list[str] = []
        self._seen = ""
        """What the condition that is waited for has seen last."""

    def renew(self) -> None:
        """The broker was begun anew."""
        self.admin = self._new_admin()

    def _new_admin(self) -> AdminClient:
        made = AdminClient({"bootstrap.servers": self._servers, **PATIENT})
        self._admins.append(made)
        return made

    def make_topics(self, more: Mapping[str, int], configs: Mapping[str, Mapping[str, str]], replicas: int = 1) -> None:
        """`more`: than all roles use; numbers of partitions. `configs`: by topic. `replicas`: of each partition; where
        there are several, consumers read from the one in their rack."""
        self._topics |= more
        topics = [
            NewTopic(name, count, replicas, config=dict(configs.get(name, {}))) for name, count in self._topics.items()
        ]
        for future in self.admin.create_topics(topics, operation_timeout=30, request_timeout=30).values():
            future.result(30)

    def is_warm(self) -> bool:
        return sum(what[0] == "acked" for _, what in self._crew.history("feed")) >= WARM

    def found(self, wrong: list[str]) -> None:
        self.violations += wrong

    def settle(self) -> tuple[dict[str, Stored], dict[str, dict[int, int]]]:
        """No more faults: what was sent is worked off, and compared. Returns what is stored, by isolation level, and
        the groups' offsets."""
        self._crew.revive()
        self._end(*SOURCES, *self._senders)
        jobs = read_back(self._servers, {JOBS: TOPICS[JOBS]})[JOBS]
        for what, is_done in self._works(jobs).items():
            self.wait(is_done, what)
        self._end()
        self.wait(lambda: not histories.check_ends(self._ends()), "no transaction is open")
        everything, offsets = self._read(), self._committed()
        self._compare(everything)
        return everything, offsets

    def compare_again(
        self, name: str, everything: Mapping[str, Stored], offsets: Mapping[str, Mapping[int, int]]
    ) -> None:
        """After another start: it is what it was."""
        again = self._read()
        for isolation, stored in everything.items():
            self.found(histories.check_same(f"{isolation}, {name}", stored, again[isolation]))
        self.found(histories.check_ends(self._ends()))
        if self._committed() != offsets:
            self.violations.append(f"{name}: committed offsets are not what they were")

    def look_at_errors(self) -> dict[str, int]:
        """Why clients ended by themselves."""
        errors = self._crew.errors()
        self.found([f"{errors[code]} clients ended with the error: {code}" for code in NEVER if code in errors])
        return errors

    def _end(self, *roles: str) -> None:
        late = self._crew.end(*roles)
        if late:
            self.violations.append(f"{late} do not end")
            self._on_late()

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """What is not true within SETTLES_S is a violation. Time in which this process did not come to run does not
        count: the machine had more to do than it can."""
        until_s = time.monotonic() + SETTLES_S
        release_s = until_s - SETTLES_S / 2
        self._seen = ""
        while not condition():
            if time.monotonic() > release_s:
                release_s = until_s
                if self._crew.kill_stuck():  # others follow them, and have all of the time
                    release_s = until_s = time.monotonic() + SETTLES_S
            if time.monotonic() > until_s:
                self.violations.append(f"not within {SETTLES_S} s: {what}{self._seen}")
                self._on_late()
                return
            self._crew.revive()
            away_s = overslept_s()
            until_s += away_s
            release_s += away_s

    def _works(self, jobs: list[list[histories.Record]]) -> dict[str, Callable[[], bool]]:
        crew = self._crew
        count, places = sum(map(len, jobs)), histories.places_of(jobs)
        nacks = sum(wants(value) for value in histories.values_of(jobs))
        ends = {index: part[-1].offset + 1 for index, part in enumerate(jobs) if part}

        def stored(topic: str, partitions: int) -> int:
            return sum(map(len, read_back(self._servers, {topic: partitions})[topic]))

        def got(role: str) -> bool:
            found = {(int(what[1]), int(what[2])) for _, what in crew.history(role) if what[0] == "got"}
            return found >= places

        delayed = {what[1] for _, what in crew.history("later") if what[0] == "acked"}
        halves = {
            what[1] for _, what in crew.history("outbox")
            if what[0] == "prepared" and decision(what[1]) == "commit"
        }  # fmt: skip

        def shared() -> bool:
            found = self._share_offsets()
            self._seen = f"; it is at {found}, which end at {ends}"
            return found == ends

        def taken() -> bool:
            """Also what is there although its producer heard of no success."""
            found = {what[1] for _, what in crew.history("rtake") if what[0] == "took"}
            return found >= set(histories.values_of(read_back(self._servers, {ROCKET: TOPICS[ROCKET]})[ROCKET]))

        return {
            "RocketMQ's consumers have taken all": taken,
            "each job has a result": lambda: stored(RESULTS, TOPICS[RESULTS]) >= count,
            "the classic group has read all": lambda: got("read"),
            "the consumer group has read all": lambda: got("shared"),
            "the share group is at the end": shared,
            "delays are over": lambda: stored(LATER, TOPICS[LATER]) >= len(delayed),
            "half messages are delivered": lambda: stored(HALVES, TOPICS[HALVES]) >= len(halves),
            "nacked jobs are redelivered": lambda: stored(RETRIES, self._partitions(RETRIES)) >= nacks,
        }

    def _partitions(self, topic: str) -> int:
        return len(self.admin.list_topics(topic, timeout=30).topics[topic].partitions)

    def _share_offsets(self) -> dict[int, int]:
        """By partition of JOBS, up to where everything is settled; of those whose owners tell it now."""
        found: dict[int, int] = {}
        for path in self._admin_sockets():
            socket = AdminSocket(path)
            request = REQUESTS[DESCRIBE_SHARE_OFFSETS]
            topic = request.DescribeShareGroupOffsetsRequestTopic(topic_name=JOBS, partitions=list(range(TOPICS[JOBS])))
            group = request.DescribeShareGroupOffsetsRequestGroup(group_id="sharers", topics=[topic])
            try:
                answer = socket.ask(DESCRIBE_SHARE_OFFSETS, groups=[group])
            except ConnectionError:  # a shard is just moving
                continue
            for told in answer.groups:
                for each in told.topics:
                    for partition in each.partitions:
                        if partition.error_code == 0 and partition.start_offset >= 0:
                            found[partition.partition_index] = partition.start_offset
        return found

    def _all_topics(self) -> dict[str, int]:
        return self._topics | {RETRIES: self._partitions(RETRIES)}

    def _read(self) -> dict[str, Stored]:
        topics = self._all_topics()
        return {each: read_back(self._servers, topics, each) for each in ("read_committed", "read_uncommitted")}

    def _ends(self) -> dict[tuple[str, int], tuple[int, int]]:
        """By partition, high watermark and last stable offset."""
        places = [TopicPartition(topic, n) for topic, count in self._all_topics().items() for n in range(count)]
        found: list[dict[tuple[str, int], int]] = []
        for level in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED):
            found.append(self._asked(partial(_ends_of, places, level)))
        return {place: (high, found[1][place]) for place, high in found[0].items()}

    def _asked(self, ask: Callable[[AdminClient], T]) -> T:
        """Partitions and coordinators may be just moving."""
        until_s = time.monotonic() + SETTLES_S
        while True:
            try:
                return ask(self.admin)
            except (KafkaException, TimeoutError):
                if time.monotonic() > until_s:
                    raise
                # librdkafka may ask no more where it once heard of no leader, and one that was there before a process's
                # death has older leader epochs, and does not look. Each costs five threads from now on.
                self.admin = self._new_admin()
                time.sleep(0.2)

    def _committed(self) -> dict[str, dict[int, int]]:
        """Of the groups that read JOBS."""
        return {group: self._asked(partial(_offsets_of, group)) for group in GROUPS}

    def _compare(self, everything: dict[str, Stored]) -> None:
        seen, all_of = everything["read_committed"], everything["read_uncommitted"]
        histories_of = {role: self._crew.history(role) for role in (*COPIES, *ROCKETMQ, *self._senders)}
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
        for role, topic in self._senders.items():
            checks[role] = histories.check_sent(histories_of[role], all_of[topic])
        for name, wrong in checks.items():
            self.found([f"{name}: {each}" for each in wrong])
        for topic, parts in all_of.items():
            self.found([f"{topic}: {each}" for each in histories.check_offsets(parts)])
        committed = self._committed()
        for role, group in (("read", "readers"), ("shared", "shared")):
            for index, offset in histories.highest_commits(histories_of[role]).items():
                if committed[group].get(index, 0) < offset:
                    self.violations.append(
                        f"{group}: {offset} of partition {index} was committed, it is {committed[group].get(index)}"
                    )


def _ends_of(places: list[TopicPartition], level: IsolationLevel, admin: AdminClient) -> dict[tuple[str, int], int]:
    asked = admin.list_offsets({each: OffsetSpec.latest() for each in places}, isolation_level=level)
    return {(each.topic, each.partition): future.result(10).offset for each, future in asked.items()}


def _offsets_of(group: str, admin: AdminClient) -> dict[int, int]:
    """Committed, by partition of JOBS."""
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    places = asked[group].result(10).topic_partitions or []
    return {each.partition: each.offset for each in places if each.topic == JOBS}
