"""Fetches of consumers that say in which rack they are, from nodes in one loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from halfmoon.adapters.kafka.protocol import FetchRequest
from tests.server.asking import FETCH, values_of
from tests.server.nodes.cluster import World

UNKNOWN = 3
OUT_OF_RANGE, FENCED, UNKNOWN_EPOCH, STORAGE_ERROR = 1, 74, 75, 56


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


async def placed(world: World, name: str) -> dict[int, tuple[int, int]]:
    """Partition → (its leader, another node)."""
    await world.led(name)
    leaders: Sequence[tuple[int, tuple[int, int]]] = list((await world.leaders(1, name)).items())
    return {index: (leader, next(n for n in world.nodes if n != leader)) for index, (leader, _) in leaders}
