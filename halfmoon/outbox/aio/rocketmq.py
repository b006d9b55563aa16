"""`halfmoon.outbox.rocketmq`, awaited."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from halfmoon.client import Message, ReceivedMessage, TransactionState
from halfmoon.client.aio import TransactionProducer
from halfmoon.outbox.aio.channel import Answer, Decide
from halfmoon.outbox.messages import OutboxMessage
from halfmoon.outbox.rocketmq import check_group, less_safe, made_messages, name_in, said
from halfmoon.outbox.table import State

log = logging.getLogger("halfmoon.outbox")


class OutboxProducer(TransactionProducer):
    """A TransactionProducer for an outbox. `options`: those of a TransactionProducer. Name the topics (`topics=[…]`),
    so that the broker can ask this producer before it has sent anything."""

    def __init__(self, group: str, **options: Any) -> None:
        self._answering = Answering()
        super().__init__(group, self._answering, **options)

    def outbox_channel(self, group: str) -> AsyncRocketmqChannel:
        """Called by an outbox. Raises ValueError where its group is another one."""
        check_group(group, self.group)
        return AsyncRocketmqChannel(self, self._answering)


class Answering:
    """A TransactionListener. Its argument is what is to be done when the half message is stored."""

    def __init__(self) -> None:
        self.answer: Answer | None = None

    async def execute_local_transaction(self, message: Message, argument: Any) -> TransactionState:
        state: TransactionState = await argument()
        return state

    async def check_local_transaction(self, message: ReceivedMessage) -> TransactionState:
        if self.answer is None:
            return TransactionState.UNKNOWN
        try:
            return said(await self.answer(message))
        except ValueError as error:
            log.warning("event=not_a_check_back error=%s", error)
            return TransactionState.UNKNOWN


class AsyncRocketmqChannel:
    check_topic = ""

    def __init__(self, producer: OutboxProducer, answering: Answering) -> None:
        self._producer = producer
        self._answering = answering

    async def deliver(self, transaction_id: str, messages: Sequence[OutboxMessage], decide: Decide) -> None:
        made = made_messages(transaction_id, messages)
        errors: list[Exception] = []
        decided: list[TransactionState] = []

        async def send(number: int) -> TransactionState:
            """This message and those behind it."""
            if number == len(made):
                decided.append(said(await decide()))
                return decided[0]
            was_called = False

            async def go_on() -> TransactionState:
                nonlocal was_called
                was_called = True
                try:
                    return await send(number + 1)
                except Exception as error:
                    errors.append(error)
                    return decided[0] if decided else TransactionState.ROLLBACK

            result = await self._producer.send_in_transaction(made[number], go_on)
            if not was_called:
                raise less_safe(result.sent.status)
            return result.state

        await send(0)
        if errors and not decided:
            raise errors[0]

    def transaction_of(self, check: Any) -> str:
        return name_in(check)

    async def end(self, name: str, state: State) -> bool:
        return True  # the listener's answer says it

    def answer_by(self, answer: Answer) -> None:
        self._answering.answer = answer
