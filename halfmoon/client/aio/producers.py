"""Producers for asyncio.

What the methods do, and raise, is said at those of the same names in halfmoon.client; here they are awaited.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from halfmoon.client.aio.life import Life
from halfmoon.client.base import ProducerParts, TransactionResult, checked_state, log, refused_by
from halfmoon.client.engine.transactions import Check, Transactions, TransactionState
from halfmoon.client.errors import ClientError
from halfmoon.client.making import chosen_delay
from halfmoon.client.messages import Message, ReceivedMessage, SendResult
from halfmoon.client.selectors import Selector
from halfmoon.plugin import Queue


class Producer(ProducerParts, Life):
    """Sends messages.

        async with Producer("billing", namesrv="127.0.0.1:9876") as producer:
            result = await producer.send(Message("orders", b"…", tags="paid", keys="order-17"))

    `options`: those of ProducerSettings. Raises ConfigError.
    """

    async def start(self) -> None:
        self._check_start()
        self._shell.start()
        self._shell.call(self._producing.begin)

    async def close(self) -> None:
        """Sends that are on their way are waited for, as long as their own time-out allows."""
        if not self.is_running:
            return
        self._is_closed = True
        try:
            while (sending := next(iter(self._producing.open), None)) is not None:
                await self._shell.end_of(sending.result)
            await self._run(self._making.instance.unregister(producer=self.group))
        finally:
            self._shell.look(self._producing.close)
            await self._stop()

    async def send(
        self, message: Message, *, queue: Queue | None = None, select: Selector | None = None, key: Any = None,
        timeout_ms: float | None = None,
    ) -> SendResult:  # fmt: skip
        self._check_running()
        return await self._shell.run(self._producing.send, message, queue, select, key, timeout_ms)

    async def send_oneway(
        self, message: Message, *, queue: Queue | None = None, select: Selector | None = None, key: Any = None
    ) -> None:
        self._check_running()
        await self._shell.run(self._producing.send_oneway, message, queue, select, key)

    async def send_batch(
        self, messages: Sequence[Message], *, queue: Queue | None = None, timeout_ms: float | None = None
    ) -> list[SendResult]:
        self._check_running()
        return await self._shell.run(self._producing.send_batch, messages, queue, timeout_ms)

    async def send_delayed(
        self, message: Message, *, level: int | None = None, seconds: float | None = None, at: float | None = None,
        timeout_ms: float | None = None,
    ) -> SendResult:  # fmt: skip
        return await self.send(replace(message, **chosen_delay(level, seconds, at)), timeout_ms=timeout_ms)

    async def cancel(self, sent: SendResult, *, timeout_ms: float | None = None) -> None:
        self._check_running()
        await self._run(self._producing.cancel(sent, timeout_ms))

    async def queues(self, topic: str) -> list[Queue]:
        self._check_running()
        return list((await self._run(self._producing.route(topic))).writable)


class TransactionListener(Protocol):
    """What a transactional producer's program has to say. An exception counts as UNKNOWN."""

    async def execute_local_transaction(self, message: Message, argument: Any) -> TransactionState: ...

    async def check_local_transaction(self, message: ReceivedMessage) -> TransactionState: ...


class TransactionProducer(Producer):
    """Sends messages that are delivered if, and only if, a local transaction succeeds (B31, B32)."""

    def __init__(self, group: str, listener: TransactionListener, **options: Any) -> None:
        super().__init__(group, **options)
        self._listener = listener
        self._transactions = Transactions(self._producing, self._asked)

    async def send_in_transaction(
        self, message: Message, argument: Any = None, *, queue: Queue | None = None, select: Selector | None = None,
        key: Any = None, timeout_ms: float | None = None,
    ) -> TransactionResult:  # fmt: skip
        self._check_running()
        sent = await self._shell.run(self._transactions.send_half, message, queue, select, key, timeout_ms)
        state = refused_by(sent.status) or await _said(self._listener.execute_local_transaction, message, argument)
        try:
            self._shell.call(self._transactions.end, sent, state)
        except (ClientError, ValueError) as error:
            log.warning("event=end_not_said message=%s error=%s", sent.message_id, error)
        return TransactionResult(sent, state)

    def _asked(self, check: Check) -> None:
        self._shell.spawn(self._answer(check))

    async def _answer(self, check: Check) -> None:
        state = await _said(self._listener.check_local_transaction, check.message)
        self._shell.call(self._transactions.answer, check, state)


async def _said(ask: Callable[..., Awaitable[TransactionState]], *arguments: Any) -> TransactionState:
    try:
        return checked_state(await ask(*arguments))
    except Exception:
        log.exception("event=transaction_listener_failed")
        return TransactionState.UNKNOWN
