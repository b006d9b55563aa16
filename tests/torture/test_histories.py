"""kill −9 of the broker and of its clients, and what their histories say (`make torture`).

Each client writes down what it was told (worker.py). Read-process-write: a result for each job, once. A group: nobody
begins before what was committed, and nothing is passed over. A share group: what was accepted is given to nobody again,
and all is accepted in the end. Half messages: delivered once if their commit was answered, never if their rollback was.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.chance import seeded
from tests.crash.load import QUICK
from tests.crash.serving import Serving, wait_until
from tests.torture.worker import HALVES, JOBS, PARTITIONS, RESULTS

pytestmark = [pytest.mark.torture, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
KILLS = 40
EVERY_S = (0.2, 2.5)
COPIES = {"feed": 1, "pipe": 2, "read": 2, "share": 2, "outbox": 1}
SETTLES_S = 240.0


class Crew:
    """The clients. Whoever is killed is followed by another one of the same role and transactional id."""

    def __init__(self, servers: str, folder: Path) -> None:
        self._servers = servers
        self._folder = folder
        self._count = 0
        self.roles: list[tuple[str, str]] = [
            (role, f"{role}-{n}") for role, count in COPIES.items() for n in range(count)
        ]
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, role: str, place: str) -> None:
        self._count += 1
        # A transactional id stays with its place, so that the next one ends what the killed one has left open.
        name = place if role == "pipe" else f"{place}-{self._count}"
        command = [sys.executable, "-m", "tests.torture.worker", role, self._servers, name]
        with (self._folder / "errors").open("ab") as errors:
            self._running[place] = subprocess.Popen(
                [*command, str(self._folder / f"{role}.history")], cwd=ROOT, stdin=subprocess.PIPE, stderr=errors
            )

    def kill(self, place: str) -> None:
        process = self._running.pop(place)
        process.kill()
        process.communicate()

    def revive(self) -> None:
        """A client may have given up by itself: it was fenced, or the broker was away for too long."""
        for role, place in self.roles:
            if place not in self._running or self._running[place].poll() is not None:
                if place in self._running:
                    self._running.pop(place).communicate()
                self.start(role, place)

    def end(self, *roles: str) -> None:
        """Those of some roles; of all, where none is named."""
        for role, place in self.roles:
            if place in self._running and (not roles or role in roles):
                process = self._running.pop(place)
                try:
                    process.communicate(timeout=90)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.communicate()
        self.roles = [each for each in self.roles if roles and each[0] not in roles]

    def history(self, role: str) -> list[tuple[int, list[str]]]:
        path = self._folder / f"{role}.history"
        lines = path.read_text().splitlines() if path.exists() else []
        return sorted((int(line.split()[0]), line.split()[1:]) for line in lines)


def stored(servers: str, topic: str) -> list[list[tuple[int, str]]]:
    """By partition, offsets and values of what readers of committed records get."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers, "group.id": "check", "enable.auto.commit": False,
            "enable.partition.eof": True, "isolation.level": "read_committed", **QUICK,
        }
    )  # fmt: skip
    found: list[list[tuple[int, str]]] = [[] for _ in range(PARTITIONS)]
    ended: set[int] = set()
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
    until_s = time.monotonic() + 60
    while len(ended) < PARTITIONS:
        assert time.monotonic() < until_s, f"{topic} is not read to its end"
        for message in consumer.consume(1_000, 0.2):
            if message.error() is not None:
                ended.add(message.partition() or 0)
            else:
                found[message.partition() or 0].append((message.offset() or 0, (message.value() or b"").decode()))
    consumer.close()
    return found


