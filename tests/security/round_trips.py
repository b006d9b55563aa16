"""A record to a topic and back through a client, whatever it logs in with: what came."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer

VALUE = b"v"


def librdkafka(config: dict[str, Any]) -> bytes | None:
    producer = Producer(config)
    if "oauth_cb" in config:
        producer.poll(0.5)  # it is called here
    producer.produce("t", VALUE)
    assert producer.flush(20) == 0
    consumer = Consumer({**config, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    message = consumer.poll(20)
    consumer.close()
    return None if message is None else message.value()


def kafka_python(config: dict[str, Any]) -> bytes | None:
    producer = KafkaProducer(**config)
    producer.send("t", VALUE).get(20)
    producer.close()
    consumer = KafkaConsumer("t", **config, group_id="g", auto_offset_reset="earliest", consumer_timeout_ms=20_000)
    value: bytes | None = next(consumer).value
    consumer.close()
    return value


def aiokafka(config: dict[str, Any]) -> bytes | None:
    async def run() -> bytes | None:
        producer = AIOKafkaProducer(**config)
        await producer.start()
        await producer.send_and_wait("t", VALUE)
        await producer.stop()
        consumer = AIOKafkaConsumer("t", **config, group_id="g", auto_offset_reset="earliest")
        await consumer.start()
        value: bytes | None = (await asyncio.wait_for(consumer.getone(), 20)).value
        await consumer.stop()
        return value

    return asyncio.run(run())
