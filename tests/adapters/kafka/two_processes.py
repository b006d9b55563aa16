"""Two processes that have two shards each of four, and the questions between them: no network, no thread."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from types import SimpleNamespace
from typing import Any

from kafka_rig import RigClient
from shard_rig import HERE, SHARDS, THERE, ShardRig

from halfmoon.adapters.kafka.shard_asking import AllShards
from halfmoon.adapters.kafka.shards import Confirm
from halfmoon.adapters.kafka.shown import ShownEntries
from halfmoon.adapters.tcp.access import Rights
from halfmoon.cluster.asking import Answers, Told
from halfmoon.cluster.messages import Question
from halfmoon.cluster.receiving import Codec, encode_answer, encode_question
from halfmoon.cluster.store import Change, News
from halfmoon.core.catalog.topics import Partition, Topic
from halfmoon.core.steps import finish
from halfmoon.errors import BrokerError, Fault
from halfmoon.server.assembly import Node
from halfmoon.server.workers.asking_all import message_answers
from halfmoon.server.workers.deletions import deletion_answers
from halfmoon.server.workers.entries import entries_answers
from halfmoon.server.workers.hearing import hearing_answers
from halfmoon.server.workers.shares import JoinedShares, share_answers
from tests.core.bench import VirtualClock, batch, relay


class Questions:
    """As cluster/asking.Asking, of all processes. Questions arrive when `deliver` is called."""

    def __init__(self) -> None:
        self.answers: dict[int, Answers] = {}
        """By shard."""
        self.unreachable: set[int] = set()
        self.answers_get_lost: set[int] = set()
        """These shards hear what they are asked; who asks hears that they cannot be reached."""
        self.asked: list[tuple[int, Question]] = []
        self._waiting: list[tuple[int, Question, Told]] = []
        self._codec = Codec()

    def ask(self, shard: int, question: Question, told: Told) -> None:
        self.asked.append((shard, question))
        self._waiting.append((shard, question, told))

    def deliver(self) -> bool:
        """Whether there was one."""
        waiting, self._waiting = self._waiting, []
        for shard, question, told in waiting:
            if shard in self.unreachable:
                told(BrokerError(Fault.NOT_LEADER_OR_FOLLOWER))
            else:
                _, arrived = self._codec.question(encode_question(shard, question))
                assert arrived == question
                back = partial(self._answered, shard, told)
                self.answers[shard][type(arrived)](arrived, back)
        return bool(waiting)

    def _answered(self, shard: int, told: Told, answer: object) -> None:
        if shard in self.answers_get_lost:
            answer = BrokerError(Fault.NOT_LEADER_OR_FOLLOWER)
        arrived = self._codec.answer(encode_answer(answer))
        assert isinstance(answer, BrokerError) or arrived == answer
        told(arrived)


def at_once(work: Callable[[], object], then: Callable[[object, BaseException | None], None]) -> None:
    """In a thread."""
    try:
        found = work()
    except Exception as error:
        then(None, error)
    else:
        then(found, None)


class TwoProcesses:
    def __init__(self, confirm: Confirm | None = None, **more: Any) -> None:
        """`confirm`: of Homes, of both. `more`: sections of broker.yaml."""
        self.clock = VirtualClock()
        self.questions = Questions()
        self.rigs = [ShardRig(process, self.clock, more, confirm) for process in (0, 1)]
        self.nodes: dict[int, Node] = {}
        self.rights: Callable[[str, str], Rights | None] = lambda principal, host: None
        """What clients may do, of whom the other process asks."""
        for rig, here in zip(self.rigs, (HERE, THERE), strict=True):
            rig.asking = self.questions
            self.nodes |= rig.nodes
            self.shards = AllShards(self.questions, SHARDS, frozenset(here), rig.shared.shard_of)
            joined = JoinedShares(self.shards, self.questions, rig.settings.groups.share.max_sessions)
            for node in rig.nodes.values():
                joined.add(node)
            for node in rig.nodes.values():
                node.services.add(ShownEntries())
        for number, node in self.nodes.items():
            self.questions.answers[number] = {
                **share_answers(node),
                **message_answers(node, lambda *asker: self.rights(*asker), at_once, lambda work: work()),
                **entries_answers(node),
                **deletion_answers(node, lambda told: told(None)),
                **hearing_answers(node, at_once, lambda work: work()),
            }

    def client(self, process: int) -> RigClient:
        return RigClient(SimpleNamespace(server=self.rigs[process].server, turn=self.turn))  # type: ignore[arg-type]

    def at(self, shard: int) -> int:
        """The process that has a shard."""
        return 0 if shard in HERE else 1

    def change(self, work: Callable[[], Any]) -> Any:
        """Of the shared catalog: made in the first process, and applied in the other."""
        first, second = self.rigs
        first.changes.begin()
        made = work()
        if isinstance(made, Generator):
            made = finish(made)
        records = tuple(first.changes.records())
        version = first.shared.version + 1
        first.front.apply(first.changes.committed(version))
        second.front.apply(second.shared.take(News(None, [Change(version, records)])))
        self.turn()
        return made

    def topic(self, name: str, partitions: int = 8) -> Topic:
        topic: Topic = self.change(lambda: self.rigs[0].front.administration.create_topic(name, partitions))[0]
        return topic

    def shard_of(self, topic: Topic, index: int) -> int:
        return self.rigs[0].shard_of(topic, index)

    def index_in(self, topic: Topic, shard: int) -> int:
        """The first partition that lies in a shard."""
        return next(index for index in range(len(topic.partitions)) if self.shard_of(topic, index) == shard)

    def partition(self, topic: Topic, index: int) -> Partition:
        """Where it lies."""
        return self.nodes[self.shard_of(topic, index)].kernel.catalog.by_number[topic.number].partitions[index]

    def produce(self, topic: Topic, *records: tuple[int, int]) -> None:
        """(partition, how many)"""
        for index, count in records:
            node = self.nodes[self.shard_of(topic, index)]
            node.kernel.append(self.partition(topic, index), batch(*[b"v"] * count), 1_000)
        self.turn()

    def turn(self) -> None:
        while True:
            for rig in self.rigs:
                rig.turn()
            read = any(rig.loop.threads for rig in self.rigs)
            for rig in self.rigs:
                rig.loop.run_threads()
            if not self.questions.deliver() and not read and not any(rig.loop.soon for rig in self.rigs):
                return

    def relay(self) -> None:
        """Until there is nothing left to move."""
        for rig in self.rigs:
            for node in rig.nodes.values():
                relay(node)

    def pass_time(self, ms: int) -> None:
        self.rigs[0].pass_time(ms)
        self.rigs[1].pass_time(0)
        self.turn()
