"""Consumers for asyncio.

What the methods do, and raise, is said at those of the same names in halfmoon.client; here they are awaited.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Generic, TypeVar

from halfmoon.client.aio.life import Life
from halfmoon.client.aio.shell import Shell
from halfmoon.client.base import POLL_S, PULL_BATCH, LitePullConsumerParts, PullConsumerParts, PushConsumerParts
from halfmoon.client.engine.kernel import Pending
from halfmoon.client.engine.lite_pulling import LitePulling
from halfmoon.client.engine.pull_consuming import Pulling
from halfmoon.client.engine.pulling import PullResult
from halfmoon.client.messages import ReceivedMessage
from halfmoon.plugin import Queue

T = TypeVar("T")
_AnyPulling = TypeVar("_AnyPulling", Pulling, LitePulling)


class PushConsumer(PushConsumerParts, Life):
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


class _Asking(Life, Generic[_AnyPulling]):
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
