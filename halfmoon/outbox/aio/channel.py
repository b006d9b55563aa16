"""`halfmoon.outbox.channel`, awaited."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from halfmoon.kafka import NotStoredError, TransactionalOutbox
from halfmoon.outbox.channel import prepare
from halfmoon.outbox.messages import OutboxMessage, name_of
from halfmoon.outbox.table import State

Decide = Callable[[], Awaitable[State | None]]
Answer = Callable[[Any], Awaitable[State | None]]

log = logging.getLogger("halfmoon.outbox")


class AsyncChannel(Protocol):
    """As `halfmoon.outbox.channel.Channel`."""

    check_topic: str

    async def deliver(self, transaction_id: str, messages: Sequence[OutboxMessage], decide: Decide) -> None: ...

    def transaction_of(self, check: Any) -> str: ...

    async def end(self, name: str, state: State) -> bool: ...

    def answer_by(self, answer: Answer) -> None: ...


class AsyncKafkaChannel:
    """For an aiokafka.AIOKafkaProducer; for a confluent_kafka.Producer or a kafka.KafkaProducer, whose answers a thread
    waits for."""

    def __init__(self, group: str, producer: Any, timeout_s: float) -> None:
        self._outbox = TransactionalOutbox(group, producer)
        self._timeout_s = timeout_s
        self.check_topic = self._outbox.check_topic

    async def deliver(self, transaction_id: str, messages: Sequence[OutboxMessage], decide: Decide) -> None:
        names: list[str] = []
        sent: list[Any] = []
        try:
            for number, each in enumerate(messages):
                name = name_of(transaction_id, number)
                names.append(name)
                sent.append(prepare(self._outbox, name, each))
            await self._wait(sent)
        except BaseException:
            # Also those that are on their way: an end that overtakes its half message leads to a check-back.
            with suppress(Exception):
                for name in names:
                    self._outbox.rollback(name)
            raise
        state = await decide()
        if state is not None:
            await self._end(transaction_id, names, state)

    def transaction_of(self, check: Any) -> str:
        return self._outbox.transaction_of(check)

    async def end(self, name: str, state: State) -> bool:
        return await self._end(name, [name], state)

    def answer_by(self, answer: Answer) -> None:
        pass

    async def _end(self, what: str, names: Sequence[str], state: State) -> bool:
        end = self._outbox.commit if state is State.COMMITTED else self._outbox.rollback
        try:
            await self._wait([end(name) for name in names])
        except Exception as error:
            log.warning("event=end_not_stored transaction=%s state=%s error=%r", what, state.value, error)
            return False
        return True

    async def _wait(self, sent: Sequence[Any]) -> None:
        """Raises NotStoredError."""
        tasks = [each for each in sent if isinstance(each, asyncio.Future)]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self._timeout_s)
            if late:
                raise NotStoredError(f"{len(late)} records have no answer after {self._timeout_s} s")
            for task in tasks:
                task.result()
        else:
            await asyncio.to_thread(self._wait_in_thread, sent)

    def _wait_in_thread(self, sent: Sequence[Any]) -> None:
        deadline = time.monotonic() + self._timeout_s
        for each in sent:
            try:
                each.result(max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                raise NotStoredError(f"{each.what} has no answer after {self._timeout_s} s") from None


def channel_of(group: str, producer: Any, timeout_s: float) -> AsyncChannel:
    """For a producer of Kafka's clients, or an OutboxProducer of `halfmoon.outbox.aio.rocketmq`. Raises ValueError."""
    made = getattr(producer, "outbox_channel", None)
    if made is not None:
        channel: AsyncChannel = made(group)
        return channel
    return AsyncKafkaChannel(group, producer, timeout_s)
