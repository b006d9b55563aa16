"""A database and a channel that note what is asked of them, in order, and fail where they are told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import Any

from halfmoon.outbox.messages import OutboxMessage, Transaction
from halfmoon.outbox.table import State

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class DatabaseError(Exception):
    pass


class Steps:
    """What happened, and what shall go wrong: the name of a step → what it raises."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.failures: dict[str, BaseException] = {}
        self.before: dict[str, Callable[[], object]] = {}

    def take(self, step: str) -> None:
        self.taken.append(step)
        if step in self.before:
            self.before[step]()
        if step in self.failures:
            raise self.failures[step]


class FakeLocal:
    def __init__(self, database: FakeDatabase) -> None:
        self._database = database
        self._inserted: str | None = None

    def transaction(self, transaction_id: str | None) -> Transaction:
        return Transaction(transaction_id)

    def insert(self, group: str, transaction_id: str, now: datetime, commit_within_s: float) -> None:
        self._database.steps.take("insert")
        if transaction_id in self._database.rows:
            raise DatabaseError("the row is taken")
        self._inserted = transaction_id

    def commit(self) -> None:
        database = self._database
        if database.commits_before_it_fails and self._inserted is not None:
            database.rows[self._inserted] = State.COMMITTED
        database.steps.take("commit")
        if self._inserted is not None:
            database.rows[self._inserted] = State.COMMITTED

    def rollback(self) -> None:
        self._database.steps.take("rollback")


class FakeDatabase:
    errors: tuple[type[Exception], ...] = (DatabaseError,)

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.rows: dict[str, State] = {}
        self.commits_before_it_fails = False

    @contextmanager
    def local(self, using: Any) -> Iterator[FakeLocal]:
        yield FakeLocal(self)

    def state_of(self, group: str, transaction_id: str) -> State | None:
        self.steps.take("look")
        return self.rows.get(transaction_id)

    def abandon(self, group: str, transaction_id: str, now: datetime) -> bool:
        self.steps.take("abandon")
        if transaction_id in self.rows:
            return False
        self.rows[transaction_id] = State.ABANDONED
        return True

    def remove(self, group: str, before: datetime, most: int) -> int:
        self.steps.take(f"remove before {before:%d %b}")
        return 0

    def create_table(self) -> None:
        pass


class FakeChannel:
    check_topic = "check.shop"

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.delivered: list[OutboxMessage] = []
        self.told: list[tuple[str, State]] = []
        self.stores_ends = True

    def deliver(
        self, transaction_id: str, messages: Sequence[OutboxMessage], decide: Callable[[], State | None]
    ) -> None:
        self.steps.take("half messages")
        state = decide()
        if state is not None:
            self.steps.take(state.value)
        if state is State.COMMITTED:
            self.delivered += messages

    def transaction_of(self, check: Any) -> str:
        if check is None:
            raise ValueError("no check-back")
        return str(check)

    def end(self, name: str, state: State) -> bool:
        self.told.append((name, state))
        return self.stores_ends

    def answer_by(self, answer: Callable[[Any], State | None]) -> None:
        pass


# -------------------------------------------------------------------------------------------------------------- awaited


class AwaitedLocal:
    def __init__(self, local: FakeLocal) -> None:
        self._local = local
        self.transaction = local.transaction

    async def insert(self, *given: Any) -> None:
        await asyncio.sleep(0)
        self._local.insert(*given)

    async def commit(self) -> None:
        await asyncio.sleep(0)
        self._local.commit()

    async def rollback(self) -> None:
        await asyncio.sleep(0)
        self._local.rollback()


class AwaitedDatabase:
    errors: tuple[type[Exception], ...] = (DatabaseError,)

    def __init__(self, database: FakeDatabase) -> None:
        self._database = database

    @asynccontextmanager
    async def local(self, using: Any) -> AsyncIterator[AwaitedLocal]:
        with self._database.local(using) as local:
            yield AwaitedLocal(local)

    async def state_of(self, *given: Any) -> State | None:
        return self._database.state_of(*given)

    async def abandon(self, *given: Any) -> bool:
        return self._database.abandon(*given)

    async def remove(self, *given: Any) -> int:
        return self._database.remove(*given)

    async def create_table(self) -> None:
        pass


class AwaitedChannel:
    check_topic = "check.shop"

    def __init__(self, channel: FakeChannel) -> None:
        self._channel = channel
        self.transaction_of = channel.transaction_of

    async def deliver(
        self, transaction_id: str, messages: Sequence[OutboxMessage], decide: Callable[[], Awaitable[State | None]]
    ) -> None:
        steps = self._channel.steps
        steps.take("half messages")
        state = await decide()
        if state is not None:
            steps.take(state.value)
        if state is State.COMMITTED:
            self._channel.delivered += messages

    async def end(self, name: str, state: State) -> bool:
        return self._channel.end(name, state)

    def answer_by(self, answer: Callable[[Any], Awaitable[State | None]]) -> None:
        pass
