"""Records with keys, to be compacted, and a producer that runs beside it."""

from __future__ import annotations

import os
import random
import sys
import threading
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from benchmarks.clients import topics, wire
from benchmarks.clients.numbers import summary

LIMIT_S = 120.0
BLOCK = 10_000


def produce_keyed(bootstrap: str, topic: str, count: int, keys: int, size: int) -> dict[str, float]:
    """`count` records of `size` bytes that do not compress, whose keys are chosen at random from `keys`."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": 1, "linger.ms": 5})
    dice = random.Random(1)
    names = [b"key-%09d" % number for number in range(keys)]
    value = os.urandom(size + 256)
    send, poll = producer.produce, producer.poll
    chosen: set[int] = set()
    begun = time.perf_counter()
    for start in range(0, count, BLOCK):
        picks = dice.choices(range(keys), k=min(BLOCK, count - start))
        chosen.update(picks)
        for number in picks:
            while True:
                try:
                    send(topic, value[number & 255 : (number & 255) + size], names[number], 0)
                    break
                except BufferError:
                    poll(0.01)
        poll(0)
    if left := producer.flush(LIMIT_S):
        raise TimeoutError(f"{left} of {count} records are not acknowledged")
    return {"rec_s": count / (time.perf_counter() - begun), "keys": float(len(chosen))}


def make_topic(bootstrap: str, topic: str, configs: dict[str, str]) -> dict[str, float]:
    admin = topics.create(bootstrap, topic)
    if configs:
        _alter(admin, topic, configs)
    return {"partitions": 1.0}


def compact(bootstrap: str, topic: str, configs: dict[str, str]) -> dict[str, float]:
    """From now on the topic is compacted."""
    _alter(AdminClient({"bootstrap.servers": bootstrap}), topic, {"cleanup.policy": "compact", **configs})
    return {"configs": float(len(configs) + 1)}


def _alter(admin: AdminClient, topic: str, configs: dict[str, str]) -> None:
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    for answer in admin.incremental_alter_configs([resource]).values():
        answer.result(30)


def paced_on(bootstrap: str, topic: str, rate: float) -> dict[str, float]:
    """`rate` messages a second until standard input ends; prints a line when it begins. Else as `plain.paced`."""
    topics.create(bootstrap, topic)
    stopped = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        stopped.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    request = wire.produce(topic, [(0, wire.batch(b"x" * 100))])
    took_ms: list[float] = []
    with wire.Connection(bootstrap) as connection:
        print("waiting", flush=True)
        begun = time.perf_counter()
        while not stopped.is_set():
            due = begun + len(took_ms) / rate
            time.sleep(max(0.0, due - time.perf_counter()))
            error, _ = wire.produced(connection.ask(request))
            if error:
                raise RuntimeError(f"Produce answers error {error}")
            took_ms.append((time.perf_counter() - due) * 1e3)
        return {"req_s": len(took_ms) / (time.perf_counter() - begun), **summary(took_ms)}


def count_keys(bootstrap: str, topic: str) -> dict[str, float]:
    """What a reader from the start finds: records, and different keys."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": f"{topic}-count", "enable.auto.commit": False,
        "enable.partition.eof": True, "fetch.queue.backoff.ms": 5,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    keys: set[bytes] = set()
    records = 0
    deadline = time.monotonic() + LIMIT_S
    while True:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{records} records were read")
        for message in consumer.consume(10_000, 1.0):
            if message.error() is not None:
                consumer.close()
                return {"records": float(records), "keys": float(len(keys))}
            keys.add(message.key())
            records += 1
