"""Shards of two processes that share topics, and clients whose transactions span them, in virtual time.

Messages between processes go through lanes that keep their order, and lose, hold back or repeat them as a test says.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from halfmoon.cluster.messages import Question
from halfmoon.cluster.placement import Layout, coordinator_of, owner_of
from halfmoon.cluster.shared import SharedCatalog, tell
from halfmoon.config.settings import load_settings
from halfmoon.core.append_types import Produced, TransactionalProducer
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.owners import ThisNode
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.hold import HoldService
from halfmoon.core.identity import Identity
from halfmoon.core.kernel import Shard
from halfmoon.core.live import Live
from halfmoon.errors import AsksFirstError, BrokerError, Fault
from halfmoon.schema import control
from halfmoon.schema.transactions import Identity as Producer
from halfmoon.server.assembly import Sections
from halfmoon.server.workers.transactions import TransactionShards, answers
from halfmoon.services.topic_configs import topic_configs
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import LANGUAGES, SEGMENT, VirtualClock, relay
from tests.services.transactions.transaction_bench import committed_values, transactional_batch

SHARDS = 4
LAYOUT = Layout.of_workers(SHARDS)
WORKERS = 2

Work = Callable[[], object]


def name_in(shard: int, prefix: str = "x") -> str:
    """A transactional id, or a group, that this shard coordinates."""
    return next(name for at in range(1_000) if coordinator_of(name := f"{prefix}{at}", SHARDS) == shard)


class Network:
    """Between the processes. Within one a shard is asked at once."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.lanes: dict[tuple[int, int], deque[Work]] = {}
        """(from, to): what is under way from one process to another."""
        self.unanswered: list[tuple[int, int, Callable[[object], None]]] = []
        """(who asked, who was asked, whom to tell)."""
        self.held: set[tuple[int, int]] = set()
        """Lanes on which nothing arrives for now."""
        self.lost: Callable[[Question], str] = lambda question: ""
        """What becomes of a question: "", "question" (lost, and its asker is told so), "answer" (the same, when it has
        been heard), "silence" (lost, and nobody is told), "twice"."""
        self.asked: list[Question] = []

    def asking(self, shard: int) -> Asking:
        return Asking(self, self.cluster.worker_of(shard))

    def ask(self, worker: int, shard: int, question: Question, told: Callable[[object], None]) -> None:
        self.asked.append(question)
        other = self.cluster.worker_of(shard)
        if other == worker:
            self._answer(shard, question, told)
            return
        if not self.cluster.is_up(other):
            told(BrokerError(Fault.NOT_LEADER_OR_FOLLOWER, "no such process"))
            return
        waiting = worker, other, told
        self.unanswered.append(waiting)
        fate = self.lost(question)
        encoded = msgspec.msgpack.encode(question)
        if fate == "silence":
            self.unanswered.remove(waiting)
        elif fate == "question":
            self._tell(waiting, BrokerError(Fault.NOT_LEADER_OR_FOLLOWER, "lost"))
        else:
            arrive = partial(self._arrive, waiting, shard, type(question), encoded, fate)
            self._send(worker, other, arrive)
            if fate == "twice":
                self._send(worker, other, arrive)

    def _send(self, worker: int, other: int, work: Work) -> None:
        self.lanes.setdefault((worker, other), deque()).append(work)

    def _arrive(
        self, waiting: tuple[int, int, Callable[[object], None]], shard: int, kind: Any, encoded: bytes, fate: str
    ) -> None:
        worker, other, _ = waiting

        def answered(answer: object) -> None:
            if fate == "answer":
                self._tell(waiting, BrokerError(Fault.NOT_LEADER_OR_FOLLOWER, "the answer was lost"))
            elif self.cluster.is_up(other):
                self._send(other, worker, lambda: self._tell(waiting, answer))

        self._answer(shard, msgspec.msgpack.decode(encoded, type=kind), answered)

    def _answer(self, shard: int, question: Question, told: Callable[[object], None]) -> None:
        if shard not in self.cluster.answers:  # its process opens it next
            told(BrokerError(Fault.NOT_LEADER_OR_FOLLOWER, "not open yet"))
            return
        self.cluster.answers[shard][type(question)](question, told)

    def _tell(self, waiting: tuple[int, int, Callable[[object], None]], answer: object) -> None:
        if waiting in self.unanswered:
            self.unanswered.remove(waiting)
            waiting[2](answer)

    def died(self, worker: int) -> None:
        """What was under way to it and from it is lost, and who waits for it learns that."""
        for lane in list(self.lanes):
            if worker in lane:
                del self.lanes[lane]
        lost = [waiting for waiting in self.unanswered if worker in waiting[:2]]
        for waiting in lost:
            self.unanswered.remove(waiting)
            if waiting[0] != worker:
                waiting[2](BrokerError(Fault.NOT_LEADER_OR_FOLLOWER, "its process died"))

    def step(self) -> bool:
        """One message arrives on each lane that is not held; whether one did."""
        moved = False
        for lane, queue in list(self.lanes.items()):
            if queue and lane not in self.held:
                queue.popleft()()
                moved = True
        return moved


