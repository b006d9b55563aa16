"""RocketMQ's brokers of one worker: a server for each of its shards, and the name service before them."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING

from halfmoon.adapters.rocketmq.coordinating import Coordinating
from halfmoon.adapters.rocketmq.server import Server
from halfmoon.adapters.rocketmq.shards import Shards
from halfmoon.cluster.asking import PatientAsking
from halfmoon.cluster.placement import Layout, id_beginning_in
from halfmoon.schema.durability import DURABILITY, OBJECT
from halfmoon.server.workers.confirmed import confirmed
from halfmoon.server.workers.deletions import Deletions
from halfmoon.server.workers.rocketmq_answers import rocketmq_answers
from halfmoon.server.workers.rocketmq_asking import RocketmqGroups, RocketmqMessages, RocketmqProducers
from halfmoon.server.workers.rocketmq_brokers import RocketmqBrokers, listener_of
from halfmoon.server.workers.rocketmq_changes import CatalogChanges
from halfmoon.server.workers.tasks import in_thread

if TYPE_CHECKING:
    import socket

    from halfmoon.adapters.rocketmq.coordinating import RightsOf
    from halfmoon.adapters.tcp.access import Access
    from halfmoon.adapters.tcp.turns import Turns
    from halfmoon.cluster.asking import Answers, Asking
    from halfmoon.config.listener_settings import RocketmqListener
    from halfmoon.config.settings import Settings
    from halfmoon.hooks.plugins import Plugins
    from halfmoon.server.workers.catalog import SharedCatalogDriver
    from halfmoon.server.workers.open_shards import OpenShards


class RocketmqServers:
    def __init__(
        self,
        settings: Settings,
        listener: RocketmqListener,
        shards: OpenShards,
        plugins: Plugins,
        driver: SharedCatalogDriver,
        asking: Asking,
        access: Access | None,
        turns: Turns,
        given: dict[tuple[str, int], socket.socket],
        rights: RightsOf,
    ) -> None:
        """`asking`: the shards of all processes. `given`: as of Listener. `rights`: of clients of other processes.
        Raises StartError."""
        self._loop = loop = asyncio.get_running_loop()
        self._place = place = shards.place
        self._settings, self._listener, self._shards, self._plugins = settings, listener, shards, plugins
        self._asking, self._access, self._turns, self._given = asking, access, turns, given
        reads = partial(in_thread, shards.client_threads)
        self._coordinating = partial(Coordinating, in_thread=reads, soon=loop.call_soon, rights=rights)
        self._brokers = RocketmqBrokers(shards.shared, listener.broker_name, place.rocketmq_addresses())
        self._patient = patient = PatientAsking(asking, loop.call_later, loop.time)
        deletions = Deletions(shards.front.administration, place.shards, patient)
        self._changes = CatalogChanges(driver, shards.changes, shards.front, deletions)
        self.of: dict[int, Server] = {}
        """By shard."""
        for number in shards.nodes:
            self.add(number)

    def add(self, shard: int) -> None:
        """A shard of this process, of which the first stays."""
        shards, place, listener = self._shards.shared, self._place, self._listener
        asking, patient = self._asking, self._patient
        node = self._shards.nodes[shard]
        groups = RocketmqGroups(shard, node.kernel.generation, place.layout, asking, patient)
        messages = RocketmqMessages(shards, asking, patient, self._loop.call_later)
        producers = RocketmqProducers(shard, place.shards, asking, patient, listener.broker_name, shards)
        new_id = partial(_new_topic_id, shard, place.layout)
        configs = {} if place.layout.is_fast(shard) else {DURABILITY: OBJECT}
        others = Shards(
            place.shards, self._brokers, groups, messages, producers, self._changes, new_id, configs, place.confirm
        )
        server = self.of[shard] = Server(
            node.kernel, node.services, self._settings, listener_of(listener, shard), self._plugins.allocators,
            self._plugins.filters, self._loop, executor=self._shards.client_threads, access=self._access,
            turns=self._turns, shards=others,
        )  # fmt: skip
        server.reuse_port = not place.is_cluster
        server.given = self._given

    def answers(self, shard: int) -> Answers:
        """What a shard answers the others."""
        coordinating = self._coordinating(self.of[shard].node)
        made = rocketmq_answers(self._shards.nodes[shard].kernel, coordinating, self._shards.shared.epochs)
        return confirmed(self._place.confirm, made)

    async def start(self) -> None:
        """Raises OSError."""
        for number in filter(self._place.owns, self.of):
            await self.open(number)
        first = next(iter(self.of.values()))
        await first.start_names(self._place.namesrv_bind())

    async def open(self, shard: int) -> None:
        """Its clients may come. Raises OSError."""
        await self.of[shard].start(self._place.rocketmq_bind(shard))

    async def remove(self, shard: int) -> None:
        server = self.of.pop(shard, None)
        if server is not None:
            await server.stop()

    async def stop(self) -> None:
        await asyncio.gather(*(server.stop() for server in self.of.values()))


def _new_topic_id(shard: int, layout: Layout) -> bytes:
    return id_beginning_in(shard, os.urandom(16), layout)
