"""Producers and consumers for asyncio. Each belongs to the loop it was started in.

What the methods do, and raise, is said at those of the same names in halfmoon.client; here they are awaited.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from msgspec.structs import replace

from halfmoon.client.aio.shell import Shell
from halfmoon.client.base import (
    POLL_S,
    PULL_BATCH,
    Client,
    LitePullConsumerParts,
    ProducerParts,
    PullConsumerParts,
    PushConsumerParts,
    TransactionResult,
    checked_state,
    log,
    refused_by,
)
from halfmoon.client.engine.kernel import Cancelled, Pending
from halfmoon.client.engine.pull_consuming import LitePulling, Pulling
from halfmoon.client.engine.pulling import PullResult
from halfmoon.client.engine.transactions import Check, Transactions, TransactionState
from halfmoon.client.errors import ClientError, NotRunningError
from halfmoon.client.making import chosen_delay
from halfmoon.client.messages import Message, ReceivedMessage, SendResult
from halfmoon.client.selectors import Selector
from halfmoon.plugin import Queue

C = TypeVar("C", bound="_Life")
T = TypeVar("T")
_AnyPulling = TypeVar("_AnyPulling", Pulling, LitePulling)


class _Life(Client):
    """Starting, and closing."""

    _shell: Shell

    def _new_shell(self) -> Shell:
        return Shell()

    async def __aenter__(self: C) -> C:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @abstractmethod
    async def start(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    async def _run(self, flow: Coroutine[Pending[Any], None, T]) -> T:
        """Have a flow of the engine run to its end."""

        def begin() -> Pending[T]:
            return self._making.kernel.spawn(flow, "call")

        try:
            pending = self._shell.call(begin)
        except NotRunningError:
            flow.close()
            raise
        try:
            return await self._shell.wait(pending)
        except Cancelled:
            raise NotRunningError("the client was closed meanwhile") from None

    async def _begin(self, flow: Callable[[], Coroutine[Pending[Any], None, None]]) -> None:
        """Start with a flow of the engine. If that fails, the client is closed."""
        self._check_start()
        self._shell.start()
        try:
            await self._run(flow())
        except BaseException:
            self._is_closed = True
            await self._stop()
            raise

    async def _end(self, flow: Callable[[], Coroutine[Pending[Any], None, None]]) -> None:
        """Close with a flow of the engine, unless it is closed."""
        if self.is_running:
            self._is_closed = True
            try:
                await self._run(flow())
            finally:
                await self._stop()

    async def _stop(self) -> None:
        if self._shell.is_running:
            self._shell.call(self._making.instance.close)
        await self._shell.stop()


class Producer(ProducerParts, _Life):
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
            while self.in_flight:
                await asyncio.sleep(0.005)
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


class PushConsumer(PushConsumerParts, _Life):
    """Has a listener called with messages as they come; the listener is an `async def`, or a function that is quick.

        async def listener(messages, context):
            for message in messages:
                print(message.body)
            return Status.SUCCESS

        async with PushConsumer("billing", listener, {"orders": "paid || refunded"}, namesrv="127.0.0.1:9876"):
            ...

    Option `threads` says how many calls of it run at a time.
    """

    def _new_shell(self) -> Shell:
        return Shell(self.settings.threads)

    async def start(self) -> None:
        await self._begin(self._consuming.start)

    async def close(self) -> None:
        await self._end(self._consuming.close)


class _Asking(_Life, Generic[_AnyPulling]):
    """What both kinds of pull consumers do."""

    _pulling: _AnyPulling

    async def start(self) -> None:
        await self._begin(self._pulling.start)

    async def close(self) -> None:
        await self._end(self._pulling.close)

    async def _ask(self, flow: Callable[..., Coroutine[Pending[Any], None, T]], *arguments: Any) -> T:
        self._check_running()
        return await self._run(flow(*arguments))

    async def queues(self, topic: str) -> list[Queue]:
        return await self._ask(self._pulling.queues, topic)

    async def offset_for_time(self, queue: Queue, time: float) -> int:
        return await self._ask(self._pulling.offset_for_time, queue, round(1e3 * time))


class PullConsumer(PullConsumerParts, _Asking[Pulling]):
    """Pulls when, what and from where its program says; the program keeps its offsets, or commits them."""

    async def pull(
        self, queue: Queue, offset: int, expression: str = "*", *, sql: str | None = None, most: int = PULL_BATCH,
        wait_s: float = 0.0, timeout_ms: float = 10_000, language: str | None = None,
    ) -> PullResult:  # fmt: skip
        wanted = self._subscription(queue.topic, expression, sql, language)
        hold_ms = round(1e3 * wait_s)
        return await self._ask(self._pulling.pull, queue, offset, wanted, most, hold_ms, hold_ms + timeout_ms)

    async def committed(self, queue: Queue) -> int:
        return await self._ask(self._pulling.committed, queue)

    async def progress(self, queue: Queue) -> int:
        """The name of `committed` until 0.1; goes with the next version."""
        warnings.warn("progress is called committed now", DeprecationWarning, stacklevel=2)
        return await self.committed(queue)

    async def commit(self, queue: Queue, offset: int) -> None:
        await self._ask(self._pulling.commit, queue, offset)

    async def min_offset(self, queue: Queue) -> int:
        return await self._ask(self._pulling.min_offset, queue)

    async def max_offset(self, queue: Queue) -> int:
        return await self._ask(self._pulling.max_offset, queue)


class LitePullConsumer(LitePullConsumerParts, _Asking[LitePulling]):
    """Pulls in the background; its program polls."""

    async def poll(self, timeout_s: float = POLL_S, most: int = PULL_BATCH) -> list[ReceivedMessage]:
        until_s = time.monotonic() + timeout_s
        while True:
            self._check_running()
            # Taken and returned in one go: a program that stops waiting has not consumed anything.
            messages = self._shell.call(self._pulling.take, most)
            left_s = until_s - time.monotonic()
            if messages or left_s <= 0:
                return messages
            await self._ask(self._pulling.wait_for_some, 1e3 * left_s)

    async def commit(self, offsets: Mapping[Queue, int] | None = None) -> None:
        await self._ask(self._pulling.commit, offsets)

    async def committed(self, queue: Queue) -> int:
        return await self._ask(self._pulling.committed, queue)

    async def min_offset(self, queue: Queue) -> int:
        return (await self._ask(self._pulling.bounds, queue))[0]

    async def max_offset(self, queue: Queue) -> int:
        return (await self._ask(self._pulling.bounds, queue))[1]

    async def seek_to_begin(self, queue: Queue) -> None:
        self.seek(queue, (await self._ask(self._pulling.bounds, queue))[0])

    async def seek_to_end(self, queue: Queue) -> None:
        self.seek(queue, (await self._ask(self._pulling.bounds, queue))[1])