class Asking:
    """See cluster.asking.Asking."""

    def __init__(self, network: Network, worker: int) -> None:
        self._network = network
        self._worker = worker

    def ask(self, shard: int, question: Question, told: Callable[[object], None]) -> None:
        self._network.ask(self._worker, shard, question, told)


class Cluster:
    def __init__(self, seed: int = 0, clock: VirtualClock | None = None) -> None:
        self.clock = clock or VirtualClock()
        self.dice = random.Random(seed)
        small = {"segment_bytes": SEGMENT, "index_checkpoint_bytes": 16 << 10, "low_disk_bytes": 0}
        self.settings = load_settings({"log": small}, {}, {})
        catalog = Catalog(self.settings, topic_configs(()))
        Sections(catalog)
        self.shared = SharedCatalog(catalog)
        self.network = Network(self)
        self.fs = {shard: FaultyFileSystem(random.Random(seed * SHARDS + shard)) for shard in range(SHARDS)}
        self.nodes: dict[int, BareNode] = {}
        self.answers: dict[int, dict[type[Question], Callable[..., None]]] = {}
        self.starts = 0
        for shard in range(SHARDS):
            self.open(shard)

    def worker_of(self, shard: int) -> int:
        return owner_of(shard, WORKERS)

    def is_up(self, worker: int) -> bool:
        return any(self.worker_of(shard) == worker for shard in self.nodes)

    # -- processes -----------------------------------------------------------------------------------------------------

    def open(self, shard: int) -> BareNode:
        self.starts += 1
        what = Shard(shard, Identity(1, "cluster", 7), ThisNode(), HoldService(self.settings.hold), Live(self.settings))
        node = BareNode(self.fs[shard], self.settings, self.clock, random.Random(self.starts).randbytes, shard=what)
        node.transactions.use(TransactionShards(shard, LAYOUT, self.shared, self.network.asking(shard)))
        node.open()
        self.nodes[shard] = node
        self.answers[shard] = answers(node)
        self.shared.apply(control.ShardStarted(shard, node.generation))
        self._tell(node)
        node.use(LANGUAGES)
        node.start()
        return node

    def shards_of(self, worker: int) -> list[int]:
        return [shard for shard in range(SHARDS) if self.worker_of(shard) == worker]

    def kill(self, worker: int, *, power_loss: bool = False) -> None:
        for shard in self.shards_of(worker):
            del self.nodes[shard], self.answers[shard]
            fs = self.fs[shard]
            self.fs[shard] = fs.power_loss() if power_loss else fs.kill()
        self.network.died(worker)

    def start(self, worker: int) -> None:
        for shard in self.shards_of(worker):
            assert not self.open(shard).report.damaged

    def restart(self, worker: int, *, power_loss: bool = False) -> None:
        self.kill(worker, power_loss=power_loss)
        self.start(worker)

    # -- topics --------------------------------------------------------------------------------------------------------

    def topic(self, name: str, shards: list[int]) -> None:
        """One whose partitions lie in these shards."""
        number = self.shared.catalog.next_topic_number
        self.apply(
            control.TopicCreated(number, name, name.encode().rjust(16), len(shards), {}, first_queue=100 * number),
            control.PartitionsPlaced(number, 0, bytes(shards)),
        )

    def apply(self, *records: control.Any) -> None:
        for record in records:
            self.shared.apply(record)
        self.shared.version += 1
        for node in self.nodes.values():
            self._tell(node)

    def _tell(self, node: BareNode) -> None:
        for record in tell(self.shared, node.catalog):
            node.append_control(record)

    def shard_of(self, topic: str, index: int) -> int:
        return self.shared.placements[self.shared.catalog.by_name[topic].number][index]

    def partition(self, topic: str, index: int, shard: int | None = None) -> Partition:
        """As its own shard, or another, knows it."""
        node = self.nodes[self.shard_of(topic, index) if shard is None else shard]
        return node.catalog.by_name[topic].partitions[index]

    def coordinator(self, name: str) -> BareNode:
        return self.nodes[coordinator_of(name, SHARDS)]

    # -- time ----------------------------------------------------------------------------------------------------------

    def work(self) -> None:
        """Each shard does what there is to do in it."""
        for node in list(self.nodes.values()):
            relay(node)

    def run(self) -> None:
        """Until nothing is left to be done now."""
        self.work()
        while self.network.step():
            self.work()

    def pass_time(self, ms: int) -> None:
        self.clock.now_ms += ms
        for node in list(self.nodes.values()):
            node.transactions.expire(self.clock.now_ms)
            node.relays.expire(self.clock.now_ms)
        self.run()

    # -- what readers see ----------------------------------------------------------------------------------------------

    def committed(self, topic: str, index: int) -> list[bytes]:
        return committed_values(self.nodes[self.shard_of(topic, index)], topic, index)

    def is_decided(self, topic: str, index: int) -> bool:
        partition = self.partition(topic, index)
        return partition.stable_offset == partition.high_watermark

    def offset(self, group: str, topic: str, index: int = 0) -> int | None:
        """Of a group, as its coordinator knows it."""
        number = self.shared.catalog.by_name[topic].number
        found = self.coordinator(group).groups.committed(group).get((number, index))
        return None if found is None else found.offset

    def unstable(self, group: str) -> int:
        return len(self.coordinator(group).groups.unstable(group))


