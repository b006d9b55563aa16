"""AsyncBroker: a test that is a coroutine waits for the broker, and its clients go on meanwhile."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import ParamSpec

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import InvalidReplicationFactorError, KafkaError

from halfmoon.testing import AsyncBroker, Broker

P = ParamSpec("P")


def in_a_loop(test: Callable[P, Coroutine[object, object, None]]) -> Callable[P, None]:
    """What a plugin for such tests does."""

    @functools.wraps(test)
    def run(*given: P.args, **named: P.kwargs) -> None:
        asyncio.run(test(*given, **named))

    return run


@in_a_loop
async def test_a_whole_life() -> None:
    async with AsyncBroker(config={"topics": {"partitions": 2}}) as broker:
        servers = broker.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
            await producer.send_and_wait("orders", b"later", headers=[("TIMER_DELAY_SEC", b"3600")], partition=0)
            before_ms = broker.now_ms
            await broker.advance("1h")
            assert broker.now_ms - before_ms >= 3_600_000
            (found,) = await broker.records("orders", at_least=1)
            assert found.value == b"later"
            failure = await broker.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", 2)
            await producer.send_and_wait("orders", b"two", partition=0)
            assert failure.met == 2
            lost = await broker.disconnect("Produce", handled=True)
            assert lost is not None
            await producer.send_and_wait("orders", b"three", partition=0)
            with await broker.latency("200ms", "Produce"):
                begun_s = asyncio.get_running_loop().time()
                await producer.send_and_wait("orders", b"four", partition=0)
                assert asyncio.get_running_loop().time() - begun_s >= 0.2
            await broker.kill()
            await broker.restart()
            await producer.send_and_wait("orders", b"five", partition=0)
        assert (await broker.produce("orders", "six", partition=1)).offset == 0
        values = [each.value for each in await broker.records("orders", partition=0)]
        assert values == [b"later", b"two", b"three", b"four", b"five"]
        await broker.heal()
    assert not broker.broker.is_running


@in_a_loop
async def test_the_loop_goes_on() -> None:
    """A consumer of the test's loop gets a message while the test waits."""
    async with AsyncBroker() as broker:
        await broker.produce("orders", "later", headers={"TIMER_DELAY_SEC": "3600"})
        async with AIOKafkaConsumer(
            "orders", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", group_id="g"
        ) as consumer:
            got = asyncio.create_task(consumer.getone())
            await asyncio.sleep(0.5)
            assert not got.done()
            await broker.advance("1h")
            assert (await asyncio.wait_for(got, 20)).value == b"later"
            await consumer.commit()


@in_a_loop
async def test_an_error_is_the_clients() -> None:
    async with AsyncBroker() as broker:
        await broker.produce("orders", "zero")
        await broker.fail_next("Produce", "INVALID_REPLICATION_FACTOR")
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            with pytest.raises(KafkaError) as raised:
                await producer.send_and_wait("orders", b"one")
            assert isinstance(raised.value, InvalidReplicationFactorError)


@in_a_loop
async def test_a_snapshot(tmp_path: Path) -> None:
    async with AsyncBroker() as broker:
        await broker.produce("orders", "one")
        await broker.save(tmp_path / "saved")
    async with AsyncBroker.from_snapshot(tmp_path / "saved") as again:
        assert [each.value for each in await again.records("orders")] == [b"one"]


@in_a_loop
async def test_over_a_broker_that_there_is() -> None:
    with Broker() as broker:
        shell = AsyncBroker(broker)
        assert shell.bootstrap_servers == broker.bootstrap_servers
        assert shell.client_config() == broker.client_config()
        assert shell.kafka_python_config() == broker.kafka_python_config()
        await shell.produce("orders", "one")
        assert len(broker.records("orders")) == 1
