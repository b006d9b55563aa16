"""Answers that leave only once it is certain that they are this node's to give: as adapters/kafka/confirming.py, for
RocketMQ's requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from halfmoon.adapters.rocketmq.answers import Answer, refusal
from halfmoon.adapters.rocketmq.node import Node
from halfmoon.adapters.rocketmq.registry import Call, Peer
from halfmoon.errors import BrokerError, Fault
from halfmoon.remoting.command import Command

CONFIRMED: Final = frozenset((14, 29, 30, 31, 41))
"""QUERY_CONSUMER_OFFSET, SEARCH_OFFSET_BY_TIMESTAMP, GET_MAX_OFFSET, GET_MIN_OFFSET, LOCK_BATCH_MQ. What changes
something is certain by its commit. Of a pull only some answers wait: `when_certain`."""


class ConfirmedCall(Call):
    __slots__ = ("_answer", "_certain")

    def __init__(
        self,
        node: Node,
        connection: Peer,
        command: Command,
        begun_s: float,
        confirm: Callable[[Callable[[bool], None]], None],
    ) -> None:
        """`confirm`: as of Shards."""
        super().__init__(node, connection, command, begun_s)
        self._answer: Answer | None = None
        self._certain: bool | None = None
        connection.awaits(1)
        confirm(self._told)

    def _told(self, certain: bool) -> None:
        self.connection.awaits(-1)
        self._certain = certain
        if self._answer is not None:
            self.reply(self._answer)

    def reply(self, answer: Answer) -> None:
        if self._certain is None:
            self._answer = answer
        elif self._certain:
            super().reply(answer)
        else:
            super().reply(_uncertain())


def when_certain(call: Call, answer: Answer) -> Answer | None:
    """The answer, where nobody takes shards away; else None, and it leaves once it is certain."""
    shards = call.node.shards
    if shards is None or shards.confirm is None:
        return answer
    call.hold_on()
    shards.confirm(lambda certain: call.answer(lambda: answer if certain else _uncertain()))
    return None


def _uncertain() -> Answer:
    return refusal(BrokerError(Fault.COORDINATOR_NOT_AVAILABLE, "another node may have what was asked about"))
