"""kill −9, again and again, under a producer to a compacted topic: the last record of each key is there, and each that
is there was sent. With small files and little patience the cleaner is nearly always at work."""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.crash.load import QUICK
from tests.crash.serving import Serving, wait_until

KILLS = 8
KEYS = 500
ROUND = 2_000
"""Records that come in between two kills, at least."""
DEADLINE_S = 120.0
"""The cleaner takes idle time only, and each of its processes begins with Python's start."""
TOPIC = "compacted"


class Writer(threading.Thread):
    """Writes a growing number to each key, again and again."""

    def __init__(self, servers: str) -> None:
        super().__init__(name="writer", daemon=True)
        self.sent: dict[bytes, list[bytes | None]] = {}
        self.acknowledged: dict[bytes, int] = {}
        """Of each key, how many of what was sent are known to be there."""
        self.errors: list[KafkaError] = []
        self.count = 0
        """Records that are known to be there."""
        self.stopping = threading.Event()
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 2, **QUICK})
        self._chance = random.Random(7)

    def run(self) -> None:
        number = 0
        while not self.stopping.is_set():
            if len(self._producer) > 500:
                self._producer.poll(0.01)
                continue
            number += 1
            key = b"%d" % self._chance.randrange(KEYS)
            value = None if self._chance.random() < 0.05 else b"%d " % number + b"x" * self._chance.randrange(800)
            sent = self.sent.setdefault(key, [])
            sent.append(value)

            def delivered(error: KafkaError | None, message: object, key: bytes = key, count: int = len(sent)) -> None:
                if error is not None:
                    self.errors.append(error)
                else:
                    self.count += 1
                    self.acknowledged[key] = max(self.acknowledged.get(key, 0), count)

            self._producer.produce(TOPIC, value, key, on_delivery=delivered)
            self._producer.poll(0)
        assert self._producer.flush(30) == 0


@pytest.mark.timeout(600)
def test_the_last_record_of_each_key_outlives_every_kill(tmp_path: Path) -> None:
    serving = Serving(
        tmp_path, log_segment_bytes="1MiB", log_index_checkpoint_bytes="64KiB", log_cleaner_interval="50ms"
    )
    serving.start()
    admin = AdminClient({"bootstrap.servers": serving.address})
    configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.05"}
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=configs)])[TOPIC].result(10)
    chance = random.Random(int(os.environ.get("HALFMOON_TEST_SEED", "3")))
    writer = Writer(serving.address)
    try:
        writer.start()
        for _ in range(KILLS):
            further = writer.count + ROUND
            wait_until(lambda: writer.count >= further, DEADLINE_S, "the producer goes on")  # noqa: B023
            wait_until(lambda: any((tmp_path / "data/cleaned").glob("*.index*")), DEADLINE_S, "something is cleaned")
            time.sleep(chance.uniform(0, 1.0))
            serving.kill()
            serving.start()
        further = writer.count + ROUND
        wait_until(lambda: writer.count >= further, DEADLINE_S, "the producer goes on")
        writer.stopping.set()
        writer.join(60)
        assert not writer.is_alive()
        assert not writer.errors
        assert "cleaning failed" not in serving.log()
        total = sum(map(len, writer.sent.values()))
        wait_until(lambda: compare(serving, writer) < total / 2, DEADLINE_S, "most of what is outdated is gone")
    finally:
        writer.stopping.set()
        writer.join(60)
        serving.stop()


def compare(serving: Serving, writer: Writer) -> int:
    """What is in the topic with what was sent; how many records it is."""
    place = {key: {value: number for number, value in enumerate(sent)} for key, sent in writer.sent.items()}
    found: dict[bytes, bytes | None] = {}
    count = 0
    consumer = Consumer(
        {"bootstrap.servers": serving.address, "group.id": uuid.uuid4().hex, "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    while True:
        message = consumer.poll(20)
        assert message is not None
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            break
        key, value = message.key(), message.value()
        assert isinstance(key, bytes)
        assert value is None or isinstance(value, bytes)
        assert value in place[key]
        if value is not None and found.get(key) is not None:
            assert place[key][value] > place[key][found[key]]
        found[key] = value
        count += 1
    consumer.close()
    for key, sent in writer.sent.items():
        assert writer.acknowledged[key] == len(sent)
        assert found[key] == sent[-1], key
    return count
