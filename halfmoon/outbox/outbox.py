"""A database and the broker agree: messages are delivered if, and only if, a local transaction commits.

The order in which a block ends, whatever the database and the client:

    1. a row is inserted in the local transaction   not committed yet; whoever wants the same row waits for it
    2. the half messages are stored                 by the broker, which shows them to nobody
    3. the local transaction commits                from here on the messages are delivered, whoever crashes
    4. the broker is told                           if it is not, it asks, and the row answers

A check-back of a transaction without a row may come before 3: of a program that is slow, not dead. So "there is none"
is made true before it is said: the row is inserted as abandoned, and a local transaction that is late is refused by the
primary key. While that is still open, the insert waits for it and gives it time: no answer, and the broker asks again.

What must not be is a local transaction that commits after the broker has rolled its messages back, because nobody could
answer (`check_max`, by default after seven and a half minutes). So between 1 and 3 there is a limit, by this process's
clock, and where the database knows one (PostgreSQL's idle_in_transaction_session_timeout), by the database.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar

from halfmoon.kafka.loop import ConsumerLoop
from halfmoon.outbox.channel import Channel
from halfmoon.outbox.messages import OutboxError, Transaction, transaction_id_of
from halfmoon.outbox.table import KEEP, SLICE_ROWS, State, check_name, utc_now

TIMEOUT_S = 10.0
COMMIT_WITHIN_S = 60.0
CLEAN_EVERY_S = 3_600.0

log = logging.getLogger("halfmoon.outbox")

Tx = TypeVar("Tx", bound=Transaction, covariant=True)


class Local(Protocol[Tx]):
    """A local transaction that is open."""

    def transaction(self, transaction_id: str | None) -> Tx:
        """What the block is given."""
        ...

    def insert(self, group: str, transaction_id: str, now: datetime, commit_within_s: float) -> None:
        """Write what the block has left to be written, and insert the row. Raises the database's error."""
        ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...


class Database(Protocol[Tx]):
    """One kind of database, and where its table is."""

    errors: tuple[type[Exception], ...]
    """What it raises."""

    def local(self, using: Any) -> AbstractContextManager[Local[Tx]]:
        """A local transaction: on `using`, a session or a connection of the caller; None: on one of its own."""
        ...

    def state_of(self, group: str, transaction_id: str) -> State | None:
        """What is committed, read in a transaction of its own."""
        ...

    def abandon(self, group: str, transaction_id: str, now: datetime) -> bool:
        """Insert the row as abandoned and commit that; False where there is one. Raises one of `errors` where another
        transaction holds it for longer than a moment."""
        ...

    def remove(self, group: str, before: datetime, most: int) -> int:
        """Remove the oldest rows, at most so many; how many."""
        ...

    def create_table(self) -> None:
        """Unless it is there."""
        ...


def outcome(database: Database[Any], group: str, transaction_id: str, now: datetime) -> State | None:
    """What became of a transaction, from now on for good. None where it is not known. Raises the database's errors."""
    state = database.state_of(group, transaction_id)
    if state is None and database.abandon(group, transaction_id, now):
        return State.ABANDONED
    return state or database.state_of(group, transaction_id)


