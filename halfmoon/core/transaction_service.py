"""Producers' transactions carried out on the log (core/transactions has the rules, and says what the words mean).

Whatever a client is told of a transaction is in the log before. An end is one frame group: a marker in every partition
that was written to, and the record that the transaction has ended, with which the progress of its groups counts. So
after a crash all of it is there or nothing, and what was ongoing is ongoing still, until its producer ends it or it has
taken too long.

    append → partition added (a record of its own, at the first batch) → batch
    end    → [marker, …, TransactionEnded]   one frame group, one flush

A transactional batch is taken only from the present producer of a transactional id, for a partition that is part of its
transaction. So none can be left behind that nobody ends (KIP-890).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from halfmoon.core import control, frame
from halfmoon.core.batch_header import BatchHeader, parse_header
from halfmoon.core.errors import BrokerError, Fault
from halfmoon.core.producer_state import Producers
from halfmoon.core.transactions import marker, rules
from halfmoon.core.transactions.entry import Identity, TransactionalId

if TYPE_CHECKING:
    from halfmoon.core.broker import Broker
    from halfmoon.core.catalog import Partition

MAX_PARTITIONS = 32_000
"""Of one transaction: their markers are one frame group."""
RETRY_MS = 10_000
"""After so long an end that could not be written is tried again."""


class TransactionalProducer(NamedTuple):
    """Who sends transactional batches."""

    transactional_id: str
    adds_partitions: bool
    """Its batches add their partition to the transaction (KIP-890); else that has been asked for before."""


class TransactionService:
    """Of one broker. Positions are those of the log to wait for before anything is answered."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._due: list[tuple[int, int, str]] = []
        """(monotonic ms, when it began (Unix ms), transactional id) of ongoing transactions, a heap; entries of those
        that have ended are left until it is their turn."""
        self.committed = 0
        self.aborted = 0
        self.timed_out = 0

    def restore(self) -> None:
        """Take up what the log remembers. Called once, before the first request. Raises BrokerError."""
        broker = self._broker
        mono_ms, wall_ms = broker.clock.mono_ms(), broker.clock.wall_ms()
        for entry in self._entries():
            if entry.is_ongoing:
                left_ms = min(max(0, entry.due_ms - wall_ms), entry.timeout_ms)
                heapq.heappush(self._due, (mono_ms + left_ms, entry.start_ms, entry.name))
        self._end_what_nobody_would(wall_ms)

    def _end_what_nobody_would(self, now_ms: int) -> None:
        """Transactions that are open in a partition and that no transactional id knows of: rot has taken its
        records."""
        known = {
            (entry.producer_id, place) for entry in self._entries() if entry.is_ongoing for place in entry.partitions
        }
        for partition in self._broker.catalog.partitions():
            place = partition.topic.number, partition.index
            for producer_id in () if partition.transactions is None else tuple(partition.transactions.open):
                if (producer_id, place) not in known:
                    state = partition.producers.by_id.get(producer_id) if partition.producers is not None else None
                    epoch = 0 if state is None else state.epoch
                    self._broker.logger.warning(
                        "event=transaction_without_owner partition=%r producer_id=%d", partition, producer_id
                    )
                    self._append_marker(partition, producer_id, epoch, now_ms, committed=False)

    def _entries(self) -> Iterable[TransactionalId]:
        return self._broker.catalog.transactions.by_name.values()

    # -- who the producer is -------------------------------------------------------------------------------------------

    def init_producer_id(self, name: str, timeout_ms: int, expected: tuple[int, int] | None) -> tuple[Identity, int]:
        """A producer takes a transactional id, or asks for its next epoch: `expected` is the id and epoch it has. What
        was ongoing is aborted. (KIP-98, KIP-360.)

        Raises BrokerError(INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED, KAFKA_STORAGE_ERROR).
        """
        broker = self._broker
        longest_ms = broker.settings.transactions.max_timeout_ms
        if not 0 < timeout_ms <= longest_ms:
            raise BrokerError(
                Fault.INVALID_TRANSACTION_TIMEOUT, f"transaction time-out {timeout_ms} ms, at most {longest_ms} ms"
            )
        entry = self._entry(name)
        if entry is not None and entry.is_ongoing:
            if expected is not None:
                rules.check_present(entry, *expected)
            self._end(entry, rules.bumped(entry, self._new_producer_id), commit=False)
        identity = rules.initialized(entry, expected, self._new_producer_id)
        now_ms = broker.clock.wall_ms()
        position = broker.append_control(control.TransactionalIdInitialized(name, identity, timeout_ms, now_ms))
        return identity, position

    def _entry(self, name: str) -> TransactionalId | None:
        return self._broker.catalog.transactions.by_name.get(name)

    def _new_producer_id(self) -> int:
        return self._broker.allocate_producer_id()[0]

    # -- what belongs to a transaction ---------------------------------------------------------------------------------

    def add_partitions(self, name: str, producer_id: int, epoch: int, partitions: Sequence[Partition]) -> int:
        """Partitions become part of the transaction, which begins with the first. Returns the position to wait for.

        Raises BrokerError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED; INVALID_REQUEST over `MAX_PARTITIONS`.
        """
        entry = rules.check_producer(self._entry(name), producer_id, epoch)
        places = [(partition.topic.number, partition.index) for partition in partitions]
        if len(entry.partitions) + len(places) > MAX_PARTITIONS:
            raise BrokerError(Fault.INVALID_REQUEST, f"a transaction may write to {MAX_PARTITIONS} partitions")
        return self._grow(entry, [place for place in places if place not in entry.partitions], [])

    def add_group(self, name: str, producer_id: int, epoch: int, group: str) -> int:
        """The transaction is to commit progress of a group. As `add_partitions`."""
        entry = rules.check_producer(self._entry(name), producer_id, epoch)
        return self._grow(entry, [], [] if group in entry.groups else [group])

    def _grow(self, entry: TransactionalId, places: list[tuple[int, int]], groups: list[str]) -> int:
        broker = self._broker
        if entry.is_ongoing and not places and not groups:
            return broker.log.end
        begins = not entry.is_ongoing
        now_ms = broker.clock.wall_ms()
        position = broker.append_control(control.TransactionGrown(entry.name, places, groups, now_ms))
        if begins:
            due_ms = broker.clock.mono_ms() + entry.timeout_ms
            heapq.heappush(self._due, (due_ms, entry.start_ms, entry.name))
            broker.on_deadline(due_ms)
        return position

    def verify_partition(self, name: str, producer_id: int, epoch: int, partition: Partition) -> None:
        """Whether the partition is part of the transaction. Raises BrokerError: as `add_partitions`, or
        TRANSACTION_ABORTABLE where it is not."""
        entry = rules.check_producer(self._entry(name), producer_id, epoch)
        if not entry.is_ongoing or (partition.topic.number, partition.index) not in entry.partitions:
            raise BrokerError(Fault.TRANSACTION_ABORTABLE, f"{partition!r} was not added to the transaction")

    def before_append(self, producer: TransactionalProducer, partition: Partition, header: BatchHeader) -> None:
        """Make sure that a transactional batch, about to be appended, belongs to its producer's transaction.

        Raises BrokerError: INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH, TRANSACTION_ABORTABLE,
        OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        entry = self._entry(producer.transactional_id)
        try:
            entry = rules.check_producer(entry, header.producer_id, header.producer_epoch)
        except BrokerError as error:
            if error.fault is Fault.PRODUCER_FENCED:  # what producing clients understand
                raise BrokerError(Fault.INVALID_PRODUCER_EPOCH, error.message) from None
            raise
        if entry.is_ongoing and (partition.topic.number, partition.index) in entry.partitions:
            return
        if not producer.adds_partitions:
            raise BrokerError(Fault.TRANSACTION_ABORTABLE, f"{partition!r} was not added to the transaction")
        known = partition.producers is not None and header.producer_id in partition.producers.by_id
        if header.base_sequence and not known:
            # Each transaction begins at 0: what was sent before this batch is still on its way, or lost.
            raise BrokerError(
                Fault.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} begins in {partition!r} at sequence {header.base_sequence}, not 0",
            )
        self.add_partitions(entry.name, header.producer_id, header.producer_epoch, [partition])

    def commit_offsets(
        self,
        producer: TransactionalProducer,
        producer_id: int,
        epoch: int,
        group: str,
        entries: Sequence[tuple[Partition, int, int, str]],
    ) -> int:
        """A group's progress, (partition, offset, leader epoch, metadata) each, that counts if the transaction commits.
        Whether the group lets it be committed was asked before.

        Raises BrokerError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED; TRANSACTION_ABORTABLE where the group is not
        part of the transaction.
        """
        entry = rules.check_producer(self._entry(producer.transactional_id), producer_id, epoch)
        if producer.adds_partitions:
            self.add_group(entry.name, producer_id, epoch, group)
        elif not entry.is_ongoing or group not in entry.groups:
            raise BrokerError(Fault.TRANSACTION_ABORTABLE, f"group '{group}' was not added to the transaction")
        now_ms = self._broker.clock.wall_ms()
        made = [
            (partition.topic.number, partition.index, control.Committed(offset, leader_epoch, metadata, now_ms))
            for partition, offset, leader_epoch, metadata in entries
        ]
        return self._broker.append_control(control.TransactionOffsets(entry.name, group, made))

    # -- how it ends ---------------------------------------------------------------------------------------------------

    def end(self, name: str, producer_id: int, epoch: int, *, commit: bool, bumps: bool) -> tuple[Identity, int]:
        """Commit or abort. `bumps`: the producer's epoch is raised with it (KIP-890). Returns who the producer is from
        now on.

        Raises BrokerError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE, KAFKA_STORAGE_ERROR.
        """
        entry = self._entry(name)
        identity = rules.ended(entry, producer_id, epoch, self._new_producer_id, commit=commit, bumps=bumps)
        assert entry is not None
        if identity is None:
            return entry.identity, self._broker.log.end
        return identity, self._end(entry, identity, commit=commit)

    def _end(self, entry: TransactionalId, identity: Identity, *, commit: bool) -> int:
        """Raises BrokerError(KAFKA_STORAGE_ERROR); nothing has changed then."""
        broker = self._broker
        now_ms = broker.clock.wall_ms()
        written = [partition for place in entry.partitions if (partition := self._open_at(place, entry)) is not None]
        made = [
            marker.build(
                entry.producer_id, rules.marker_epoch(entry, identity), broker.generation, now_ms, committed=commit
            )
            for _ in written
        ]
        record = control.TransactionEnded(entry.name, identity, commit, now_ms)
        parts = len(made) + 1
        if made:
            size = sum(len(batch) + frame.HEADER_BYTES for batch in made)
            broker.log.reserve(size + len(control.encode(record)) + frame.HEADER_BYTES, now_ms)
        for part, (partition, batch) in enumerate(zip(written, made, strict=True)):
            self._store(partition, batch, now_ms, committed=commit, part=part, parts=parts)
        position = broker.append_control(record, part=parts - 1, parts=parts)
        if commit:
            self.committed += 1
        else:
            self.aborted += 1
        broker.when_durable(position, lambda error: None if error else self._wake(written))
        return position

    def _open_at(self, place: tuple[int, int], entry: TransactionalId) -> Partition | None:
        """The partition, where the transaction has written something that is still there."""
        partition = self._broker.catalog.partition(*place)
        if partition is None or partition.transactions is None:
            return None
        return partition if entry.producer_id in partition.transactions.open else None

    def _store(
        self, partition: Partition, batch: bytearray, now_ms: int, *, committed: bool, part: int = 0, parts: int = 1
    ) -> int:
        view = memoryview(batch)
        offset = partition.next_offset
        end = self._broker.store(partition, view, 1, 1, now_ms, now_ms, original_span=0, part=part, parts=parts)
        header = parse_header(view)
        partition.note_transaction(header, offset, commit=committed)
        if partition.producers is None:
            partition.producers = Producers()
        partition.producers.marked(header.producer_id, header.producer_epoch, now_ms)
        return end

    def _append_marker(
        self, partition: Partition, producer_id: int, epoch: int, now_ms: int, *, committed: bool
    ) -> int:
        batch = marker.build(producer_id, epoch, self._broker.generation, now_ms, committed=committed)
        return self._store(partition, batch, now_ms, committed=committed)

    def abort_in(self, partition: Partition, producer_id: int, epoch: int) -> int:
        """End what a producer has open in one partition, as an operator asks who found it hanging. Raises BrokerError:
        INVALID_PRODUCER_EPOCH where the producer has a newer one by now."""
        state = None if partition.producers is None else partition.producers.by_id.get(producer_id)
        if state is not None and epoch < state.epoch:
            raise BrokerError(
                Fault.INVALID_PRODUCER_EPOCH, f"epoch {epoch} of producer {producer_id}, current is {state.epoch}"
            )
        position = self._append_marker(partition, producer_id, epoch, self._broker.clock.wall_ms(), committed=False)
        self._broker.when_durable(position, lambda error: None if error else self._wake([partition]))
        return position

    def _wake(self, partitions: Iterable[Partition]) -> None:
        """What was not stable in them may be."""
        for partition in partitions:
            self._broker.hold.look_at(partition)

    # -- time ----------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """When `expire` has work (monotonic ms); None while nothing is ongoing."""
        due = self._due
        while due and self._current(due[0]) is None:
            heapq.heappop(due)
        return due[0][0] if due else None

    def _current(self, due: tuple[int, int, str]) -> TransactionalId | None:
        """The transaction that an entry of the heap stands for, if it is still the one that is ongoing."""
        entry = self._entry(due[2])
        return entry if entry is not None and entry.is_ongoing and entry.start_ms == due[1] else None

    def expire(self, mono_ms: int) -> None:
        """Abort what has taken too long, and fence its producer."""
        due = self._due
        while due and due[0][0] <= mono_ms:
            entry = self._current(due[0])
            if entry is None:
                heapq.heappop(due)
                continue
            try:
                self._end(entry, rules.bumped(entry, self._new_producer_id), commit=False)
            except BrokerError as error:
                heapq.heapreplace(due, (mono_ms + RETRY_MS, entry.start_ms, entry.name))
                self._broker.logger.error("event=transaction_not_aborted id=%s error=%s", entry.name, error)
                continue
            heapq.heappop(due)
            self.timed_out += 1
            self._broker.logger.info("event=transaction_timed_out id=%s", entry.name)

    def expire_ids(self, now_ms: int) -> None:
        """Forget transactional ids that have not been used for `$.transactions.id_expiration`. Raises BrokerError."""
        kept_ms = self._broker.settings.transactions.id_expiration_ms
        if kept_ms is None:
            return
        gone = [entry.name for entry in self._entries() if not entry.is_ongoing and entry.update_ms + kept_ms < now_ms]
        if gone:
            self._broker.append_control(control.TransactionalIdsExpired(gone))

    # -- operators -----------------------------------------------------------------------------------------------------

    @property
    def ongoing(self) -> int:
        return sum(entry.is_ongoing for entry in self._entries())

    @property
    def oldest_ms(self) -> int:
        """For how long the oldest of them has been open; 0 where none is."""
        now_ms = self._broker.clock.wall_ms()
        return max((now_ms - entry.start_ms for entry in self._entries() if entry.is_ongoing), default=0)
