"""Fetches of consumers that say in which rack they are, from nodes in one loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from halfmoon.adapters.kafka.protocol import DeleteRecordsRequest, FetchRequest, ProduceRequest
from halfmoon.core.records.batches import build_batch
from tests.fuzz.peer import ClosedError
from tests.server.asking import FETCH, NONE, PRODUCE, values_of
from tests.server.nodes.cluster import World

DELETE_RECORDS = 21
OUT_OF_RANGE, STORAGE_ERROR, FENCED, UNKNOWN_EPOCH = 1, 56, 74, 75


class Answer(NamedTuple):
    """Of one partition."""

    error: int
    values: list[bytes]
    high_watermark: int
    stable_offset: int
    start_offset: int
    preferred: int
    aborted: list[tuple[int, int]] | None
    records: bytes


async def fetch_all(
    world: World,
    number: int,
    name: str,
    offsets: dict[int, int],
    *,
    rack: str,
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    most_bytes: int = 1 << 20,
    committed: bool = False,
    epochs: dict[int, int] | None = None,
    version: int = 12,
) -> dict[int, Answer]:
    """Partitions of a topic from these offsets on, by node `number`."""
    topic = FetchRequest.FetchTopic
    parts = [
        topic.FetchPartition(
            partition=index, fetch_offset=offset, partition_max_bytes=most_bytes,
            current_leader_epoch=(epochs or {}).get(index, -1),
        )
        for index, offset in offsets.items()
    ]  # fmt: skip
    answer = await world.ask(
        number, FETCH, version, replica_id=-1, max_wait_ms=wait_ms, min_bytes=min_bytes, max_bytes=max_bytes,
        isolation_level=int(committed), session_id=0, session_epoch=-1, rack_id=rack,
        topics=[topic(topic=name, partitions=parts)],
    )  # fmt: skip
    return {part.partition_index: _answer(part) for part in answer.responses[0].partitions}


async def fetch(world: World, number: int, name: str, index: int, offset: int, *, rack: str, **more: Any) -> Answer:
    return (await fetch_all(world, number, name, {index: offset}, rack=rack, **more))[index]


def _answer(part: Any) -> Answer:
    records = bytes(part.records or b"")
    aborted = part.aborted_transactions
    return Answer(
        int(part.error_code), values_of(records), int(part.high_watermark), int(part.last_stable_offset),
        int(part.log_start_offset), int(part.preferred_read_replica),
        None if aborted is None else [(int(each.producer_id), int(each.first_offset)) for each in aborted], records,
    )  # fmt: skip


async def in_balance(world: World) -> None:
    """All nodes know each other, are connected, and have their part of the shards."""
    nodes = world.nodes.values()
    await world.until(lambda: all(len(node.place.members) == len(nodes) for node in nodes))
    await world.until(lambda: all(all(node.worker.links.others().values()) for node in nodes))
    await world.until(lambda: max(map(len, world.holders().values())) - min(map(len, world.holders().values())) <= 1)
    await world.shared_out()


def requests(world: World, source: str) -> float:
    """What nodes have asked of the store or the database for consumers of their racks, as their metrics say."""
    found: dict[tuple[str, ...], float] = {}

    def put(name: str, value: float, *labels: str) -> None:
        found[name, *labels] = found.get((name, *labels), 0) + value

    for node in world.nodes.values():
        assert node.worker.more_metrics is not None
        node.worker.more_metrics.read(put)
    return found["halfmoon_replica_requests_total", source]


async def placed(world: World, name: str) -> dict[int, tuple[int, int]]:
    """Partition → (its leader, another node)."""
    await world.led(name)
    leaders: Sequence[tuple[int, tuple[int, int]]] = list((await world.leaders(1, name)).items())
    return {index: (leader, next(n for n in world.nodes if n != leader)) for index, (leader, _) in leaders}


async def produce_keyed(world: World, number: int, name: str, index: int, rows: Sequence[tuple[bytes, bytes]]) -> None:
    """A batch of keys and values."""
    topic = ProduceRequest.TopicProduceData
    records = build_batch([(key, value, 1_700_000_000_000, ()) for key, value in rows])
    data = [topic(name=name, partition_data=[topic.PartitionProduceData(index=index, records=records)])]
    answer = await world.ask(number, PRODUCE, 7, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data)
    assert answer.responses[0].partition_responses[0].error_code == NONE


async def delete_before(world: World, number: int, name: str, index: int, offset: int) -> None:
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    part = topic.DeleteRecordsPartition(partition_index=index, offset=offset)
    answer = await world.ask(number, DELETE_RECORDS, 1, topics=[topic(name=name, partitions=[part])], timeout_ms=5000)
    assert answer.topics[0].partitions[0].error_code == NONE


class Consumer:
    """Reads one partition as Kafka's consumer does: from its leader, or from the node that the leader names, until that
    one refuses."""

    def __init__(self, world: World, name: str, index: int, rack: str) -> None:
        self._world = world
        self._name = name
        self._index = index
        self._rack = rack
        self._preferred = -1
        self.values: list[bytes] = []
        self.offset = 0
        self.by_replica = 0
        """Records that it got from a node that does not lead the partition."""
        self.refusals = 0

    async def read_until(self, count: int) -> None:
        """It has so many records."""
        async with asyncio.timeout(60):
            while len(self.values) < count:
                await self._read()

    async def _read(self) -> None:
        world, node = self._world, self._preferred
        try:
            if node not in world.nodes:
                self._preferred = -1
                asked = next(iter(world.nodes))
                node, _ = (await world.leaders(asked, self._name)).get(self._index, (-1, -1))
            if node not in world.nodes:
                await asyncio.sleep(0.02)
                return
            found = await fetch(
                world, node, self._name, self._index, self.offset, rack=self._rack, wait_ms=200, max_bytes=2_000
            )
        except (OSError, ClosedError):
            self._preferred = -1
            self.refusals += 1
            return
        assert found.error != OUT_OF_RANGE
        if found.error:
            self.refusals += 1
            self._preferred = -1
            await asyncio.sleep(0.02)
        elif found.preferred >= 0:
            self._preferred = found.preferred
        else:
            self.values += found.values
            self.offset += len(found.values)
            if self._preferred >= 0:
                self.by_replica += len(found.values)


class Producer:
    """Numbers, in order, to whoever leads the partition."""

    def __init__(self, world: World, name: str, index: int) -> None:
        self._world = world
        self._place = name, index
        self.sent: list[bytes] = []

    async def send(self, count: int) -> None:
        for _ in range(count):
            value = b"%d" % len(self.sent)
            await self._world.send(*self._place, value)
            self.sent.append(value)
