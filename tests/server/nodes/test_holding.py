"""One task at a time brings a shard from what it is to what it should be."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from halfmoon.cluster.engine.database import Node
from halfmoon.cluster.engine.pieces import Durability, Head
from halfmoon.cluster.engine.sharing import Move
from halfmoon.config.settings import load_settings
from halfmoon.server.nodes.engine import Engine
from halfmoon.server.nodes.holding import FIRST_PAUSE_S, OPENING, HeldShards
from tests.cluster.engine.doubles import MemoryDatabase, MemoryStore

SHARD, ME, OTHER = 3, 1, 2


class Rig:
    """A process, an engine and a place that do as they are told; what was done is in `done`."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.blocked: asyncio.Event | None = None
        """Closing a shard waits until this is set: something is to be stored, and the store does not answer."""
        engine = SimpleNamespace(
            open=self._backing, closed=lambda shard: None, closing=lambda shard: None, database=self,
            abandon=self._abandon, abandon_all=self._abandon_all,
        )  # fmt: skip
        self.held = HeldShards(
            self,
            engine,
            SimpleNamespace(  # type: ignore[arg-type]
                takes=lambda backing: None, leaders=SimpleNamespace(taken=lambda *_: None), me=ME
            ),
            lambda *_: None,
            lambda: None,  # type: ignore[arg-type]
        )
        self.epoch: int | None = 5
        """In which this node owns it, as it knows."""
        self.gone = False
        """Whom it is given to has died."""
        self.answers = asyncio.Event()
        """Set: the database answers who takes a shard again."""
        self.held.member = SimpleNamespace(  # type: ignore[assignment]
            nodes=(),
            incarnation=ME,
            stores=True,
            given=lambda shard, epoch: None,
            epoch_of=lambda shard: self.epoch,
            take_again=self._take_again,
        )

    async def _backing(self, head: Head) -> Any:
        return SimpleNamespace(head=SimpleNamespace(restored=False), shard=head.shard)

    async def _take_again(self, shard: int, epoch: int) -> Head:
        await self.answers.wait()
        assert self.epoch == epoch
        self.epoch = epoch + 1
        return Head(shard, Durability.FAST, self.epoch, ME, 0)

    async def open_shard(self, number: int) -> None:
        self.done.append("open")

    def _abandon(self, shard: int, _error: OSError) -> None:
        self.done.append("abandon")
        if self.blocked is not None:
            self.blocked.set()

    def _abandon_all(self, error: OSError) -> None:
        self._abandon(SHARD, error)

    async def close_shard(self, number: int) -> None:
        await asyncio.sleep(0.01)
        if self.blocked is not None:
            await self.blocked.wait()
        self.done.append("close")

    async def nodes(self) -> list[Node]:
        return [Node(OTHER, OTHER, "", 0, "", alive=True, draining=False)]

    async def hand_over(self, shard: int, epoch: int, incarnation: int) -> Head | None:
        if epoch != self.epoch or self.gone:
            return None
        self.done.append("hand over")
        return Head(shard, Durability.FAST, epoch + 1, incarnation, 0)


def test_a_shard_is_closed_before_it_is_given_also_right_after_it_was_opened() -> None:
    async def story() -> None:
        rig, head = Rig(), Head(SHARD, Durability.FAST, 5, ME, 0)
        rig.held.taken(head)
        while SHARD not in rig.held.open:
            await asyncio.sleep(0)
        await rig.held.give(Move(head, OTHER))  # the end of the task that opened it is not noted yet
        assert rig.done == ["open", "close", "hand over"]
        assert rig.held.open == {}

    asyncio.run(story())


def test_a_shard_counts_as_this_nodes_from_before_it_is_opened_until_it_is_known_whose_it_is() -> None:
    """Whoever asks while it is opened, closed or handed over may have been answered with what it has."""

    async def story() -> None:
        rig, head = Rig(), Head(SHARD, Durability.FAST, 5, ME, 0)
        seen: list[tuple[str, list[int], set[int], int]] = []

        def watched(what: str, call: Any) -> Any:
            async def watch(*given: Any) -> Any:
                seen.append((what, list(rig.held.served), set(rig.held.leaving), rig.held.losses))
                return await call(*given)

            return watch

        rig.open_shard = watched("open", rig.open_shard)  # type: ignore[method-assign]
        rig.close_shard = watched("close", rig.close_shard)  # type: ignore[method-assign]
        rig.hand_over = watched("hand over", rig.hand_over)  # type: ignore[method-assign]
        rig.held.taken(head)
        while SHARD not in rig.held.open:
            await asyncio.sleep(0)
        await rig.held.give(Move(head, OTHER))
        assert seen == [
            ("open", [SHARD], set(), 0), ("close", [SHARD], {SHARD}, 0), ("hand over", [SHARD], {SHARD}, 0)
        ]  # fmt: skip
        assert (rig.held.served, rig.held.leaving, rig.held.losses) == ({}, set(), 0)

    asyncio.run(story())


