"""Flink in one JVM: a job that reads a topic and writes another, exactly once, and is killed."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.clients.polling import until
from tests.interop.committed import committed_values
from tests.interop.java_programs import Program, jars, source

MakeTopic = Callable[..., str]
PARTITIONS = 3
RECORDS, RECORDS_A_TRANSACTION = 40_000, 200
RATE_S = 3_000

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


class Written(threading.Thread):
    """Records in transactions, every fourth of which is aborted."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__()
        self._servers, self._topic = servers, topic
        self.values: list[str] = []

    def run(self) -> None:
        producer = Producer({
            "bootstrap.servers": self._servers, "transactional.id": f"{self._topic}-filler", "linger.ms": 2,
        })  # fmt: skip
        producer.init_transactions(30)
        begun, sent = time.monotonic(), 0
        while len(self.values) < RECORDS:
            commit = (sent // RECORDS_A_TRANSACTION) % 4 != 3
            values = [f"r{sent + number}" for number in range(RECORDS_A_TRANSACTION)]
            producer.begin_transaction()
            for number, value in enumerate(values):
                producer.produce(self._topic, value.encode(), partition=number % PARTITIONS)
            producer.flush(30)
            if commit:
                producer.commit_transaction(30)
                self.values += values
            else:
                producer.abort_transaction(30)
            sent += len(values)
            time.sleep(max(0.0, begun + sent / RATE_S - time.monotonic()))


class Job:
    def __init__(self, folder: Path, servers: str, name: str, taken: str, given: str) -> None:
        self.checkpoints = folder / "checkpoints"
        self._folder = folder
        self.topics = taken, given
        self._words = [servers, name, taken, given, str(self.checkpoints)]
        self.program: Program | None = None

    def start(self) -> None:
        last = self.last_checkpoint()
        words = [*self._words, str(last)] if last else self._words
        self.program = Program(
            self._folder, "flink", jars("flink"), source("flink", "Copying.java"), *words, heap_mb=1_024
        )  # fmt: skip
        self.program.says("STARTING", 60)

    def last_checkpoint(self) -> Path | None:
        """The newest that is complete."""
        found = [path.parent for path in self.checkpoints.glob("*/chk-*/_metadata")]
        return max(found, key=lambda path: (path / "_metadata").stat().st_mtime_ns, default=None)

    def kill(self) -> None:
        assert self.program is not None
        self.program.kill()


@pytest.fixture
def job(tmp_path: Path, bootstrap_servers: str, name: str, make_topic: MakeTopic) -> Iterator[Job]:
    made = Job(tmp_path, bootstrap_servers, name, make_topic(PARTITIONS), make_topic(PARTITIONS))
    yield made
    if made.program is not None:
        made.program.kill()


def test_a_job_that_is_killed_copies_each_record_once(job: Job, bootstrap_servers: str) -> None:
    taken, given = job.topics

    def copied() -> list[str]:
        return committed_values(bootstrap_servers, given, PARTITIONS)

    written = Written(bootstrap_servers, taken)
    written.start()
    try:
        job.start()
        until(lambda: len(copied()) > RECORDS // 10 and job.last_checkpoint() is not None, deadline_s=90)
        job.kill()
        job.start()
        written.join()
        until(lambda: len(copied()) >= len(written.values), deadline_s=90)
        time.sleep(2)
        job.kill()
    finally:
        written.join()
    assert Counter(copied()) == Counter(written.values)
