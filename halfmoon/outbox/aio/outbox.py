"""`halfmoon.outbox.outbox`, awaited: the same order, for the same reasons."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar

from halfmoon.kafka.async_loop import AsyncConsumerLoop
from halfmoon.outbox.aio.channel import AsyncChannel
from halfmoon.outbox.messages import OutboxError, Transaction, transaction_id_of
from halfmoon.outbox.outbox import CLEAN_EVERY_S, COMMIT_WITHIN_S
from halfmoon.outbox.table import KEEP, SLICE_ROWS, State, check_name, utc_now

log = logging.getLogger("halfmoon.outbox")

Tx = TypeVar("Tx", bound=Transaction, covariant=True)


class AsyncLocal(Protocol[Tx]):
    """As `halfmoon.outbox.outbox.Local`."""

    def transaction(self, transaction_id: str | None) -> Tx: ...

    async def insert(self, group: str, transaction_id: str, now: datetime, commit_within_s: float) -> None: ...

    async def commit(self) -> None: ...

    async def rollback(self) -> None: ...


class AsyncDatabase(Protocol[Tx]):
    """As `halfmoon.outbox.outbox.Database`."""

    errors: tuple[type[Exception], ...]

    def local(self, using: Any) -> AbstractAsyncContextManager[AsyncLocal[Tx]]: ...

    async def state_of(self, group: str, transaction_id: str) -> State | None: ...

    async def abandon(self, group: str, transaction_id: str, now: datetime) -> bool: ...

    async def remove(self, group: str, before: datetime, most: int) -> int: ...

    async def create_table(self) -> None: ...


async def outcome(database: AsyncDatabase[Any], group: str, transaction_id: str, now: datetime) -> State | None:
    """What became of a transaction, from now on for good. None where it is not known. Raises the database's errors."""
    state = await database.state_of(group, transaction_id)
    if state is None and await database.abandon(group, transaction_id, now):
        return State.ABANDONED
    return state or await database.state_of(group, transaction_id)


class AsyncBaseOutbox(Generic[Tx]):
    """As `halfmoon.outbox.outbox.BaseOutbox`."""

    def __init__(
        self,
        group: str,
        channel: AsyncChannel,
        database: AsyncDatabase[Tx],
        *,
        commit_within_s: float = COMMIT_WITHIN_S,
        now: Callable[[], datetime] = utc_now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.group = check_name("group", group)
        self.check_topic = channel.check_topic
        self._channel = channel
        self._database = database
        self._commit_within_s = commit_within_s
        self._now = now
        self._clock = clock
        self._clean_at_s = 0.0
        channel.answer_by(self.answer)

    @asynccontextmanager
    async def transaction(self, using: Any = None, *, transaction_id: str | None = None) -> AsyncIterator[Tx]:
        """A local transaction, which is committed at the end of the block, or rolled back where that raises. As
        `halfmoon.outbox.outbox.BaseOutbox.transaction`. A task that is cancelled while it commits does not know what
        became of it; its messages do what the transaction did."""
        async with self._database.local(using) as local:
            try:
                tx = local.transaction(transaction_id)
                yield tx
            except BaseException:
                await self._roll_back(local)
                raise
            messages = tx.end()
            if not messages:
                await self._commit_alone(local)
                return
            decision = _Decision(self, local, tx.id)
            try:
                await local.insert(self.group, tx.id, self._now(), self._commit_within_s)
                await self._channel.deliver(tx.id, messages, decision.decide)
            finally:
                if not decision.is_made:
                    await self._roll_back(local)
            if decision.error is not None:
                raise decision.error

    async def answer(self, check: Any) -> State | None:
        """As `halfmoon.outbox.outbox.BaseOutbox.answer`."""
        name = self._channel.transaction_of(check)
        transaction_id = transaction_id_of(name)
        if transaction_id is None:
            log.warning("event=check_back_of_another transaction=%s", name)
            return None
        try:
            state = await outcome(self._database, self.group, transaction_id, self._now())
        except self._database.errors as error:
            log.warning("event=check_back_not_answered transaction=%s error=%s", name, error)
            return None
        if state is None or not await self._channel.end(name, state):
            return None
        log.info("event=check_back_answered transaction=%s state=%s", name, state.value)
        return state

    def check_back_loop(self, consumer: Any, *, keep: timedelta = KEEP) -> AsyncConsumerLoop:
        """As `halfmoon.outbox.outbox.BaseOutbox.check_back_loop`, with a consumer of aiokafka."""

        async def clean() -> None:
            if self._clock() >= self._clean_at_s:
                self._clean_at_s = self._clock() + CLEAN_EVERY_S
                try:
                    await self.clean(keep)
                except self._database.errors as error:
                    log.warning("event=rows_not_removed error=%s", error)

        return AsyncConsumerLoop(consumer, [self.check_topic], self._answer_any, on_poll=clean)

    async def clean(self, older_than: timedelta = KEEP) -> int:
        """As `halfmoon.outbox.outbox.BaseOutbox.clean`."""
        before, removed = self._now() - older_than, 0
        while True:
            count = await self._database.remove(self.group, before, SLICE_ROWS)
            removed += count
            if count < SLICE_ROWS:
                return removed

    async def create_table(self) -> None:
        """Unless it is there. `halfmoon.outbox.outbox_sql()` has the statements."""
        await self._database.create_table()

    async def _answer_any(self, check: Any) -> None:
        try:
            await self.answer(check)
        except ValueError as error:
            log.warning("event=not_a_check_back error=%s", error)

    async def _commit_alone(self, local: AsyncLocal[Any]) -> None:
        try:
            await local.commit()
        except BaseException:
            await self._roll_back(local)
            raise

    async def _roll_back(self, local: AsyncLocal[Any]) -> None:
        """A connection that is lost rolls back, too."""
        with suppress(*self._database.errors):
            await local.rollback()


class _Decision:
    """Of one transaction, made once the half messages are stored."""

    def __init__(self, outbox: AsyncBaseOutbox[Any], local: AsyncLocal[Any], transaction_id: str) -> None:
        self._outbox = outbox
        self._local = local
        self._id = transaction_id
        self._deadline_s = outbox._clock() + outbox._commit_within_s
        self.is_made = False
        self.error: BaseException | None = None
        """What the caller is told."""

    async def decide(self) -> State | None:
        """Commit. None where nobody knows what became of it."""
        outbox = self._outbox
        self.is_made = True
        if outbox._clock() > self._deadline_s:
            self.error = OutboxError(f"its messages took more than {outbox._commit_within_s} s: it is rolled back")
            await outbox._roll_back(self._local)
            return State.ABANDONED
        try:
            await self._local.commit()
        except BaseException as error:
            self.error = error
            await outbox._roll_back(self._local)
            return await self._after(error)
        return State.COMMITTED

    async def _after(self, error: BaseException) -> State | None:
        """A commit that has raised: refused, or done while its answer was lost. The table knows."""
        outbox = self._outbox
        if not isinstance(error, Exception):
            return None  # the task is cancelled; the broker asks
        try:
            state = await outcome(outbox._database, outbox.group, self._id, outbox._now())
        except outbox._database.errors as other:
            log.warning("event=outcome_unknown transaction=%s error=%s", self._id, other)
            return None
        if state is State.COMMITTED and isinstance(error, outbox._database.errors):
            log.warning("event=answer_to_commit_lost transaction=%s error=%s", self._id, error)
            self.error = None
        return state
