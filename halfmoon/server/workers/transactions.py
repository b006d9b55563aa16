"""Producers' transactions over several shards: what the service of one shard asks of the others, and answers to them.

It turns the service's words (services/transactions/others.py) into messages, and has each answer wait until what it
rests on is durable.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import astuple

from halfmoon.cluster.asking import Answers, Asking, error_in
from halfmoon.cluster.messages import (
    Done,
    DoubtTransactions,
    EndTransaction,
    JoinTransaction,
    NewProducer,
    ProducerFound,
    TransactionJoined,
    TransactionsDoubted,
)
from halfmoon.cluster.placement import Layout
from halfmoon.cluster.shared import SharedCatalog
from halfmoon.errors import BrokerError
from halfmoon.schema.shards import OWN_TOPICS
from halfmoon.server.assembly import Node
from halfmoon.server.workers.answering import once_durable
from halfmoon.services.transactions.others import NOT_YET, NOWHERE, Doubt, End, Join, Joined, Outcome


class TransactionShards:
    """See services/transactions/others.OtherShards."""

    def __init__(self, number: int, layout: Layout, shared: SharedCatalog, asking: Asking) -> None:
        """`number`: of the shard that asks."""
        self.number = number
        self._layout = layout
        self._shared = shared
        self._asking = asking

    def coordinator_of(self, name: str) -> int:
        return self._layout.coordinator_of(name)

    def shard_of(self, number: int, index: int) -> int:
        if number >= OWN_TOPICS:
            return self.number
        shards = self._shared.placements.get(number)
        if shards is None:
            return NOWHERE if number < self._shared.catalog.next_topic_number else NOT_YET
        return shards[index] if index < len(shards) else NOT_YET

    def epoch_of(self, shard: int) -> int:
        return self._shared.epochs.get(shard, -1)

    def join(self, shard: int, asked: Join, told: Callable[[Joined | BrokerError], None]) -> None:
        def answered(answer: object) -> None:
            if isinstance(answer, TransactionJoined):
                told(Joined(*astuple(answer)))
            else:
                told(error_in(answer))

        self._asking.ask(shard, JoinTransaction(*astuple(asked)), answered)

    def doubt(self, shard: int, asked: list[Doubt], told: Callable[[list[Outcome] | BrokerError], None]) -> None:
        def answered(answer: object) -> None:
            if isinstance(answer, TransactionsDoubted):
                told([Outcome(each) for each in answer.outcomes])
            else:
                told(error_in(answer))

        if 0 <= shard < self._layout.shards:
            self._asking.ask(shard, DoubtTransactions([astuple(each) for each in asked]), answered)
        else:  # a producer id that no shard has given
            told([Outcome.ABORTED] * len(asked))

    def end(self, shard: int, asked: End, told: Callable[[BrokerError | None], None]) -> None:
        def answered(answer: object) -> None:
            told(None if isinstance(answer, Done) else error_in(answer))

        self._asking.ask(shard, EndTransaction(*astuple(asked)), answered)


def answers(node: Node) -> Answers:
    """What a shard answers to the others."""
    kernel, transactions = node.kernel, node.transactions

    def join(question: JoinTransaction) -> tuple[object, int]:
        joined = transactions.join(Join(*astuple(question)))
        return TransactionJoined(joined.position, joined.refused), joined.position

    def doubt(question: DoubtTransactions) -> tuple[object, int]:
        position, outcomes = transactions.outcomes([Doubt(*row) for row in question.rows])
        return TransactionsDoubted([each.value for each in outcomes]), position

    def end(question: EndTransaction) -> tuple[object, int]:
        return Done(), transactions.end_here(End(*astuple(question)))

    def new_producer(_question: NewProducer) -> tuple[object, int]:
        producer_id, position = kernel.allocate_producer_id()
        return ProducerFound(producer_id), position

    return {
        JoinTransaction: once_durable(kernel, join),
        DoubtTransactions: once_durable(kernel, doubt),
        EndTransaction: once_durable(kernel, end),
        NewProducer: once_durable(kernel, new_producer),
    }
