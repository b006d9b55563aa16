"""Consumers read in their rack: from nodes that do not lead what they serve."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from halfmoon.cluster.engine.pieces import Durability
from tests.server.asking import NONE, NOT_LEADER
from tests.server.nodes.cluster import World, cluster
from tests.server.nodes.reading import fetch, fetch_all, in_balance, placed, requests
from tests.server.server_rig import played

RACKS = ["east", "west"]
RACK_OF = dict(enumerate(RACKS, 1))
MIXED = [Durability.FAST] * 2 + [Durability.OBJECT] * 2


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., None]:
    def play(story: Callable[[World], Any], racks: Sequence[str] = RACKS, shards: Sequence[Durability] = MIXED) -> None:
        async def run() -> None:
            async with cluster(tmp_path, len(racks), shards, racks) as world:
                await in_balance(world)
                await story(world)

        played(run())

    return play


@pytest.mark.parametrize(("durability", "sent_bytes"), [("fast", 1 << 20), ("fast", 0), ("object", 1 << 20)])
def test_a_node_serves_consumers_of_its_rack_what_another_one_leads(
    run: Any, monkeypatch: pytest.MonkeyPatch, durability: str, sent_bytes: int
) -> None:
    """What is in no object yet comes with the leader's answer, if that is not too much, or from the database."""
    monkeypatch.setattr("halfmoon.server.nodes.places.SENT_BYTES", sent_bytes)

    async def story(world: World) -> None:
        assert await world.create("t", 2, replicas=2, configs={"halfmoon.durability": durability}) == NONE
        for index, (leader, other) in (await placed(world, "t")).items():
            for nth in range(5):
                assert await world.produce(leader, "t", index, b"v%d" % nth) == NONE
            read = await fetch(world, leader, "t", index, 0, rack=RACK_OF[leader])
            for version in (11, 12):
                found = await fetch(world, other, "t", index, 0, rack=RACK_OF[other], version=version)
                assert found == read
            assert found.values == [b"v%d" % nth for nth in range(5)]
            assert (found.high_watermark, found.stable_offset, found.start_offset) == (5, 5, 0)
            behind = await fetch(world, other, "t", index, 3, rack=RACK_OF[other])
            assert behind.values == [b"v3", b"v4"]
            end = await fetch(world, other, "t", index, 5, rack=RACK_OF[other])
            assert (end.error, end.values) == (NONE, [])
        assert (requests(world, "database") > 0) == (durability == "fast" and not sent_bytes)
        assert (requests(world, "store") > 0) == (durability == "object")

    run(story)


def test_a_leader_names_a_replica_in_the_consumers_rack(run: Any) -> None:
    async def story(world: World) -> None:
        assert await world.create("t", 4, replicas=2) == NONE
        assert await world.create("single", 4) == NONE
        for index, (leader, other) in (await placed(world, "t")).items():
            assert await world.produce(leader, "t", index, b"v") == NONE
            told = await fetch(world, leader, "t", index, 0, rack=RACK_OF[other], wait_ms=60_000)
            assert (told.error, told.values, told.preferred) == (NONE, [], other)
            assert (told.high_watermark, told.start_offset) == (1, 0)
            for rack in (RACK_OF[leader], "", "north"):
                own = await fetch(world, leader, "t", index, 0, rack=rack)
                assert (own.values, own.preferred) == ([b"v"], -1)
            assert (await fetch(world, leader, "t", index, 9, rack=RACK_OF[other])).error == 1
        for index, (leader, other) in (await placed(world, "single")).items():
            assert await world.produce(leader, "single", index, b"v") == NONE
            own = await fetch(world, leader, "single", index, 0, rack=RACK_OF[other])
            assert (own.values, own.preferred) == ([b"v"], -1)
            assert (await fetch(world, other, "single", index, 0, rack=RACK_OF[other])).error == NOT_LEADER

    run(story)


def test_who_is_not_of_this_rack_is_told_who_leads(run: Any) -> None:
    async def story(world: World) -> None:
        assert await world.create("t", 2, replicas=2) == NONE
        for index, (leader, other) in (await placed(world, "t")).items():
            for rack in ("", "north", RACK_OF[leader]):
                assert (await fetch(world, other, "t", index, 0, rack=rack)).error == NOT_LEADER

    run(story)


def test_a_fetch_that_waits_is_woken_by_the_leader(run: Any) -> None:
    async def story(world: World) -> None:
        assert await world.create("t", 4, replicas=2) == NONE
        places = await placed(world, "t")
        for number, rack in RACK_OF.items():
            for index, (leader, _) in places.items():
                offsets = dict.fromkeys(places, 0)
                for each in offsets:
                    offsets[each] = (
                        await fetch(world, places[each][0], "t", each, 0, rack=RACK_OF[places[each][0]])
                    ).high_watermark
                waiting = asyncio.ensure_future(fetch_all(world, number, "t", offsets, rack=rack, wait_ms=60_000))
                await world.until(lambda: sum(len(node.worker.shards.hold) for node in world.nodes.values()) > 0)
                assert await world.produce(leader, "t", index, b"new") == NONE
                found = await waiting
                assert {each: one.values for each, one in found.items()} == {
                    each: [b"new"] if each == index else [] for each in places
                }
                assert all(one.error == NONE for one in found.values())
                await world.until(lambda: not any(len(node.worker.shards.hold) for node in world.nodes.values()))

    run(story)
