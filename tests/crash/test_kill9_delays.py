"""kill −9 while what waits is cancelled and rescheduled by somebody who knows no key: each message comes once, or was
cancelled; what was told to be cancelled does not come."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from halfmoon.services.delays import paging
from halfmoon.services.delays.questions import Answer, Cancel, Question, Reschedule, ScheduledMessage, Selection
from tests.chance import seeded
from tests.crash.load import QUICK
from tests.crash.serving import Serving, wait_until

KEY = 18506
TOPIC = "later"
MESSAGES = 2_000
KILLS = 3
DEADLINE_S = 120.0
HOUR_MS = 3_600_000


class Asker:
    """One connection."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._connection = socket.create_connection((host, int(port)), timeout=DEADLINE_S)
        self._stream = self._connection.makefile("rb")

    def ask(self, question: Question) -> Answer:
        """Raises OSError."""
        body = struct.pack(">hhih", KEY, 0, 7, -1) + msgspec.json.encode(question)
        self._connection.sendall(struct.pack(">i", len(body)) + body)
        head = self._stream.read(8)
        if len(head) < 8:
            raise ConnectionError("closed")
        size = struct.unpack(">i", head[:4])[0] - 4
        found = self._stream.read(size)
        if len(found) < size:
            raise ConnectionError("closed")
        answer = msgspec.json.decode(found, type=Answer)
        assert not answer.fault, answer
        return answer

    def run(self, asking: paging.Asking[paging.Result]) -> paging.Result:
        return paging.run(asking, self.ask)

    def close(self) -> None:
        self._stream.close()
        self._connection.close()


class Administrator(threading.Thread):
    """Lists what waits, and cancels and reschedules some of it, by ids and by selections."""

    def __init__(self, address: str, dice: random.Random) -> None:
        super().__init__(daemon=True)
        self._address = address
        self._dice = dice
        self.stopping = threading.Event()
        self.errors: list[str] = []
        self.tried: set[bytes] = set()
        """What may be cancelled."""
        self.cancelled: set[bytes] = set()
        """What is."""
        self.rescheduled = 0

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                try:
                    asker = Asker(self._address)
                    try:
                        while not self.stopping.is_set():
                            self._step(asker)
                    finally:
                        asker.close()
                except (OSError, paging.PartlyChangedError):
                    time.sleep(0.02)
        except Exception as error:
            self.errors.append(repr(error))
            raise

    def _step(self, asker: Asker) -> None:
        messages, _ = asker.run(paging.page(Selection(topic=TOPIC), 300))
        if not messages:
            time.sleep(0.01)
            return
        chosen = self._dice.sample(messages, min(len(messages), 20))
        self._cancel(asker, chosen[:5])
        ids = [each.id for each in chosen[5:]]
        if ids:
            self.rescheduled += asker.run(paging.change(Reschedule(in_ms=HOUR_MS), ids)).count
        window: dict[str, Any] = {"topic": TOPIC, "due_after_ms": messages[-1].due_ms}
        by_ms = self._dice.choice((-HOUR_MS // 2, HOUR_MS // 2))
        question = Reschedule(selection=Selection(**window), by_ms=by_ms)
        self.rescheduled += asker.run(paging.change(question)).count

    def _cancel(self, asker: Asker, chosen: list[ScheduledMessage]) -> None:
        for each in chosen:
            value = each.key or b""
            self.tried.add(value)
            if asker.run(paging.change(Cancel(), [each.id])).count:
                self.cancelled.add(value)


def consumed(servers: str) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False, **QUICK})
    place = TopicPartition(TOPIC, 0, 0)
    _, end = consumer.get_watermark_offsets(place, timeout=60)
    consumer.assign([place])
    found: list[bytes] = []
    while len(found) < end:
        for message in consumer.consume(1_000, 1):
            assert message.error() is None, message.error()
            found.append(message.value())
    consumer.close()
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("flush", ["sync", "interval"])
def test_each_comes_once_or_is_cancelled(tmp_path: Path, flush: str) -> None:
    dice = seeded()
    serving = Serving(tmp_path, log_flush=flush, topics_partitions="1")
    serving.start()
    producer = Producer({"bootstrap.servers": serving.address, "enable.idempotence": True, **QUICK})
    for number in range(MESSAGES):
        value = b"%d" % number
        delay_ms = dice.choice((dice.randrange(1_000, 20_000), dice.randrange(HOUR_MS, 2 * HOUR_MS)))
        header = ("DELAY", "18") if number % 7 == 0 else ("TIMER_DELAY_MS", str(delay_ms))
        producer.produce(TOPIC, value, value, headers=[header])
    assert producer.flush(DEADLINE_S) == 0
    administrator = Administrator(serving.address, dice)

    def went_on() -> bool:
        assert not administrator.errors, administrator.errors
        return administrator.rescheduled > before[0] + 200 and len(administrator.cancelled) > before[1] + 10

    try:
        administrator.start()
        for kill in range(KILLS):
            before = administrator.rescheduled, len(administrator.cancelled)
            wait_until(went_on, DEADLINE_S, f"it goes on, {kill}")
            time.sleep(dice.random() * 0.2)
            serving.kill()
            serving.start()
        administrator.stopping.set()
        administrator.join(DEADLINE_S)
        assert not administrator.errors, administrator.errors
        asker = Asker(serving.address)
        asker.run(paging.change(Reschedule(selection=Selection(topic=TOPIC), in_ms=0)))
        wait_until(lambda: asker.run(paging.count(Selection(topic=TOPIC))) == [], DEADLINE_S, "all are delivered")
        asker.close()
        found = consumed(serving.address)
        everything = {b"%d" % number for number in range(MESSAGES)}
        assert len(set(found)) == len(found), "delivered twice"
        assert not administrator.cancelled & set(found), "cancelled, and delivered all the same"
        assert everything - set(found) <= administrator.tried, "lost"
    finally:
        administrator.stopping.set()
        serving.stop()
