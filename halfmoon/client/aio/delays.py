"""What waits, for asyncio.

What the methods do, and raise, is said at those of the same names in halfmoon.client; here they are awaited.
"""

from __future__ import annotations

from collections.abc import Collection

from halfmoon.client.aio.life import Life
from halfmoon.client.base import DelaysParts
from halfmoon.client.engine.delays import chosen, of_ids_or, rescheduling
from halfmoon.services.delays.questions import Cancel, Changed, ScheduledCount, ScheduledMessage


class Delays(DelaysParts, Life):
    """Scheduled messages of Halfmoon's brokers: delayed ones, and redeliveries that wait.

        async with Delays(namesrv="127.0.0.1:9876") as delays:
            late = await delays.find(topic="orders", due_after=time.time() + 3_600)
            await delays.cancel([message.id for message in late])

    Which messages: `topic` that they go to, and `group` that they are redelivered to, as shell patterns; `kind`,
    "delay" or "redelivery"; due at `due_after` or later, and before `due_before` (Unix seconds). Apache RocketMQ has no
    such request: BrokerRefusedError.
    """

    async def start(self) -> None:
        await self._begin(self._nothing)

    async def close(self) -> None:
        await self._end(self._nothing)

    async def find(
        self, *, topic: str | None = None, group: str | None = None, kind: str | None = None,
        due_after: float | None = None, due_before: float | None = None, most: int = 100,
        after: ScheduledMessage | None = None,
    ) -> list[ScheduledMessage]:  # fmt: skip
        selection = chosen(topic, group, kind, due_after, due_before)
        self._check_running()
        return await self._run(self._queries.first(selection, most, after))

    async def count(
        self, *, topic: str | None = None, group: str | None = None, kind: str | None = None,
        due_after: float | None = None, due_before: float | None = None,
    ) -> list[ScheduledCount]:  # fmt: skip
        selection = chosen(topic, group, kind, due_after, due_before)
        self._check_running()
        return await self._run(self._queries.count(selection))

    async def cancel(
        self, ids: Collection[str] = (), *, topic: str | None = None, group: str | None = None,
        kind: str | None = None, due_after: float | None = None, due_before: float | None = None, every: bool = False,
    ) -> Changed:  # fmt: skip
        selection = of_ids_or(ids, chosen(topic, group, kind, due_after, due_before), every=every)
        self._check_running()
        return await self._run(self._queries.change(Cancel(selection=selection), ids))

    async def reschedule(
        self, ids: Collection[str] = (), *, in_seconds: float | None = None, at: float | None = None,
        by_seconds: float | None = None, topic: str | None = None, group: str | None = None, kind: str | None = None,
        due_after: float | None = None, due_before: float | None = None, every: bool = False,
    ) -> Changed:  # fmt: skip
        selection = of_ids_or(ids, chosen(topic, group, kind, due_after, due_before), every=every)
        question = rescheduling(selection, in_seconds, at, by_seconds)
        self._check_running()
        return await self._run(self._queries.change(question, ids))
