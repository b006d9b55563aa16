"""librdkafka with big batches, through confluent-kafka; and one message at a time."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Mapping
from itertools import cycle, islice

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.clients import topics
from benchmarks.clients.numbers import summary

LIMIT_S = 60.0
_NAMES = ("anvil", "bolt", "crate", "drill", "easel", "funnel", "gasket", "hammer", "inkwell", "jigsaw")


Properties = Mapping[str, str]
"""More of librdkafka's. The bootstrap server may be another listener of the broker, one with TLS."""


def produce(
    bootstrap: str,
    topic: str,
    size: int,
    count: int,
    partitions: int = 1,
    over: Properties | None = None,
    *,
    orders: bool = False,
) -> dict[str, float]:
    """`count` records of `size` bytes with acks=1. Batches and linger are librdkafka's default: up to 1 MB, 5 ms.
    `orders`: JSON, no two of 4,000 alike; else all are the same."""
    topics.create(bootstrap, topic, partitions)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap, "acks": 1, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000,
            **(over or {}),
        }
    )  # fmt: skip
    values = cycle(orders_of(size) if orders else [os.urandom(size // 2).hex().encode()])
    send, poll = producer.produce, producer.poll
    begun = time.perf_counter()
    for partition, value in zip(islice(cycle(range(partitions)), count), values, strict=False):
        while True:
            try:
                send(topic, value, None, partition)
                break
            except BufferError:
                poll(0.01)
    left = producer.flush(LIMIT_S)
    took_s = time.perf_counter() - begun
    if left:
        raise TimeoutError(f"{left} of {count} records are not acknowledged")
    return {"rec_s": count / took_s, "mb_s": count * size / took_s / 2**20}


def orders_of(size: int) -> list[bytes]:
    """Values of about so many bytes, the same in each run."""
    chance = random.Random(1)
    items = max(1, (size - 90) // 64)
    return [
        json.dumps({
            "id": f"{chance.getrandbits(64):016x}", "customer": chance.randrange(100_000), "at": 1_790_000_000 + number,
            "items": [
                {"sku": f"{chance.getrandbits(32):08x}", "name": chance.choice(_NAMES), "count": chance.randrange(1, 9),
                 "price": chance.randrange(100, 99_999) / 100} for _ in range(items)
            ],
        }).encode()
        for number in range(4_000)
    ]  # fmt: skip


def consume(bootstrap: str, topic: str, size: int, count: int, over: Properties | None = None) -> dict[str, float]:
    """Read `count` records of partition 0 from the start; timed from the first batch.

    By default librdkafka stops for a second once it is 64 MB ahead of the program: with a quick broker, what is
    measured is how often that happens. Here it looks again after 5 ms.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False,
            "queued.min.messages": 1_000_000, "fetch.queue.backoff.ms": 5, **(over or {}),
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    deadline = time.monotonic() + LIMIT_S
    first_s, had, got = 0.0, 0, 0
    while got < count:
        messages = len(consumer.consume(10_000, 1.0))
        if messages and not got:
            first_s, had = time.perf_counter(), messages
        got += messages
        if time.monotonic() > deadline:
            raise TimeoutError(f"{got} of {count} records came")
    took_s = time.perf_counter() - first_s
    consumer.close()
    return {"rec_s": (got - had) / took_s, "mb_s": (got - had) * size / took_s / 2**20}


def sync_one_by_one(bootstrap: str, topic: str, count: int, over: Properties | None = None) -> dict[str, float]:
    """produce() and flush() for each message, as people write it."""
    topics.create(bootstrap, topic)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": 1, **(over or {})})
    producer.produce(topic, b"first")
    producer.flush(10)
    took_ms = []
    begun = time.perf_counter()
    for _ in range(count):
        at = time.perf_counter()
        producer.produce(topic, b"x" * 100)
        producer.flush(10)
        took_ms.append((time.perf_counter() - at) * 1e3)
    return {"req_s": count / (time.perf_counter() - begun), **summary(took_ms)}
