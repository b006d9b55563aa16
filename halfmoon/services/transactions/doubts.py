"""What was open here of transactions that other shards coordinate, when this shard was opened.

Its coordinator ends it, as a rule. But where a shard has lost the end of its log, or is a copy of another moment than
the coordinator's, that one may have ended it already and say nothing more: what is open would stay so for ever, and the
producer's next transaction would be taken for the same. So the coordinator is asked of each, and until it has answered
the producer waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from halfmoon.core.append import Appender
from halfmoon.core.clock import Clock
from halfmoon.core.timers import Timers
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema import control
from halfmoon.schema.shards import OWN_PRODUCERS_BITS
from halfmoon.services.transactions import rules
from halfmoon.services.transactions.ending import TransactionEndings
from halfmoon.services.transactions.entry import TransactionalId
from halfmoon.services.transactions.others import Doubt, OtherShards, Outcome
from halfmoon.services.transactions.state import TransactionsState

ASK_AGAIN_MS = 100
"""After so long a coordinator that could not be reached is asked again."""
ASKED_AT_ONCE = 1_000

_Key = tuple[int, tuple[int, int] | str]
"""Producer id, and place or group."""


class Doubts:
    """Of one shard."""

    def __init__(
        self,
        shards: OtherShards,
        state: TransactionsState,
        endings: TransactionEndings,
        appender: Appender,
        timers: Timers,
        clock: Clock,
    ) -> None:
        self._shards = shards
        self._state = state
        self._endings = endings
        self._appender = appender
        self._timers = timers
        self._clock = clock
        self._open: dict[_Key, Doubt] = {}
        self._due_ms: int | None = None
        """When those are asked again that could not be reached."""
        self._unreached: set[int] = set()

    def find(self) -> None:
        """What is open. Called once, before the first request."""
        for partition, producer_id, epoch in self._endings.all_open():
            self._add(Doubt(producer_id, epoch, partition.topic.number, partition.index, ""))
        for producer_id, groups in self._state.remote.items():
            for group, known in groups.items():
                self._add(Doubt(producer_id, known.epoch, -1, -1, group))

    def _add(self, doubt: Doubt) -> None:
        if doubt.producer_id >> OWN_PRODUCERS_BITS != self._shards.number:
            self._open[_key(doubt)] = doubt

    def start(self) -> None:
        """Ask."""
        for shard in {_shard(doubt) for doubt in self._open.values()}:
            self._ask(shard)

    def is_open(self, producer_id: int, target: tuple[int, int] | str) -> bool:
        return bool(self._open) and (producer_id, target) in self._open

    def forget(self, producer_id: int, target: tuple[int, int] | str) -> None:
        """Somebody has ended it."""
        self._open.pop((producer_id, target), None)

    def send_away(self) -> None:
        """The shard goes to another process, which asks again: what is answered here ends nothing any more."""
        self._open.clear()
        self._unreached.clear()
        self._due_ms = None

    # -- asking --------------------------------------------------------------------------------------------------------

    def _ask(self, shard: int) -> None:
        of_shard = [doubt for doubt in self._open.values() if _shard(doubt) == shard]
        for first in range(0, len(of_shard), ASKED_AT_ONCE):
            doubts = of_shard[first : first + ASKED_AT_ONCE]
            self._shards.doubt(shard, doubts, partial(self._answered, shard, doubts))

    def _answered(self, shard: int, doubts: list[Doubt], answer: list[Outcome] | BrokerError) -> None:
        if isinstance(answer, BrokerError):
            if self._open:
                self._again(shard)
            return
        for doubt, outcome in zip(doubts, answer, strict=True):
            if self._open.get(_key(doubt)) is not doubt:
                continue  # its end has come meanwhile
            try:
                if outcome is not Outcome.OPEN:
                    self._end(doubt, committed=outcome is Outcome.COMMITTED)
            except BrokerError:  # the log cannot be written now
                self._again(shard)
                return
            del self._open[_key(doubt)]

    def _end(self, doubt: Doubt, *, committed: bool) -> None:
        """Raises BrokerError(KAFKA_STORAGE_ERROR)."""
        if doubt.group:
            known = self._state.remote_of(doubt.producer_id, doubt.group)
            if known is not None and known.epoch == doubt.epoch:
                self._appender.append_control(control.RemoteOffsetsEnded(doubt.producer_id, doubt.group, committed))
            return
        partition = self._endings.open_at((doubt.topic, doubt.index), doubt.producer_id)
        if partition is not None:
            generation = self._endings.generation
            self._endings.mark_in([partition], doubt.producer_id, doubt.epoch, generation, committed=committed)

    def _again(self, shard: int) -> None:
        self._unreached.add(shard)
        if self._due_ms is None:
            self._due_ms = self._clock.mono_ms() + ASK_AGAIN_MS
            self._timers.arm(self._due_ms)

    # -- time ----------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        return self._due_ms

    def expire(self, mono_ms: int) -> None:
        if self._due_ms is not None and self._due_ms <= mono_ms:
            self._due_ms = None
            unreached, self._unreached = self._unreached, set()
            for shard in unreached:
                self._ask(shard)


def outcomes(entries: Iterable[TransactionalId], asked: Sequence[Doubt]) -> list[Outcome]:
    """What a coordinator answers. `entries`: all that it knows."""
    wanted = {doubt.producer_id for doubt in asked}
    found: dict[int, TransactionalId] = {}
    for entry in entries:
        now = entry.identity
        if now.last_producer_id in wanted:
            found.setdefault(now.last_producer_id, entry)
        if now.producer_id in wanted:
            found[now.producer_id] = entry
    return [rules.outcome(found.get(doubt.producer_id), doubt) for doubt in asked]


def _key(doubt: Doubt) -> _Key:
    return doubt.producer_id, doubt.group or (doubt.topic, doubt.index)


def _shard(doubt: Doubt) -> int:
    """Its coordinator's: each shard gives its own producer ids."""
    return doubt.producer_id >> OWN_PRODUCERS_BITS


def unanswered(target: tuple[int, int] | str) -> BrokerError:
    """What clients are told until the coordinator has answered; they try again."""
    fault = Fault.COORDINATOR_NOT_AVAILABLE if isinstance(target, str) else Fault.NOT_ENOUGH_REPLICAS
    return BrokerError(fault, "it is being asked how the producer's transaction of before has ended")
