"""Consumers read in their rack while shards move, nodes stop, and one is cut off: each record once, in order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halfmoon.cluster.engine.pieces import Durability
from tests.server.asking import NONE
from tests.server.nodes.cluster import World, cluster
from tests.server.nodes.reading import Consumer, Producer, in_balance, requests
from tests.server.server_rig import played

RACKS = ["east", "west", "east"]
FAST = [Durability.FAST] * 6
OBJECT = [Durability.FAST] * 3 + [Durability.OBJECT] * 3
PARTITIONS = 3


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., None]:
    def play(story: Callable[[World], Any], durability: str) -> None:
        async def run() -> None:
            shards = FAST if durability == "fast" else OBJECT
            async with cluster(tmp_path, len(RACKS), shards, RACKS) as world:
                await in_balance(world)
                configs = {"halfmoon.durability": durability}
                assert await world.create("t", PARTITIONS, replicas=3, configs=configs) == NONE
                await world.led("t")
                await story(world)

        played(run())

    return play


class Traffic:
    """A producer for each partition, and consumers of both racks."""

    def __init__(self, world: World) -> None:
        self._producers = [Producer(world, "t", index) for index in range(PARTITIONS)]
        self.consumers = [Consumer(world, "t", index, rack) for index in range(PARTITIONS) for rack in ("east", "west")]

    async def flow(self, count: int) -> None:
        """So many more records are written to each partition, and read by all."""
        goal = len(self._producers[0].sent) + count
        await asyncio.gather(
            *(each.send(count) for each in self._producers), *(each.read_until(goal) for each in self.consumers)
        )
        for at, consumer in enumerate(self.consumers):
            assert consumer.values == self._producers[at // 2].sent


@pytest.mark.parametrize("durability", ["fast", "object"])
def test_shards_move_while_they_are_read_by_replicas(run: Any, durability: str) -> None:
    async def story(world: World) -> None:
        traffic, dice = Traffic(world), random.Random(5)
        await traffic.flow(3)
        for _ in range(4):
            flowing = asyncio.ensure_future(traffic.flow(6))
            moved = dice.randrange(6)
            await world.shared_out()  # what nobody wants any more somewhere may be on its way back
            (holder,) = [number for number, shards in world.holders().items() if moved in shards]
            target = dice.choice([number for number in world.nodes if number != holder])
            assert await world.database.want(moved, target)
            await world.until(lambda moved=moved, target=target: moved in world.holders()[target])
            await flowing
            assert await world.database.want(moved, None)
        assert sum(each.by_replica for each in traffic.consumers) > 20

    run(story, durability)


@pytest.mark.parametrize("durability", ["fast", "object"])
def test_nodes_stop_and_one_is_cut_off_while_they_serve_readers(run: Any, durability: str) -> None:
    async def story(world: World) -> None:
        traffic = Traffic(world)
        await traffic.flow(5)
        flowing = asyncio.ensure_future(traffic.flow(5))
        await world.stop(2)
        await flowing
        flowing = asyncio.ensure_future(traffic.flow(5))
        await world.start(2)
        await in_balance(world)
        await flowing
        await traffic.flow(5)
        world.cut_off(3)
        world.database.die(world.nodes[3].member.incarnation)
        cut = world.nodes.pop(3)
        await traffic.flow(5)
        engines = world.engines[3]
        engines.database.down = engines.store.down = False
        world.nodes[3] = cut
        await in_balance(world)
        await traffic.flow(5)
        assert sum(each.by_replica for each in traffic.consumers) > 20

    run(story, durability)


@pytest.mark.parametrize("durability", ["fast", "object"])
def test_calls_to_the_store_and_the_database_fail_while_replicas_read(
    run: Any, monkeypatch: pytest.MonkeyPatch, durability: str
) -> None:
    monkeypatch.setattr("halfmoon.server.nodes.places.SENT_BYTES", 0)  # the database is asked, too

    async def story(world: World) -> None:
        traffic = Traffic(world)
        for engines in world.engines.values():
            engines.database.share = engines.store.share = 0.15
        for _ in range(4):
            await traffic.flow(8)
        for engines in world.engines.values():
            engines.database.share = engines.store.share = 0.0
        await traffic.flow(8)
        assert sum(each.by_replica for each in traffic.consumers) > 20
        assert requests(world, "store") + requests(world, "database") > 20

    run(story, durability)
