"""A node's part in its cluster: it says that it lives, takes shards whose owners are dead, and gives some away.

    every RENEW_S   its lease is renewed, and it hears which shards are its own
    every LOOK_S    shards of dead owners are shared out
    every MOVE_S    one shard moves, where another node is to have it

A shard of which the database has lost something stays as it is until the node ends: it is not given away, and taken
again where the database has lost that it was taken. So what is lost can be read here.

Nothing here is needed for safety: a node that believes wrong things about its shards cannot commit.

A node that the database has forgotten registers again, unless the database is another one, or was brought back: then
what this process knows is of another history, and it must end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

from halfmoon.cluster.engine.database import DatabaseReplacedError, DatabaseUnavailableError, Leases, Node
from halfmoon.cluster.engine.pieces import Head
from halfmoon.cluster.engine.sharing import Move, to_give, to_take
from halfmoon.cluster.engine.upkeep import Upkeep
from halfmoon.errors import LeaseLostError

log: Final = logging.getLogger("halfmoon.cluster")

RENEW_S: Final = 1.0
LOOK_S: Final = 0.25
MOVE_S: Final = 1.0
AWAY_S: Final = 2.5
"""Without an answer for so long, the lease is nearly over."""
GRACE_S: Final = 2.0
"""So long nothing is taken then: others need the time to say that they live."""


class Shards(Protocol):
    """What a node does with the shards it is told of. Everything is called in the loop."""

    def taken(self, head: Head) -> None:
        """It owns this shard now, in a new epoch: open it."""
        ...

    def lost(self, shard: int) -> None:
        """Another node owns it."""
        ...

    def store_lost(self) -> None:
        """The object store has not been reached for a while, and other nodes are told so."""
        ...

    async def give(self, move: Move) -> None:
        """Let go of a shard in good order, and hand it over."""
        ...


async def _nothing() -> None:
    pass


class Membership:
    """Of one start of one node."""

    def __init__(
        self, database: Leases, shards: Shards, number: int, host: str, port: int, rack: str, doors: str = ""
    ) -> None:
        """Of Leases.register."""
        self._database = database
        database.on_session_ended = self._session_ended
        self._shards = shards
        self._who = number, host, port, rack, doors
        self.on_look: Callable[[Sequence[Head], Sequence[Node]], None] | None = None
        """Told of all shards and nodes, with each look."""
        self.on_replaced: Callable[[Exception], None] = lambda error: None
        """Told once that this process must end: nothing in the database is its own."""
        self.is_replaced = False
        self._lineage = ""
        self.look_back: Callable[[], Awaitable[None]] = _nothing
        """Find out whether the database has lost something. Raises DatabaseUnavailableError."""
        self.kept: Mapping[int, int] = {}
        """Shards of which it has → in which epoch this node has them open."""
        self.reaches_store: Callable[[], bool] = lambda: True
        self.stores = True
        """As the others are told."""
        self.incarnation = 0
        """0: not registered yet."""
        self.nodes: Sequence[Node] = ()
        """As of the last look."""
        self.confirmed_s = 0.0
        """When the call began, by the loop's clock, by which the database last said what is this node's."""
        self._back_s = -GRACE_S
        """When it said so for the first time after it had been away, or a session with it had ended."""
        self._began_s = 0.0
        """When this start was registered."""
        self._owned: dict[int, int] = {}
        """Shard → epoch."""
        self._seen: dict[int, int] = {}
        """Shard → the highest epoch in which it ever was this node's: what is read late may be of before."""
        self.upkeep = Upkeep()
        self._looked, self._soon, self._renew_soon = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def looked(self) -> None:
        """Returns after the first look."""
        await self._looked.wait()

    def look_soon(self) -> None:
        """Somebody says that there is something to be seen."""
        self._soon.set()

    async def start(self) -> None:
        """Be a node. Waits until the database answers."""
        loop = asyncio.get_running_loop()
        while not self.incarnation:
            self.confirmed_s = loop.time()  # the lease begins somewhere in the call
            try:
                self._lineage = await self._database.lineage()
                self.incarnation = await self._database.register(*self._who)
            except DatabaseUnavailableError as error:
                log.warning("event=not_registered error=%s", error)
                await asyncio.sleep(RENEW_S)
        self._began_s = loop.time()
        log.info("event=registered incarnation=%d", self.incarnation)
        self.upkeep.go_on(self._renew, RENEW_S, at_once=True, soon=self._renew_soon)
        self.upkeep.go_on(self._look, LOOK_S, at_once=True, soon=self._soon)
        self.upkeep.go_on(self._move, MOVE_S, at_once=True)

    async def stop(self) -> None:
        """Its shards may be taken at once."""
        await self.upkeep.stop()
        if self.incarnation and not self.is_replaced:
            try:
                await self._database.leave(self.incarnation)
            except DatabaseUnavailableError as error:
                log.warning("event=not_left error=%s", error)

    def confirmed_ago_s(self) -> float:
        return asyncio.get_running_loop().time() - self.confirmed_s

    def _session_ended(self) -> None:
        """So it looks as if this node had died, until it has another one. Others' may have ended with it, as where a
        pooler is restarted: nothing is taken before they had the time for that, too."""
        self._back_s = asyncio.get_running_loop().time()
        self._renew_soon.set()

    async def _renew(self) -> None:
        if self.is_replaced:
            return
        begun_s = asyncio.get_running_loop().time()
        before = dict(self._owned)
        try:
            heads = await self._database.renew(self.incarnation)
        except LeaseLostError as error:
            # So long dead that it was forgotten: whatever it had is others'.
            log.error("event=forgotten error=%s", error)
            if await self._database.lineage() != self._lineage:
                self._replaced()
                return
            self.incarnation = await self._database.register(*self._who)
            self.stores = True  # as the new row says
            heads = []
        if begun_s - self.confirmed_s > AWAY_S:
            self._back_s = begun_s
        self.confirmed_s = begun_s
        found = {head.shard: head.epoch for head in heads}
        gone = {shard: epoch for shard, epoch in before.items() if found.get(shard) != epoch}
        if gone:
            await self.look_back()  # or has the database forgotten whose they are?
        for shard, epoch in gone.items():
            if self._owned.get(shard) == epoch and not await self._takes_back(shard, epoch):
                self._lose(shard)
        if self.reaches_store() != self.stores:
            await self._database.can_store(self.incarnation, not self.stores)
            self.stores = not self.stores
            log.warning("event=store_reached reached=%s", self.stores)
            if not self.stores:
                self._shards.store_lost()
        for head in heads:  # by a take of unknown outcome, or given by another node
            self._own(head)

    def _replaced(self) -> None:
        self.is_replaced = True
        self.on_replaced(
            DatabaseReplacedError(
                "the cluster's database was restored, rebuilt or brought back, and this process knows what was before: "
                "see whether $.cluster still names what belongs together, and start the node again"
            )
        )

    async def _takes_back(self, shard: int, epoch: int) -> bool:
        """Own a shard that is kept in its epoch again. False: it is not kept, or another node was first. Raises
        DatabaseUnavailableError."""
        if not self._is_kept(shard):
            return False
        (head,) = [head for head in await self._database.heads() if head.shard == shard]
        while head.epoch < epoch:
            taken = await self._database.take(shard, head.epoch, self.incarnation)
            if taken is None:
                return False
            head = taken
        return head.epoch == epoch and head.owner == self.incarnation

    def _is_kept(self, shard: int) -> bool:
        return shard in self._owned and self.kept.get(shard) == self._owned[shard]

    async def _look(self) -> None:
        if self.is_replaced:
            return
        of_others = {shard: epoch for shard, epoch in self._seen.items() if shard not in self._owned}
        heads = await self._database.heads()
        for head in heads:
            if head.shard in of_others and head.shard not in self._owned:
                self._may_have_gone_back(head, of_others[head.shard])
        self.nodes = await self._database.nodes()
        if self.on_look is not None:
            self.on_look(heads, self.nodes)
        may_live = self._may_live()
        for head in () if self._was_away() else to_take(heads, self.nodes, self.incarnation):
            if head.owner in may_live:
                continue
            taken = await self._database.take(head.shard, head.epoch, self.incarnation)
            if taken is not None:
                self._own(taken)
        for head in heads:
            if head.owner == self.incarnation:
                self._own(head)
        self._looked.set()

    def _may_have_gone_back(self, head: Head, seen: int) -> None:
        """Asked for after this node had seen it in this epoch, and had it no more: where the database has forgotten
        that it was taken, or given away, whoever gets it has the same epoch once more."""
        is_ours = head.owner == self.incarnation
        if head.epoch < seen + is_ours and self._seen[head.shard] == seen:
            self._seen[head.shard] = head.epoch - is_ours

    def _was_away(self) -> bool:
        """The database could not be reached for so long that leases may be over. Others who live have to renew theirs
        first, or it would look as if they were dead."""
        now_s = asyncio.get_running_loop().time()
        return now_s - self.confirmed_s > AWAY_S or now_s < self._back_s + GRACE_S

    def _may_live(self) -> set[int]:
        """Incarnations that a node which has just started does not take for dead yet.

        Where the database was away before this start, the leases of all are over, and they renew them within a second;
        their sessions may have ended, too. After a crash of all nodes it looks the same, and takeovers wait for
        `GRACE_S` of the start. They do not wait where something tells the two apart: a process that has ended loses its
        session before its lease is over (`lapsed` is not said then), a node that has started again is another
        incarnation now, and a minute is longer than any node needs."""
        if asyncio.get_running_loop().time() >= self._began_s + GRACE_S:
            return set()
        newest = {node.number: node.incarnation for node in self.nodes}
        return {node.incarnation for node in self.nodes if node.lapsed and newest[node.number] == node.incarnation}

    async def _move(self) -> None:
        if not self.nodes or self.is_replaced:
            return
        kept = set(filter(self._is_kept, self._owned))
        move = to_give(await self._database.heads(), self.nodes, self.incarnation, kept)
        if move is not None and self._owned.get(move.head.shard) == move.head.epoch:
            await self._shards.give(move)

    def _own(self, head: Head) -> None:
        if head.epoch <= self._seen.get(head.shard, 0):
            return
        if head.shard in self._owned:
            self._lose(head.shard)
        self._owned[head.shard] = self._seen[head.shard] = head.epoch
        log.info("event=shard_taken shard=%d epoch=%d", head.shard, head.epoch)
        self._shards.taken(head)

    def _lose(self, shard: int) -> None:
        log.info("event=shard_lost shard=%d epoch=%d", shard, self._owned.pop(shard))
        self._shards.lost(shard)

    def given(self, shard: int, epoch: int) -> None:
        """It was handed over, which had been this node's in this epoch."""
        if self._owned.get(shard) == epoch:
            del self._owned[shard]

    async def take_again(self, shard: int, epoch: int) -> Head | None:
        """Own it in a new epoch: it was opened in this one and closed again. `Shards` is not told. None: it is another
        node's now. Raises DatabaseUnavailableError."""
        head = await self._database.take(shard, epoch, self.incarnation)
        if head is not None:
            self._owned[shard] = self._seen[shard] = head.epoch
        elif self._owned.get(shard) == epoch:
            # Another node's, or this node's lease is over: a look that finds it here again takes it for a new one.
            del self._owned[shard]
            self._seen[shard] = epoch - 1
        return head

    def epoch_of(self, shard: int) -> int | None:
        """In which it is this node's, as far as it is known here."""
        return self._owned.get(shard)
