"""A node of a cluster: a process with shards (server/workers/worker.py) that come and go as the database says."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from halfmoon.adapters.kafka.nearby import Nearby
from halfmoon.cluster.asking import nobody
from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.engine.membership import Membership
from halfmoon.cluster.engine.pieces import Durability
from halfmoon.cluster.engine.placed import PlacedReads
from halfmoon.cluster.messages import Done, ShardGiven
from halfmoon.cluster.placement import Layout
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.errors import StartError
from halfmoon.server.instruments import clock_over
from halfmoon.server.nodes import metrics
from halfmoon.server.nodes.catalog_watch import CatalogWatch
from halfmoon.server.nodes.confirming import Confirming
from halfmoon.server.nodes.database_clock import DatabaseClock
from halfmoon.server.nodes.engine import Engine
from halfmoon.server.nodes.engines import Engines
from halfmoon.server.nodes.holding import HeldShards
from halfmoon.server.nodes.nearby import NearbyReads
from halfmoon.server.nodes.node_place import NodePlace
from halfmoon.server.nodes.patience import until_it_answers
from halfmoon.server.nodes.places import Places
from halfmoon.server.running import undo
from halfmoon.server.workers.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from halfmoon.cluster.asking import Told
    from halfmoon.cluster.engine.database import Node
    from halfmoon.cluster.engine.pieces import Head
    from halfmoon.config.settings import Settings
    from halfmoon.config.units import Address
    from halfmoon.server.auditing import Auditing

logger = logging.getLogger("halfmoon.server")

READY_S: Final = 10.0
"""A node says that it is ready when the shards that it has taken first are open, or after so long."""
LEAVE_S: Final = 20.0
"""So long a node that stops tries to give its shards away in good order."""
ANOTHER_S: Final = 5.0
"""So long it is waited for an earlier start of the same node to be over."""


class ClusterNode:
    """In the running event loop. `start` and `stop` once each."""

    worker: Worker
    member: Membership
    held: HeldShards
    place: NodePlace

    def __init__(
        self,
        settings: Settings,
        engines: Engines,
        *,
        unset_configs: Collection[str] = (),
        environment: Mapping[str, str] | None = None,
        on_lost: Callable[[Exception], None],
    ) -> None:
        """`on_lost`: as of Worker."""
        self._engines = engines
        self._settings = settings
        self._unset_configs = unset_configs
        self._environment = environment
        self._on_lost = on_lost
        self._undo: list[Callable[[], object]] = []

    async def start(self) -> None:
        """Waits until the database answers. Raises HalfmoonError (StartError mostly) with everything undone."""
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        settings, engines, on_stop = self._settings, self._engines, self._undo.append
        fs = OsFileSystem(Path(settings.node.data_dir))
        fs.lock()
        on_stop(fs.unlock)
        on_stop(engines.close)
        await engines.open()
        clock = DatabaseClock()
        place = self.place = NodePlace(
            settings, await self._layout(), lambda: engines.catalog, engines.routes, clock_over(clock)
        )  # fmt: skip
        await until_it_answers(lambda: clock.look(engines.database.now_ms))
        clock.start(engines.database.now_ms)
        on_stop(clock.stop)
        engine = Engine(
            engines.database, engines.store, engines.cluster.id, place.me, settings.cluster, place.hot_bytes
        )
        engine.logs = lambda: list(place.logs.values())
        on_stop(engine.stop)
        worker = self.worker = Worker(
            settings, place, unset_configs=self._unset_configs, environment=self._environment, on_lost=self._on_lost
        )
        held = self.held = HeldShards(worker, engine, place, self._tell_of, self._learn_who_has_it)
        place.confirming = Confirming(engines.database, held)
        await self._is_alone()
        await place.clear()
        await worker.start()
        on_stop(worker.stop)
        watch = CatalogWatch(
            lambda: worker.driver.confirmed_s, lambda: [worker.kafka, *worker.rocketmqs], worker.turns
        )  # fmt: skip
        if worker.access is not None:
            watch.start()
            on_stop(watch.stop)
            worker.is_stale = lambda: watch.is_stale
        worker.more_warnings = clock.warnings
        worker.more_problems = lambda: [
            *held.problems.values(), *engine.lost_commits.problems.values(), *watch.problems(),
            *engine.store.problems(),
        ]  # fmt: skip
        told = settings.cluster.told
        member = self.member = held.member = Membership(
            engines.database,
            held,
            place.me,
            *told,
            settings.cluster.rack,
            msgspec.json.encode(place.nodes.client_addresses()).decode(),
        )
        member.on_look = self._looked
        member.on_replaced = self._on_lost
        member.look_back, member.kept = engine.lost_commits.look, engine.lost_commits.kept
        member.reaches_store = lambda: engine.store.is_reached
        worker.answer_also({ShardGiven: self._given_a_shard})
        worker.more_metrics = metrics.of_node(engine, held, clock, self._serve_nearby(engines))
        engine.start()
        on_stop(self._leave)
        await engine.store.begin()
        await member.start()
        await self._first_shards()

    def _serve_nearby(self, engines: Engines) -> PlacedReads:
        """Consumers of this node's rack are served what others lead, and others are told what this one does."""
        worker, place, settings = self.worker, self.place, self._settings.cluster
        front = worker.shards.front
        places = Places(front, place.logs, place.confirm, asyncio.get_running_loop().time)
        worker.answer_also(places.answers())
        placed = PlacedReads(engines.database, engines.store, settings.read_cache_bytes)
        reads = NearbyReads(
            place.me, worker.shards.owners, worker.links, place.rack_of, places.is_spared, placed,
            front.fetch_buffers,
        )  # fmt: skip
        worker.answering.add(Nearby(settings.rack, reads, place.confirm))
        return placed

    async def _layout(self) -> Layout:
        """Raises StartError."""
        heads = await until_it_answers(self._engines.database.heads)
        return Layout(len(heads), sum(head.durability is Durability.FAST for head in heads))

    async def _is_alone(self) -> None:
        """Two processes that are the same node would send each other's clients back and forth. Raises StartError."""
        loop = asyncio.get_running_loop()
        until_s: float | None = None
        while True:
            found = await until_it_answers(self._engines.database.nodes)
            until_s = until_s or loop.time() + ANOTHER_S  # from the first answer on
            alive = [each for each in found if each.number == self.place.me and each.alive]
            if not alive:
                return
            if loop.time() > until_s:
                raise StartError(f"node {self.place.me} is running already, at {alive[0].host}:{alive[0].port}")
            await asyncio.sleep(0.1)

    async def _first_shards(self) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + READY_S
        await self.member.looked()
        await self.worker.links.connected(1.0)
        for shard in self.held.wanted_shards():
            try:
                async with asyncio.timeout(max(0.0, until_s - loop.time())):
                    await self.held.settled(shard)
            except TimeoutError:
                return

    def _tell_of(self, shard: int, incarnation: int) -> None:
        """The node that has been given a shard looks for itself, if it is not told now."""
        for node in self.member.nodes:
            if node.incarnation == incarnation:
                self.worker.links.ask_process(node.number, ShardGiven(shard), nobody)

    def _learn_who_has_it(self) -> None:
        """The new owner has written it into the catalog, or will."""
        self.worker.news.catch_up(lambda _error: None)

    def _given_a_shard(self, _question: ShardGiven, told: Told) -> None:
        self.member.look_soon()
        told(Done())

    def _looked(self, heads: Sequence[Head], nodes: Sequence[Node]) -> None:
        before = set(self.place.members)
        self.place.nodes.found(nodes)
        numbers = {node.incarnation: node.number for node in nodes}
        for head in heads:
            if head.owner in numbers:
                self.place.leaders.taken(head.shard, head.epoch, numbers[head.owner])
        now = set(self.place.members)
        for number in now - before:
            self.worker.links.add(number)
        for number in before - now:
            self.worker.links.remove(number)

    async def stop(self) -> None:
        """Undo what `start` did, last first."""
        await undo(self._undo)

    async def _leave(self) -> None:
        try:
            async with asyncio.timeout(LEAVE_S):
                if self.member.is_replaced:  # there its number may be another process's
                    await self._close_all()
                    return
                # So that others who stop now give nothing to this one.
                with contextlib.suppress(DatabaseUnavailableError):
                    await self._engines.database.drain(self.place.me, True)
                await self.held.leave()
        except TimeoutError:
            logger.warning("event=not_left_in_time after_s=%g", LEAVE_S)
            await self._close_all()
        except Exception:
            logger.exception("event=not_left")
            await self._close_all()
        finally:
            await self.member.stop()

    async def _close_all(self) -> None:
        """Whatever waits for the database or the store, as the opening of a shard may for the end of its change."""
        self.held.abandon()
        self.worker.driver.stop_insisting()  # a shard that is just being opened is to be announced
        await self.held.close()

    # -- what the process says of it ---------------------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        return self.worker.settings

    @property
    def auditing(self) -> Auditing | None:
        return self.worker.auditing

    def reload(self, settings: Settings) -> None:
        self.worker.reload(settings)

    @property
    def kafka_address(self) -> Address:
        return self.worker.kafka_address

    @property
    def rocketmq_address(self) -> Address | None:
        return None if self.settings.listeners.rocketmq is None else self.place.rocketmq_bind(0)

    @property
    def namesrv_address(self) -> Address | None:
        return None if self.settings.listeners.rocketmq is None else self.place.namesrv_bind()

    @property
    def http_address(self) -> Address | None:
        return None if self.settings.listeners.http is None else self.place.http_bind()