def test_a_shard_that_is_back_before_the_database_says_that_it_was_given_is_this_nodes() -> None:
    """Whom it was given to has died meanwhile."""

    async def story() -> None:
        rig, head = Rig(), Head(SHARD, Durability.FAST, 5, ME, 0)
        closed, answers, hand_over = asyncio.Event(), asyncio.Event(), rig.hand_over

        async def late(*asked: Any) -> Head | None:
            closed.set()
            answer = await hand_over(*asked)
            await answers.wait()
            return answer

        rig.hand_over = late  # type: ignore[method-assign]
        rig.held.taken(head)
        while SHARD not in rig.held.open:
            await asyncio.sleep(0)
        giving = asyncio.ensure_future(rig.held.give(Move(head, OTHER)))
        await closed.wait()
        rig.epoch = 7
        rig.held.taken(head._replace(epoch=7))
        while SHARD not in rig.held.open:
            await asyncio.sleep(0)
        answers.set()
        await giving
        assert rig.held.open == {SHARD: 7}
        assert rig.held.served[SHARD][0] == 7
        assert rig.held.losses == 0

    asyncio.run(story())


def test_a_shard_that_is_given_away_when_the_store_is_lost_does_not_wait_for_it() -> None:
    async def story() -> None:
        rig, head = Rig(), Head(SHARD, Durability.FAST, 5, ME, 0)
        rig.held.taken(head)
        while SHARD not in rig.held.open:
            await asyncio.sleep(0)
        rig.held.store_lost()  # what stays here waits
        rig.blocked = asyncio.Event()
        giving = asyncio.ensure_future(rig.held.give(Move(head, OTHER)))
        await asyncio.sleep(0.05)
        assert rig.done == ["open"]
        rig.held.store_lost()
        await giving
        assert rig.done == ["open", "abandon", "close", "hand over"]

    asyncio.run(story())


def test_a_shard_that_could_not_be_given_or_opened_counts_as_lost() -> None:
    async def story() -> None:
        rig, head = Rig(), Head(SHARD, Durability.FAST, 5, ME, 0)
        rig.held.taken(head)
        while SHARD not in rig.held.open:
            await asyncio.sleep(0)
        rig.gone = True
        assert not await rig.held._hand_over(Move(head, OTHER))
        assert (rig.held.served, rig.held.leaving, rig.held.losses) == ({}, set(), 1)
        rig = Rig()

        async def fails(number: int) -> None:
            raise OSError("no")

        rig.open_shard = fails  # type: ignore[method-assign]
        rig.held.taken(head)
        while SHARD not in rig.held.problems:
            await asyncio.sleep(0)
        assert (rig.held.served, rig.held.losses) == ({}, 1)
        await rig.held.close()

    asyncio.run(story())


def test_a_node_that_stops_may_be_giving_a_shard_away_already() -> None:
    async def story() -> None:
        rig, head = Rig(), Head(SHARD, Durability.FAST, 5, ME, 0)
        rig.held.taken(head)
        while SHARD not in rig.held.open:
            await asyncio.sleep(0)
        # One has begun, and the other has read before that the shard is this node's.
        await asyncio.gather(*(rig.held._hand_over(Move(head, OTHER)) for _ in range(2)))
        assert rig.done == ["open", "close", "hand over", "hand over"]
        assert rig.held.open == {}

    asyncio.run(story())


def test_a_node_that_could_not_leave_in_time_lets_no_shard_wait_that_is_being_closed() -> None:
    async def story() -> None:
        rig, head = Rig(), Head(SHARD, Durability.FAST, 5, ME, 0)
        rig.blocked = asyncio.Event()
        rig.held.taken(head)
        while SHARD not in rig.held.open:
            await asyncio.sleep(0)
        leaving = asyncio.ensure_future(rig.held._hand_over(Move(head, OTHER)))
        while rig.held._wanted:
            await asyncio.sleep(0)
        leaving.cancel()  # the time is over
        await asyncio.gather(leaving, return_exceptions=True)
        assert SHARD in rig.held._tasks
        rig.held.abandon()
        await rig.held.close()
        assert rig.done == ["open", "abandon", "close"]
        assert not rig.held.open
        assert not rig.held._tasks

    asyncio.run(story())


