"""What partitions and groups have come to: read in slices, and the loop turns in between."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from halfmoon.core.catalog.topics import RemotePartition
from halfmoon.server.reading_types import OTHER_TOPICS, GroupReading, Readings, TopicReading, TrafficReading
from halfmoon.services.groups.names import GroupListing

if TYPE_CHECKING:
    from halfmoon.core.catalog.catalog import Catalog
    from halfmoon.core.catalog.topics import Partition, Topic
    from halfmoon.server import assembly

SLICE_S = 0.0005
"""How long a walk keeps the loop before it lets it turn."""
UNKNOWN = -1
"""High watermark of a partition that lies in another shard."""
CHUNK = 100
"""Partitions between two looks at the clock."""


class Slices:
    """Says when a walk has kept the loop long enough."""

    def __init__(self) -> None:
        self._until = time.perf_counter() + SLICE_S

    async def breathe(self) -> None:
        """Let the loop turn, if it is time."""
        if time.perf_counter() >= self._until:
            await asyncio.sleep(0)
            self._until = time.perf_counter() + SLICE_S


def traffic(catalogs: Sequence[Catalog]) -> list[TrafficReading]:
    """Of topics that had any, a line each while there are few, and one for all others."""
    found: dict[str, TrafficReading] = {}
    rest = TrafficReading(OTHER_TOPICS, 0, 0, 0)
    for catalog in catalogs:
        others = catalog.traffic.others
        rest = rest.plus(others)
        for topic in catalog.by_number.values():
            traffic = topic.traffic
            if traffic is not None and traffic is not others:
                found[topic.name] = found.get(topic.name, TrafficReading(topic.name, 0, 0, 0)).plus(traffic)
    return [*found.values(), rest]


async def topics(catalogs: Sequence[Catalog], slices: Slices) -> list[TopicReading]:
    """What one catalog knows of a topic, or several of its parts, which are put together."""
    found: dict[str, TopicReading] = {}
    for catalog in catalogs:
        for topic in list(catalog.by_number.values()):
            reading = await _topic(topic, slices)
            known = found.get(reading.name)
            found[reading.name] = reading if known is None else known.plus(reading)
    return list(found.values())


async def _topic(topic: Topic, slices: Slices) -> TopicReading:
    offsets: list[tuple[int, int] | None] = []
    size_bytes = 0
    for first in range(0, len(topic.partitions), CHUNK):
        chunk = topic.partitions[first : first + CHUNK]
        if topic.is_spread:
            offsets += [None if isinstance(each, RemotePartition) else _offsets(each) for each in chunk]
        else:
            offsets += [(partition.start_offset, partition.high_watermark) for partition in chunk]
        size_bytes += sum([partition.size_bytes for partition in chunk])
        await slices.breathe()
    return TopicReading(topic.name, offsets, size_bytes)


def _offsets(partition: Partition) -> tuple[int, int]:
    return partition.start_offset, partition.high_watermark


async def read_groups(nodes: Sequence[assembly.Node], readings: Readings, slices: Slices) -> None:
    states: Counter[str] = Counter()
    for node in nodes:
        for listed in (await _groups(node, slices)).values():
            states[listed.state] += 1
            described = node.groups.describe(listed.group)
            if described is not None:  # it may have gone while the loop turned
                progress = await _progress(node, listed.group, slices)
                readings.groups.append(GroupReading(listed.group, len(described.members), progress))
            await slices.breathe()
    for state, count in states.items():
        readings.put("halfmoon_groups", count, state)


async def _groups(node: assembly.Node, slices: Slices) -> dict[str, GroupListing]:
    looking = node.group_names.found_slices()
    while True:
        try:
            next(looking)
        except StopIteration as done:
            found: dict[str, GroupListing] = done.value
            return found
        await slices.breathe()


async def _progress(node: assembly.Node, group: str, slices: Slices) -> list[tuple[str, int, int, int]]:
    catalog = node.kernel.catalog
    found = []
    offsets = node.state.groups.offsets
    for count, place in enumerate(list(offsets.get(group, ())), 1):
        partition = catalog.known_partition(*place)
        committed = offsets.get(group, {}).get(place)
        if partition is not None and committed is not None:
            end = UNKNOWN if isinstance(partition, RemotePartition) else partition.high_watermark
            found.append((partition.topic.name, place[1], committed.offset, end))
        if count % CHUNK == 0:
            await slices.breathe()
    return found
