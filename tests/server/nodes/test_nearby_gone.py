"""A consumer that is served in its rack leaves while its fetch waits: nothing is kept or read for it any more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halfmoon.adapters.kafka.protocol import FetchRequest
from halfmoon.cluster.engine.pieces import Durability
from halfmoon.cluster.engine.placed import PlacedReads
from halfmoon.server.nodes import nearby
from tests.fuzz.peer import Peer
from tests.server.asking import FETCH, NONE
from tests.server.nodes.cluster import World, cluster
from tests.server.nodes.reading import in_balance, placed
from tests.server.server_rig import played

RACKS = ["east", "west"]
RACK_OF = dict(enumerate(RACKS, 1))
FOR_EVER_MS = (1 << 31) - 1


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., None]:
    def play(story: Callable[[World], Any]) -> None:
        async def run() -> None:
            async with cluster(tmp_path, len(RACKS), [Durability.OBJECT] * 4, RACKS) as world:
                await in_balance(world)
                await story(world)

        played(run())

    return play


@pytest.mark.parametrize("partitions", [1, 600])
def test_a_fetch_that_waits_elsewhere_ends_with_its_connection(
    run: Any, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    """One of very many partitions is read in slices."""
    ended: list[object] = []
    reads: list[object] = []
    run_look, read = nearby._Look.run, PlacedReads.read

    async def run_to_its_end(self: Any, *args: Any) -> None:
        await run_look(self, *args)
        ended.append(self)

    async def counted(self: Any, *args: Any) -> Any:
        reads.append(args)
        return await read(self, *args)

    monkeypatch.setattr(nearby._Look, "run", run_to_its_end)
    monkeypatch.setattr(PlacedReads, "read", counted)

    async def story(world: World) -> None:
        assert await world.create("t", 2, replicas=2, configs={"halfmoon.durability": "object"}) == NONE
        index, (leader, other) = next(iter((await placed(world, "t")).items()))
        assert await world.produce(leader, "t", index, b"v") == NONE
        hold, near_hold = (world.nodes[number].worker.shards.hold for number in (leader, other))
        topic = FetchRequest.FetchTopic
        part = topic.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        asked = {
            "replica_id": -1, "max_wait_ms": FOR_EVER_MS, "min_bytes": 1 << 20, "max_bytes": 1 << 20,
            "isolation_level": 0, "session_id": 0, "session_epoch": -1, "rack_id": RACK_OF[other],
            "topics": [topic(topic="t", partitions=[part] * partitions)],
        }  # fmt: skip
        peer = Peer(world.address_of(other))
        peer.send(peer.request(FETCH, 11, **asked))
        await world.until(lambda: len(hold) > 0)
        peer.close()
        await world.until(lambda: not hold and not near_hold)
        await world.until(lambda: bool(ended))
        assert not reads

    run(story)
