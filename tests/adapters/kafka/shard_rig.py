"""One process of two, that has every other shard of four: its shards, and the server in front of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any

from halfmoon.adapters.kafka.server import Server
from halfmoon.adapters.tcp.round_time import RoundTime
from halfmoon.cluster.asking import Asking, Told
from halfmoon.cluster.changes import Changes
from halfmoon.cluster.messages import Question
from halfmoon.cluster.owners import ShardOwners
from halfmoon.cluster.placement import Layout, coordinator_of
from halfmoon.cluster.shared import SharedCatalog, tell
from halfmoon.config.settings import load_settings
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.owners import OtherNode
from halfmoon.core.catalog.topics import Topic
from halfmoon.core.hold import HoldService
from halfmoon.core.identity import Identity
from halfmoon.core.kernel import Shard
from halfmoon.core.live import Live
from halfmoon.core.steps import finish
from halfmoon.errors import BrokerError, Fault
from halfmoon.hooks.plugins import load_plugins
from halfmoon.plugins import BUILT_IN
from halfmoon.plugins.store.view.configs import VIEW_CONFIGS
from halfmoon.schema import control
from halfmoon.server.assembly import Sections
from halfmoon.server.workers.front import Front
from halfmoon.server.workers.homes import LocalShards
from halfmoon.services.topic_configs import topic_configs
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.adapters.rig import FakeLoop
from tests.core.bench import VirtualClock, sync

if TYPE_CHECKING:
    from halfmoon.adapters.kafka.shards import Confirm
    from halfmoon.adapters.tcp.core import Core

SHARDS = 4
LAYOUT = Layout.of_workers(SHARDS)
EVERYWHERE = frozenset(("heard",))
"""Topics whose batches all shards hear of."""
HERE = (0, 2)
"""Shards of this process; …"""
THERE = (1, 3)
"""… the others are the other one's."""
ME = OtherNode(7, ("me.example", 9_092), "broker-7", ("me.example", 10_911))
OTHER = OtherNode(9, ("other.example", 9_192), "broker-9", ("other.example", 10_912))


def name_in(shard: int, prefix: str = "g") -> str:
    """A name that this shard coordinates."""
    return next(name for at in range(100) if coordinator_of(name := f"{prefix}{at}", SHARDS) == shard)


class ShardRig:
    def __init__(
        self,
        process: int = 0,
        clock: VirtualClock | None = None,
        more: Mapping[str, Any] | None = None,
        confirm: Confirm | None = None,
        layout: Layout = LAYOUT,
    ) -> None:
        """`process` 1: the other one. `more`: sections of broker.yaml. `confirm`: of Homes."""
        self.process = process
        self.here = HERE if process == 0 else THERE
        self.me = (ME, OTHER)[process]
        self.clock = clock or VirtualClock()
        self.loop = FakeLoop(self.clock)
        self.asking: Asking | None = None
        self.settings = settings = load_settings(
            {"log": {"segment_bytes": "1MiB", "low_disk_bytes": 0}, **(more or {})}, {}, {}
        )
        catalog = Catalog(settings, topic_configs((), (VIEW_CONFIGS,)))
        Sections(catalog)
        self.shared = SharedCatalog(catalog)
        self.changes = Changes(self.shared, LAYOUT)
        self.hold = HoldService(settings.hold)
        self.live = Live(settings)
        self.owned_by = [process if number in self.here else 1 - process for number in range(SHARDS)]
        self.owners = ShardOwners(self.shared, {0: ME, 1: OTHER}, self.owned_by, process, LAYOUT)
        self.plugins = load_plugins(settings, BUILT_IN)
        self.nodes = {number: self._open(number) for number in self.here}
        kernels = [node.kernel for node in self.nodes.values()]
        first = self.here[0]
        self.front = Front(
            self.shared,
            self.changes,
            kernels,
            self.shard(first),
            LAYOUT,
            self.clock,
            random.Random(3).randbytes,
        )
        self.change(self._started)
        self.homes = LocalShards(
            self.front,
            self.nodes,
            layout,
            lambda work, told: self.administer(work, told),
            self,
            EVERYWHERE,
            confirm,
        )
        core: Core = self.front
        self.server = Server(core, self.nodes[first].services, settings, self.loop, homes=self.homes)  # type: ignore[arg-type]
        self.server.round_time = RoundTime(self.loop.call_soon, lambda: 0.0)

    def lose(self, number: int) -> None:
        """A shard goes to another process."""
        self.owned_by[number] = 1 - self.process
        self.front.remove(self.nodes[number].kernel)
        self.homes.remove(number)
        self.turn()

    def get_back(self, number: int) -> None:
        self.owned_by[number] = self.process
        self.front.add(self.nodes[number].kernel)
        self.homes.add(number, self.nodes[number])
        self.turn()

    def shard(self, number: int) -> Shard:
        return Shard(number, Identity(1, "cluster", self.me.node_id), self.owners, self.hold, self.live)

    def _open(self, number: int) -> BareNode:
        fs = FaultyFileSystem(random.Random(number))
        node = BareNode(fs, self.settings, self.clock, random.Random(number).randbytes, shard=self.shard(number))
        node.open()
        for record in tell(self.shared, node.catalog):
            node.append_control(record)
        node.use(self.plugins.filters, self.plugins.interceptors, self.plugins.relays)
        node.groups.allocators = self.plugins.allocators
        node.start()
        return node

    def _started(self) -> None:
        for number in range(SHARDS):
            generation = self.nodes[number].generation if number in self.nodes else 20 + number
            self.changes.append_control(control.ShardStarted(number, generation))

    def change(self, work: Callable[[], Any]) -> Any:
        """A change of the shared catalog, committed at once."""
        self.changes.begin()
        made = work()
        if isinstance(made, Generator):
            made = finish(made)
        if self.changes.records():
            self.front.apply(self.changes.committed(self.shared.version + 1))
        else:
            self.changes.abandoned()
        self.turn()
        return made

    def ask(self, shard: int, question: Question, told: Told) -> None:
        """Of the other shards: as of cluster.asking.Asking."""
        if self.asking is not None:
            self.asking.ask(shard, question, told)
        else:
            told(BrokerError(Fault.NOT_LEADER_OR_FOLLOWER, "nobody can be asked"))

    def administer(self, work: Callable[[], object], told: Callable[[object], None]) -> None:
        """A request makes a change of it."""
        told(self.change(work))

    def topic(self, name: str, partitions: int = 8) -> Topic:
        """Partition i lies in shard (i + some) modulo 4."""
        topic: Topic = self.change(lambda: self.front.administration.create_topic(name, partitions))[0]
        return topic

    def delete(self, topic: Topic) -> None:
        """In a change. All shards have agreed."""
        self.front.administration.refuse_deletions([topic.number], {})
        self.front.administration.delete_topic(topic)

    def shard_of(self, topic: Topic, index: int) -> int:
        return self.shared.placements[topic.number][index]

    def turn(self) -> None:
        self.loop.run()
        for node in self.nodes.values():
            node.write()
            sync(node)
            node.settle()
        self.loop.run()

    def pass_time(self, ms: int) -> None:
        self.clock.now_ms += ms
        self.hold.expire(self.clock.now_ms)
        for node in self.nodes.values():
            node.groups.expire(self.clock.now_ms)
            node.shares.expire(self.clock.now_ms)
        self.loop.run_later()
        self.turn()
