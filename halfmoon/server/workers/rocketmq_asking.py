"""What the RocketMQ server of a shard asks of the other shards, as messages between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from halfmoon.adapters.rocketmq.ends import END_TOPIC
from halfmoon.adapters.rocketmq.shards import Offsets, Place, QueueEnd, Stored
from halfmoon.cluster.asking import Asking, Timer, Told, error_in, nobody
from halfmoon.cluster.messages import (
    AppendBatch,
    AskProducers,
    BatchAppended,
    CommitProgress,
    ConsumerLeft,
    ConsumerSeen,
    ConsumesInOrder,
    Done,
    GroupsConsuming,
    GroupsFound,
    HearBatch,
    ProducersAsked,
    ProducersSeen,
    ProgressRead,
    Question,
    QueueEnds,
    QueueEndsFound,
    ReadProgress,
)
from halfmoon.cluster.placement import Layout
from halfmoon.cluster.shared import SharedCatalog
from halfmoon.core.catalog.topics import Topic
from halfmoon.errors import BrokerError, Fault
from halfmoon.server.workers.rocketmq_brokers import broker_name

T = TypeVar("T")

TRIES = 20
PAUSE_S = 0.1
"""A shard that has not heard of a topic yet is asked again so often, after so long: clients wait 3 to 5 s."""


class RocketmqGroups:
    """See adapters/rocketmq/shards.Coordinators."""

    def __init__(self, number: int, epoch: int, layout: Layout, asking: Asking, patient: Asking) -> None:
        """`number`: of the shard that asks. `epoch`: in which it is open here. `patient`: as of AllShards."""
        self._number = number
        self._epoch = epoch
        self._layout = layout
        self._asking = asking
        self._patient = patient

    def is_here(self, group: str) -> bool:
        return self._layout.coordinator_of(group) == self._number

    def commit(
        self, group: str, offsets: Offsets, told: Callable[[BrokerError | None], None], *, reset: bool = False
    ) -> None:
        question = CommitProgress(group, _rows(offsets), reset, self._number, self._epoch)
        self._ask(group, question, lambda answer: told(_done(answer)))

    def committed(
        self, group: str, places: Sequence[Place] | None, told: Callable[[Offsets | BrokerError], None]
    ) -> None:
        def answered(answer: object) -> None:
            if isinstance(answer, ProgressRead):
                told({(number, index): offset for number, index, offset in answer.offsets})
            else:
                told(_error(answer))

        self._ask(group, ReadProgress(group, None if places is None else list(places)), answered)

    def consumer_seen(self, group: str, client_id: str, host: str, told: Callable[[BrokerError | None], None]) -> None:
        question = ConsumerSeen(self._number, group, client_id, host)
        self._ask(group, question, lambda answer: told(_done(answer)))

    def consumer_left(self, group: str, client_id: str) -> None:
        if not self.is_here(group):  # a shard knows its own
            # Whoever cannot be reached now forgets it when it has not heard of it for long.
            self._ask(group, ConsumerLeft(self._number, group, client_id), nobody)

    def in_order(self, group: str, *, holds_locks: bool) -> None:
        self._ask(group, ConsumesInOrder(self._number, group, holds_locks), nobody)  # it is said again

    def consuming(self, topic: Topic, told: Callable[[Sequence[str] | BrokerError], None]) -> None:
        def all_told(answers: Sequence[GroupsFound] | BrokerError) -> None:
            told(answers if isinstance(answers, BrokerError) else [name for each in answers for name in each.groups])

        questions = dict.fromkeys(range(self._layout.shards), GroupsConsuming(topic.number))
        _ask_all(self._patient, questions, GroupsFound, all_told)

    def _ask(self, group: str, question: Question, answered: Told) -> None:
        self._asking.ask(self._layout.coordinator_of(group), question, answered)


class RocketmqProducers:
    """See adapters/rocketmq/shards.Producers."""

    def __init__(
        self, number: int, shards: int, asking: Asking, patient: Asking, configured: str, shared: SharedCatalog
    ) -> None:
        """As of RocketmqGroups and RocketmqBrokers."""
        self._number = number
        self._names = {broker_name(shard, configured): shard for shard in range(shards)}
        self._name = broker_name(number, configured)
        self._others = [shard for shard in range(shards) if shard != number]
        self._asking = asking
        self._patient = patient
        self._shared = shared

    def tell(self, group: str) -> None:
        for shard in self._others:  # who cannot be reached is told again
            self._asking.ask(shard, ProducersSeen(self._number, group), nobody)

    def ask(self, shard: int, group: str, messages: bytes, told: Callable[[bool], None]) -> None:
        def answered(answer: object) -> None:
            told(isinstance(answer, ProducersAsked) and answer.has_producers)

        self._asking.ask(shard, AskProducers(group, self._name, messages), answered)

    def end(self, broker: str, batch: bytes, told: Callable[[BrokerError | None], None]) -> None:
        topic = self._shared.catalog.topic(END_TOPIC)
        if topic is None:
            told(BrokerError(Fault.UNKNOWN_TOPIC_OR_PARTITION))
            return
        shard = self._names.get(broker, self._number)

        def all_told(answers: Sequence[Done] | BrokerError) -> None:
            told(answers if isinstance(answers, BrokerError) else None)

        question = HearBatch(topic.number, batch)
        shards = self._others if shard == self._number else [shard]
        _ask_all(self._patient, dict.fromkeys(shards, question), Done, all_told)


class RocketmqMessages:
    """See adapters/rocketmq/shards.Messages."""

    def __init__(self, shared: SharedCatalog, asking: Asking, patient: Asking, later: Timer) -> None:
        """As of RocketmqGroups."""
        self._shared = shared
        self._asking = asking
        self._patient = patient
        self._later = later

    def append(
        self,
        topic: Topic,
        index: int,
        batch: bytes,
        told: Callable[[Stored | BrokerError], None],
        sender: tuple[str, str] | None = None,
    ) -> None:
        self._append(AppendBatch(topic.number, index, batch, *(sender or ())), told, TRIES)

    def _append(self, question: AppendBatch, told: Callable[[Stored | BrokerError], None], tries: int) -> None:
        def answered(answer: object) -> None:
            if isinstance(answer, BatchAppended):
                told(Stored(answer.queue_number, answer.offset, answer.due_ms))
                return
            error = _error(answer)
            if error.fault is Fault.COORDINATOR_LOAD_IN_PROGRESS and tries > 1:
                self._later(PAUSE_S, lambda: self._append(question, told, tries - 1))
            else:
                told(error)

        shard = self._shared.shard_of(question.topic, question.partition)
        if shard < 0:
            told(BrokerError(Fault.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            self._asking.ask(shard, question, answered)

    def ends(self, offsets: Offsets, told: Callable[[Sequence[QueueEnd] | BrokerError], None]) -> None:
        rows: dict[int, list[tuple[int, int, int]]] = {}
        for (number, index), offset in offsets.items():
            shard = self._shared.shard_of(number, index)
            if shard >= 0:
                rows.setdefault(shard, []).append((number, index, offset))

        def all_told(answers: Sequence[QueueEndsFound] | BrokerError) -> None:
            told(answers if isinstance(answers, BrokerError) else sorted(row for each in answers for row in each.rows))

        questions = {shard: QueueEnds(asked) for shard, asked in rows.items()}
        _ask_all(self._patient, questions, QueueEndsFound, all_told)


def _ask_all(
    asking: Asking, questions: Mapping[int, Question], kind: type[T], told: Callable[[Sequence[T] | BrokerError], None]
) -> None:
    """Ask shards; told once, with all answers or with what one of them could not say."""
    found: list[T] = []
    errors: list[BrokerError] = []
    left = len(questions)
    if not left:
        told([])

    def answered(answer: object) -> None:
        nonlocal left
        left -= 1
        if isinstance(answer, kind):
            found.append(answer)
        else:
            errors.append(_error(answer))
        if not left:
            told(errors[0] if errors else found)

    for shard, question in questions.items():
        asking.ask(shard, question, answered)


def _rows(offsets: Offsets) -> list[tuple[int, int, int]]:
    return [(number, index, offset) for (number, index), offset in offsets.items()]


def _done(answer: object) -> BrokerError | None:
    return None if isinstance(answer, Done) else _error(answer)


def _error(answer: object) -> BrokerError:
    error = error_in(answer)
    if error.fault is Fault.NOT_LEADER_OR_FOLLOWER:  # what clients would take for a queue that has moved
        return BrokerError(Fault.COORDINATOR_NOT_AVAILABLE, f"another shard cannot be reached now: {error.message}")
    return error