def test_a_node_that_leaves_gives_the_other_shards_away_also_where_one_cannot_be() -> None:
    """For a reason that nobody has thought of."""

    async def story() -> None:
        rig, one, two = Rig(), *(Head(shard, Durability.FAST, 5, ME, 0) for shard in (SHARD, SHARD + 1))
        for head in (one, two):
            rig.held.taken(head)
        while len(rig.held.open) < 2:
            await asyncio.sleep(0)

        async def hand_over(shard: int, epoch: int, incarnation: int) -> Head:
            if shard == SHARD:
                raise ValueError("a wrong statement")
            await asyncio.sleep(0)
            rig.done.append("hand over")
            return Head(shard, Durability.FAST, epoch + 1, incarnation, 0)

        rig.hand_over = hand_over  # type: ignore[method-assign,assignment]
        await rig.held.leave()
        assert rig.done == ["open", "open", "close", "close", "hand over"]
        assert rig.held.open == {}

    asyncio.run(story())


class Mute(Rig):
    """Nothing answers while a shard is opened, until it is abandoned."""

    def __init__(self) -> None:
        super().__init__()
        self.is_abandoned = asyncio.Event()

    async def open_shard(self, number: int) -> None:
        self.done.append(f"open {number}")
        await self.is_abandoned.wait()
        raise OSError("abandoned")

    def _abandon_all(self, _error: OSError) -> None:
        self.is_abandoned.set()


def test_a_node_that_stops_opens_none_of_those_that_wait_for_their_turn() -> None:
    async def story() -> None:
        rig = Mute()
        for shard in range(OPENING + 1):
            rig.held.taken(Head(shard, Durability.FAST, 5, ME, 0))
        while len(rig.done) < OPENING:
            await asyncio.sleep(0)
        rig.held.abandon()
        async with asyncio.timeout(FIRST_PAUSE_S * 10):
            await rig.held.close()
        assert rig.done == [f"open {shard}" for shard in range(OPENING)]
        assert not rig.held._tasks

    asyncio.run(story())


def test_a_shard_that_is_lost_while_it_waits_for_its_turn_is_not_opened() -> None:
    async def story() -> None:
        rig = Mute()
        heads = [Head(shard, Durability.FAST, 5, ME, 0) for shard in range(OPENING + 1)]
        for head in heads:
            rig.held.taken(head)
        while len(rig.done) < OPENING:
            await asyncio.sleep(0)
        rig.held.lost(OPENING)
        rig.held.taken(heads[OPENING]._replace(epoch=7))
        rig.is_abandoned.set()
        while f"open {OPENING}" not in rig.done:
            await asyncio.sleep(0)
        assert rig.held._tried[OPENING] == 7, "and not 5 before"
        await rig.held.close()

    asyncio.run(story())


def test_what_an_engine_opens_after_its_node_has_given_up_is_given_up_too() -> None:
    async def story() -> None:
        database = MemoryDatabase([Durability.FAST] * 2)
        node = await database.register(ME, "host", 1, "")
        heads = [head for shard in range(2) if (head := await database.take(shard, 0, node)) is not None]
        engine = Engine(database, MemoryStore(), "a-cluster", ME, load_settings({}, {}, {}).cluster, 1 << 20)
        before = await engine.open(heads[0])
        assert not before.is_frozen
        engine.abandon_all(OSError("this node stops"))
        assert before.is_frozen
        assert (await engine.open(heads[1])).is_frozen
        await engine.stop()

    asyncio.run(story())


async def give_while_it_is_opened_again(rig: Rig) -> None:
    """It was opened and closed in epoch 5, so it is taken again. Whoever gives it away has read before that it is 5."""
    head = Head(SHARD, Durability.FAST, 5, ME, 0)
    rig.held.taken(head)
    while SHARD not in rig.held.open:
        await asyncio.sleep(0)
    await rig.held._shut(SHARD)
    rig.held.taken(head)
    await asyncio.sleep(0)
    giving = asyncio.ensure_future(rig.held.give(Move(head, OTHER)))
    await asyncio.sleep(0)
    rig.answers.set()
    await giving


def test_a_shard_is_given_away_in_the_epoch_in_which_it_was_taken_again_meanwhile() -> None:
    async def story() -> None:
        rig = Rig()
        await give_while_it_is_opened_again(rig)
        assert rig.done == ["open", "close", "open", "close", "hand over"]

    asyncio.run(story())


def test_a_shard_that_was_taken_again_and_could_not_be_given_is_opened() -> None:
    async def story() -> None:
        rig = Rig()
        rig.gone = True
        await give_while_it_is_opened_again(rig)
        await rig.held.settled(SHARD)
        assert rig.held.open[SHARD] == rig.epoch == 7
        assert rig.done == ["open", "close", "open", "close", "open"]

    asyncio.run(story())