def test_histories(tmp_path: Path) -> None:
    dice = seeded()
    serving = Serving(
        tmp_path, log_flush="sync", groups_share_auto_offset_reset="earliest", groups_share_record_lock_duration="3s",
        groups_share_delivery_count_limit="10", plugins_transaction_timeout="600s",
    )  # fmt: skip
    serving.start()
    admin = AdminClient({"bootstrap.servers": serving.address, **QUICK})
    topics = [NewTopic(name, PARTITIONS, 1) for name in (JOBS, RESULTS, HALVES)]
    for future in admin.create_topics([*topics, NewTopic("halfmoon.transactions", 1, 1)]).values():
        future.result(30)
    crew = Crew(serving.address, tmp_path)
    try:
        crew.revive()
        time.sleep(3)
        for _ in range(KILLS):
            time.sleep(dice.uniform(*EVERY_S))
            if dice.random() < 0.3:
                serving.kill()
                time.sleep(dice.uniform(0, 0.5))
                serving.start()
            else:
                crew.kill(dice.choice(crew.roles)[1])
            crew.revive()
        crew.end("feed", "outbox")
        jobs = stored(serving.address, JOBS)
        count = sum(map(len, jobs))

        def is_over() -> bool:
            crew.revive()
            accepted = {tuple(what[1:3]) for _, what in crew.history("share") if what[0] == "accepted"}
            got = {tuple(what[1:3]) for _, what in crew.history("read") if what[0] == "got"}
            return min(len(accepted), len(got), sum(map(len, stored(serving.address, RESULTS)))) >= count

        try:
            wait_until(is_over, SETTLES_S, "all jobs are done")
        except AssertionError:
            pass  # the checks below say what is missing
        crew.end()
        check_jobs(crew, jobs)
        check_pipeline(jobs, stored(serving.address, RESULTS))
        check_readers(crew, jobs)
        check_share(crew, jobs)
        check_halves(crew, [value for part in stored(serving.address, HALVES) for _, value in part])
    finally:
        crew.end()
        serving.stop()
    print(f"{count} jobs, {KILLS} kills")


def check_jobs(crew: Crew, jobs: list[list[tuple[int, str]]]) -> None:
    there = Counter(value for part in jobs for _, value in part)
    assert not [value for value, count in there.items() if count > 1], "a job is stored twice"
    acked = {what[1] for _, what in crew.history("feed") if what[0] == "acked"}
    assert acked <= set(there), "an acknowledged job is lost"
    assert len(acked) > 500


def check_pipeline(jobs: list[list[tuple[int, str]]], results: list[list[tuple[int, str]]]) -> None:
    for index in range(PARTITIONS):
        assert [value for _, value in results[index]] == [value for _, value in jobs[index]], f"partition {index}"


def check_readers(crew: Crew, jobs: list[list[tuple[int, str]]]) -> None:
    committed: dict[str, list[tuple[int, int]]] = defaultdict(list)
    got: dict[str, set[int]] = defaultdict(set)
    begun = []
    for at_ns, what in crew.history("read"):
        if what[0] == "committed":
            committed[what[1]].append((at_ns, int(what[2])))
        elif what[0] == "got":
            got[what[1]].add(int(what[2]))
        elif what[0] == "begins":
            begun.append((what[1], int(what[2]), int(what[3])))
    for partition, offset, asked_ns in begun:
        before = max((each for at_ns, each in committed[partition] if at_ns < asked_ns), default=0)
        assert offset >= before, f"partition {partition} begins at {offset}, {before} was committed"
    for index, part in enumerate(jobs):
        assert got[str(index)] >= {offset for offset, _ in part}, f"partition {index}: a job was passed over"


def check_share(crew: Crew, jobs: list[list[tuple[int, str]]]) -> None:
    accepted: dict[tuple[str, str], int] = {}
    given = []
    for at_ns, what in crew.history("share"):
        place = what[1], what[2] if len(what) > 2 else ""
        if what[0] == "accepted":
            accepted.setdefault(place, at_ns)
        elif what[0] == "given":
            given.append((place, int(what[3])))
    for place, asked_ns in given:
        assert asked_ns < accepted.get(place, asked_ns + 1), f"{place} was accepted, and given out again"
    missing = {(str(index), str(offset)) for index, part in enumerate(jobs) for offset, _ in part} - set(accepted)
    # Of what was accepted by somebody who was killed before hearing of it, nobody knows.
    assert missing <= {place for place, _ in given}, "a job was given to nobody"


def check_halves(crew: Crew, delivered: list[str]) -> None:
    found = Counter(delivered)
    history = [what for _, what in crew.history("outbox")]
    committed = {what[2] for what in history if what[:2] == ["decided", "commit"]}
    wanted = {what[2] for what in history if what[:2] == ["decides", "commit"]}
    assert committed <= set(found), "committed, and not delivered"
    assert set(found) <= wanted, "delivered, and not committed"
    assert max(found.values()) == 1
    assert len(committed) > 50
