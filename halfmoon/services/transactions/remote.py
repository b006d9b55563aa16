"""Transactions that other shards coordinate, as far as they lie here: in partitions, and in groups' offsets.

Before the first batch in a partition, and before the first offsets of a group, the coordinator is asked to let the
transaction join. That it does so is noted until it says how the transaction ends:

    asked ──► joined at a position of the coordinator's log ──► its end: marker, offsets count or go; the note goes
      │            batches and offsets are taken
      └─ the end comes first: the note goes, the answer no longer counts, it is asked anew (Kafka: VerificationGuard)

A note is in memory only: after a start it is asked again. What is open in a partition, and the offsets, are in the log.

What the coordinator says can come twice. It ends nothing that began later: each note, and each group's offsets, have
the position at which they joined, and an end has a larger one than all that joined before. A coordinator of an older
generation is refused.

It decides nothing about transactions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from halfmoon.core.append import Appender
from halfmoon.core.append_types import TransactionalProducer
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.clock import Clock
from halfmoon.core.records.batch_header import BatchHeader
from halfmoon.core.timers import Timers
from halfmoon.errors import AsksFirstError, BrokerError, Fault, fault_named
from halfmoon.schema import control
from halfmoon.services.transactions import rules
from halfmoon.services.transactions.doubts import Doubts, unanswered
from halfmoon.services.transactions.ending import TransactionEndings
from halfmoon.services.transactions.others import End, Join, Joined, OtherShards
from halfmoon.services.transactions.state import TransactionsState

UNANSWERED_MS = 10_000
"""So long a coordinator is waited for. Clients wait for 30 s."""
SWEPT = 1_000
"""Notes, that many more than before, after which those are looked for that nobody needs."""
_ASKED = -1

Told = Callable[[BrokerError | None], None]
_Place = tuple[int, int]
"""Topic number, partition."""


class _Note:
    """A partition, or a group, that is to be part of a transaction."""

    __slots__ = ("begins", "epoch", "joined", "name", "question", "target", "what")

    def __init__(self, name: str, epoch: int, target: _Place | str, what: str, begins: bool) -> None:
        """`target`: place, or group; `what`: the same for people."""
        self.name = name
        self.epoch = epoch
        self.target = target
        self.what = what
        self.begins = begins
        self.joined = _ASKED
        self.question: _Question | None = None
        """While it is asked."""


class _Question:
    """What is asked of a coordinator together: what one request has brought of one transaction."""

    __slots__ = (
        "adds",
        "due_ms",
        "error",
        "errors",
        "is_answered",
        "is_sent",
        "notes",
        "producer_id",
        "shard",
        "waiting",
    )

    def __init__(self, shard: int, producer_id: int, adds: bool) -> None:
        self.shard = shard
        self.producer_id = producer_id
        self.adds = adds
        self.notes: list[_Note] = []
        self.is_sent = False
        self.is_answered = False
        self.due_ms = 0
        self.error: BrokerError | None = None
        """About all of it."""
        self.errors: dict[_Place | str, BrokerError] = {}
        self.waiting: list[tuple[_Note, Told]] = []

    def tell(self, note: _Note, told: Told) -> None:
        error = self.error or self.errors.get(note.target)
        told(None if error is None else _understood(error, note.target, adds=self.adds))


class RemoteTransactions:
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
        self._notes: dict[tuple[int, _Place | str], _Note] = {}
        """By producer id and place, or group."""
        self._collected: dict[tuple[str, int, int, bool], _Question] = {}
        """Not sent yet: by transactional id, producer id, epoch, and whether it adds."""
        self._sent: dict[_Question, None] = {}
        """Not answered yet, in the order in which they were sent."""
        self._generations: dict[int, int] = {}
        """The highest of each shard that has said how a transaction ends."""
        self._sweep_at = SWEPT
        self.doubts = Doubts(shards, state, endings, appender, timers, clock)

    def is_own(self, name: str) -> bool:
        """Whether this shard coordinates a transactional id."""
        return self._shards.coordinator_of(name) == self._shards.number

    # -- joining -------------------------------------------------------------------------------------------------------

    def before_append(self, producer: TransactionalProducer, partition: Partition, header: BatchHeader) -> bool:
        """Whether the batch belongs to a transaction that another shard coordinates; False: to none of those. Raises
        BrokerError; AsksFirstError where the coordinator is to be asked."""
        producer_id, epoch = header.producer_id, header.producer_epoch
        place = partition.topic.number, partition.index
        if self.doubts.is_open(producer_id, place):
            raise unanswered(place)
        if self._has_joined(producer.transactional_id, producer_id, epoch, place):
            return True
        known = partition.producers is not None and producer_id in partition.producers.by_id
        note = _Note(producer.transactional_id, epoch, place, repr(partition), known or not header.base_sequence)
        return self._ask_first(producer, producer_id, note)

    def before_commit(self, producer: TransactionalProducer, producer_id: int, epoch: int, group: str) -> bool:
        """The same of a group whose offsets a transaction commits."""
        if self.doubts.is_open(producer_id, group):
            raise unanswered(group)
        if self._has_joined(producer.transactional_id, producer_id, epoch, group):
            return True
        note = _Note(producer.transactional_id, epoch, group, f"group '{group}'", begins=True)
        return self._ask_first(producer, producer_id, note)

    def _has_joined(self, name: str, producer_id: int, epoch: int, target: _Place | str) -> bool:
        note = self._notes.get((producer_id, target))
        return note is not None and note.joined != _ASKED and note.epoch == epoch and note.name == name

    def _ask_first(self, producer: TransactionalProducer, producer_id: int, note: _Note) -> bool:
        shard = self._shards.coordinator_of(note.name)
        if shard == self._shards.number:
            return False
        known = self._notes.get((producer_id, note.target))
        if known is not None and known.question is not None and (known.name, known.epoch) == (note.name, note.epoch):
            question, note = known.question, known
        else:
            key = note.name, producer_id, note.epoch, producer.adds_partitions
            found = self._collected.get(key)
            if found is None:
                found = self._collected[key] = _Question(shard, producer_id, producer.adds_partitions)
            question = note.question = found
            question.notes.append(note)
            self._notes[producer_id, note.target] = note
            if len(self._notes) >= self._sweep_at:
                self._sweep()
        raise AsksFirstError(partial(self._begin, question, note))

    def _begin(self, question: _Question, note: _Note, told: Told) -> None:
        if self._appender.leaves:
            told(_gone(note.target))
            return
        if question.is_answered:
            question.tell(note, told)
            return
        question.waiting.append((note, told))
        if not question.is_sent:
            self._send(question)

    def _send(self, question: _Question) -> None:
        question.is_sent = True
        first, adds = question.notes[0], question.adds
        del self._collected[first.name, question.producer_id, first.epoch, adds]
        self._sent[question] = None
        question.due_ms = self._clock.mono_ms() + UNANSWERED_MS
        self._timers.arm(question.due_ms)
        places = [(*note.target, note.begins) for note in question.notes if not isinstance(note.target, str)]
        groups = [note.target for note in question.notes if isinstance(note.target, str)]
        question.notes.sort(key=lambda note: isinstance(note.target, str))  # in the order of the answer
        asked = Join(first.name, question.producer_id, first.epoch, adds, places, groups)
        self._shards.join(question.shard, asked, partial(self._answered, question))

    def _answered(self, question: _Question, answer: Joined | BrokerError) -> None:
        if question.is_answered:
            return  # it was too late
        question.is_answered = True
        del self._sent[question]
        if isinstance(answer, BrokerError):
            question.error = answer
        else:
            for number, fault in answer.refused:
                note = question.notes[number]
                question.errors[note.target] = _refusal(fault_named(fault), question.producer_id, note.what)
        for note in question.notes:
            note.question = None
            key = question.producer_id, note.target
            if self._notes.get(key) is not note:
                continue  # the transaction has ended meanwhile: whoever waits asks anew
            if isinstance(answer, BrokerError) or note.target in question.errors:
                del self._notes[key]
            else:
                note.joined = answer.position
        waiting, question.waiting = question.waiting, []
        for note, told in waiting:
            question.tell(note, told)

    def send_away(self) -> None:
        """The shard goes to another process (Appender.leaves). An answer that comes later would be written into a log
        that nobody writes any more, and its client would wait for ever."""
        self.doubts.send_away()
        sent, self._sent = self._sent, {}
        for question in sent:
            question.is_answered = True
            waiting, question.waiting = question.waiting, []
            for note, told in waiting:
                told(_gone(note.target))

    def _sweep(self) -> None:
        """Forget what was noted and not written: the partition may be gone, and nobody will say how that has ended."""
        for key, note in list(self._notes.items()):
            producer_id, target = key
            if note.question is not None:
                continue
            if isinstance(target, str):
                is_used = self._state.remote_of(producer_id, target) is not None
            else:
                is_used = self._endings.open_at(target, producer_id) is not None
            if not is_used:
                del self._notes[key]
        self._sweep_at = 2 * len(self._notes) + SWEPT

    # -- time ----------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        asked_ms = next((question.due_ms for question in self._sent), None)
        doubts_ms = self.doubts.next_deadline()
        if asked_ms is None or doubts_ms is None:
            return doubts_ms if asked_ms is None else asked_ms
        return min(asked_ms, doubts_ms)

    def expire(self, mono_ms: int) -> None:
        """Wait no longer for coordinators that have said nothing."""
        self.doubts.expire(mono_ms)
        for question in [each for each in self._sent if each.due_ms <= mono_ms]:
            self._answered(question, BrokerError(Fault.NOT_LEADER_OR_FOLLOWER, "it has not answered"))

    # -- offsets -------------------------------------------------------------------------------------------------------

    def commit_offsets(
        self, producer_id: int, epoch: int, group: str, made: list[tuple[int, int, control.Committed]]
    ) -> int:
        """Offsets of a group that has joined. Returns the position to wait for. Raises BrokerError."""
        joined = self._notes[producer_id, group].joined
        return self._appender.append_control(control.RemoteOffsets(producer_id, epoch, joined, group, made))

    # -- how they end --------------------------------------------------------------------------------------------------

    def end(self, end: End) -> int:
        """End what lies here of a transaction, as its coordinator has decided. Where that was done before, nothing
        changes. Returns the position to wait for. Raises BrokerError: NOT_COORDINATOR for a coordinator that has been
        followed by another; KAFKA_STORAGE_ERROR."""
        self._check_generation(end)
        written = []
        for place in end.places:
            self.doubts.forget(end.producer_id, place)
            partition = self._endings.open_at(place, end.producer_id)
            if self._takes_note(end, place) and partition is not None and not _is_newer(partition, end):
                written.append(partition)
        self._endings.mark_in(
            written, end.producer_id, end.marker_epoch, end.generation, committed=end.committed
        )  # fmt: skip
        for group in end.groups:
            self.doubts.forget(end.producer_id, group)
            known = self._state.remote_of(end.producer_id, group)
            is_newer = known is not None and (known.epoch > end.epoch or known.joined > end.position)
            if self._takes_note(end, group) and known is not None and not is_newer:
                self._appender.append_control(control.RemoteOffsetsEnded(end.producer_id, group, end.committed))
        return self._endings.position

    def _check_generation(self, end: End) -> None:
        known = max(self._generations.get(end.shard, -1), self._shards.epoch_of(end.shard))
        if end.generation < known:
            raise BrokerError(
                Fault.NOT_COORDINATOR, f"generation {end.generation} of shard {end.shard}, current is {known}"
            )
        self._generations[end.shard] = end.generation

    def _takes_note(self, end: End, target: _Place | str) -> bool:
        """Forget that it has joined; False where it has joined a later transaction."""
        key = end.producer_id, target
        note = self._notes.get(key)
        if note is not None:
            if note.joined > end.position:
                return False
            del self._notes[key]
        return True

    def forget(self, producer_id: int, partition: Partition) -> None:
        """Somebody else has ended what the producer had open there."""
        place = partition.topic.number, partition.index
        self._notes.pop((producer_id, place), None)
        self.doubts.forget(producer_id, place)


def _is_newer(partition: Partition, end: End) -> bool:
    """Whether the producer has gone on to a transaction after this end."""
    known = None if partition.producers is None else partition.producers.by_id.get(end.producer_id)
    return known is not None and known.epoch > end.epoch


def _refusal(fault: Fault, producer_id: int, what: str) -> BrokerError:
    if fault is Fault.OUT_OF_ORDER_SEQUENCE_NUMBER:
        return BrokerError(fault, f"producer {producer_id} begins in {what} at another sequence than 0")
    return BrokerError(fault, f"{what} was not added to the transaction")


def _understood(error: BrokerError, target: _Place | str, *, adds: bool) -> BrokerError:
    """What clients are told of a coordinator's refusal. Where it was not heard of, or the coordinator cannot write,
    they ask again."""
    if error.fault in _UNHEARD:
        fault = Fault.COORDINATOR_NOT_AVAILABLE if isinstance(target, str) else Fault.NOT_ENOUGH_REPLICAS
        return BrokerError(fault, f"the transaction's coordinator: {error.message}")
    return error if isinstance(target, str) else rules.of_batch(error, adds=adds)


def _gone(target: _Place | str) -> BrokerError:
    """What those are told who wait in a shard that goes to another process: they look where it is."""
    return BrokerError(Fault.NOT_COORDINATOR if isinstance(target, str) else Fault.NOT_LEADER_OR_FOLLOWER)


_UNHEARD = frozenset(
    (
        Fault.NOT_LEADER_OR_FOLLOWER,
        Fault.NOT_COORDINATOR,
        Fault.KAFKA_STORAGE_ERROR,
        Fault.REQUEST_TIMED_OUT,
        Fault.UNKNOWN_SERVER_ERROR,
    )
)
