"""Idempotent producers send on while the disk of a broker dies and the power goes: nothing acknowledged is lost, and
nothing is stored twice. `make interop` has Java's client and franz-go.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaError, Message, Producer

from tests.crash.dying_broker import check_once, dying_broker, stored, until, when_well
from tests.crash.dying_disk import PARTITIONS, TOPIC
from tests.crash.load import QUICK

PRODUCERS = 6
MOST_WAITING = 3_000


@pytest.mark.timeout(120)
def test_librdkafka() -> None:
    """Producers that are not busy: new batches come while old ones are tried again, and follow on them closely."""
    acknowledged: list[bytes] = []
    errors: list[KafkaError] = []

    def told(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)
        else:
            acknowledged.append(message.value())

    config = QUICK | {"enable.idempotence": True, "retry.backoff.max.ms": 20, "linger.ms": 0, "batch.size": 200}
    with dying_broker(seed=1) as (servers, program):
        until(program, "ready")
        producers = [Producer(config | {"bootstrap.servers": servers}) for _ in range(PRODUCERS)]
        well = when_well(program)
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
    check_once(found, number)


@pytest.mark.timeout(120)
def test_aiokafka() -> None:
    number = 0

    async def send(servers: str, well: threading.Event) -> None:
        nonlocal number
        config: dict[str, Any] = {"enable_idempotence": True, "retry_backoff_ms": 20, "max_batch_size": 200}
        producers = [AIOKafkaProducer(bootstrap_servers=servers, **config) for _ in range(PRODUCERS)]
        await asyncio.gather(*(producer.start() for producer in producers))
        waiting: list[asyncio.Future[Any]] = []
        while not well.is_set():
            for producer in producers:
                waiting.append(await producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS))
                number += 1
            await asyncio.sleep(0.002)
        await asyncio.gather(*waiting)
        await asyncio.gather(*(producer.stop() for producer in producers))

    with dying_broker(seed=1) as (servers, program):
        until(program, "ready")
        asyncio.run(send(servers, when_well(program)))
        found = stored(servers)
    check_once(found, number)
