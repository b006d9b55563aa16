"""A database that has gone back is noticed, also where nobody writes."""

from __future__ import annotations

import asyncio
import contextlib
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.engine.pieces import Durability, Head
from halfmoon.server.nodes.lost_commits import LostCommits
from tests.server.asking import NONE
from tests.server.nodes.cluster import World, cluster
from tests.server.server_rig import played

SHARD = 3


class Rig:
    def __init__(self, epoch: int, flushed: int) -> None:
        self.head = Head(SHARD, Durability.FAST, epoch, 1, flushed)
        opened = self.head._replace(end=flushed - 50)
        self.log: Any = SimpleNamespace(
            shard=SHARD, epoch=epoch, flushed=flushed, backing=SimpleNamespace(head=opened)
        )  # fmt: skip
        self.is_certain = True
        self.stopped: list[str] = []
        self.lost = LostCommits(self, lambda: [self.log], lambda _, error: self.stopped.append(str(error)))  # type: ignore[arg-type]

    async def heads(self) -> list[Head]:
        return [self.head]

    async def all_certain_heads(self, shard: int) -> list[Head]:
        if not self.is_certain:
            raise DatabaseUnavailableError("the standby is away")
        assert shard == SHARD
        return [self.head]

    def look(self) -> list[str]:
        async def look() -> None:
            await self.lost.look()
            with contextlib.suppress(DatabaseUnavailableError):
                await self.lost.learn()

        asyncio.run(look())
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
    assert rig.lost.kept == {SHARD: 5}


def test_an_epoch_that_went_back_is_told_by_all_nodes() -> None:
    rig = Rig(epoch=5, flushed=100)
    assert rig.look() == []
    assert rig.lost.kept == {}
    rig.lost._logs = tuple  # another node's
    rig.head = rig.head._replace(epoch=4)
    assert rig.look() == ["shard 3 has epoch 4 in the database, and had 5: the database has lost commits"]
    assert (rig.stopped, rig.lost.kept) == ([], {})


def test_an_epoch_that_another_node_has_taken_again_is_told() -> None:
    rig = Rig(epoch=5, flushed=100)
    rig.lost.owned(rig.head)
    rig.head = rig.head._replace(owner=2, end=300)  # the end is past what was committed here
    (problem,) = rig.look()
    assert problem == (
        "shard 3 is incarnation 2's in the database, and was 1's in epoch 5: the database has lost commits"
    )
    assert rig.stopped == [problem]


@pytest.mark.parametrize("here", [True, False])
def test_a_take_that_only_an_earlier_primary_had_is_no_loss(here: bool) -> None:
    """All saw it there, and nothing was promised in that epoch: the standby that has taken over need not have it."""
    rig = Rig(epoch=5, flushed=100)
    assert rig.look() == []
    taken = rig.head._replace(epoch=6, owner=2)
    before, rig.head, rig.is_certain = rig.head, taken, False
    if here:
        rig.lost.owned(taken)
        rig.log.epoch, rig.log.backing.head = 6, taken
    else:
        rig.lost._logs = tuple
    for head in (taken, before, taken._replace(owner=3)):
        rig.head = head
        assert rig.look() == []
    assert (rig.stopped, rig.lost.kept) == ([], {})


@pytest.mark.parametrize("by", ["a commit", "a look"])
def test_an_epoch_that_was_certain_is_no_such_take(by: str) -> None:
    rig = Rig(epoch=5, flushed=100)
    assert rig.look() == []
    taken = rig.head._replace(epoch=6, owner=2)
    before, rig.head = rig.head, taken
    if by == "a commit":
        rig.is_certain = False
        rig.lost.owned(taken)
        rig.log.epoch, rig.log.backing.head, rig.log.flushed = 6, taken, 130
        rig.head = taken._replace(end=130)
    else:
        rig.lost._logs = tuple
    assert rig.look() == []
    rig.head = before
    assert rig.look() == ["shard 3 has epoch 5 in the database, and had 6: the database has lost commits"]
    assert rig.lost.kept == ({SHARD: 6} if by == "a commit" else {})


def test_what_another_server_has_made_certain_is_not_what_was_seen() -> None:
    rig = Rig(epoch=5, flushed=100)
    assert rig.look() == []
    rig.lost._logs = tuple
    before, rig.head = rig.head, rig.head._replace(epoch=6, owner=2)

    async def story() -> None:
        await rig.lost.look()
        rig.head = before  # the standby has taken over
        await rig.lost.learn()
        await rig.lost.look()

    asyncio.run(story())
    assert rig.lost.problems == {}


def test_what_the_server_that_was_before_shows_is_not_certain_by_a_commit_of_another_one() -> None:
    """A pool has connections to both for a while."""
    rig = Rig(epoch=5, flushed=100)
    assert rig.look() == []
    rig.lost._logs = tuple
    before, only_there = rig.head, rig.head._replace(epoch=6, owner=2)

    async def heads() -> list[Head]:
        return [only_there]

    async def story() -> None:
        with pytest.MonkeyPatch.context() as of_the_first:
            of_the_first.setattr(rig, "heads", heads)
            await rig.lost.look()
            await rig.lost.learn()
        await rig.lost.look()

    asyncio.run(story())
    assert rig.head == before
    assert rig.lost.problems == {}


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


