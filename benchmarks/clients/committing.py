"""Transactions and offset commits, one after the other, by librdkafka. `java/Committing.java` does the same by Java's
client and has the same figures."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.clients import topics
from benchmarks.clients.numbers import summary

LIMIT_S = 60.0
VALUE = b"x" * 100
WARM_UP = 1 / 3
"""Of the time that each is measured for."""


def committing(bootstrap: str, topic: str, seconds: float) -> dict[str, float]:
    """Transactions of one record and of 1,000; what the commit alone takes; commits of a group's offset."""
    topics.create(bootstrap, topic)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-rdkafka", "log_level": 2})
    producer.init_transactions(LIMIT_S)

    def begin(records: int) -> None:
        producer.begin_transaction()
        for _ in range(records):
            producer.produce(topic, VALUE, partition=0)

    def transaction(records: int) -> Callable[[], float | None]:
        def run() -> None:
            begin(records)
            producer.commit_transaction(LIMIT_S)

        return run

    def commit() -> float:
        begin(1)
        if producer.flush(LIMIT_S):
            raise TimeoutError("a record is not acknowledged")
        begun = time.perf_counter()
        producer.commit_transaction(LIMIT_S)
        return time.perf_counter() - begun

    found = _measure("tx_1", "tx_s", transaction(1), seconds)
    found |= _measure("tx_1000", "tx_s", transaction(1_000), seconds)
    found |= _measure("commit", "s", commit, seconds)
    return found | _offsets(bootstrap, topic, seconds)


def _offsets(bootstrap: str, topic: str, seconds: float) -> dict[str, float]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"{topic}-rdkafka", "enable.auto.commit": False})
    place = TopicPartition(topic, 0, 0)

    def commit() -> None:
        place.offset += 1
        (done,) = consumer.commit(offsets=[place], asynchronous=False)
        if done.error is not None:
            raise RuntimeError(f"OffsetCommit: {done.error}")

    try:
        return _measure("offsets", "s", commit, seconds)
    finally:
        consumer.close()


def _measure(name: str, rate: str, step: Callable[[], float | None], seconds: float) -> dict[str, float]:
    """`step` returns what is to be timed, in s; None: the whole of it."""
    _run(step, seconds * WARM_UP)
    took_ms, took_s = _run(step, seconds)
    timed = summary(took_ms)
    return {
        f"{name}_{rate}": len(took_ms) / took_s,
        f"{name}_p50_ms": timed["p50_ms"],
        f"{name}_p99_ms": timed["p99_ms"],
    }


def _run(step: Callable[[], float | None], seconds: float) -> tuple[list[float], float]:
    took_ms: list[float] = []
    begun = now = time.perf_counter()
    while not took_ms or now - begun < seconds:
        at = now
        own_s = step()
        now = time.perf_counter()
        took_ms.append((now - at if own_s is None else own_s) * 1e3)
    return took_ms, now - begun
