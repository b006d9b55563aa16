"""A client as a process of its own, to be killed: `python -m tests.torture.worker ROLE SERVERS NAME FILE`.

What it knows goes into FILE, a line each with the time in front (monotonic ns, which all processes of a machine share),
before it goes on: what was written so survives a kill −9. It works until it is killed, or told to end on stdin.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

from confluent_kafka import AcknowledgeType, Consumer, KafkaException, Producer, ShareConsumer, TopicPartition

from halfmoon.kafka import TransactionalOutbox
from tests.crash.load import QUICK

JOBS, RESULTS, HALVES, PARTITIONS = "jobs", "results", "halves", 2
ENDING = threading.Event()


class History:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def __call__(self, *what: object) -> None:
        os.write(self._file, (f"{time.monotonic_ns()} " + " ".join(map(str, what)) + "\n").encode())


def feed(servers: str, name: str, note: History) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 2, **QUICK})
    number = 0
    while not ENDING.is_set():
        value = f"{name}/{number}"
        note("sent", value)

        def told(error: object, _: object, value: str = value) -> None:
            note("failed" if error else "acked", value)

        producer.produce(JOBS, value.encode(), partition=number % PARTITIONS, on_delivery=told)
        producer.poll(0.02)
        number += 1
    producer.flush(60)


def pipe(servers: str, name: str, note: History) -> None:
    """Read-process-write: a result for each job, and the progress with it."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name, "linger.ms": 0, **QUICK})
    producer.init_transactions(60)
    consumer = Consumer(
        {
            "bootstrap.servers": servers, "group.id": "pipeline", "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "isolation.level": "read_committed", "session.timeout.ms": 6_000, **QUICK,
        }
    )  # fmt: skip
    consumer.subscribe([JOBS])
    while not ENDING.is_set():
        messages = [each for each in consumer.consume(50, 0.2) if each.error() is None]
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce(RESULTS, message.value(), partition=message.partition() or 0)
        places = [TopicPartition(JOBS, index, offset) for index, offset in _behind(messages).items()]
        producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), 60)
        producer.commit_transaction(60)
        note("piped", len(messages))


def _behind(messages: list[object]) -> dict[int, int]:
    found: dict[int, int] = {}
    for message in messages:
        found[message.partition()] = message.offset() + 1  # type: ignore[attr-defined]
    return found


def read(servers: str, name: str, note: History) -> None:
    """A member of a group: where it begins, what it got, and what it has committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers, "group.id": "readers", "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "session.timeout.ms": 6_000, **QUICK,
        }
    )  # fmt: skip

    def assigned(_: object, places: list[TopicPartition]) -> None:
        asked_ns = time.monotonic_ns()
        for place in consumer.committed(places, 30):
            note("begins", place.partition, max(0, place.offset), asked_ns)

    consumer.subscribe([JOBS], on_assign=assigned)
    while not ENDING.is_set():
        messages = [each for each in consumer.consume(50, 0.2) if each.error() is None]
        if not messages:
            continue
        for message in messages:
            note("got", message.partition(), message.offset())
        places = [TopicPartition(JOBS, index, offset) for index, offset in _behind(messages).items()]
        try:
            consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            note("refused", error.args[0].name())
        else:
            for place in places:
                note("committed", place.partition, place.offset)


def share(servers: str, name: str, note: History) -> None:
    consumer = ShareConsumer(
        {"bootstrap.servers": servers, "group.id": "sharers", "share.acknowledgement.mode": "explicit", "log_level": 0}
    )
    consumer.subscribe([JOBS])
    while not ENDING.is_set():
        asked_ns = time.monotonic_ns()
        messages = [each for each in consumer.poll(0.5) or () if each.error() is None]
        for message in messages:
            note("given", message.partition(), message.offset(), asked_ns)
            consumer.acknowledge(message, AcknowledgeType.ACCEPT)
        if not messages:
            continue
        try:
            results = consumer.commit_sync(30)
        except KafkaException as error:
            note("refused", error.args[0].name())
            continue
        failed = {place.partition for place, error in (results or {}).items() if error is not None}
        for message in messages:
            if message.partition() not in failed:
                note("accepted", message.partition(), message.offset())
    consumer.close()


def outbox(servers: str, name: str, note: History) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 2, **QUICK})
    box = TransactionalOutbox("shop", producer)
    number = 0
    while not ENDING.is_set():
        value = f"{name}/{number}"
        transaction, sent = box.prepare(HALVES, value.encode(), transaction=f"{name}-{number}")
        sent.result(60)
        commit = number % 3 != 0
        note("decides", "commit" if commit else "rollback", value)
        (box.commit if commit else box.rollback)(transaction).result(60)
        note("decided", "commit" if commit else "rollback", value)
        number += 1
    box.close(60)


ROLES: dict[str, Callable[[str, str, History], None]] = {
    "feed": feed, "pipe": pipe, "read": read, "share": share, "outbox": outbox,
}  # fmt: skip


def main(role: str, servers: str, name: str, path: str) -> None:
    threading.Thread(target=lambda: (sys.stdin.read(), ENDING.set()), daemon=True).start()
    ROLES[role](servers, name, History(path))


if __name__ == "__main__":
    main(*sys.argv[1:])
