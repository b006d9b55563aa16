"""A client as a process of its own, to be killed: `python -m tests.torture.worker ROLE SERVERS NAME FILE`.

What it knows goes into FILE, a line each with the time in front (monotonic ns, which all processes of a machine share),
before it goes on: what was written so survives a kill −9. It works until it is killed, or told to end on stdin.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from confluent_kafka import (
    AcknowledgeType,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    ShareConsumer,
    TopicPartition,
)

from halfmoon.kafka import TransactionalOutbox
from tests.torture.crew import DEBUG, PATIENT

STEADY: dict[str, str | int | bool] = {
    **PATIENT, "metadata.recovery.strategy": "none", "topic.metadata.refresh.interval.ms": 2_000,
    "client.rack": "abc"[os.getpid() % 3],
}  # fmt: skip
"""Where no broker can be reached, librdkafka 2.16 forgets them all (KIP-899). A transactional producer then waits for
ever for the coordinator of a group that it has asked before: it goes on asking the one that it has forgotten.

A consumer may wait to hear whether its position is valid (KIP-320), of a leader that is none any more, until it asks
for metadata for another reason: five minutes by default.

The rack means something where nodes have some: a consumer then reads from another one than the leader (KIP-392)."""
if DEBUG:
    STEADY |= {"debug": DEBUG, "log_level": 7}
JOBS, RESULTS, HALVES, PARTITIONS = "jobs", "results", "halves", 2
ENDING = threading.Event()


class History:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def __call__(self, *what: object) -> None:
        os.write(self._file, (f"{time.monotonic_ns()} " + " ".join(map(str, what)) + "\n").encode())


def feed(
    servers: str,
    name: str,
    note: History,
    *,
    topic: str = JOBS,
    partitions: int = PARTITIONS,
    pause_s: float = 0.0,
    **config: str | int,
) -> None:
    """`pause_s`: between two records, at least. `config`: more of the producer's."""

    def failed(error: KafkaError) -> None:
        if error.fatal():
            note("fatal", error.name())

    producer = Producer(
        {
            "bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 2, "error_cb": failed, **STEADY,
            **config,
        }
    )  # fmt: skip
    number = 0
    while not ENDING.wait(pause_s):
        value = f"{name}/{number}"
        note("sent", value, number % partitions)

        def told(error: KafkaError | None, message: Message, value: str = value) -> None:
            if error:
                note("failed", value, error.name())
            else:
                note("acked", value, message.partition(), message.offset())

        producer.produce(topic, value.encode(), partition=number % partitions, on_delivery=told)
        producer.poll(0.0 if pause_s else 0.02)
        number += 1
    producer.flush(60)


def subscribe(
    consumer: Consumer,
    topics: list[str],
    waits_s: float = 60,
    *,
    incremental: bool = False,
    told: Callable[[list[TopicPartition], int], None] = lambda _places, _asked_ns: None,
) -> None:
    """Begin where the group has committed, and at the start of other partitions. `incremental`: as members of KIP-848's
    groups do. `told`: where it begins, and when the coordinator was asked.

    librdkafka 2.16 looks for it by itself, and has two bugs in that, with any broker: it begins at auto.offset.reset
    where it hears UNSTABLE_OFFSET_COMMIT of an assignment that has changed meanwhile
    (rd_kafka_assignment_apply_offsets); and a partition that it has let go of is fetched again when the answer to a
    ListOffsets from before arrives ("outdated offset response"), and what it got so is delivered when it has the
    partition again."""
    begin = consumer.incremental_assign if incremental else consumer.assign

    def assigned(_: object, places: list[TopicPartition]) -> None:
        until_s = time.monotonic() + waits_s
        while True:
            asked_ns = time.monotonic_ns()
            found = consumer.committed(places, waits_s)
            if not any(each.error for each in found):
                break
            if time.monotonic() > until_s:
                os._exit(1)
            time.sleep(0.1)
        places = [TopicPartition(each.topic, each.partition, max(0, each.offset)) for each in found]
        told(places, asked_ns)
        begin(places)

    consumer.subscribe(topics, on_assign=assigned)