SHARDS = 6


async def written(world: World, value: bytes) -> int:
    """To all partitions; the one that is in the last shard."""
    shared = world.nodes[1].worker.shards.shared
    for partition in range(SHARDS):
        await world.send("t", partition, value)
    return shared.placements[shared.catalog.by_name["t"].number].index(SHARDS - 1)


async def only_read(world: World, number: int, partition: int) -> None:
    """What the database has lost is read at this node, and nothing is written to it."""
    assert await world.values(number, "t", partition) == [b"kept", b"lost"]
    assert await world.produce(number, "t", partition, b"more") != NONE


def test_a_shard_that_the_database_has_lost_something_of_stays_until_its_node_ends(tmp_path: Path) -> None:
    async def story() -> None:
        async with cluster(tmp_path, 1, [Durability.FAST] * SHARDS) as world:
            await world.create("t", SHARDS)
            partition = await written(world, b"kept")
            before = deepcopy(world.database.shards[SHARDS - 1])
            await written(world, b"lost")
            world.database.shards[SHARDS - 1] = before
            await world.until(lambda: world.nodes[1].held._engine.lost_commits.problems)
            await world.start(2)  # which would be given this one first
            await world.until(lambda: len(world.holders()[2]) == SHARDS // 2)
            await world.led("t")
            await only_read(world, 1, partition)
            assert await world.database.drain(1, True)
            await world.until(lambda: world.holders()[1] == [SHARDS - 1])
            await asyncio.sleep(1.5)  # a renewal and a move
            await only_read(world, 1, partition)
            await world.stop(1)
            await world.shared_out()
            assert await world.read("t", partition) == [b"kept"]

    played(story())


def test_a_shard_of_which_the_taking_was_lost_is_taken_again_and_stays(tmp_path: Path) -> None:
    async def story() -> None:
        async with cluster(tmp_path, 2, [Durability.FAST] * SHARDS) as world:
            await world.create("t", SHARDS)
            await world.database.drain(1, True)
            await world.until(lambda: len(world.holders()[2]) == SHARDS)
            partition = await written(world, b"kept")
            before = deepcopy(world.database.shards[SHARDS - 1])
            await world.database.drain(1, False)
            await world.stop(2)
            await world.shared_out()
            await written(world, b"lost")
            there = world.database.shards[SHARDS - 1].head
            world.database.shards[SHARDS - 1] = before
            assert before.head.epoch < there.epoch
            assert before.head.owner != there.owner
            await world.until(lambda: world.nodes[1].held._engine.lost_commits.problems)
            await world.until(lambda: before.head.epoch == there.epoch)
            await asyncio.sleep(1.5)  # a renewal and a look
            assert (before.head.epoch, before.head.owner) == (there.epoch, there.owner)
            await only_read(world, 1, partition)
            assert world.holders() == {1: list(range(SHARDS))}
            await world.start(3)
            await world.until(lambda: len(world.holders()[3]) == SHARDS // 2)
            await only_read(world, 1, partition)

    played(story())


def test_a_shard_whose_taking_only_an_earlier_primary_had_is_opened_in_a_later_epoch(tmp_path: Path) -> None:
    async def story() -> None:
        async with cluster(tmp_path, 2, [Durability.FAST] * SHARDS) as world:
            await world.create("t", SHARDS)
            await world.database.drain(1, True)
            await world.until(lambda: len(world.holders()[2]) == SHARDS)
            partition = await written(world, b"kept")
            await world.database.drain(1, False)

            database, away = world.engines[1].database, {"commit_rows", "certain_heads", "all_certain_heads"}

            def may_be_away(name: str) -> Any:
                call = getattr(database, name)

                async def asked(*arguments: Any) -> Any:
                    if name in away:
                        raise DatabaseUnavailableError("the standby is away")
                    return await call(*arguments)

                return asked

            for name in ("commit_rows", "certain_heads", "all_certain_heads", "take"):
                setattr(database, name, may_be_away(name))
            standby: dict[int, Any] = {}

            async def hand_over(*_: object) -> Any:  # node 2 dies rather
                standby.update(deepcopy(world.database.shards))
                return None

            world.engines[2].database.hand_over = hand_over
            await world.stop(2)
            first = world.nodes[1]
            await world.until(lambda: len(first.place.logs) == SHARDS)
            tried = {shard: found.head.epoch for shard, found in world.database.shards.items()}
            assert all(tried[shard] > standby[shard].head.epoch for shard in tried)
            away.add("take")  # before the loss was noticed
            world.database.shards.update(standby)
            await world.until(lambda: all(first.member.epoch_of(shard) is None for shard in tried))
            lost = first.held._engine.lost_commits
            await lost.look()
            away.clear()
            await world.shared_out()
            assert (lost.problems, lost.kept) == ({}, {})
            assert all(world.database.shards[shard].head.epoch > tried[shard] for shard in tried)
            await world.send("t", partition, b"more")
            assert await world.read("t", partition) == [b"kept", b"more"]

    played(story())
