"""Nodes come, die, pause and are cut off; each shard has one owner soon after."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.engine.membership import GRACE_S, Membership
from halfmoon.cluster.engine.pieces import Durability, Head
from halfmoon.cluster.engine.sharing import Move
from tests.cluster.engine.doubles import MemoryDatabase, unsure_database
from tests.cluster.engine.virtual import play

SHARDS = 8


class Node:
    """What one process knows of its shards."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.database = unsure_database(world.database, world.dice)
        self.database.pause_s = lambda: world.dice.uniform(0.0005, 0.003)
        self.member = Membership(self.database, self, number, "host", number, "")
        self.has: dict[int, int] = {}
        self.events: list[str] = []
        self.incarnations: set[int] = set()

    def taken(self, head: Head) -> None:
        assert head.shard not in self.has
        assert head.epoch not in self.world.epochs[head.shard], "two had one epoch"
        self.world.epochs[head.shard].add(head.epoch)
        self.has[head.shard] = head.epoch
        self.events.append(f"taken {head.shard}")

    def lost(self, shard: int) -> None:
        del self.has[shard]
        self.events.append(f"lost {shard}")

    def store_lost(self) -> None:
        self.events.append("store lost")

    async def give(self, move: Move) -> None:
        if await self.database.hand_over(move.head.shard, move.head.epoch, move.to) is not None:
            self.member.given(move.head.shard, move.head.epoch)
            del self.has[move.head.shard]
            self.events.append(f"given {move.head.shard}")

    def die(self) -> None:
        for task in self.member.upkeep._tasks:
            task.cancel()
        self.world.database.die(self.member.incarnation)
        self.world.nodes.remove(self)


