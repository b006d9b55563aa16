"""Opens and closes the shards of a node, as the database says whose they are (engine/membership.Shards).

For each shard there is what should be, and what is; one task at a time brings them together. What cannot be opened is
tried again, as long as it is this node's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.engine.pieces import BrokenLogError
from halfmoon.cluster.engine.sharing import Move, in_turn
from halfmoon.cluster.store import CatalogUnavailableError
from halfmoon.errors import LeaseLostError, StartError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from halfmoon.cluster.engine.membership import Membership
    from halfmoon.cluster.engine.pieces import Durability, Head
    from halfmoon.server.nodes.engine import Engine
    from halfmoon.server.nodes.node_place import NodePlace

logger = logging.getLogger("halfmoon.cluster")

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0
OPENING: Final = 8
"""So many shards at once: each reads from the store, and takes memory for it."""
LEAVING: Final = 4
"""So many are given away at once by a node that stops."""
EXPECTED: Final = (StartError, BrokenLogError, DatabaseUnavailableError, CatalogUnavailableError, OSError)


class Process(Protocol):
    """What runs the shards (server/workers/worker.Worker)."""

    async def open_shard(self, number: int) -> None: ...
    async def close_shard(self, number: int) -> None: ...


class HeldShards:
    member: Membership
    """Set before the first shard is taken."""

    def __init__(
        self,
        process: Process,
        engine: Engine,
        place: NodePlace,
        on_given: Callable[[int, int], None],
        on_lost: Callable[[], None],
    ) -> None:
        """`on_given` is told of a shard that was handed over, and the incarnation that has it now; `on_lost` that
        another node has taken one."""
        self._on_given, self._on_lost = on_given, on_lost
        self._process = process
        self._engine = engine
        self._place = place
        self._wanted: dict[int, Head] = {}
        self.open: dict[int, int] = {}
        """Shard → the epoch in which it is open."""
        self.served: dict[int, tuple[int, float]] = {}
        self.leaving: set[int] = set()
        """Both as of confirming.OpenShards."""
        self.losses = 0
        """So many were found to be another node's, or may be."""
        self._tried: dict[int, int] = {}
        """Shard → the last epoch in which it was opened, or this was begun: nobody may do so twice."""
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._pauses: dict[int, asyncio.Event] = {}
        """Shards that are not tried for a moment → set where something else is wanted now."""
        self._leaving = False
        self._opening = asyncio.Semaphore(OPENING)
        self.problems: dict[int, str] = {}
        """Shards of this node that cannot be opened, and why."""

    @property
    def renewed_s(self) -> float:
        """As of confirming.OpenShards."""
        return self.member.confirmed_s

    # -- as of Shards ------------------------------------------------------------------------------------------------

    def taken(self, head: Head) -> None:
        if not self._leaving:
            self._place.leaders.taken(head.shard, head.epoch, self._place.me)
            self._wanted[head.shard] = head
            self._begin(head.shard)

    def lost(self, shard: int) -> None:
        self._wanted.pop(shard, None)
        self.losses += 1
        self._engine.abandon(shard, LeaseLostError(f"shard {shard} is another node's"))
        self._begin(shard)
        self._on_lost()

    def store_lost(self) -> None:
        for shard in self.leaving:
            self._waits_for_no_store(shard)

    def _waits_for_no_store(self, shard: int) -> None:
        """One that is being given away: what is on its way to the store would be waited for, and no other shard could
        be given away."""
        self._engine.abandon(shard, LeaseLostError(f"shard {shard} goes to a node that reaches the object store"))

    async def give(self, move: Move) -> None:
        wanted = self._wanted.get(move.head.shard)
        if wanted is not None and wanted.epoch == move.head.epoch:
            given = False
            try:
                given = await self._hand_over(move)
            finally:
                # If it was handed over all the same, the next look says so.
                epoch = self.member.epoch_of(move.head.shard)
                if not given and epoch is not None:
                    self.taken(move.head._replace(epoch=epoch))

    async def _hand_over(self, move: Move) -> bool:
        """Close it, and have another node own it. Raises DatabaseUnavailableError."""
        shard = move.head.shard
        self.leaving.add(shard)
        if not self.member.stores:
            self._waits_for_no_store(shard)
        given = epoch = None
        served = self.served.get(shard)
        try:
            await self._shut(shard)
            served = self.served.get(shard)
            epoch = self.member.epoch_of(shard)  # while it was being opened it may have been taken again, or lost
            if epoch is not None:
                given = await self._engine.database.hand_over(shard, epoch, move.to)
        finally:
            self.leaving.discard(shard)
            if self.served.get(shard) is served:  # else its new owner has died before the answer came, and it is back
                self._not_served(shard, was_ours=given is not None)
        if given is None or epoch is None:
            return False
        self.member.given(shard, epoch)
        self._on_given(shard, move.to)
        logger.info("event=shard_given shard=%d epoch=%d to=%d", shard, given.epoch, move.to)
        return True

    def _not_served(self, shard: int, *, was_ours: bool) -> None:
        """It is closed. `was_ours`: until then, for certain."""
        if self.served.pop(shard, None) is not None and not was_ours:
            self.losses += 1

    # -- bringing about ----------------------------------------------------------------------------------------------

    def _begin(self, shard: int) -> None:
        """One that has just ended does not see what is wanted now, also where its end is not noted yet."""
        running = self._tasks.get(shard)
        if shard in self._pauses:
            self._pauses[shard].set()
        elif running is None or running.done():
            task = self._tasks[shard] = asyncio.get_running_loop().create_task(self._bring_about(shard))
            task.add_done_callback(partial(self._done, shard))

    def _done(self, shard: int, task: asyncio.Task[None]) -> None:
        if self._tasks.get(shard) is task:
            del self._tasks[shard]
        if not task.cancelled() and task.exception() is not None:
            logger.error("event=shard_not_held shard=%d", shard, exc_info=task.exception())

    async def settled(self, shard: int) -> None:
        """Returns when it is as it should be, or cannot be."""
        while shard in self._tasks:
            await asyncio.wait([self._tasks[shard]])
            await asyncio.sleep(0)  # its end is noted by a callback

    async def _bring_about(self, shard: int) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            wanted, epoch = self._wanted.get(shard), self.open.get(shard)
            if (None if wanted is None else wanted.epoch) == epoch:
                self.problems.pop(shard, None)
                return
            if epoch is not None:
                await self._close(shard)
            elif wanted is not None:
                async with self._opening:
                    if self._wanted.get(shard) is not wanted:  # while it waited for its turn
                        continue
                    problem = await self._open_now(wanted)
                if problem is None:
                    continue
                self.problems[shard] = f"shard {shard} cannot be opened: {problem}"
                logger.error("event=shard_not_opened shard=%d epoch=%d again_s=%g error=%s",
                             shard, wanted.epoch, pause_s, problem,
                             exc_info=None if isinstance(problem, EXPECTED) else problem)  # fmt: skip
                await self._pause(shard, pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _pause(self, shard: int, pause_s: float) -> None:
        """Or less, where something else is wanted: giving a shard away does not wait for the next try to open it."""
        changed = self._pauses[shard] = asyncio.Event()
        try:
            async with asyncio.timeout(pause_s):
                await changed.wait()
        except TimeoutError:
            pass
        finally:
            del self._pauses[shard]

    async def _open_now(self, head: Head) -> Exception | None:
        """What has gone wrong."""
        shard = head.shard
        backing = None
        try:
            if self._tried.get(shard, 0) >= head.epoch:
                again = await self.member.take_again(shard, head.epoch)
                if again is None:  # it is not this node's now; the next look says whether it is
                    if self._wanted.get(shard) is head:
                        del self._wanted[shard]
                    return None
                if self._wanted.get(shard) is head:
                    self._wanted[shard] = again
                head = again
            backing = await self._engine.open(head)
            self._place.takes(backing)
            self._tried[shard] = head.epoch
            self.served[shard] = head.epoch, asyncio.get_running_loop().time()
            await self._process.open_shard(shard)
        except Exception as error:
            self._not_served(shard, was_ours=False)
            if backing is not None:
                self._engine.closed(shard)
            return error
        self.open[shard] = head.epoch
        if backing.head.restored:
            await self._begun_anew(shard, backing.epoch)
        logger.info("event=shard_opened shard=%d epoch=%d", shard, head.epoch)
        return None

    async def _begun_anew(self, shard: int, epoch: int) -> None:
        """What follows from a restore is done: nobody needs to do it again. A node that stops does not wait for the
        database to say so."""
        while not self._leaving:
            try:
                await self._engine.database.begun_anew(shard, epoch)
            except DatabaseUnavailableError as error:
                logger.info("event=tried_again what=begun_anew again_s=%g error=%s", FIRST_PAUSE_S, error)
                await asyncio.sleep(FIRST_PAUSE_S)
            else:
                logger.info("event=shard_begun_anew shard=%d epoch=%d", shard, epoch)
                return

    async def _close(self, shard: int) -> None:
        self._engine.closing(shard)
        await self._process.close_shard(shard)
        self._engine.closed(shard)
        del self.open[shard]
        if shard not in self.leaving:
            self._not_served(shard, was_ours=False)
        logger.info("event=shard_closed shard=%d", shard)

    # -- the end -----------------------------------------------------------------------------------------------------

    async def leave(self) -> None:
        """Give all shards to the other nodes, in good order; those that cannot be given are closed."""
        self._leaving = True
        turns = asyncio.Semaphore(LEAVING)
        nodes = self.member.nodes
        with contextlib.suppress(DatabaseUnavailableError):
            nodes = await self._engine.database.nodes()  # some may leave as well
        others = in_turn(nodes, self.member.incarnation)

        async def one(head: Head) -> None:
            async with turns:
                try:
                    await self._hand_over(Move(head, next(others)))
                except (DatabaseUnavailableError, StopIteration):
                    await self._shut(head.shard)
                except Exception:  # the other shards do not wait for what is wrong with this one
                    logger.exception("event=shard_not_given shard=%d", head.shard)
                    await self._shut(head.shard)

        await asyncio.gather(*(one(head) for head in list(self._wanted.values())))
        await self._all_settled()

    async def _all_settled(self) -> None:
        for shard in list(self._tasks):
            await self.settled(shard)

    async def close(self) -> None:
        """Have none any more."""
        await asyncio.gather(*(self._shut(shard) for shard in list(self._wanted)))
        await self._all_settled()

    async def _shut(self, shard: int) -> None:
        self._wanted.pop(shard, None)
        self._begin(shard)
        await self.settled(shard)

    def abandon(self) -> None:
        """Who waits for any of them is told that it is no use; also for one that is just being closed, or is opened
        yet."""
        self._engine.abandon_all(OSError("this node stops"))

    def count(self, durability: Durability) -> int:
        """Of those that are open."""
        return sum(head.durability is durability for shard, head in self._wanted.items() if shard in self.open)

    def wanted_shards(self) -> Sequence[int]:
        """Those that are this node's."""
        return sorted(self._wanted)
