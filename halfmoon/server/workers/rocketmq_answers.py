"""What the RocketMQ server of a shard answers to the other shards."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from halfmoon.adapters.rocketmq.coordinating import Coordinating
from halfmoon.adapters.rocketmq.shards import Stored
from halfmoon.cluster.asking import Answers, Told
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
    ProducersAsked,
    ProducersSeen,
    ProgressRead,
    QueueEnds,
    QueueEndsFound,
    ReadProgress,
)
from halfmoon.core.kernel import Kernel
from halfmoon.errors import BrokerError, Fault
from halfmoon.server.workers.answering import once_durable


def rocketmq_answers(kernel: Kernel, coordinating: Coordinating, epochs: Mapping[int, int]) -> Answers:
    """By the type of the question. `epochs`: by shard, as the shared catalog has them."""
    newest_of: dict[int, int] = {}
    """Those in which shards have committed: the catalog may be behind."""

    def commit(question: CommitProgress) -> tuple[object, int]:
        shard, epoch = question.shard, question.epoch
        if shard >= 0:
            newest = newest_of[shard] = max(epoch, epochs.get(shard, -1), newest_of.get(shard, -1))
            if epoch < newest:
                raise BrokerError(Fault.FENCED_LEADER_EPOCH, f"shard {shard} is another node's by now")
        return Done(), coordinating.commit(question.group, question.offsets, reset=question.reset)

    def read(question: ReadProgress) -> tuple[object, int]:
        places = None if question.places is None else [(number, index) for number, index in question.places]
        return ProgressRead(coordinating.committed(question.group, places)), coordinating.position

    def seen(question: ConsumerSeen) -> tuple[object, int]:
        coordinating.consumer_seen(question.group, question.client_id, question.host, question.shard)
        return Done(), 0

    def left(question: ConsumerLeft) -> tuple[object, int]:
        coordinating.consumer_left(question.group, question.client_id, question.shard)
        return Done(), 0

    def in_order(question: ConsumesInOrder) -> tuple[object, int]:
        coordinating.in_order(question.group, question.shard, holds_locks=question.holds_locks)
        return Done(), 0

    def consuming(question: GroupsConsuming) -> tuple[object, int]:
        return GroupsFound(coordinating.consuming(question.topic)), coordinating.position

    def producers(question: ProducersSeen) -> tuple[object, int]:
        coordinating.producers_seen(question.group, question.shard)
        return Done(), 0

    def ask(question: AskProducers) -> tuple[object, int]:
        return ProducersAsked(coordinating.ask_producers(question.group, question.messages, question.broker)), 0

    def ends(question: QueueEnds) -> tuple[object, int]:
        return QueueEndsFound(coordinating.ends(question.offsets)), 0

    def append(question: AppendBatch, told: Told) -> None:
        def stored(found: Stored | BrokerError) -> None:
            told(found if isinstance(found, BrokerError) else BatchAppended(*found))

        try:
            sender = None if question.principal is None else (question.principal, question.host)
            coordinating.append(question.topic, question.partition, question.batch, stored, sender)
        except BrokerError as error:
            told(error)

    durable = partial(once_durable, kernel)
    return {
        CommitProgress: durable(commit),
        ReadProgress: durable(read),
        ConsumerSeen: durable(seen),
        ConsumerLeft: durable(left),
        ConsumesInOrder: durable(in_order),
        GroupsConsuming: durable(consuming),
        ProducersSeen: durable(producers),
        AskProducers: durable(ask),
        QueueEnds: durable(ends),
        AppendBatch: append,
    }