def pipe(servers: str, name: str, note: History, *, aborts: float = 0.0, waits_s: float = 60) -> None:
    """Read-process-write: a result for each job, and the progress with it. `aborts`: this part is in vain first.
    `waits_s`: for each answer; then it gives up, and another one comes. So it does where librdkafka gives no answer at
    all, as 2.16 where the group's coordinator is a broker that was removed."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name, "linger.ms": 0, **STEADY})
    producer.init_transactions(waits_s)
    consumer = Consumer(
        {
            "bootstrap.servers": servers, "group.id": "pipeline", "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "isolation.level": "read_committed", "session.timeout.ms": 6_000, **STEADY,
        }
    )  # fmt: skip
    subscribe(consumer, [JOBS], waits_s)
    while not ENDING.is_set():
        messages = [each for each in consumer.consume(50, 0.2) if each.error() is None]
        if not messages:
            continue
        giving_up = threading.Timer(2 * waits_s, os._exit, (1,))
        giving_up.start()
        producer.begin_transaction()
        for message in messages:
            producer.produce(RESULTS, message.value(), partition=message.partition() or 0)
        places = [TopicPartition(JOBS, index, offset) for index, offset in _behind(messages).items()]
        producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), waits_s)
        if random.random() < aborts:
            # What was not sent yet is purged, and librdkafka 2.16 counts it nevertheless: the partition's next batch is
            # OUT_OF_ORDER_SEQUENCE_NUMBER, also with Kafka 4.3.
            producer.flush(waits_s)
            producer.abort_transaction(waits_s)
            note("abandoned", len(messages))
            for index, offset in _behind(reversed(messages)).items():
                consumer.seek(TopicPartition(JOBS, index, offset - 1))
        else:
            producer.commit_transaction(waits_s)
            note("piped", len(messages))
        giving_up.cancel()


def _behind(messages: Iterable[object]) -> dict[int, int]:
    found: dict[int, int] = {}
    for message in messages:
        found[message.partition()] = message.offset() + 1  # type: ignore[attr-defined]
    return found


CLASSIC: dict[str, str | int] = {"session.timeout.ms": 6_000}


def read(
    servers: str, name: str, note: History, *, group: str = "readers", config: Mapping[str, str | int] = CLASSIC
) -> None:
    """A member of a group: where it begins, what it got, and what it has committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest",
            "enable.auto.commit": False, **config, **STEADY,
        }
    )  # fmt: skip

    def begins(places: list[TopicPartition], asked_ns: int) -> None:
        for place in places:
            note("begins", place.partition, place.offset, asked_ns)

    subscribe(consumer, [JOBS], 30, incremental="group.protocol" in config, told=begins)
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


ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
TOLD = {ACCEPT: "accepted", RELEASE: "released", REJECT: "rejected"}


def share(servers: str, name: str, note: History, *, releases: float = 0.0, rejects: float = 0.0) -> None:
    """`releases`, `rejects`: these parts are not accepted."""
    consumer = ShareConsumer(
        {
            "bootstrap.servers": servers, "group.id": "sharers", "share.acknowledgement.mode": "explicit",
            "log_level": 0, **STEADY,
        }
    )  # fmt: skip
    consumer.subscribe([JOBS])
    while not ENDING.is_set():
        asked_ns = time.monotonic_ns()
        messages = [each for each in consumer.poll(0.5) or () if each.error() is None]
        answers = []
        for message in messages:
            note("given", message.partition(), message.offset(), asked_ns)
            chance = random.random()
            answer = RELEASE if chance < releases else REJECT if chance < releases + rejects else ACCEPT
            answers.append(answer)
            consumer.acknowledge(message, answer)
        if not messages:
            continue
        try:
            results = consumer.commit_sync(30)
        except KafkaException as error:
            note("refused", error.args[0].name())
            continue
        failed = {place.partition for place, error in (results or {}).items() if error is not None}
        for message, answer in zip(messages, answers, strict=True):
            if message.partition() not in failed:
                note(TOLD[answer], message.partition(), message.offset())
    consumer.close()


def decision(value: str) -> str:
    """Of SENDER/NUMBER: all who decide on one decide the same."""
    return "rollback" if int(value.rpartition("/")[2]) % 3 == 0 else "commit"


def outbox(servers: str, name: str, note: History, *, undecided: int = 0, pause_s: float = 0.0) -> None:
    """`undecided`: each so-manieth transaction is left to who answers check-backs."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 2, **STEADY})
    box = TransactionalOutbox("shop", producer)
    number = 0
    while not ENDING.wait(pause_s):
        value = f"{name}/{number}"
        state = decision(value)
        transaction, sent = box.prepare(HALVES, value.encode(), transaction=value)
        sent.result(60)
        note("prepared", value)
        if not undecided or number % undecided:
            note("decides", state, value)
            (box.commit if state == "commit" else box.rollback)(transaction).result(60)
            note("decided", state, value)
        number += 1
    box.close(60)


ROLES: dict[str, Callable[[str, str, History], None]] = {
    "feed": feed, "pipe": pipe, "read": read, "share": share, "outbox": outbox,
}  # fmt: skip


def main(roles: Mapping[str, Callable[[str, str, History], None]], given: Sequence[str]) -> None:
    """`given`: as on the command line. It ends the process, without librdkafka's own end, which may wait for ever for a
    broker that it has forgotten."""
    role, servers, name, path = given
    random.seed(name)
    faulthandler.register(signal.SIGUSR1)
    threading.Thread(target=lambda: (sys.stdin.read(), ENDING.set()), daemon=True).start()
    code = 1
    try:
        roles[role](servers, name, History(path))
        code = 0
    finally:  # The error still holds the clients here; no `except` takes a KafkaError, which is no exception
        if code:
            sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main(ROLES, sys.argv[1:])
