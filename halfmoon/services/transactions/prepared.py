"""Large transactions end in slices, as all transactions of Kafka do.

    TransactionPrepared       it is decided, and told to nobody yet
    marker, marker, …         each a frame of its own
    TransactionOffsetsEnded   for each group: its offsets count, all at once, or are dropped
    TransactionEnded          now it is told

What a reader sees in between is what Kafka shows: one partition is decided, another not yet, and a group's offsets are
unstable until they count. Requests that would change the transactional id are told to come again.

The log says where it stands. So it goes on after a crash: markers that are there end nothing twice, since the
transaction is open no more in their partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from halfmoon.core.append import Appender
from halfmoon.core.clock import Clock
from halfmoon.core.relay import Load, Relays
from halfmoon.errors import BrokerError
from halfmoon.schema import control
from halfmoon.schema.transactions import Identity, TransactionState
from halfmoon.services.transactions.ending import TransactionEndings
from halfmoon.services.transactions.entry import TransactionalId
from halfmoon.services.transactions.state import TransactionsState

MARKERS_AT_ONCE = 250
"""A transaction in more partitions is a large one: 2 ms, …"""
OFFSETS_AT_ONCE = 5_000
"""… and one with more offsets."""
SLICE = 50
"""Markers between two pauses."""

Told = Callable[[int | BrokerError], None]
"""Of the log position to wait for, or what has gone wrong."""


class PreparedTransactions:
    """Of one broker; a mover of its relays."""

    def __init__(
        self, state: TransactionsState, endings: TransactionEndings, appender: Appender, relays: Relays, clock: Clock
    ) -> None:
        self._state = state
        self._endings = endings
        self._appender = appender
        self._relays = relays
        self._clock = clock
        self._waiting: dict[str, list[Told]] = {}

    def __str__(self) -> str:
        return "ends of large transactions"

    def start(self) -> None:
        self._relays.add(self, self)

    def is_large(self, entry: TransactionalId) -> bool:
        return len(entry.partitions) > MARKERS_AT_ONCE or self._state.pending_of(entry.name) > OFFSETS_AT_ONCE

    def prepare(self, entry: TransactionalId, identity: Identity, *, commit: bool) -> None:
        """Decide how a transaction ends. Raises BrokerError(KAFKA_STORAGE_ERROR); nothing has changed then."""
        self._appender.append_control(
            control.TransactionPrepared(entry.name, identity, commit, self._clock.wall_ms())
        )  # fmt: skip
        self._relays.wake(self)

    def when_ended(self, name: str, told: Told) -> None:
        """Tell once the transaction that is prepared for this transactional id has ended, or could not."""
        self._waiting.setdefault(name, []).append(told)

    def run(self) -> Generator[Load | None, Any, None]:
        while self._state.prepared:
            entry = next(iter(self._state.prepared.values()))
            try:
                yield from self._end(entry)
            except BrokerError as error:
                self._tell(entry.name, error)
                raise

    def _end(self, entry: TransactionalId) -> Generator[None, Any, None]:
        name, commit = entry.name, entry.state is TransactionState.PREPARE_COMMIT
        places = list(entry.partitions)
        for at in range(0, len(places), SLICE):
            self._endings.mark(entry, places[at : at + SLICE], commit=commit)
            yield None
        for group in list(self._state.pending.get(name, ())):
            self._appender.append_control(control.TransactionOffsetsEnded(name, group, commit))
            yield None
        assert entry.after is not None
        position = self._appender.append_control(
            control.TransactionEnded(name, entry.after, commit, self._clock.wall_ms())
        )
        self._tell(name, position)

    def _tell(self, name: str, end: int | BrokerError) -> None:
        for told in self._waiting.pop(name, ()):
            told(end)
