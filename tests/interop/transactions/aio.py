"""aiokafka, in an event loop of a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import InvalidProducerEpoch, ProducerFenced

from tests.interop.transactions.kit import DEADLINE_S, POLL_S, Kit, Member, Producer, Taken

T = TypeVar("T")


class Loop:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(2 * DEADLINE_S)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class AioProducer(Producer):
    def __init__(self, loop: Loop, servers: str, transactional_id: str, timeout_ms: int) -> None:
        self._loop = loop
        self._group: str | None = None
        self._sent: list[asyncio.Future[object]] = []
        loop.run(self._start(servers, transactional_id, timeout_ms))

    async def _start(self, servers: str, transactional_id: str, timeout_ms: int) -> None:
        self.client = AIOKafkaProducer(
            bootstrap_servers=servers, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        await self.client.start()

    def begin(self) -> None:
        self._loop.run(self.client.begin_transaction())

    def send(self, topic: str, value: str, partition: int = 0) -> None:
        self._sent.append(self._loop.run(self.client.send(topic, value.encode(), partition=partition)))

    def flush(self) -> None:
        self._loop.run(self._flush())

    async def _flush(self) -> None:
        sent, self._sent = self._sent, []
        await self.client.flush()
        for future in sent:
            await asyncio.wait_for(future, DEADLINE_S)

    def commit(self) -> None:
        self._loop.run(self.client.commit_transaction())

    def abort(self) -> None:
        self._sent.clear()
        self._loop.run(self.client.abort_transaction())

    def send_offsets(self, member: Member, topic: str, offsets: dict[int, int]) -> None:
        assert isinstance(member, AioMember)
        assert member.group is not None
        made = {TopicPartition(topic, number): offset for number, offset in offsets.items()}
        self._loop.run(self.client.send_offsets_to_transaction(made, member.group))

    def close(self) -> None:
        self._loop.run(asyncio.wait_for(self.client.stop(), 5))


class AioMember(Member):
    def __init__(self, loop: Loop, servers: str, group: str | None, isolation: str) -> None:
        self._loop = loop
        self.group = group
        loop.run(self._start(servers, isolation))

    async def _start(self, servers: str, isolation: str) -> None:
        self.client = AIOKafkaConsumer(
            bootstrap_servers=servers, group_id=self.group, isolation_level=isolation, enable_auto_commit=False,
            auto_offset_reset="earliest", fetch_max_wait_ms=100,
        )  # fmt: skip
        await self.client.start()

    async def subscribe(self, topic: str) -> None:
        self.client.subscribe([topic])

    async def assign(self, topic: str, partitions: int) -> None:
        self.client.assign([TopicPartition(topic, number) for number in range(partitions)])

    def poll(self) -> list[Taken]:
        found = self._loop.run(self.client.getmany(timeout_ms=int(POLL_S * 1e3)))
        return [
            Taken(record.partition, record.offset, record.value.decode())
            for records in found.values()
            for record in records
        ]

    def rewind(self, topic: str) -> None:
        self._loop.run(self._rewind())

    async def _rewind(self) -> None:
        for partition in self.client.assignment():
            offset = await self.client.committed(partition)
            if offset is None:
                await self.client.seek_to_beginning(partition)
            else:
                self.client.seek(partition, offset)

    def close(self) -> None:
        self._loop.run(self.client.stop())


class AioKit(Kit):
    name = "aiokafka"

    def __init__(self, servers: str) -> None:
        super().__init__(servers)
        self._loop = Loop()

    def new_producer(self, transactional_id: str, timeout_ms: int) -> AioProducer:
        return AioProducer(self._loop, self.servers, transactional_id, timeout_ms)

    def new_member(self, group: str, topic: str) -> AioMember:
        member = AioMember(self._loop, self.servers, group, "read_committed")
        self._loop.run(member.subscribe(topic))
        return member

    def new_reader(self, topic: str, isolation: str, partitions: int) -> AioMember:
        reader = AioMember(self._loop, self.servers, None, isolation)
        self._loop.run(reader.assign(topic, partitions))
        return reader

    def is_fenced(self, error: Exception) -> bool:
        return isinstance(error, ProducerFenced | InvalidProducerEpoch)

    def close(self) -> None:
        super().close()
        self._loop.close()
