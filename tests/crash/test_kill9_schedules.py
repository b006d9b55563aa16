"""Brokers that send recurring messages are killed: each time is kept once, and none is left out."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from halfmoon.kafka import Schedules
from tests.chance import seeded
from tests.crash.load import QUICK
from tests.crash.serving import START_S, wait_until
from tests.torture.workers.serving import ServingWorkers, send

TOPIC, PARTITIONS = "recurring", 4
KILLS = 4
EVERY_S = (0.8, 2.0)


def stored(servers: str) -> dict[int, list[int]]:
    """By partition, the times for which messages were sent, in their order."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "eof", "enable.partition.eof": True, **QUICK})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    found: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    left = set(found)
    while left:
        for message in consumer.consume(100, 1):
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                left.discard(message.partition())
                continue
            at = int(dict(message.headers())["halfmoon.schedule-time"])
            assert at % 1_000 == 0
            found[message.partition()].append(at // 1_000)
    consumer.close()
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("workers", [0, 2])
def test_each_time_is_kept_once(tmp_path: Path, workers: int) -> None:
    dice = seeded()
    # However busy this machine is, and a start takes long: nothing is missed.
    serving = ServingWorkers(tmp_path, log_flush="sync", plugins_schedule_missed_after="1h")
    start(serving, workers)
    admin = AdminClient({"bootstrap.servers": serving.address, **QUICK})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
    schedules = Schedules(Producer({"bootstrap.servers": serving.address, **QUICK}))
    for partition in range(PARTITIONS):
        name = f"tick-{partition}"  # a name is one schedule's in the topic
        schedules.create(TOPIC, name, "* * * * * *", b"v", partition=partition).result(60)
    created_s = time.time()
    for number in range(KILLS):
        time.sleep(dice.uniform(*EVERY_S))
        if workers and number % 2:
            send(serving.find()[number // 2 % workers], signal.SIGKILL)
            wait_until(serving.is_whole, START_S, "the worker is there again")
        else:
            serving.kill_all()
            start(serving, workers)
    time.sleep(1.5)
    found = stored(serving.address)
    ended_s = time.time()
    serving.stop()
    for times in found.values():
        assert times == list(range(times[0], times[-1] + 1)), "each once, in order, and none is missing"
        assert times[0] <= created_s + 2
        assert times[-1] >= ended_s - START_S


def start(serving: ServingWorkers, workers: int) -> None:
    if workers:
        serving.start_workers(workers)
    else:
        serving.start()
