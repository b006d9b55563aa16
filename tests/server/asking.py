"""What tests ask brokers over the wire that run in the same loop: by threads of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from halfmoon.adapters.kafka.protocol import FetchRequest, OffsetCommitRequest, OffsetFetchRequest, ProduceRequest
from halfmoon.core.records.batches import build_batch, iter_records
from tests.fuzz.peer import Peer

PRODUCE, FETCH, METADATA, COMMIT, COMMITTED, COORDINATOR, CREATE = 0, 1, 3, 8, 9, 10, 19
DESCRIBE_CLUSTER = 60
NONE, NOT_LEADER, NOT_COORDINATOR = 0, 6, 16


def values_of(batches: bytes) -> list[bytes]:
    found = []
    while batches:
        size = 12 + int.from_bytes(batches[8:12])
        found += [bytes(record.value or b"") for record in iter_records(batches[:size])]
        batches = batches[size:]
    return found


class Asking:
    def address_of(self, number: int) -> tuple[str, int]:
        """Of a broker's listener."""
        raise NotImplementedError

    async def ask(self, number: int, key: int, version: int, **fields: Any) -> Any:
        """By a client that is connected to this broker."""
        address = self.address_of(number)

        def ask() -> Any:
            with Peer(address) as peer:
                return peer.ask(key, version, **fields)

        return await asyncio.to_thread(ask)

    async def leaders(self, number: int, name: str) -> dict[int, tuple[int, int]]:
        """Partition → node, leader epoch; as this broker says, which may not have heard of the topic yet."""
        found = await self.ask(number, METADATA, 7, topics=None, allow_auto_topic_creation=False)
        return {
            part.partition_index: (part.leader_id, part.leader_epoch)
            for topic in found.topics
            if topic.name == name
            for part in topic.partitions
        }

    async def produce(
        self,
        number: int,
        name: str,
        partition: int,
        value: bytes,
        headers: Sequence[tuple[str, bytes]] = (),
        **sender: int,
    ) -> int:
        """The error code. `sender`: of an idempotent producer's batch, as `build_batch`."""
        topic = ProduceRequest.TopicProduceData
        records = build_batch([(None, value, 1_700_000_000_000, headers)], **sender)
        data = [topic(name=name, partition_data=[topic.PartitionProduceData(index=partition, records=records)])]
        answer = await self.ask(number, PRODUCE, 7, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data)
        return int(answer.responses[0].partition_responses[0].error_code)

    async def values(self, number: int, name: str, partition: int) -> list[bytes] | int:
        """Of all records; or the error code."""
        topic = FetchRequest.FetchTopic
        part = topic.FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
        answer = await self.ask(
            number, FETCH, 11, replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, isolation_level=0,
            session_id=0, session_epoch=-1, topics=[topic(topic=name, partitions=[part])],
        )  # fmt: skip
        (found,) = answer.responses[0].partitions
        return int(found.error_code) or values_of(bytes(found.records))

    async def commit(self, number: int, group: str, topic: str, partition: int, offset: int) -> int:
        """The error code."""
        of_topic = OffsetCommitRequest.OffsetCommitRequestTopic
        part = of_topic.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=""
        )
        answer = await self.ask(
            number, COMMIT, 2, group_id=group, generation_id_or_member_epoch=-1, member_id="", retention_time_ms=-1,
            topics=[of_topic(name=topic, partitions=[part])],
        )  # fmt: skip
        return int(answer.topics[0].partitions[0].error_code)

    async def committed(self, number: int, group: str, topic: str, partition: int) -> int:
        asked = [OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])]
        answer = await self.ask(number, COMMITTED, 1, group_id=group, topics=asked)
        found = answer.topics[0].partitions[0]
        assert found.error_code == NONE
        return int(found.committed_offset)

    async def coordinator(self, number: int, group: str) -> int:
        """The node; or −1."""
        (found,) = (await self.ask(number, COORDINATOR, 4, key_type=0, coordinator_keys=[group])).coordinators
        return int(found.node_id)
