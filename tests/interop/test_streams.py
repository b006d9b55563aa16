"""Kafka Streams: a word count with exactly-once, whose application is killed and comes back."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource

from tests.interop.java_programs import Program, jars, source

MakeTopic = Callable[..., str]
LINES, WORDS_A_LINE, VOCABULARY, LINES_S = 6_000, 5, 60, 400
PARTITIONS = 4
DEADLINE_S = 180.0

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]


class Written(threading.Thread):
    """Lines of words, some hundred a second; what is to be counted."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__()
        self._servers, self._topic = servers, topic
        self.counts: Counter[str] = Counter()

    def run(self) -> None:
        dice = random.Random(17)
        producer = Producer({"bootstrap.servers": self._servers, "enable.idempotence": True, "linger.ms": 5})
        begun = time.monotonic()
        for number in range(LINES):
            words = [f"w{dice.randrange(VOCABULARY)}" for _ in range(WORDS_A_LINE)]
            producer.produce(self._topic, " ".join(words).encode(), partition=number % PARTITIONS)
            producer.poll(0)
            self.counts.update(words)
            time.sleep(max(0.0, begun + number / LINES_S - time.monotonic()))
        assert producer.flush(60) == 0


class Counts:
    """The output as a committed reader sees it: each word's counts in the order of their coming."""

    def __init__(self, servers: str, topic: str) -> None:
        self._consumer = Consumer({
            "bootstrap.servers": servers, "group.id": f"{topic}-readers", "isolation.level": "read_committed",
            "auto.offset.reset": "earliest", "enable.auto.commit": False, "fetch.wait.max.ms": 100,
        })  # fmt: skip
        self._consumer.subscribe([topic])
        self.of: dict[str, list[int]] = defaultdict(list)
        self.total = 0

    def until(self, total: int, deadline_s: float = DEADLINE_S) -> None:
        end = time.monotonic() + deadline_s
        while self.total < total:
            assert time.monotonic() < end, f"{self.total} of {total} counts"
            self.more(1.0)

    def more(self, wait_s: float) -> None:
        for message in self._consumer.consume(1_000, wait_s):
            if message.error() is not None:
                raise KafkaException(message.error())
            self.of[message.key().decode()].append(int(message.value()))
            self.total += 1

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def application(tmp_path: Path, bootstrap_servers: str, name: str, make_topic: MakeTopic) -> Iterator[Application]:
    made = Application(tmp_path, bootstrap_servers, name, make_topic(PARTITIONS), make_topic(PARTITIONS))
    yield made
    if made.program is not None:
        made.program.kill()


class Application:
    def __init__(self, folder: Path, servers: str, name: str, taken: str, given: str) -> None:
        self.servers, self.name, self.input, self.output = servers, name, taken, given
        self.state = folder / "state"
        self.program: Program | None = None
        self._folder = folder

    def start(self) -> None:
        self.program = Program(
            self._folder, "streams", jars("kafka"), source("kafka", "WordCount.java"),
            self.servers, self.name, self.input, self.output, str(self.state),
        )  # fmt: skip
        self.program.says("RUNNING", 120)

    def kill(self) -> None:
        assert self.program is not None
        self.program.kill()


def test_the_counts_are_exact_whatever_is_killed(application: Application, admin: AdminClient) -> None:
    """Killed twice: once it finds its state again, once it has to take it from the changelog topic."""
    counts = Counts(application.servers, application.output)
    written = Written(application.servers, application.input)
    try:
        application.start()
        written.start()
        counts.until(3_000)
        application.kill()

        application.start()
        seen = counts.total
        counts.until(seen + 6_000)
        application.kill()

        shutil.rmtree(application.state)
        application.start()
        written.join()
        counts.until(LINES * WORDS_A_LINE)
        counts.more(3.0)
    finally:
        if written.is_alive():
            written.join()
        counts.close()
    assert {word: max(numbers) for word, numbers in counts.of.items()} == written.counts
    # No caching: so each count came once, and in order.
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in counts.of.values())

    topics = {topic for topic in admin.list_topics(timeout=10).topics if topic.startswith(f"{application.name}-")}
    changelog, repartition = f"{application.name}-counts-changelog", f"{application.name}-by-word-repartition"
    assert {changelog, repartition} <= topics
    assert policy(admin, changelog) == "compact"
    assert policy(admin, repartition) == "delete"
    for future in admin.delete_topics([changelog, repartition]).values():
        future.result(10)


def policy(admin: AdminClient, topic: str) -> str:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found = admin.describe_configs([resource])[resource].result(10)
    return str(found["cleanup.policy"].value)
