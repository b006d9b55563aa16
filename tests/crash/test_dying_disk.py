"""Idempotent producers send on while the disk of a broker dies and the power goes: nothing acknowledged is lost, and
nothing is stored twice. Java's client and franz-go are in tests/interop.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.crash.dying_disk import PARTITIONS, TOPIC
from tests.crash.load import QUICK
from tests.crash.serving import free_port

ROOT = Path(__file__).parents[2]
LIVES = 5
PRODUCERS = 6
MOST_WAITING = 3_000


@contextmanager
def dying_broker(seed: int, lives: int = LIVES, flush: str = "sync") -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Its address, and the program."""
    port = free_port()
    command = [sys.executable, "-m", "tests.crash.dying_disk", str(port), str(seed), str(lives), flush]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        try:
            yield f"127.0.0.1:{port}", program
        finally:
            program.kill()


def until(program: subprocess.Popen[str], line: str) -> None:
    assert program.stdout is not None
    for found in program.stdout:
        if found.strip() == line:
            return
    raise AssertionError(f"it ended before it was {line}")


def stored(servers: str) -> list[bytes]:
    """All values there are."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False, **QUICK})
    found: list[bytes] = []
    for index in range(PARTITIONS):
        place = TopicPartition(TOPIC, index, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=20)
        consumer.assign([place])
        position = 0
        while position < end:
            for message in consumer.consume(1_000, 1):
                assert message.error() is None, message.error()
                found.append(message.value())
                position = message.offset() + 1
    consumer.close()
    return found


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", [1, 2])
def test_librdkafka(seed: int) -> None:
    """Producers that are not busy: new batches come while old ones are tried again, and follow on them closely."""
    acknowledged: list[bytes] = []
    errors: list[KafkaError] = []

    def told(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)
        else:
            acknowledged.append(message.value())

    config = QUICK | {"enable.idempotence": True, "retry.backoff.max.ms": 20, "linger.ms": 0, "batch.size": 200}
    with dying_broker(seed) as (servers, program):
        until(program, "ready")
        producers = [Producer(config | {"bootstrap.servers": servers}) for _ in range(PRODUCERS)]
        well = threading.Event()
        threading.Thread(target=lambda: (until(program, "well"), well.set()), daemon=True).start()
        number = 0
        while not well.is_set():
            for producer in producers:
                if len(producer) < MOST_WAITING:
                    producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=told)
                    number += 1
                producer.poll(0.0003)
        assert [producer.flush(60) for producer in producers] == [0] * PRODUCERS
        assert errors == []
        found = stored(servers)
    assert len(acknowledged) == number
    assert sorted(found, key=int) == [b"%d" % each for each in range(number)], "lost, or stored twice"
