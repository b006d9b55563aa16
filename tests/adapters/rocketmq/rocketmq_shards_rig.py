"""The RocketMQ servers of one process that has two of four shards, a broker each, over the shards of shard_rig."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from halfmoon.adapters.rocketmq.coordinating import Coordinating
from halfmoon.adapters.rocketmq.registry import Port
from halfmoon.adapters.rocketmq.server import Server
from halfmoon.adapters.rocketmq.shards import Administered, Shards
from halfmoon.adapters.tcp.round_time import RoundTime
from halfmoon.cluster.asking import Answers, Told
from halfmoon.cluster.messages import Question
from halfmoon.cluster.placement import Layout, id_beginning_in
from halfmoon.config.listener_settings import RocketmqListener
from halfmoon.core.catalog.topics import Topic
from halfmoon.errors import BrokerError, Fault
from halfmoon.hooks.plugins import load_plugins
from halfmoon.plugins import BUILT_IN
from halfmoon.remoting.command import JSON
from halfmoon.server.plugin_host import Host
from halfmoon.server.workers.deletions import Deletions, deletion_answers
from halfmoon.server.workers.hearing import hearing_answers
from halfmoon.server.workers.rocketmq_answers import rocketmq_answers
from halfmoon.server.workers.rocketmq_asking import RocketmqGroups, RocketmqMessages, RocketmqProducers
from halfmoon.server.workers.rocketmq_brokers import RocketmqBrokers, listener_of
from halfmoon.testing.node import BareNode
from tests.adapters.kafka.shard_rig import HERE, SHARDS, ShardRig
from tests.adapters.rocketmq.rocketmq_rig import RigClient

if TYPE_CHECKING:
    from halfmoon.adapters.tcp.core import Core

BASE_PORT = 10_911


class DirectAsking:
    """Shards of this process are asked at once; the others cannot be reached."""

    def __init__(self) -> None:
        self.answers: dict[int, Answers] = {}
        self.asked: Counter[str] = Counter()
        self.loses: set[type[Question]] = set()
        """Questions of these kinds never arrive."""
        self.loses_answers: set[type[Question]] = set()
        self.waits = False
        """Questions are under way until `deliver`."""
        self._under_way: list[tuple[int, Question, Told]] = []

    def ask(self, shard: int, question: Question, told: Told) -> None:
        self.asked[type(question).__name__] += 1
        if self.waits:
            self._under_way.append((shard, question, told))
        else:
            self._answer(shard, question, told)

    def deliver(self) -> None:
        self.waits = False
        under_way, self._under_way = self._under_way, []
        for each in under_way:
            self._answer(*each)

    def _answer(self, shard: int, question: Question, told: Told) -> None:
        kind = type(question)
        if shard not in self.answers or kind in self.loses:
            told(BrokerError(Fault.NOT_LEADER_OR_FOLLOWER))
            return
        question = msgspec.msgpack.decode(msgspec.msgpack.encode(question), type=kind)
        if kind in self.loses_answers:
            self.answers[shard][kind](question, lambda _: told(BrokerError(Fault.NOT_LEADER_OR_FOLLOWER)))
        else:
            self.answers[shard][kind](question, lambda answer: told(_sent(answer)))


def _sent(answer: Any) -> Any:
    if isinstance(answer, BrokerError):
        return answer
    return msgspec.msgpack.decode(msgspec.msgpack.encode(answer), type=type(answer))


class RigChanges:
    """Of the shared catalog: at once, or when the test says so."""

    def __init__(self, shards: ShardRig) -> None:
        self._shards = shards
        self.fails: BrokerError | None = None
        self.waits = False
        self._waiting: list[Callable[[], None]] = []

    def change(self, work: Callable[[Administered], object], told: Callable[[Exception | None], None]) -> None:
        if self.waits:
            self._waiting.append(lambda: self._change(work, told))
        else:
            self._change(work, told)

    def carry_out(self) -> None:
        self.waits = False
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each()

    def _change(self, work: Callable[[Administered], object], told: Callable[[Exception | None], None]) -> None:
        shards, changes = self._shards, self._shards.changes
        if self.fails is not None:
            told(self.fails)
            return
        failure: Exception | None = None
        changes.begin()
        try:
            work(shards.front)
        except Exception as error:
            failure = error
        if changes.records():
            shards.front.apply(changes.committed(shards.shared.version + 1))
        else:
            changes.abandoned()
        told(failure)

    def ask_deletion(self, topics: Sequence[Topic], then: Callable[[], None]) -> None:
        Deletions(self._shards.front.administration, SHARDS, self._shards.asking).ask(topics, then)

    def when_known(self, told: Callable[[BrokerError | None], None]) -> None:
        self._shards.changes.when_durable(self._shards.changes.version, told)


class Rig(ShardRig):
    """Shards 0 and 2 are here; 1 and 3 are another process's, which can be reached by clients and not by this one."""

    def __init__(self, listener: RocketmqListener | None = None) -> None:
        super().__init__()
        listener = listener or RocketmqListener()
        self.asking = DirectAsking()
        self.catalog_changes = RigChanges(self)
        self.addresses = {shard: ("", BASE_PORT + shard) for shard in range(SHARDS)}
        self.brokers = RocketmqBrokers(self.shared, listener.broker_name, self.addresses)
        self.servers = {number: self._serve(number, listener) for number in HERE}

    def _open(self, number: int) -> BareNode:
        """Each shard has plugins of its own."""
        self.plugins = load_plugins(self.settings, BUILT_IN)
        node = super()._open(number)
        self.plugins.attach(Host(node, Path(f"shard-{number}")))
        return node

    def _serve(self, number: int, listener: RocketmqListener) -> Server:
        node = self.nodes[number]
        core: Core = node.kernel
        shards = Shards(
            SHARDS,
            self.brokers,
            RocketmqGroups(number, node.kernel.generation, Layout.of_workers(SHARDS), self.asking, self.asking),
            RocketmqMessages(self.shared, self.asking, self.asking, self.loop.call_later),
            RocketmqProducers(number, SHARDS, self.asking, self.asking, listener.broker_name, self.shared),
            self.catalog_changes,
            lambda: id_beginning_in(number, os.urandom(16), Layout.of_workers(SHARDS)),
        )
        server = Server(
            core, node.services, self.settings, listener_of(listener, number), self.plugins.allocators,
            self.plugins.filters, self.loop, shards=shards,  # type: ignore[arg-type]
        )  # fmt: skip
        server.round_time = RoundTime(self.loop.call_soon, lambda: 0.0)
        server.node.start(("127.0.0.1", BASE_PORT + number))

        def rights(*who: str) -> Any:
            access = server.node.access
            return None if access is None else access.rights(*who)

        coordinating = Coordinating(server.node, lambda work, then: then(work(), None), self.loop.call_soon, rights)
        self.asking.answers[number] = {
            **rocketmq_answers(node.kernel, coordinating, self.shared.epochs),
            **deletion_answers(node, lambda told: told(None)),
            **hearing_answers(node, lambda work, then: then(work(), None), lambda work: work()),
        }
        return server

    def client(self, shard: int, *, names: bool = False) -> RigClient:
        """Connected to the broker of a shard."""
        view = _OfServer(self, self.servers[shard])
        return RigClient(view, Port.NAMES if names else Port.BROKER, "127.0.0.1", JSON)  # type: ignore[arg-type]

    def queues(self, topic: Topic, shard: int) -> list[int]:
        """The indexes of a topic's partitions in a shard, by queue id."""
        return [index for index, place in enumerate(self.shared.placements[topic.number]) if place == shard]

    def turns(self) -> None:
        """Until nothing is left to be done."""
        self.turn()
        while any(node.relays.has_work or node.dirty for node in self.nodes.values()) or self.loop.threads:
            for node in self.nodes.values():
                if node.relays.has_work:
                    loading = node.relays.step()
                    if loading is not None:
                        loading.loaded(loading.load())
            self.loop.run_threads()
            self.turn()

    def pass_all(self, ms: int) -> None:
        """As `pass_time`, for relays too."""
        self.clock.now_ms += ms
        self.hold.expire(self.clock.now_ms)
        for node in self.nodes.values():
            node.relays.expire(self.clock.now_ms)
            node.groups.expire(self.clock.now_ms)
        self.loop.run_later()
        self.turns()


class _OfServer:
    """What a client of one broker sees of the rig."""

    def __init__(self, rig: Rig, server: Server) -> None:
        self.server = server
        self.turns = rig.turns


def body(answer: Any) -> Any:
    return json.loads(bytes(answer.body))
