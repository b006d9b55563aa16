"""An idempotent producer that goes on whatever happens to the broker, and remembers what was acknowledged."""

from __future__ import annotations

import random
import threading
import time

from confluent_kafka import KafkaError, Message, Producer

PARTITIONS = 3
TOPIC = "work"
DEADLINE_S = 60.0
IN_FLIGHT = 3_000
"""So many records are waiting for an acknowledgement at a time."""
RATE = 20_000
"""Records a second on average: a consumer that reads much again after each kill must be able to catch up."""

DOOMED_MS = 4_000
"""So long wait messages that are cancelled meanwhile."""

QUICK = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 10,
    "log_level": 0,  # a broker that goes away is worth a line to them, and expected here
}


class Load(threading.Thread):
    """An idempotent producer: 0, 1, 2, … into each partition, until told to stop."""

    def __init__(
        self,
        servers: str,
        dice: random.Random,
        later: str | None = None,
        transactional: str | None = None,
        doomed: str | None = None,
    ) -> None:
        """`later`: a topic to which every tenth record is sent too, to be delivered up to two seconds later.
        `transactional`: one to which it is sent as a half message, which is committed or rolled back in turn.
        `doomed`: one to which every fiftieth is sent to be delivered later, and cancelled."""
        super().__init__(name="load", daemon=True)
        self.delayed: list[bytes] = []
        self.committed: list[bytes] = []
        self.doomed: dict[bytes, float] = {}
        """What was sent there, and when (monotonic, s)."""
        self.cancelled: dict[bytes, float] = {}
        """What was cancelled, and when that was acknowledged."""
        self._doomed = doomed
        self._later = later
        self._transactional = transactional
        self._ends = 0
        self.sent = [0] * PARTITIONS
        self.acknowledged: list[tuple[int, int, int]] = []
        """(partition, offset, number)"""
        self.errors: list[object] = []
        self.stopping = threading.Event()
        self._dice = dice
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 200,
                "message.timeout.ms": 120_000,
                "error_cb": self._failed,
                **QUICK,
            }
        )

    def _failed(self, error: KafkaError) -> None:
        if error.fatal():
            self.errors.append(error)

    def run(self) -> None:
        begun_s = time.monotonic()
        while not self.stopping.is_set():
            sent = sum(self.sent)
            if sent - len(self.acknowledged) >= IN_FLIGHT or sent >= (time.monotonic() - begun_s) * RATE:
                self._producer.poll(0.01)
                continue
            partition = self._dice.randrange(PARTITIONS)
            number = self.sent[partition]
            self.sent[partition] += 1
            filler = b"." * self._dice.randrange(300)
            self._producer.produce(
                TOPIC,
                b"%d %s" % (number, filler),
                partition=partition,
                headers={"TAGS": "odd" if number % 2 else "even", "rest": str(number % 3)},
                on_delivery=self._ended,
            )
            if self._later is not None and sum(self.sent) % 10 == 0:
                value = b"%d-%d" % (partition, number)
                self.delayed.append(value)
                delay_ms = str(self._dice.randrange(1, 2_000))
                self._producer.produce(
                    self._later,
                    value,
                    partition=partition,
                    headers={"TIMER_DELAY_MS": delay_ms},
                    on_delivery=self._late,
                )
            if self._transactional is not None and sum(self.sent) % 10 == 5:
                self._prepare(b"%d-%d" % (partition, number), partition)
            if self._doomed is not None and sum(self.sent) % 50 == 7:
                self._doom(b"%d-%d" % (partition, number))
            self._producer.poll(0)
        while self._ends and self._producer.poll(0.1) is not None and not self.errors:
            pass  # half messages whose end is still to be sent
        if self._producer.flush(DEADLINE_S):
            self.errors.append("not everything could be sent in the end")

    def _prepare(self, value: bytes, partition: int) -> None:
        assert self._transactional is not None
        commit = len(self.committed) % 3 != 2 or self._dice.random() < 0.5
        if commit:
            self.committed.append(value)
        self._ends += 1
        named = {"PGROUP": "load", "UNIQ_KEY": value}

        def prepared(error: KafkaError | None, message: Message) -> None:
            self._ends -= 1
            if error is not None:
                self.errors.append(error)
                return
            end = {**named, "TRAN_STATE": "commit" if commit else "rollback"}
            self._producer.produce("halfmoon.transactions", b"", headers=end, on_delivery=self._late)

        self._producer.produce(
            self._transactional, value, partition=partition, headers={"TRAN_MSG": "true", **named}, on_delivery=prepared
        )

    def _doom(self, value: bytes) -> None:
        """Delay a message, and cancel it: at once, so that both may be in one batch, or once it is acknowledged."""
        assert self._doomed is not None
        topic, at_once = self._doomed, self._dice.random() < 0.5
        self.doomed[value] = time.monotonic()

        def cancel(error: KafkaError | None = None, message: Message | None = None) -> None:
            self._ends -= 1
            if error is not None:
                self.errors.append(error)
                return
            self._producer.produce(topic, b"", partition=0, headers={"TIMER_DEL_UNIQKEY": value}, on_delivery=ended)

        def ended(error: KafkaError | None, message: Message) -> None:
            self._late(error, message)
            self.cancelled[value] = time.monotonic()

        headers = {"UNIQ_KEY": value, "TIMER_DELAY_MS": str(DOOMED_MS)}
        self._ends += 1
        self._producer.produce(
            topic, value, partition=0, headers=headers, on_delivery=self._late if at_once else cancel
        )
        if at_once:
            cancel()

    def _late(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)

    def _ended(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.acknowledged.append((message.partition(), message.offset(), number_in(message)))


def number_in(message: Message) -> int:
    value = message.value()
    assert value is not None
    return int(value.split(b" ")[0])
