"""The clients of a broker of several processes: `python -m tests.torture.workers.roles ROLE SERVERS NAME FILE`.

As tests.torture.worker, whose roles most of these are, with more partitions than workers.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from halfmoon.kafka import Nack, TransactionalOutbox, attempts
from tests.torture import worker
from tests.torture.worker import ENDING, JOBS, RESULTS, STEADY, History, decision

PLAIN, ACCOUNTS, LATER, ROCKET = "plain", "accounts", "later", "rocket"
BILLING, SHOP = "billing", "shop"
RETRIES, CHECKS = f"retry.{BILLING}", f"check.{SHOP}"
PARTITIONS = 8
TOPICS = {JOBS: PARTITIONS, RESULTS: PARTITIONS, PLAIN: 5, ACCOUNTS: 7, LATER: 5, worker.HALVES: 5, ROCKET: 6}
SHARED = {"group.protocol": "consumer"}
"""The groups whose partitions the broker assigns (KIP-848)."""
LEVELS_MS = {1: 1_000, 2: 5_000}
SEND_S = 90.0
ASKS_S = 8.0
"""With fewer workers than before, librdkafka 2.16 may ask one that is not there any more, and wait for it."""


def plain(servers: str, name: str, note: History) -> None:
    """Two producers that are not idempotent, of acks=all and acks=1, in turn."""
    quick: dict[str, str | int] = {"bootstrap.servers": servers, "linger.ms": 2, **STEADY}
    producers = [Producer({**quick, "acks": acks}) for acks in ("all", "1")]
    number = 0
    while not ENDING.wait(0.05):
        producer, value = producers[number % 2], f"{name}/{number}"
        index = number // 2 % TOPICS[PLAIN]
        note("sent", value, index)
        producer.produce(PLAIN, value.encode(), partition=index, on_delivery=_told(note, value))
        for each in producers:
            each.poll(0)
        number += 1
    for each in producers:
        each.flush(SEND_S)


def _told(note: History, value: str) -> Callable[[object, Message], None]:
    def told(error: object, message: Message) -> None:
        if error:
            note("failed", value)
        else:
            note("acked", value, message.partition(), message.offset())

    return told


class NeverBegunError(Exception):
    """A coordinator knows nothing of the transaction that is aborted, and no record of it came to a broker: librdkafka
    also ends what it only meant to begin, where its AddPartitionsToTxn got lost and its records have become too old.
    Kafka, too, answers INVALID_TXN_STATE to an end without a beginning, and librdkafka's producer is done for."""


def bank(servers: str, name: str, note: History) -> None:
    """Transactions of a few records each, in several partitions; each fourth is aborted."""
    producer = Producer(
        {
            "bootstrap.servers": servers, "transactional.id": name, "transaction.timeout.ms": 10_000, "linger.ms": 0,
            **STEADY,
        }
    )  # fmt: skip
    producer.init_transactions(SEND_S)
    number = 0
    delivered: set[int] = set()
    """Transactions of which a record came to a broker."""

    def abort() -> None:
        try:
            _insist(lambda: producer.abort_transaction(SEND_S))
        except KafkaException as error:
            if error.args[0].code() == KafkaError.INVALID_TXN_STATE and number not in delivered:
                raise NeverBegunError("nothing of it came to a broker") from None
            raise

    def told(of: int, error: object, _: Message) -> None:
        if not error:
            delivered.add(of)

    while not ENDING.wait(0.05):
        transaction = f"{name}.{os.getpid()}/{number}"
        indexes = random.sample(range(TOPICS[ACCOUNTS]), random.randint(1, 4))
        note("begun", transaction, len(indexes))
        producer.begin_transaction()
        try:
            for n, index in enumerate(indexes):
                producer.produce(
                    ACCOUNTS, f"{transaction}/{n}".encode(), partition=index, on_delivery=partial(told, number)
                )
            if number % 4 == 3:
                producer.flush(SEND_S)
                abort()
                note("aborted", transaction)
            else:
                _insist(lambda: producer.commit_transaction(SEND_S))
                note("committed", transaction)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            abort()
            note("aborted", transaction)
        number += 1


def _insist(call: Callable[[], object]) -> None:
    while True:
        try:
            call()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


