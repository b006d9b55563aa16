"""Half messages, and what becomes of them (B31, B32): a message is sent, and seen by nobody until its producer commits
it; a producer that does not say what became of it is asked.

(org.apache.rocketmq.client.impl.producer.DefaultMQProducerImpl: sendMessageInTransaction, endTransaction,
checkTransactionState.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from typing import Any

from msgspec import Struct

from halfmoon.client.engine.kernel import Pending
from halfmoon.client.engine.network import Connection
from halfmoon.client.engine.producing import Producing
from halfmoon.client.errors import MessageError, RouteError
from halfmoon.client.messages import TRANSACTION, Message, ReceivedMessage, SendResult, read_messages
from halfmoon.plugin import Queue
from halfmoon.remoting.codes import RequestCode
from halfmoon.remoting.command import Command
from halfmoon.remoting.errors import MalformedFrame
from halfmoon.remoting.message import decode_message_id

PRODUCER_GROUP = "PGROUP"

log = logging.getLogger("halfmoon.client.producer")


class TransactionState(Enum):
    """What became of a local transaction. Values are those on the wire (MessageSysFlag)."""

    COMMIT = 8
    ROLLBACK = 12
    UNKNOWN = 0
    """Ask again later."""


class Half(Struct, frozen=True):
    """A half message that is stored."""

    result: SendResult
    address: str
    """Of the broker that is to hear of its end."""


class Check(Struct, frozen=True):
    """A broker asks about a half message."""

    message: ReceivedMessage
    """As it was sent: its topic, and the queue it goes to."""
    address: str
    fields: dict[str, str]


class Transactions:
    """The transactions of one producer."""

    def __init__(self, producing: Producing, on_check: Callable[[Check], None]) -> None:
        self._producing = producing
        self._on_check = on_check
        producing.instance.handlers[RequestCode.CHECK_TRANSACTION_STATE] = self._asked

    def send_half(
        self, message: Message, queue: Queue | None = None, select: Any = None, key: Any = None,
        timeout_ms: float | None = None,
    ) -> Pending[SendResult]:  # fmt: skip
        """Raises MessageError."""
        if message.delay_level or message.delay_ms or message.deliver_at_ms:
            raise MessageError("a half message cannot be delayed: it waits for its transaction")
        more = {TRANSACTION: "true", PRODUCER_GROUP: self._producing.group}
        return self._producing.send(message, queue, select, key, timeout_ms, more)

    def end(self, result: SendResult, state: TransactionState) -> None:
        """Say what became of it. Nobody acknowledges that: if it is lost, the broker asks. Raises RouteError,
        ValueError."""
        address = self._producing.instance.routes.master(result.queue.broker)
        if address is None:
            raise RouteError(f"broker {result.queue.broker} has no master now")
        _, physical = decode_message_id(result.offset_message_id)
        self._end(
            address, state, result.queue.topic, result.queue.broker, result.message_id,
            result.transaction_id or result.message_id, str(result.queue_offset), str(physical), from_check=False,
        )  # fmt: skip

    def answer(self, check: Check, state: TransactionState) -> None:
        """Over the connection it was asked over."""
        fields = check.fields
        message_id = fields.get("msgId") or check.message.message_id
        self._end(
            check.address, state, check.message.topic, fields.get("bname", ""), message_id,
            fields.get("transactionId") or message_id, fields.get("tranStateTableOffset", "0"),
            fields.get("commitLogOffset", "0"), from_check=True,
        )  # fmt: skip

    def _end(
        self, address: str, state: TransactionState, topic: str, broker: str, message_id: str, transaction_id: str,
        table_offset: str, log_offset: str, *, from_check: bool,
    ) -> None:  # fmt: skip
        fields = {
            "topic": topic, "producerGroup": self._producing.group, "tranStateTableOffset": table_offset,
            "commitLogOffset": log_offset, "commitOrRollback": str(state.value),
            "fromTransactionCheck": "true" if from_check else "false", "msgId": message_id,
            "transactionId": transaction_id, "bname": broker,
        }  # fmt: skip
        self._producing.instance.network.oneway(address, RequestCode.END_TRANSACTION, fields)

    def _asked(self, connection: Connection, command: Command) -> None:
        broker = command.fields.get("bname", "")
        try:
            messages = read_messages(command.body, Queue("", broker, 0))
        except MalformedFrame as error:
            log.error("event=check_unreadable address=%s error=%s", connection.address, error)
            return
        for message in messages[:1]:
            if message.properties.get(PRODUCER_GROUP) == self._producing.group:
                self._on_check(Check(message, connection.address, command.fields))