class BaseOutbox(Generic[Tx]):
    """`halfmoon.outbox.sqlalchemy` and `halfmoon.outbox.psycopg` have an `Outbox` each, made of this.

    `group`: of producers; each program that shares the table and answers for the others has the same one. `channel`:
    how messages are sent. `commit_within_s`: so long the half messages and the commit may take; afterwards the local
    transaction is rolled back. It must be shorter than the time in which the broker asks, `check_max` times
    `check_interval`. `now` and `clock`: for tests.
    """

    def __init__(
        self,
        group: str,
        channel: Channel,
        database: Database[Tx],
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

    @contextmanager
    def transaction(self, using: Any = None, *, transaction_id: str | None = None) -> Iterator[Tx]:
        """A local transaction, which is committed at the end of the block, or rolled back where that raises.

        `using`: a session or a connection of your own; the transaction that it has open is committed too. By default
        one is opened, and closed. `transaction_id`: a name of your own, such as a request's id, of at most 255
        characters; used twice, the database refuses the second transaction. Without messages nothing is added to the
        local transaction.

        Raises the database's errors, `halfmoon.kafka.NotStoredError` where the broker has not stored a message, and
        OutboxError where that took too long: in each case the transaction is rolled back, and none of its messages is
        delivered. One exception: where the database is lost while it commits, its error is raised, and whether the
        transaction is committed is not known yet. Its messages still do what the transaction did.
        """
        with self._database.local(using) as local:
            try:
                tx = local.transaction(transaction_id)
                yield tx
            except BaseException:
                self._roll_back(local)
                raise
            messages = tx.end()
            if not messages:
                self._commit_alone(local)
                return
            decision = _Decision(self, local, tx.id)
            try:
                local.insert(self.group, tx.id, self._now(), self._commit_within_s)
                self._channel.deliver(tx.id, messages, decision.decide)
            finally:
                if not decision.is_made:
                    self._roll_back(local)
            if decision.error is not None:
                raise decision.error

    def answer(self, check: Any) -> State | None:
        """Answer a check-back, a record of `check_topic`, by the table; returns what the broker was told, None if
        nothing: the transaction is still open, the database does not answer, or no outbox has sent this half message.
        Then the broker asks again.

        Raises ValueError for a record that is no check-back.
        """
        name = self._channel.transaction_of(check)
        transaction_id = transaction_id_of(name)
        if transaction_id is None:
            log.warning("event=check_back_of_another transaction=%s", name)
            return None
        try:
            state = outcome(self._database, self.group, transaction_id, self._now())
        except self._database.errors as error:
            log.warning("event=check_back_not_answered transaction=%s error=%s", name, error)
            return None
        if state is None or not self._channel.end(name, state):
            return None
        log.info("event=check_back_answered transaction=%s state=%s", name, state.value)
        return state

    def check_back_loop(self, consumer: Any, *, keep: timedelta = KEEP) -> ConsumerLoop:
        """A loop that answers check-backs until it is stopped, and removes old rows every hour.

        `consumer`: of a group of its own, such as `shop-checks`; of confluent-kafka or kafka-python, without automatic
        commits. Several programs may run one.
        """

        def clean() -> None:
            if self._clock() >= self._clean_at_s:
                self._clean_at_s = self._clock() + CLEAN_EVERY_S
                try:
                    self.clean(keep)
                except self._database.errors as error:
                    log.warning("event=rows_not_removed error=%s", error)

        return ConsumerLoop(consumer, [self.check_topic], self._answer_any, on_poll=clean)

    def clean(self, older_than: timedelta = KEEP) -> int:
        """Remove this group's rows that are older; how many. Rows must outlive the half messages that they decide: keep
        them longer than `plugins.transaction.max_age` (3 d), and than any time for which the broker was stopped."""
        before, removed = self._now() - older_than, 0
        while True:
            count = self._database.remove(self.group, before, SLICE_ROWS)
            removed += count
            if count < SLICE_ROWS:
                return removed

    def create_table(self) -> None:
        """Unless it is there. `halfmoon.outbox.outbox_sql()` has the statements."""
        self._database.create_table()

    def _answer_any(self, check: Any) -> None:
        try:
            self.answer(check)
        except ValueError as error:
            log.warning("event=not_a_check_back error=%s", error)

    def _commit_alone(self, local: Local[Tx]) -> None:
        try:
            local.commit()
        except BaseException:
            self._roll_back(local)
            raise

    def _roll_back(self, local: Local[Tx]) -> None:
        """A connection that is lost rolls back, too."""
        with suppress(*self._database.errors):
            local.rollback()


class _Decision:
    """Of one transaction, made once the half messages are stored."""

    def __init__(self, outbox: BaseOutbox[Any], local: Local[Any], transaction_id: str) -> None:
        self._outbox = outbox
        self._local = local
        self._id = transaction_id
        self._deadline_s = outbox._clock() + outbox._commit_within_s
        self.is_made = False
        self.error: BaseException | None = None
        """What the caller is told."""

    def decide(self) -> State | None:
        """Commit. None where nobody knows what became of it."""
        outbox = self._outbox
        self.is_made = True
        if outbox._clock() > self._deadline_s:
            self.error = OutboxError(f"its messages took more than {outbox._commit_within_s} s: it is rolled back")
            outbox._roll_back(self._local)
            return State.ABANDONED
        try:
            self._local.commit()
        except BaseException as error:
            self.error = error
            outbox._roll_back(self._local)
            return self._after(error)
        return State.COMMITTED

    def _after(self, error: BaseException) -> State | None:
        """A commit that has raised: refused, or done while its answer was lost. The table knows."""
        outbox = self._outbox
        if not isinstance(error, Exception):
            return None  # the program is about to end; the broker asks
        try:
            state = outcome(outbox._database, outbox.group, self._id, outbox._now())
        except outbox._database.errors as other:
            log.warning("event=outcome_unknown transaction=%s error=%s", self._id, other)
            return None
        if state is State.COMMITTED and isinstance(error, outbox._database.errors):
            log.warning("event=answer_to_commit_lost transaction=%s error=%s", self._id, error)
            self.error = None
        return state
