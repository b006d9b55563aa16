"""Producers and readers of clusters whose nodes are processes, over a real PostgreSQL and a real object store."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from halfmoon.testing import object_store, postgres

PARTITIONS = 8
WAIT_S = 30
MOVING = (KafkaError._UNKNOWN_PARTITION, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError._TIMED_OUT)
"""What a client hears of a partition that nobody has for a moment, or as long as its connection is made anew."""
MOST_AHEAD = 2_000
"""So many messages wait for the slowest partition."""


def need_services() -> None:
    """Skips the test where there are none."""
    pytest.importorskip("asyncpg", reason="asyncpg is not installed: pip install 'halfmoon[cluster]'")
    if postgres.programs() is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    if object_store.program() is None:
        pytest.skip(f"versitygw is not installed (go install …/versitygw@{object_store.VERSION})")


class Writing:
    """A producer in a thread: numbers, in order, to each partition."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        config: dict[str, Any] = {
            "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5,
            "delivery.timeout.ms": 60_000, "topic.metadata.refresh.interval.ms": 1_000,
            # A node that is stopped by a signal keeps its connections.
            "socket.timeout.ms": 3_000,
        }  # fmt: skip
        self._producer = Producer(config)
        self._topic = topic
        self.acknowledged: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.failed: list[str] = []
        self._sent = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            if self._sent - min(map(len, self.acknowledged)) < MOST_AHEAD:
                for partition in range(PARTITIONS):
                    self._producer.produce(
                        self._topic, str(self._sent).encode(), partition=partition, on_delivery=self._delivered
                    )
                self._sent += 1
            self._producer.poll(0.002)
        self._producer.flush(60)

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.acknowledged[message.partition()].append(int(message.value()))
        else:
            self.failed.append(str(error))

    def until(self, more: int) -> None:
        """So many more are acknowledged in each partition."""
        goals = [len(each) + more for each in self.acknowledged]
        until_s = time.monotonic() + WAIT_S
        while any(len(each) < goal for each, goal in zip(self.acknowledged, goals, strict=True)):
            assert time.monotonic() < until_s, [len(each) for each in self.acknowledged]
            time.sleep(0.02)

    def end(self) -> list[list[int]]:
        self._ended.set()
        self._thread.join()
        assert self.failed == []
        return self.acknowledged


def read_all(bootstrap: str, topic: str) -> list[list[int]]:
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "earliest",
        # librdkafka asks no more for the offsets of a partition that had no leader, until its metadata is as old.
        "metadata.max.age.ms": 1_000,
    }  # fmt: skip
    consumer = Consumer(config)
    found: list[list[int]] = [[] for _ in range(PARTITIONS)]
    try:
        places = [TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]
        until_s = time.monotonic() + WAIT_S
        ends: dict[int, int] = {}
        refused: dict[int, str] = {}
        while len(ends) < PARTITIONS:
            assert time.monotonic() < until_s, (ends, refused)
            for place in places:
                try:
                    ends[place.partition] = consumer.get_watermark_offsets(place, timeout=5)[1]
                except KafkaException as error:
                    refused[place.partition] = str(error)
                    if error.args[0].code() not in MOVING:
                        raise
        consumer.assign(places)
        while any(len(found[partition]) < end for partition, end in ends.items()):
            assert time.monotonic() < until_s, (ends, [len(each) for each in found])
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                found[message.partition()].append(int(message.value()))
    finally:
        consumer.close()
    return found


def make_topic(bootstrap: str, name: str, durability: str, replicas: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(name, PARTITIONS, replicas, config={"halfmoon.durability": durability})
    admin.create_topics([topic])[name].result(WAIT_S)
