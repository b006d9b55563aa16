"""kill −9 while a group consumes a topic of which every other message has expired: one dead letter for each."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from halfmoon.client import ConsumeFrom, Context, PushConsumer, ReceivedMessage, Status
from tests.crash.serving import Serving, free_port, wait_until

TOPIC, GROUP = "orders", "readers"
MESSAGES = 2_000
KILLS = 4
DEADLINE_S = 120.0


def fill(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    new = NewTopic(TOPIC, 2, 1, config={"halfmoon.ttl.ms": "3600000", "halfmoon.ttl.action": "dead-letter"})
    admin.create_topics([new])[TOPIC].result(10)
    producer = Producer({"bootstrap.servers": address, "batch.num.messages": 20})
    now_ms = int(time.time() * 1_000)
    for number in range(MESSAGES):
        age_ms = 7_200_000 if number % 2 else 0
        producer.produce(TOPIC, b"%d" % number, partition=number // 2 % 2, timestamp=now_ms - age_ms)
    assert producer.flush(30) == 0


def dead_letters(address: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "watcher"})
    place = TopicPartition(f"dlq.{GROUP}", 0, 0)
    consumer.assign([place])
    _, end = consumer.get_watermark_offsets(place, 10)
    found: list[int] = []
    while len(found) < end:
        message = consumer.poll(10)
        assert message is not None
        assert message.error() is None
        assert dict(message.headers())["halfmoon.reason"].startswith(b"expired")
        found.append(int(message.value()))
    consumer.close()
    return found


@pytest.mark.timeout(240)
def test_no_dead_letter_is_lost_or_doubled(tmp_path: Path) -> None:
    rocketmq, names = free_port(), free_port()
    more = ("--rocketmq", f"127.0.0.1:{rocketmq}", "--namesrv", f"127.0.0.1:{names}")
    serving = Serving(tmp_path, log_flush="sync")
    serving.start(*more)
    seen: Counter[int] = Counter()
    lock = threading.Lock()

    def listen(messages: Sequence[ReceivedMessage], context: Context) -> Status:
        with lock:
            seen.update(int(message.body) for message in messages)
        time.sleep(0.001)  # so that a kill comes in between
        return Status.SUCCESS

    try:
        fill(serving.address)
        consumer = PushConsumer(
            GROUP, listen, {TOPIC: "*"}, consume_from=ConsumeFrom.FIRST, namesrv=f"127.0.0.1:{names}"
        )
        consumer.start()
        for number in range(KILLS):
            wanted = MESSAGES // 2 * number // (KILLS + 1)
            wait_until(lambda wanted=wanted: len(seen) > wanted, DEADLINE_S, f"more than {wanted} consumed")
            serving.kill()
            serving.start(*more)
        wait_until(lambda: len(seen) == MESSAGES // 2, DEADLINE_S, "all consumed")
        consumer.close()
        assert all(number % 2 == 0 for number in seen)
        assert sorted(dead_letters(serving.address)) == list(range(1, MESSAGES, 2))
    finally:
        serving.stop()
