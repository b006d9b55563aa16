"""RocketMQ's brokers of one worker: a server for each of its shards, and the name service before them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from halfmoon.adapters.rocketmq.coordinating import Coordinating
from halfmoon.adapters.rocketmq.server import Server
from halfmoon.adapters.rocketmq.shards import Shards
from halfmoon.cluster.placement import id_beginning_in
from halfmoon.server.workers.deletions import Deletions
from halfmoon.server.workers.rocketmq_answers import rocketmq_answers
from halfmoon.server.workers.rocketmq_asking import RocketmqGroups, RocketmqMessages, RocketmqProducers
from halfmoon.server.workers.rocketmq_brokers import RocketmqBrokers, listener_of
from halfmoon.server.workers.rocketmq_changes import CatalogChanges

if TYPE_CHECKING:
    import socket

    from halfmoon.adapters.tcp.access import Access
    from halfmoon.adapters.tcp.steps import InThread
    from halfmoon.adapters.tcp.turns import Turns
    from halfmoon.cluster.asking import Asking
    from halfmoon.cluster.messages import Question
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
        in_thread: InThread,
        given: dict[tuple[str, int], socket.socket],
    ) -> None:
        """`asking`: the shards of all processes. `given`: as of Listener. Raises StartError."""
        loop = asyncio.get_running_loop()
        plan = shards.plan
        self._listener = listener
        self._plan = plan
        host = "" if listener.advertise is None else listener.advertise.host
        brokers = RocketmqBrokers(
            shards.shared, listener.broker_name, {shard: (host, port) for shard, port in enumerate(plan.rocketmq)}
        )
        deletions = Deletions(shards.front.administration, plan.shards, asking)
        changes = CatalogChanges(driver, shards.changes, shards.front, deletions)
        self._kernels = {number: node.kernel for number, node in shards.nodes.items()}
        self.of: dict[int, Server] = {}
        """By shard."""
        self._coordinating: dict[int, Coordinating] = {}
        for number, node in shards.nodes.items():
            groups = RocketmqGroups(number, plan.shards, asking)
            messages = RocketmqMessages(shards.shared.placements, asking, loop.call_later)
            producers = RocketmqProducers(number, plan.shards, asking, listener.broker_name, shards.shared)
            new_id = partial(_new_topic_id, number, plan.shards)
            others = Shards(plan.shards, brokers, groups, messages, producers, changes, new_id)
            server = self.of[number] = Server(
                node.kernel, node.services, settings, listener_of(listener, number), plugins.allocators,
                plugins.filters, loop, access=access, turns=turns, shards=others,
            )  # fmt: skip
            server.reuse_port = True
            server.given = given
            self._coordinating[number] = Coordinating(server.node, in_thread, loop.call_soon)

    def answers(self, shard: int) -> Mapping[type[Question], Callable[..., None]]:
        """What a shard answers the others."""
        return rocketmq_answers(self._kernels[shard], self._coordinating[shard])

    async def start(self) -> None:
        """Raises OSError."""
        for number, server in self.of.items():
            await server.start(self._listener.bind._replace(port=self._plan.rocketmq[number]))
        first = next(iter(self.of.values()))
        await first.start_names(self._listener.namesrv._replace(port=self._plan.namesrv))

    async def stop(self) -> None:
        await asyncio.gather(*(server.stop() for server in self.of.values()))


def _new_topic_id(shard: int, shards: int) -> bytes:
    return id_beginning_in(shard, os.urandom(16), shards)