def later(servers: str, name: str, note: History) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 2, **STEADY})
    number = 0
    while not ENDING.wait(0.05):
        value, index = f"{name}/{number}", number % TOPICS[LATER]
        if random.random() < 0.2:
            level = random.choice(list(LEVELS_MS))
            headers, delay_ms = {"DELAY": str(level)}, LEVELS_MS[level]
        else:
            delay_ms = random.randint(1, 6_000)
            headers = {"TIMER_DELAY_MS": str(delay_ms)}
        note("delayed", value, index, time.time_ns() // 1_000_000, delay_ms)

        def told(error: object, _: Message, value: str = value) -> None:
            note("failed" if error else "acked", value)

        producer.produce(LATER, value.encode(), partition=index, headers=headers, on_delivery=told)
        producer.poll(0)
        number += 1
    producer.flush(SEND_S)


def answers(servers: str, name: str, note: History) -> None:
    """Of check-backs."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, **STEADY})
    box = TransactionalOutbox(SHOP, producer)
    consumer = _consumer(servers, "shop-checks", [CHECKS])
    while not ENDING.is_set():
        for check in _messages(consumer):
            transaction = box.transaction_of(check)
            state = decision(transaction)
            note("decides", state, transaction)
            (box.commit if state == "commit" else box.rollback)(transaction).result(SEND_S)
            note("decided", state, transaction)
            consumer.commit(check, asynchronous=False)
    consumer.close()


def wants(value: str) -> int:
    """How often a job is negatively acknowledged before it is handled."""
    number = int(value.rpartition("/")[2])
    return 2 if number % 20 == 7 else 1 if number % 10 == 3 else 0


def nack(servers: str, name: str, note: History) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0, **STEADY})
    back = Nack(BILLING, producer)
    consumer = _consumer(servers, BILLING, [JOBS, back.topic])
    while not ENDING.is_set():
        messages = _messages(consumer)
        waiting = []
        for message in messages:
            value, times = (message.value() or b"").decode(), attempts(message) + 1
            if times <= wants(value):
                note("nacks", value, times)
                waiting.append((value, times, back(message, delay_ms=random.randint(100, 2_000))))
            else:
                note("handled", value)
        for value, times, sent in waiting:
            sent.result(SEND_S)
            note("nacked", value, times)
        if messages:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                note("refused", error.args[0].name())
    consumer.close()


def rsend(servers: str, name: str, note: History) -> None:
    """RocketMQ's model, whose producers are not idempotent: what is not answered may be there, also twice."""
    from halfmoon import client

    with client.Producer(f"rsend-{name}") as producer:
        number = 0
        while not ENDING.wait(0.03):
            value = f"{name}/{number}"
            note("sent", value)
            try:
                producer.send(client.Message(ROCKET, value.encode()), timeout_ms=5_000)
            except client.ClientError as error:
                note("failed", value, type(error).__name__)
            else:
                note("stored", value)
            number += 1


def rtake(servers: str, name: str, note: History) -> None:
    from halfmoon import client

    def take(messages: Sequence[client.ReceivedMessage], _: object) -> client.Status:
        for message in messages:
            note("took", message.body.decode())
        return client.Status.SUCCESS

    with client.PushConsumer("takers", take, {ROCKET: "*"}, consume_from=client.ConsumeFrom.FIRST):
        ENDING.wait()


def _consumer(servers: str, group: str, topics: list[str]) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "topic.metadata.refresh.interval.ms": 2_000, **worker.CLASSIC, **STEADY,
        }
    )  # fmt: skip
    worker.subscribe(consumer, topics)
    return consumer


def _messages(consumer: Consumer) -> list[Message]:
    return [each for each in consumer.consume(50, 0.2) if each.error() is None]


ROLES: Mapping[str, Callable[[str, str, History], None]] = {
    "feed": partial(worker.feed, partitions=PARTITIONS, pause_s=0.015),
    "plain": plain,
    "pipe": partial(worker.pipe, aborts=0.1, waits_s=ASKS_S),
    "bank": bank,
    "read": worker.read,
    "shared": partial(worker.read, group="shared", config=SHARED),
    "share": partial(worker.share, releases=0.1, rejects=0.03),
    "later": later,
    "outbox": partial(worker.outbox, undecided=7, pause_s=0.02),
    "answers": answers,
    "nack": nack,
    "rsend": rsend,
    "rtake": rtake,
}


if __name__ == "__main__":
    worker.main(ROLES, sys.argv[1:])