class World:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.database = MemoryDatabase([Durability.FAST, Durability.OBJECT] * (SHARDS // 2))
        self.nodes: list[Node] = []
        self.epochs: dict[int, set[int]] = {shard: set() for shard in range(SHARDS)}

    async def node(self, number: int) -> Node:
        node = Node(self, number)
        self.nodes.append(node)
        await node.member.start()
        return node

    def is_settled(self) -> bool:
        found = Counter(shard for node in self.nodes for shard in node.has)
        true = {(shard.head.shard, shard.head.epoch, shard.head.owner) for shard in self.database.shards.values()}
        said = {(shard, epoch, node.member.incarnation) for node in self.nodes for shard, epoch in node.has.items()}
        loads = [len(node.has) for node in self.nodes]
        return found == Counter(range(SHARDS)) and true == said and max(loads) - min(loads) <= 2

    async def settle(self, within_s: float) -> float:
        """How long that took."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while not self.is_settled():
            assert loop.time() - begun < within_s, [(node.has, node.events) for node in self.nodes]
            await asyncio.sleep(0.01)
        return loop.time() - begun


def test_the_first_node_has_everything_and_later_ones_get_their_share() -> None:
    async def run() -> None:
        world = World(1)
        first = await world.node(1)
        assert await world.settle(1) < 0.5
        assert len(first.has) == SHARDS
        await world.node(2)
        await world.settle(10)
        await world.node(3)
        await world.settle(10)
        assert not [event for event in first.events if event.startswith("lost")]

    play(run())


def test_a_late_answer_to_an_earlier_give_takes_nothing_away() -> None:
    async def run() -> None:
        world = World(1)
        member = (await world.node(1)).member
        await world.settle(1)
        epoch = member.epoch_of(0)
        assert epoch is not None
        member.given(0, epoch - 1)
        assert member.epoch_of(0) == epoch
        member.given(0, epoch)
        assert member.epoch_of(0) is None

    play(run())


def test_a_dead_process_is_noticed_at_once_by_its_lock() -> None:
    async def run() -> None:
        world = World(2)
        one, _, _ = [await world.node(number) for number in (1, 2, 3)]
        await world.settle(20)
        await asyncio.sleep(3)
        one.die()
        assert await world.settle(2) < 1

    play(run())


def test_sessions_that_all_end_at_once_are_no_deaths() -> None:
    """Those of a pooler that is restarted. One node is slow to have its next one."""

    async def run() -> None:
        world = World(2)
        nodes = [await world.node(number) for number in (1, 2, 3)]
        await world.settle(20)
        await asyncio.sleep(3)
        nodes[0].database.pause_s = lambda: 0.4
        before = [dict(node.has) for node in nodes]
        for node in nodes:
            world.database.die(node.member.incarnation)
            node.database.on_session_ended()
        await asyncio.sleep(5)
        assert [node.has for node in nodes] == before

    play(run())


def test_a_session_that_has_ended_is_replaced_at_once() -> None:
    async def run() -> None:
        world = World(2)
        one = await world.node(1)
        await asyncio.sleep(3)
        world.database.die(one.member.incarnation)
        one.database.on_session_ended()
        await asyncio.sleep(0.05)
        assert [node.alive for node in await world.database.nodes()] == [True]

    play(run())


def test_a_node_that_is_cut_off_is_noticed_by_its_lease_and_hears_of_it_later() -> None:
    async def run() -> None:
        world = World(3)
        one, _two, _three = [await world.node(number) for number in (1, 2, 3)]
        await world.settle(20)
        had = set(one.has)
        one.database.down = True
        world.nodes.remove(one)
        assert await world.settle(6) > 1.5
        assert set(one.has) == had  # it does not know
        one.database.down = False
        world.nodes.append(one)
        await world.settle(10)
        assert {f"lost {shard}" for shard in had} <= set(one.events)

    play(run())


def test_who_gives_shards_away_hears_that_the_store_is_lost_when_others_do() -> None:
    async def run() -> None:
        world = World(1)
        node = await world.node(1)
        await world.settle(1)
        for reached in (True, False, True, False):
            node.member.reaches_store = lambda reached=reached: reached  # type: ignore[misc]
            await asyncio.sleep(3)
            (row,) = await world.database.nodes()
            assert row.stores is reached
        assert node.events.count("store lost") == 2

    play(run())


def test_a_node_that_stops_leaves_its_shards_at_once() -> None:
    async def run() -> None:
        world = World(4)
        one, _ = [await world.node(number) for number in (1, 2)]
        await world.settle(20)
        await one.member.stop()
        world.nodes.remove(one)
        assert await world.settle(2) < 1

    play(run())


def test_a_node_that_starts_as_the_database_is_back_takes_nothing_from_those_that_live() -> None:
    """All leases are over, and no session is left. The others renew theirs within a second."""

    async def run() -> None:
        world = World(2)
        nodes = [await world.node(number) for number in (1, 2)]
        await world.settle(20)
        before = [dict(node.has) for node in nodes]
        for node in nodes:
            node.database.down = True
            world.database.die(node.member.incarnation)
        await asyncio.sleep(10)
        third = await world.node(3)
        await asyncio.sleep(0.4)
        for node in nodes:
            node.database.down = False
        await asyncio.sleep(0.5)
        assert third.has == {}
        await world.settle(10)
        assert not [event for node in nodes for event in node.events if event.startswith("lost")]
        assert all(node.has.items() <= had.items() for node, had in zip(nodes, before, strict=True))

    play(run())


@pytest.mark.parametrize(
    ("restarted", "after_s", "limit_s"),
    [((1,), 1, 0.1), ((1, 2, 3), 1, 0.2), ((1, 2, 3), 10, 0.2), ((1,), 10, 2.3), ((1,), 70, 0.1)],
)
def test_after_all_nodes_have_died_those_that_start_take_their_shards(
    restarted: tuple[int, ...], after_s: float, limit_s: float
) -> None:
    """At once, where the lease is not over but the session is, or the node has started again, or a minute is over."""

    async def run() -> None:
        world = World(2)
        nodes = [await world.node(number) for number in (1, 2, 3)]
        await world.settle(20)
        await asyncio.sleep(3)
        for node in nodes:
            node.die()
        await asyncio.sleep(after_s)
        begun_s = asyncio.get_running_loop().time()
        await asyncio.gather(*map(world.node, restarted))
        while sum(len(node.has) for node in world.nodes) != SHARDS:
            await asyncio.sleep(0.01)
        assert asyncio.get_running_loop().time() - begun_s < limit_s

    play(run())


def test_what_nodes_have_left_in_order_is_taken_at_once() -> None:
    async def run() -> None:
        world = World(2)
        one = await world.node(1)
        await world.settle(2)
        world.nodes.remove(one)
        await one.member.stop()
        await asyncio.sleep(10)
        await world.node(2)
        assert await world.settle(1) < 0.1

    play(run())


@pytest.mark.parametrize("what", ["take", "give"])
def test_what_only_an_earlier_primary_had_is_done_once_more(what: str) -> None:
    """The epoch is the same again: whoever opens a shard takes care of that."""

    async def run() -> None:
        world = World(1)
        first = await world.node(1)
        await world.settle(1)
        second = await world.node(2)
        await world.settle(10)
        await asyncio.sleep(GRACE_S)
        number = next(iter(first.has if what == "take" else second.has))
        shard = world.database.shards[number]
        assert shard.head.epoch == (1 if what == "take" else 2)
        owner = None if what == "take" else first.member.incarnation
        before = shard.head._replace(epoch=shard.head.epoch - 1, owner=owner)

        async def no_answer(*_: object) -> None:
            raise DatabaseUnavailableError("no look takes it before its loss was noticed")

        first.database.take = second.database.take = no_answer
        shard.head = before
        world.epochs[number].clear()
        for node in world.nodes:
            while node.member.epoch_of(number) == before.epoch + 1:
                await asyncio.sleep(0.01)
        del first.database.take, second.database.take
        await world.settle(5)
        assert number in {**first.has, **second.has}

    play(run())


def test_a_lease_counts_from_before_it_was_asked_for() -> None:
    """Afterwards it would be taken for longer than it is, until it is renewed."""

    async def run() -> None:
        world = World(1)
        node = Node(world, 1)
        world.nodes.append(node)
        node.database.pause_s = lambda: 0.7
        begun_s = asyncio.get_running_loop().time()
        await node.member.start()
        assert asyncio.get_running_loop().time() - begun_s > 2
        assert node.member.confirmed_s == begun_s

    play(run())


def test_a_node_that_was_forgotten_begins_anew() -> None:
    async def run() -> None:
        world = World(5)
        one = await world.node(1)
        await world.settle(2)
        del world.database._nodes[one.member.incarnation]
        await asyncio.sleep(2)
        await world.settle(4)
        assert [event for event in one.events if event.startswith("lost")]

    play(run())


def test_a_node_that_begins_anew_says_anew_that_it_does_not_reach_the_store() -> None:
    async def run() -> None:
        world = World(5)
        one = await world.node(1)
        one.member.reaches_store = lambda: False
        await asyncio.sleep(2)
        del world.database._nodes[one.member.incarnation]
        await asyncio.sleep(2)
        assert [node.stores for node in await world.database.nodes()] == [False]

    play(run())


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_each_shard_has_one_owner_in_the_end(seed: int) -> None:
    async def run() -> None:
        world = World(seed)
        numbers = iter(range(1, 100))
        await world.node(next(numbers))
        for _ in range(12):
            what = world.dice.choice(("node", "node", "die", "cut", "stop", "unsure"))
            if what == "node" and len(world.nodes) < 5:
                await world.node(next(numbers))
            elif what == "die" and len(world.nodes) > 1:
                world.dice.choice(world.nodes).die()
            elif what == "stop" and len(world.nodes) > 1:
                node = world.dice.choice(world.nodes)
                world.nodes.remove(node)
                await node.member.stop()
            elif what == "cut":
                node = world.dice.choice(world.nodes)
                node.database.down = True
                await asyncio.sleep(world.dice.uniform(0, 8))
                node.database.down = False
            elif what == "unsure":
                node = world.dice.choice(world.nodes)
                node.database.share = 0.5
                await asyncio.sleep(world.dice.uniform(0, 8))
                node.database.share = 0.0
            await asyncio.sleep(world.dice.uniform(0, 3))
        await world.settle(30)

    play(run())
