"""kill −9, again and again, under transactional producers that know nothing of it.

Two producers write transactions of a few records each into all partitions, with a group's progress, and abort every
third. A transaction whose commit was answered is there as a whole, in order, once; of one that was aborted nothing is
seen by a reader of committed records, and nothing hangs in the end. Losing power is another test's business
(tests/services/transactions/test_transaction_crashes.py).

HALFMOON_TEST_SEED=N brings the same moments again, as far as threads allow.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.chance import seeded
from tests.crash.load import DEADLINE_S, PARTITIONS, QUICK
from tests.crash.serving import Serving, wait_until

KILLS = 8
TOPIC = "accounts"
RECORDS = 4
"""In each partition, of one transaction."""


class Transactions(threading.Thread):
    """Transactions, numbered, one after the other. Their outcome is always known: the client asks until it is told."""

    def __init__(self, servers: str, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._servers = servers
        self.committed: list[int] = []
        self.aborted: list[int] = []
        self.errors: list[object] = []
        self.fenced = 0
        self.stopping = threading.Event()
        self._producer = self._new()

    def _new(self) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._servers,
                "transactional.id": self.name,
                "transaction.timeout.ms": 60_000,
                "linger.ms": 0,
                **QUICK,
            }
        )

    def run(self) -> None:
        try:
            self._producer.init_transactions(DEADLINE_S)
            number = 0
            while not self.stopping.is_set():
                self._transact(number, abort=number % 3 == 2)
                number += 1
        except Exception as error:
            self.errors.append(error)

    def _transact(self, number: int, *, abort: bool) -> None:
        """Raises KafkaException where the producer is of no more use."""
        producer = self._producer
        producer.begin_transaction()
        for index in range(RECORDS):
            for partition in range(PARTITIONS):
                producer.produce(TOPIC, f"{self.name}/{number}/{index}".encode(), partition=partition)
        try:
            if abort:
                producer.flush(DEADLINE_S)
                self._abort(number)
                return
            self._again(lambda: producer.commit_transaction(DEADLINE_S))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._abort(number)
        else:
            self.committed.append(number)

    def _abort(self, number: int) -> None:
        self._again(lambda: self._producer.abort_transaction(DEADLINE_S))
        self.aborted.append(number)

    def _again(self, call: object) -> None:
        assert callable(call)
        while True:
            try:
                call()
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return


def read(servers: str, isolation: str) -> list[list[bytes]]:
    """Per partition, what a reader gets up to the end."""
    found: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    ended: set[int] = set()
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "check",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            **QUICK,
        }
    )
    try:
        consumer.assign([TopicPartition(TOPIC, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])

        def step() -> bool:
            for message in consumer.consume(10_000, timeout=0.1):
                error = message.error()
                if error is not None:
                    assert error.name() == "_PARTITION_EOF", error
                    ended.add(message.partition())
                else:
                    value = message.value()
                    assert value is not None
                    found[message.partition()].append(value)
            return len(ended) == PARTITIONS

        wait_until(step, DEADLINE_S, f"reading it all, {isolation}")
    finally:
        consumer.close()
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("flush", ["sync", "interval"])
def test_transactions_are_there_as_a_whole_or_not_at_all(tmp_path: Path, flush: str) -> None:
    dice = seeded()
    serving = Serving(tmp_path, log_flush=flush)
    serving.start()
    admin = AdminClient({"bootstrap.servers": serving.address, **QUICK})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(10)
    producers = [Transactions(serving.address, name) for name in ("x", "y")]
    try:
        for producer in producers:
            producer.start()
        for kill in range(KILLS + 1):
            for producer in producers:
                further = len(producer.committed) + 1 + dice.randrange(15)
                wait_until(
                    lambda: len(producer.committed) >= further or producer.errors,  # noqa: B023
                    DEADLINE_S,
                    f"producer {producer.name} goes on, {kill}",
                )
                assert not producer.errors
            if kill < KILLS:
                serving.kill()
                serving.start()
        for producer in producers:
            producer.stopping.set()
            producer.join(DEADLINE_S)
            assert not producer.is_alive()
        committed, everything = read(serving.address, "read_committed"), read(serving.address, "read_uncommitted")
    finally:
        for producer in producers:
            producer.stopping.set()
            producer.join(DEADLINE_S)
        serving.stop()
    for producer in producers:
        assert not producer.errors
        assert len(producer.committed) > KILLS
        assert len(producer.aborted) > KILLS // 2
        expected = [
            f"{producer.name}/{number}/{index}".encode() for number in producer.committed for index in range(RECORDS)
        ]
        for values in committed:
            assert [value for value in values if value.startswith(producer.name.encode())] == expected
    assert all(len(all_of) > len(some) for all_of, some in zip(everything, committed, strict=True))
