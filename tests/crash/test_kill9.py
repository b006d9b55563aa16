"""kill −9, again and again, under a producer and a consumer that know nothing of it.

What was acknowledged is there, in the order it was sent, once; and the group's consumer gets all of it and goes on
after each restart. A view of it, and a view of that view, hold what matches, in that order, once. Delayed records are
delivered once, and half messages once if they were committed. What the consumer hands back comes again once, or is
given up once, though it hands it back again whenever it had not committed yet. What a killed process wrote stays in the
page cache, so `flush: interval` must hold it too; losing power is another test's business (tests/core/test_crashes.py).

The moments are left to chance; HALFMOON_TEST_SEED=N brings the same ones again, as far as threads allow.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from halfmoon.kafka import Nack
from tests.chance import seeded
from tests.crash.load import DEADLINE_S, DOOMED_MS, PARTITIONS, QUICK, TOPIC, Load, number_in
from tests.crash.serving import Serving, wait_until

KILLS = 20
GROUP = "readers"


class Reader(threading.Thread):
    """A group of one; commits as it goes. It hands every tenth record of a partition back, and gives up every third of
    those."""

    def __init__(self, servers: str) -> None:
        super().__init__(name="reader", daemon=True)
        self.seen: list[tuple[int, int, int]] = []
        """(partition, offset, number), as it came: after a restart the same again from the last commit on."""
        self.offsets = [-1] * PARTITIONS
        """The highest that came, per partition."""
        self.handed_back: set[bytes] = set()
        self.given_up: set[bytes] = set()
        """TOPIC/PARTITION/OFFSET of each."""
        self.errors: list[object] = []
        self.stopping = threading.Event()
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 1, **QUICK})
        self._nack = Nack(GROUP, self._producer)
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 50,
                "fetch.error.backoff.ms": 10,
                "fetch.wait.max.ms": 50,
                "topic.metadata.refresh.fast.interval.ms": 20,
                **QUICK,
            }
        )
        self._consumer.subscribe([TOPIC])

    def run(self) -> None:
        while not self.stopping.is_set():
            if len(self._producer) > UNACKNOWLEDGED:
                self._producer.poll(0.02)
                continue
            messages = self._consumer.consume(500, timeout=0.02)
            for message in messages:
                if message.error() is not None:
                    if not message.error().retriable() and message.error().code() >= 0:
                        self.errors.append(message.error())
                    continue
                partition, offset = message.partition(), message.offset()
                self.seen.append((partition, offset, number_in(message)))
                self.offsets[partition] = max(self.offsets[partition], offset)
                if offset % 10 == 0:
                    self._hand_back(message, offset)
            self._producer.poll(0)
            if messages and not len(self._producer):  # else what it handed back is not acknowledged yet
                self._commit()
        if self._producer.flush(DEADLINE_S):
            self.errors.append("not everything could be handed back in the end")
        self._consumer.close()

    def _hand_back(self, message: Message, offset: int) -> None:
        place = b"%s/%d/%d" % (TOPIC.encode(), message.partition(), offset)
        if offset % 30 == 0:
            self.given_up.add(place)
            self._nack.dead_letter(message)
        else:
            self.handed_back.add(place)
            self._nack(message, delay_ms=1 + offset % 500)

    def _commit(self) -> None:
        try:
            self._consumer.commit(asynchronous=True)
        except KafkaException:
            pass  # nothing consumed since the last one, or no group at the moment


VIEWS = {
    "even": {"halfmoon.view.source": TOPIC, "halfmoon.view.tag": "even"},
    "sixth": {"halfmoon.view.source": "even", "halfmoon.view.sql": "TAGS = 'even' AND rest = '0'"},
}


LATER, TRANSACTIONAL, DOOMED = "later", "transactional", "doomed"
UNACKNOWLEDGED = 50_000
"""While so many that were handed back are not acknowledged, no more are consumed; librdkafka keeps twice as many."""


def value_of(message: Message) -> bytes:
    value = message.value()
    assert value is not None
    return value


def origin_of(message: Message) -> bytes:
    """Where a record that was handed back had come from."""
    origin = dict(message.headers() or ())["ORIGIN_MESSAGE_ID"]
    assert isinstance(origin, bytes)
    return origin


def delivered(
    servers: str, topic: str, expected: int, told: Callable[[Message], bytes] = value_of, partitions: int = PARTITIONS
) -> list[bytes]:
    """What every message says in a topic into which the broker delivers. Waits until so many are there."""
    found: list[bytes] = []
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "check", "enable.auto.commit": False, **QUICK})
    try:
        places = [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)]

        def count() -> int:
            return sum(consumer.get_watermark_offsets(place, timeout=10)[1] for place in places)

        wait_until(lambda: count() >= expected, DEADLINE_S, "everything is delivered")
        consumer.assign(places)

        def step() -> bool:
            for message in consumer.consume(10_000, timeout=0.1):
                assert message.error() is None, message.error()
                found.append(told(message))
            return len(found) >= count()

        wait_until(step, DEADLINE_S, "reading what was delivered")
    finally:
        consumer.close()
    return found


def escaped_from(servers: str) -> list[bytes]:
    """What came of the messages that were cancelled. One that is due after all of them is sent, and has to come."""
    producer = Producer({"bootstrap.servers": servers, **QUICK})
    producer.produce(DOOMED, b"last", headers={"TIMER_DELAY_MS": str(DOOMED_MS)})
    assert producer.flush(DEADLINE_S) == 0
    found: list[bytes] = []

    def last_came() -> bool:
        found[:] = delivered(servers, DOOMED, 1, partitions=1)
        return b"last" in found

    wait_until(last_came, DEADLINE_S, "the last one is delivered")
    return [value for value in found if value != b"last"]


def stored(servers: str, topic: str, expected: int) -> list[list[int]]:
    """What is in the log: per partition, the numbers by offset. Waits until so many are there."""
    found: list[list[int]] = [[] for _ in range(PARTITIONS)]
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "check", "enable.auto.commit": False, **QUICK})
    try:
        places = [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)]

        def ends() -> list[tuple[int, int]]:
            return [consumer.get_watermark_offsets(place, timeout=10) for place in places]

        wait_until(lambda: sum(high for _, high in ends()) >= expected, DEADLINE_S, f"{topic} has it all")
        assert [low for low, _ in ends()] == [0] * PARTITIONS
        consumer.assign(places)
        wanted = sum(high for _, high in ends())

        def step() -> bool:
            for message in consumer.consume(10_000, timeout=0.1):
                assert message.error() is None, message.error()
                numbers = found[message.partition()]
                assert message.offset() == len(numbers)
                numbers.append(number_in(message))
            return sum(map(len, found)) >= wanted

        wait_until(step, DEADLINE_S, "reading it all again")
    finally:
        consumer.close()
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("flush", ["sync", "interval"])
def test_nothing_is_lost_doubled_or_out_of_order(tmp_path: Path, flush: str) -> None:
    dice = seeded()
    serving = Serving(tmp_path, log_flush=flush)
    serving.start()
    admin = AdminClient({"bootstrap.servers": serving.address, **QUICK})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(10)
    for name, view in VIEWS.items():
        admin.create_topics([NewTopic(name, -1, 1, config=view)])[name].result(10)
    for name, partitions in (
        (LATER, PARTITIONS), (TRANSACTIONAL, PARTITIONS), ("halfmoon.transactions", 1), (DOOMED, 1),
        (f"retry.{GROUP}", PARTITIONS),
    ):  # fmt: skip
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(10)
    load = Load(serving.address, random.Random(dice.getrandbits(32)), LATER, TRANSACTIONAL, DOOMED)
    reader = Reader(serving.address)
    threads: list[Any] = [load, reader]
    try:
        for thread in threads:
            thread.start()
        for kill in range(KILLS + 1):
            acknowledged = len(load.acknowledged)
            wait_until(lambda: len(load.acknowledged) > acknowledged, DEADLINE_S, f"the producer goes on, {kill}")  # noqa: B023
            _, offset, _ = load.acknowledged[-1]
            partition = load.acknowledged[-1][0]
            wait_until(lambda: reader.offsets[partition] >= offset, DEADLINE_S, f"the consumer goes on, {kill}")  # noqa: B023
            if kill == KILLS:
                break
            further = len(load.acknowledged) + dice.randrange(3_000)
            wait_until(lambda: len(load.acknowledged) >= further, DEADLINE_S, "a moment to kill it")  # noqa: B023
            serving.kill()
            serving.start()
        load.stopping.set()
        load.join(DEADLINE_S + 5)
        assert not load.is_alive()
        wait_until(lambda: sum(reader.offsets) + PARTITIONS == sum(load.sent), DEADLINE_S, "the consumer gets it all")
        log = stored(serving.address, TOPIC, sum(load.sent))
        later = delivered(serving.address, LATER, len(load.delayed))
        committed = delivered(serving.address, TRANSACTIONAL, len(load.committed))
        escaped = escaped_from(serving.address)
        reader.stopping.set()
        reader.join(DEADLINE_S + 5)
        assert not reader.is_alive()
        again = delivered(serving.address, f"retry.{GROUP}", len(reader.handed_back), origin_of)
        given_up = delivered(serving.address, f"dlq.{GROUP}", len(reader.given_up), origin_of, 1)
        views = {
            name: stored(serving.address, name, sum(-(-count // step) for count in load.sent))
            for name, step in (("even", 2), ("sixth", 6))
        }
    finally:
        for thread in threads:
            thread.stopping.set()
        for thread in threads:
            thread.join(DEADLINE_S)
        serving.stop()
    assert not load.errors
    assert not reader.errors
    # Everything that was sent was acknowledged in the end; so the log is exactly what was sent, in that order.
    assert log == [list(range(count)) for count in load.sent]
    assert len(load.delayed) > 1_000
    assert sorted(later) == sorted(load.delayed)
    in_time = {each for each, at in load.cancelled.items() if at - load.doomed[each] < DOOMED_MS / 1e3}
    assert len(in_time) > 300
    assert len(escaped) == len(set(escaped))
    assert in_time.isdisjoint(escaped)
    assert len(load.committed) > 1_000
    assert sorted(committed) == sorted(load.committed)
    assert len(reader.handed_back) > 1_000
    assert sorted(again) == sorted(reader.handed_back)
    assert sorted(given_up) == sorted(reader.given_up)
    assert views["even"] == [list(range(0, count, 2)) for count in load.sent]
    assert views["sixth"] == [list(range(0, count, 6)) for count in load.sent]
    assert len(load.acknowledged) == sum(load.sent)
    assert all(log[partition][offset] == number for partition, offset, number in load.acknowledged if offset >= 0)
    assert all(log[partition][offset] == number for partition, offset, number in reader.seen)
    check_progress(reader.seen)
    print(f"{sum(load.sent)} records, {len(reader.seen) - sum(load.sent)} read more than once")


def check_progress(seen: list[tuple[int, int, int]]) -> None:
    """The reader never skipped: an offset is new and the next one, or was there before."""
    upto: dict[int, int] = defaultdict(int)
    for partition, offset, _ in seen:
        assert offset <= upto[partition], f"partition {partition}: {offset} came, {upto[partition]} never did"
        upto[partition] = max(upto[partition], offset + 1)
