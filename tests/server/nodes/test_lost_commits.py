"""A database that has gone back is noticed, also where nobody writes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from halfmoon.cluster.engine.pieces import Durability, Head
from halfmoon.server.nodes.lost_commits import LostCommits

SHARD = 3


class Rig:
    def __init__(self, epoch: int, flushed: int) -> None:
        self.head = Head(SHARD, Durability.FAST, epoch, 1, flushed)
        self.log: Any = SimpleNamespace(shard=SHARD, epoch=epoch, flushed=flushed)
        self.stopped: list[str] = []
        self.lost = LostCommits(self, lambda: [self.log], lambda _, error: self.stopped.append(str(error)))  # type: ignore[arg-type]

    async def heads(self) -> list[Head]:
        return [self.head]

    def look(self) -> list[str]:
        asyncio.run(self.lost.look())
        return list(self.lost.problems.values())


def test_a_shard_that_nobody_writes_to_stops_where_its_end_went_back() -> None:
    rig = Rig(epoch=5, flushed=100)
    assert rig.look() == []
    rig.head = rig.head._replace(end=80)
    (problem,) = rig.look()
    assert problem == "shard 3 ends at 80 in the database, and 100 was committed: the database has lost commits"
    assert rig.stopped == [problem]
    assert rig.look() == [problem]
    assert rig.stopped == [problem], "once"


def test_an_epoch_that_went_back_is_told_by_all_nodes() -> None:
    rig = Rig(epoch=5, flushed=100)
    assert rig.look() == []
    rig.lost._logs = tuple  # another node's
    rig.head = rig.head._replace(epoch=4)
    assert rig.look() == ["shard 3 has epoch 4 in the database, and had 5: the database has lost commits"]
    assert rig.stopped == []


def test_an_epoch_that_another_node_has_taken_again_is_told() -> None:
    rig = Rig(epoch=5, flushed=100)
    rig.lost.owned(rig.head)
    rig.head = rig.head._replace(owner=2, end=300)  # the end is past what was committed here
    (problem,) = rig.look()
    assert problem == (
        "shard 3 is incarnation 2's in the database, and was 1's in epoch 5: the database has lost commits"
    )
    assert rig.stopped == [problem]


def test_what_is_committed_while_the_database_is_asked_is_no_loss() -> None:
    rig = Rig(epoch=5, flushed=100)
    told = rig.head

    async def heads() -> list[Head]:
        rig.log.flushed = 200
        return [told]

    rig.heads = heads  # type: ignore[method-assign]
    assert rig.look() == []


def test_a_shard_that_went_to_another_node_has_another_end() -> None:
    rig = Rig(epoch=5, flushed=100)
    rig.head = rig.head._replace(epoch=6, end=90, owner=2)
    assert rig.look() == []
