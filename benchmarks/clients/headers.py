"""Records with headers, on topics where headers act and where they do not; how punctual delays are; half messages."""

from __future__ import annotations

import random
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.clients import topics
from benchmarks.clients.numbers import summary

LIMIT_S = 60.0
END_TOPIC = "halfmoon.transactions"
UNDECIDED = 5_000
"""Half messages that are on their way at a time."""


def produce_headers(
    bootstrap: str, topic: str, size: int, count: int, codec: str, enabled: bool, one_in: int, header: str
) -> dict[str, float]:
    """`count` records of `size` bytes of text with three headers, and in one of `one_in` (0: none) another one,
    NAME=VALUE (`{}` in the value: the record's number), in batches of up to 1 MB."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    settings = {"halfmoon.headers.enable": str(enabled).lower()}
    admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result(30)
    queue = {"queue.buffering.max.messages": 1_000_000, "queue.buffering.max.kbytes": 1 << 20}
    producer = Producer({"bootstrap.servers": bootstrap, "acks": 1, "linger.ms": 5, "compression.type": codec, **queue})
    dice = random.Random(1)
    words = [dice.randbytes(3).hex() for _ in range(500)]
    values = [" ".join(dice.choices(words, k=size))[:size].encode() for _ in range(100)]
    plain: list[tuple[str, str | bytes | None]] = [("region", b"HZ"), ("amount", b"17"), ("trace", b"0123456789abcdef")]
    name, _, text = header.partition("=")
    specials = [[*plain, (name, text.format(number).encode())] for number in range(10_000 if "{" in text else 1)]
    send, poll = producer.produce, producer.poll
    begun = time.perf_counter()
    for number in range(count):
        headers = specials[number % len(specials)] if one_in and number % one_in == 0 else plain
        while True:
            try:
                send(topic, values[number % 100], headers=headers)
                break
            except BufferError:
                poll(0.01)
    if producer.flush(LIMIT_S):
        raise TimeoutError("not all records were acknowledged")
    took_s = time.perf_counter() - begun
    return {"rec_s": count / took_s, "mb_s": count * size / took_s / 2**20}


def delays(bootstrap: str, topic: str, header: str, delay_ms: int, count: int, pause_ms: float) -> dict[str, float]:
    """How late messages are that were sent one every `pause_ms` with this header (NAME=VALUE), from send to receipt."""
    topics.create(bootstrap, topic)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    consumer.poll(0.2)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": 1})
    name, _, text = header.partition("=")
    sent_ms: list[float] = []
    late_ms: list[float] = []
    deadline = time.monotonic() + delay_ms / 1e3 + count * pause_ms / 1e3 + LIMIT_S
    next_s = time.perf_counter()
    while len(late_ms) < count:
        if len(sent_ms) < count and time.perf_counter() >= next_s:
            next_s += pause_ms / 1e3
            sent_ms.append(time.time() * 1e3)
            producer.produce(topic, b"%d" % (len(sent_ms) - 1), headers=[(name, text.encode())])
            producer.poll(0)
        message = consumer.poll(0 if len(sent_ms) < count else 0.1)
        value = message.value() if message is not None and message.error() is None else None
        if value is not None:
            late_ms.append(time.time() * 1e3 - sent_ms[int(value)] - delay_ms)
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(late_ms)} of {count} messages were delivered")
    producer.flush(10)
    consumer.close()
    return {**summary(late_ms), "earliest_ms": min(late_ms)}


def transactions(bootstrap: str, topic: str, count: int) -> dict[str, float]:
    """Half messages of 100 B, each committed once it is acknowledged, from one producer."""
    topics.create(bootstrap, topic)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": 1, "linger.ms": 2})
    producer.list_topics(END_TOPIC, timeout=10)
    committed = 0

    def ended(error: object, _: object) -> None:
        nonlocal committed
        if error is not None:
            raise RuntimeError(str(error))
        committed += 1

    def prepared(name: bytes, error: object) -> None:
        if error is not None:
            raise RuntimeError(str(error))
        end: list[tuple[str, str | bytes | None]] = [
            ("PGROUP", b"bench"),
            ("UNIQ_KEY", name),
            ("TRAN_STATE", b"commit"),
        ]
        producer.produce(END_TOPIC, b"", headers=end, on_delivery=ended)

    begun = time.perf_counter()
    for number in range(count):
        name = b"%s-%d" % (topic.encode(), number)
        half: list[tuple[str, str | bytes | None]] = [("TRAN_MSG", b"true"), ("PGROUP", b"bench"), ("UNIQ_KEY", name)]
        producer.produce(
            topic,
            b"x" * 100,
            headers=half,
            on_delivery=lambda error, _, name=name: prepared(name, error),  # type: ignore[misc]
        )
        producer.poll(0)
        while number - committed > UNDECIDED:
            producer.poll(0.01)
    deadline = time.monotonic() + LIMIT_S
    while committed < count:
        producer.poll(0.1)
        if time.monotonic() > deadline:
            raise TimeoutError(f"{committed} of {count} transactions were committed")
    return {"tx_s": count / (time.perf_counter() - begun)}
