"""Large transactions, and those with something in other shards, end in slices, as all transactions of Kafka do.

    TransactionPrepared       it is decided, and told to nobody yet
    marker, marker, …         each a frame of its own
    TransactionOffsetsEnded   for each group: its offsets count, all at once, or are dropped
                              other shards do the same with what lies there
    TransactionEnded          now it is told

What a reader sees in between is what Kafka shows: one partition is decided, another not yet, and a group's offsets are
unstable until they count. Requests that would change the transactional id are told to come again.

The log says where it stands. So it goes on after a crash: markers that are there end nothing twice, since the
transaction is open no more in their partitions.

Other shards are told once the decision is durable, and are asked until they have answered. One that cannot be reached
holds up those transactions that have something there, and no others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from halfmoon.core.append import Appender
from halfmoon.core.clock import Clock
from halfmoon.core.relay import Load, Relays
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema import control
from halfmoon.schema.transactions import Identity, TransactionState
from halfmoon.services.transactions import rules
from halfmoon.services.transactions.ending import TransactionEndings
from halfmoon.services.transactions.entry import TransactionalId
from halfmoon.services.transactions.others import NOT_YET, NOWHERE, End, OtherShards
from halfmoon.services.transactions.state import TransactionsState

MARKERS_AT_ONCE = 250
"""A transaction in more partitions is a large one: 2 ms, …"""
OFFSETS_AT_ONCE = 5_000
"""… and one with more offsets."""
SLICE = 50
"""Markers between two pauses."""
ASK_AGAIN_MS = 500
"""After so long a shard that could not be reached is asked again, …"""
UNANSWERED_MS = 10_000
"""… and one that has said nothing."""

Told = Callable[[int | BrokerError], None]
"""Of the log position to wait for, or what has gone wrong."""


class _Elsewhere:
    """What a prepared transaction waits for."""

    __slots__ = ("due_ms", "left")

    def __init__(self, left: dict[int, deque[End]]) -> None:
        self.left = left
        """By shard: what is still to be answered, one after the other."""
        self.due_ms: dict[int, int] = {}
        """When each is to be asked, or asked again (monotonic)."""


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
        self._todo: deque[str] = deque()
        """Transactional ids whose transaction has something to be done here: markers, or its end."""
        self._elsewhere: dict[str, _Elsewhere] = {}
        """Those that wait for other shards."""
        self._unplaced: list[str] = []
        """Those of which it is not known yet where all of their partitions lie."""
        self._look_ms: int | None = None
        """When to look who is to be asked again (monotonic)."""
        self._shards: OtherShards | None = None

    def __str__(self) -> str:
        return "ends of large transactions"

    def use(self, shards: OtherShards) -> None:
        """Other shards share the topics. Before `start`."""
        self._shards = shards

    def start(self) -> None:
        self._todo.extend(self._state.prepared)
        self._relays.add(self, self)

    def needs_slices(self, entry: TransactionalId) -> bool:
        """Whether a transaction cannot end in one frame group."""
        if len(entry.partitions) > MARKERS_AT_ONCE or self._state.pending_of(entry.name) > OFFSETS_AT_ONCE:
            return True
        return self._shards is not None and self._is_spread(entry, self._shards)

    def _is_spread(self, entry: TransactionalId, shards: OtherShards) -> bool:
        own = shards.number
        if any(shards.shard_of(*place) not in (own, NOWHERE) for place in entry.partitions):
            return True
        return any(shards.coordinator_of(group) != own for group in entry.groups)

    def prepare(self, entry: TransactionalId, identity: Identity, *, commit: bool) -> None:
        """Decide how a transaction ends. Raises BrokerError(KAFKA_STORAGE_ERROR); nothing has changed then."""
        self._appender.append_control(
            control.TransactionPrepared(entry.name, identity, commit, self._clock.wall_ms())
        )  # fmt: skip
        self._todo.append(entry.name)
        self._relays.wake(self)

    def when_ended(self, name: str, told: Told) -> None:
        """Tell once the transaction that is prepared for this transactional id has ended, or could not."""
        self._waiting.setdefault(name, []).append(told)

    def send_away(self) -> None:
        """The shard goes to another process. The transactions end there; who waits asks it for that."""
        for name in list(self._waiting):
            self._tell(name, BrokerError(Fault.NOT_COORDINATOR))

    # -- what is done here ---------------------------------------------------------------------------------------------

    def run(self) -> Generator[Load | None, Any, None]:
        self._look_again()
        while self._todo:
            name = self._todo.popleft()
            entry = self._state.prepared.get(name)
            if entry is None:
                continue
            try:
                if name not in self._elsewhere:
                    yield from self._end_here(entry)
                if self._is_done(entry):
                    self._end(entry)
            except BrokerError as error:
                self._todo.appendleft(name)
                self._tell(name, error)
                raise

    def _end_here(self, entry: TransactionalId) -> Generator[None, Any, None]:
        name, commit = entry.name, entry.state is TransactionState.PREPARE_COMMIT
        places = list(entry.partitions)
        for at in range(0, len(places), SLICE):
            self._endings.mark(entry, places[at : at + SLICE], commit=commit)
            yield None
        for group in list(self._state.pending.get(name, ())):
            self._appender.append_control(control.TransactionOffsetsEnded(name, group, commit))
            yield None

    def _is_done(self, entry: TransactionalId) -> bool:
        """Whether the other shards have answered. Begins to ask them."""
        shards = self._shards
        if shards is None:
            return True
        elsewhere = self._elsewhere.get(entry.name)
        if elsewhere is None:
            left = self._questions(entry, shards)
            if left is None:
                self._unplaced.append(entry.name)
                self._look_at(self._clock.mono_ms() + ASK_AGAIN_MS)
                return False
            if not left:
                return True
            elsewhere = self._elsewhere[entry.name] = _Elsewhere(left)
            # All of a slice's decision is before the end of the log.
            self._endings.when_durable(self._endings.position, partial(self._decided, entry.name, elsewhere))
        return not elsewhere.left

    def _end(self, entry: TransactionalId) -> None:
        assert entry.after is not None
        committed = entry.state is TransactionState.PREPARE_COMMIT
        position = self._appender.append_control(
            control.TransactionEnded(entry.name, entry.after, committed, self._clock.wall_ms())
        )
        self._elsewhere.pop(entry.name, None)
        self._tell(entry.name, position)

    def _tell(self, name: str, end: int | BrokerError) -> None:
        for told in self._waiting.pop(name, ()):
            told(end)

    # -- what other shards do ------------------------------------------------------------------------------------------

    def _questions(self, entry: TransactionalId, shards: OtherShards) -> dict[int, deque[End]] | None:
        """By shard; None where it is not known yet where all of it lies."""
        places: dict[int, list[tuple[int, int]]] = {}
        groups: dict[int, list[str]] = {}
        for place in entry.partitions:
            places.setdefault(shards.shard_of(*place), []).append(place)
        for group in entry.groups:
            groups.setdefault(shards.coordinator_of(group), []).append(group)
        if NOT_YET in places:
            return None
        assert entry.after is not None
        commit = entry.state is TransactionState.PREPARE_COMMIT
        marker_epoch = rules.marker_epoch(entry, entry.after)
        position = self._endings.position
        at_once = max(1, MARKERS_AT_ONCE)
        asked: dict[int, deque[End]] = {}
        for shard in dict.fromkeys((*places, *groups)):
            if shard in (shards.number, NOWHERE):
                continue
            there = places.get(shard, [])
            asked[shard] = deque(
                End(
                    shards.number, self._endings.generation, position, entry.producer_id, entry.epoch, marker_epoch,
                    commit, there[at : at + at_once], [] if at else groups.get(shard, []),
                )
                for at in range(0, max(1, len(there)), at_once)
            )  # fmt: skip
        return asked

    def _decided(self, name: str, elsewhere: _Elsewhere, error: BrokerError | None) -> None:
        """The decision is durable, or never will be: then the log takes no more writes, and a start finds out."""
        if error is not None:
            self._tell(name, error)
            return
        for shard in list(elsewhere.left):
            self._ask(name, elsewhere, shard)

    def _ask(self, name: str, elsewhere: _Elsewhere, shard: int) -> None:
        assert self._shards is not None
        now_ms = self._clock.mono_ms()
        elsewhere.due_ms[shard] = now_ms + UNANSWERED_MS
        self._look_at(now_ms + ASK_AGAIN_MS)
        asked = elsewhere.left[shard][0]
        self._shards.end(shard, asked, partial(self._answered, name, elsewhere, shard, asked))

    def _answered(self, name: str, elsewhere: _Elsewhere, shard: int, asked: End, error: BrokerError | None) -> None:
        left = elsewhere.left.get(shard)
        if left is None or left[0] is not asked:
            return  # it was asked twice
        if error is not None:
            elsewhere.due_ms[shard] = self._clock.mono_ms() + ASK_AGAIN_MS
            return
        left.popleft()
        if left:
            self._ask(name, elsewhere, shard)
            return
        del elsewhere.left[shard]
        if not elsewhere.left:
            self._todo.append(name)
            self._relays.wake(self)

    def _look_at(self, mono_ms: int) -> None:
        if self._look_ms is None:
            self._look_ms = mono_ms
            self._relays.wake_at(self, mono_ms)

    def _look_again(self) -> None:
        """Ask those again that have not answered."""
        now_ms = self._clock.mono_ms()
        if self._look_ms is None or now_ms < self._look_ms:
            return
        self._look_ms = None
        self._todo.extend(self._unplaced)
        self._unplaced.clear()
        for name, elsewhere in list(self._elsewhere.items()):
            for shard, due_ms in list(elsewhere.due_ms.items()):
                if shard in elsewhere.left and due_ms <= now_ms:
                    self._ask(name, elsewhere, shard)
        if self._elsewhere:
            self._look_at(now_ms + ASK_AGAIN_MS)
