"""Which node is in which rack: clients are told, and replicas are shown in as many racks as can be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from halfmoon.cluster.engine.pieces import Durability
from halfmoon.cluster.owners import behind
from halfmoon.core.catalog.owners import OtherNode
from tests.server.asking import DESCRIBE_CLUSTER, METADATA, NONE
from tests.server.nodes.cluster import World, cluster
from tests.server.server_rig import played

RACKS = ["east", "west", "east"]


def nodes_in(racks: Sequence[str | None]) -> list[OtherNode]:
    return [OtherNode(number, ("host", 9092), "", ("host", 0), rack) for number, rack in enumerate(racks, 1)]


@pytest.mark.parametrize(
    ("racks", "leader", "more", "expected"),
    [
        (["a", "a", "b", "c"], 1, 1, (3,)),
        (["a", "a", "b", "c"], 1, 2, (3, 4)),
        (["a", "a", "b", "c"], 1, 3, (3, 4, 2)),
        (["a", "a", "b", "b"], 3, 2, (1, 4)),
        ([None, None, None], 2, 2, (3, 1)),
        ([None, None, None], 2, 9, (3, 1)),
        (["a", "b"], 1, 0, ()),
        (["a", "b"], 9, 2, ()),
    ],
)
def test_replicas_are_in_as_many_racks_as_can_be(
    racks: Sequence[str | None], leader: int, more: int, expected: tuple[int, ...]
) -> None:
    assert behind(nodes_in(racks), leader, more) == expected


def test_clients_are_told_the_racks_of_all_nodes(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await world.until(lambda: all(len(node.place.members) == 4 for node in world.nodes.values()))
        expected = {1: "east", 2: "west", 3: "east", 4: None}
        for number in world.nodes:
            for version in (1, 7, 12):
                found = await world.ask(number, METADATA, version, topics=[], allow_auto_topic_creation=False)
                assert {each.node_id: each.rack for each in found.brokers} == expected
            described = await world.ask(number, DESCRIBE_CLUSTER, 1, endpoint_type=1)
            assert {each.broker_id: each.rack for each in described.brokers} == expected

    async def run() -> None:
        async with cluster(tmp_path, 4, [Durability.FAST] * 2, RACKS) as world:
            await story(world)

    played(run())


def test_a_topic_of_two_replicas_has_one_in_each_of_two_racks(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await world.shared_out()
        await world.until(lambda: all(len(node.place.members) == 3 for node in world.nodes.values()))
        assert await world.create("t", 6, replicas=2) == NONE
        await world.led("t")
        rack_of = dict(enumerate(RACKS, 1))
        for number in world.nodes:
            found = await world.ask(number, METADATA, 7, topics=None, allow_auto_topic_creation=False)
            (topic,) = [each for each in found.topics if each.name == "t"]
            assert len(topic.partitions) == 6
            for part in topic.partitions:
                assert part.replica_nodes == part.isr_nodes
                assert {rack_of[each] for each in part.replica_nodes} == {"east", "west"}

    async def run() -> None:
        async with cluster(tmp_path, 3, [Durability.FAST] * 6, RACKS) as world:
            await story(world)

    played(run())