class Attempt:
    """Something that may have to ask somebody first; done when it was durable, or refused."""

    def __init__(self, work: Callable[[], int], node: BareNode) -> None:
        """`work` returns the position to wait for."""
        self._work = work
        self.node = node
        self.asked = 0
        self.is_durable = False
        self.error: BrokerError | None = None
        self._try()

    def _try(self) -> None:
        try:
            position = self._work()
        except AsksFirstError as first:
            self.asked += 1
            first.begin(self._told)
        except BrokerError as error:
            self.error = error
        else:
            self.node.when_durable(position, self._durable)

    def _told(self, error: BrokerError | None) -> None:
        if error is not None:
            self.error = error
        else:
            self._try()

    def _durable(self, error: BrokerError | None) -> None:
        self.is_durable, self.error = error is None, error

    @property
    def fault(self) -> Fault | None:
        return None if self.error is None else self.error.fault


class SpreadClient:
    """A producer with a transactional id, whose requests go to the shards that they are about. `bumps`: it is one of
    Kafka 4 (KIP-890), else it is older."""

    def __init__(self, cluster: Cluster, name: str, *, bumps: bool = True, timeout_ms: int = 60_000) -> None:
        self.cluster = cluster
        self.name = name
        self.bumps = bumps
        self.timeout_ms = timeout_ms
        self.producer_id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}
        self.added: set[object] = set()

    @property
    def who(self) -> TransactionalProducer:
        return TransactionalProducer(self.name, self.bumps)

    @property
    def coordinator(self) -> BareNode:
        return self.cluster.coordinator(self.name)

    def init(self) -> Producer:
        """Raises BrokerError."""
        identity, _ = self.coordinator.transactions.init_producer_id(self.name, self.timeout_ms, None)
        self.become(identity)
        self.cluster.run()
        return identity

    def become(self, identity: Producer) -> None:
        if (identity.producer_id, identity.epoch) != (self.producer_id, self.epoch):
            self.sequences.clear()
        self.producer_id, self.epoch = identity.producer_id, identity.epoch
        self.added.clear()

    def begin_send(self, topic: str, *values: bytes, index: int = 0) -> Attempt:
        """Raises BrokerError where the partition cannot be added."""
        shard = self.cluster.shard_of(topic, index)
        node = self.cluster.nodes[shard]
        if not self.bumps and (topic, index) not in self.added:
            there = self.coordinator.catalog.by_name[topic].partitions[index]
            self.coordinator.transactions.add_partitions(self.name, self.producer_id, self.epoch, [there])
            self.added.add((topic, index))
        sequence = self.sequences.get((topic, index), 0)
        batch = transactional_batch(
            *values, producer_id=self.producer_id, epoch=self.epoch, sequence=sequence
        )  # fmt: skip
        self.sequences[topic, index] = sequence + len(values)
        partition = node.catalog.by_name[topic].partitions[index]

        def append() -> int:
            produced: Produced = node.append(partition, batch, node.clock.wall_ms(), self.who)
            return produced.position

        return Attempt(append, node)

    def send(self, topic: str, *values: bytes, index: int = 0) -> Attempt:
        attempt = self.begin_send(topic, *values, index=index)
        self.cluster.run()
        if attempt.error is not None:
            raise attempt.error
        assert attempt.is_durable
        return attempt

    def begin_commit_offsets(self, group: str, topic: str, offset: int, index: int = 0) -> Attempt:
        node = self.cluster.coordinator(group)
        if not self.bumps and group not in self.added:
            self.coordinator.transactions.add_group(self.name, self.producer_id, self.epoch, group)
            self.added.add(group)
        partition = node.catalog.by_name[topic].partitions[index]
        commit = partial(
            node.transactions.commit_offsets, self.who, self.producer_id, self.epoch, group,
            [(partition, offset, -1, "")],
        )  # fmt: skip
        return Attempt(commit, node)

    def commit_offsets(self, group: str, topic: str, offset: int, index: int = 0) -> Attempt:
        attempt = self.begin_commit_offsets(group, topic, offset, index)
        self.cluster.run()
        if attempt.error is not None:
            raise attempt.error
        assert attempt.is_durable
        return attempt

    def begin_end(self, *, commit: bool) -> list[BrokerError | None]:
        """The list gets what the client is told. Raises BrokerError."""
        node, told = self.coordinator, []  # type: tuple[BareNode, list[BrokerError | None]]
        identity, position = node.transactions.end(
            self.name, self.producer_id, self.epoch, commit=commit, bumps=self.bumps
        )

        def ended(end: int | BrokerError) -> None:
            if isinstance(end, BrokerError):
                told.append(end)
            else:
                node.when_durable(end, durable)

        def durable(error: BrokerError | None) -> None:
            if error is None:
                self.become(identity)
            told.append(error)

        if position is None:
            node.transactions.when_ended(self.name, ended)
        else:
            node.when_durable(position, durable)
        return told

    def end(self, *, commit: bool) -> None:
        told = self.begin_end(commit=commit)
        self.cluster.run()
        assert told == [None]
