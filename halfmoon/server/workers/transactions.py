"""Producers' transactions over several shards: what the service of one shard asks of the others, and answers to them.

It turns the service's words (services/transactions/others.py) into messages, and has each answer wait until what it
rests on is durable.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import astuple

from halfmoon.cluster.asking import Answers, Asking, Told, refused
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
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.shards import OWN_TOPICS
from halfmoon.server.assembly import Node
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
                told(refused(answer) or _misunderstood(answer))

        self._asking.ask(shard, JoinTransaction(*astuple(asked)), answered)

    def doubt(self, shard: int, asked: list[Doubt], told: Callable[[list[Outcome] | BrokerError], None]) -> None:
        def answered(answer: object) -> None:
            if isinstance(answer, TransactionsDoubted):
                told([Outcome(each) for each in answer.outcomes])
            else:
                told(refused(answer) or _misunderstood(answer))

        if 0 <= shard < self._layout.shards:
            self._asking.ask(shard, DoubtTransactions([astuple(each) for each in asked]), answered)
        else:  # a producer id that no shard has given
            told([Outcome.ABORTED] * len(asked))

    def end(self, shard: int, asked: End, told: Callable[[BrokerError | None], None]) -> None:
        def answered(answer: object) -> None:
            told(None if isinstance(answer, Done) else refused(answer) or _misunderstood(answer))

        self._asking.ask(shard, EndTransaction(*astuple(asked)), answered)


def _misunderstood(answer: object) -> BrokerError:
    return BrokerError(Fault.UNKNOWN_SERVER_ERROR, f"an answer of another kind: {type(answer).__name__}")


def answers(node: Node) -> Answers:
    """What a shard answers to the others, by the type of the question."""
    transactions, when_durable = node.transactions, node.kernel.when_durable

    def join(question: JoinTransaction, told: Told) -> None:
        try:
            joined = transactions.join(Join(*astuple(question)))
        except BrokerError as error:
            told(error)
            return
        answer = TransactionJoined(joined.position, joined.refused)
        when_durable(joined.position, lambda error: told(answer if error is None else error))

    def doubt(question: DoubtTransactions, told: Told) -> None:
        position, outcomes = transactions.outcomes([Doubt(*row) for row in question.rows])
        answer = TransactionsDoubted([each.value for each in outcomes])
        when_durable(position, lambda error: told(answer if error is None else error))

    def end(question: EndTransaction, told: Told) -> None:
        try:
            position = transactions.end_here(End(*astuple(question)))
        except BrokerError as error:
            told(error)
            return
        when_durable(position, lambda error: told(Done() if error is None else error))

    def new_producer(_question: NewProducer, told: Told) -> None:
        try:
            producer_id, position = node.kernel.allocate_producer_id()
        except BrokerError as error:
            told(error)
            return
        when_durable(position, lambda error: told(ProducerFound(producer_id) if error is None else error))

    return {JoinTransaction: join, DoubtTransactions: doubt, EndTransaction: end, NewProducer: new_producer}
