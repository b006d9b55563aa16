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
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from halfmoon.core.append import Piece, TransactionalProducer
from halfmoon.core.batch_header import BatchHeader, parse_header
from halfmoon.core.errors import BrokerError, Fault
from halfmoon.core.transactions import marker
from halfmoon.schema import control
from halfmoon.schema.transactions import Identity
from halfmoon.services.transactions import rules
from halfmoon.services.transactions.entry import TransactionalId

if TYPE_CHECKING:
    from halfmoon.core.broker import Broker
    from halfmoon.core.catalog.topics import Partition

MAX_PARTITIONS = 32_000
"""Of one transaction: their markers are one frame group."""
AT_ONCE = 100
"""So many are aborted in one go that have taken too long, …"""
IDS_AT_ONCE = 1_000
"""… and so many ids forgotten that nobody has used."""
RETRY_MS = 10_000
"""After so long an end that could not be written is tried again."""


class TransactionService:
    """Of one broker. Positions are those of the log to wait for before anything is answered."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._due: list[tuple[int, int, str]] = []
        """(monotonic ms, its number, transactional id) of transactions, a heap. Entries of those that have ended are
        left for some time."""
        self._numbers: dict[str, int] = {}
        """Transactional id → the number of its ongoing transaction."""
        self._next_number = 0
        self._ending_of_group: dict[str, int] = {}
        """Group → the position of the last end with progress of it, until that is durable."""
        self.committed = 0
        self.aborted = 0
        self.timed_out = 0

    def restore(self) -> None:
        """Take up what the log remembers. Called once, before the first request. Raises BrokerError."""
        broker = self._broker
        mono_ms, wall_ms = broker.clock.mono_ms(), broker.clock.wall_ms()
        for entry in broker.state.transactions.ongoing.values():
            left_ms = min(max(0, entry.due_ms - wall_ms), entry.timeout_ms)
            self._expect(entry, mono_ms + left_ms)
        self._end_what_nobody_would(wall_ms)

    def _end_what_nobody_would(self, now_ms: int) -> None:
        """Transactions that are open in a partition and that no transactional id knows of: rot has taken its
        records."""
        known = {
            (entry.producer_id, place)
            for entry in self._broker.state.transactions.ongoing.values()
            for place in entry.partitions
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
        return self._broker.state.transactions.by_name.get(name)

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
            self._expect(entry, due_ms)
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
        batch = marker.build(
            entry.producer_id, rules.marker_epoch(entry, identity), broker.generation, now_ms, committed=commit
        )
        record = control.TransactionEnded(entry.name, identity, commit, now_ms)
        groups = tuple(entry.groups)
        offsets = [partition.next_offset for partition in written]
        pieces = [self._marker(partition, batch) for partition in written]
        position = broker.append_group(pieces, now_ms, last=record)
        for piece, offset in zip(pieces, offsets, strict=True):
            self._marked(piece, offset, now_ms, committed=commit)
        self._numbers.pop(entry.name, None)
        if commit:
            self.committed += 1
        else:
            self.aborted += 1
        self._ending_of_group |= dict.fromkeys(groups, position)
        broker.when_durable(position, lambda error: None if error else self._counts(written, groups, position))
        return position

    def _counts(self, written: Iterable[Partition], groups: Iterable[str], position: int) -> None:
        """An end is durable."""
        self._broker.hold.look_at(written)
        for group in groups:
            if self._ending_of_group.get(group) == position:
                del self._ending_of_group[group]

    def progress_position(self, group: str) -> int:
        """The position to wait for before anybody is told a group's progress: the end that counts in it could still be
        lost, and what was made of the messages with it."""
        return self._ending_of_group.get(group, 0)

    def _open_at(self, place: tuple[int, int], entry: TransactionalId) -> Partition | None:
        """The partition, where the transaction has written something that is still there."""
        partition = self._broker.catalog.partition(*place)
        if partition is None or partition.transactions is None:
            return None
        return partition if entry.producer_id in partition.transactions.open else None

    def _marker(self, partition: Partition, batch: bytearray) -> Piece:
        view = memoryview(bytearray(batch))
        return Piece(partition, view, parse_header(view), original_span=0)

    def _marked(self, piece: Piece, offset: int, now_ms: int, *, committed: bool) -> None:
        """A marker was appended."""
        partition, header = piece.partition, piece.header
        partition.transaction_ended(
            header.producer_id, header.producer_epoch, offset, partition.queue.end_offset, now_ms, committed=committed
        )

    def _append_marker(
        self, partition: Partition, producer_id: int, epoch: int, now_ms: int, *, committed: bool
    ) -> int:
        batch = marker.build(producer_id, epoch, self._broker.generation, now_ms, committed=committed)
        piece, offset = self._marker(partition, batch), partition.next_offset
        position = self._broker.append_group([piece], now_ms)
        self._marked(piece, offset, now_ms, committed=committed)
        return position

    def abort_in(self, partition: Partition, producer_id: int, epoch: int) -> int:
        """End what a producer has open in one partition, as an operator asks who found it hanging. Raises BrokerError:
        INVALID_PRODUCER_EPOCH where the producer has a newer one by now."""
        state = None if partition.producers is None else partition.producers.by_id.get(producer_id)
        if state is not None and epoch < state.epoch:
            raise BrokerError(
                Fault.INVALID_PRODUCER_EPOCH, f"epoch {epoch} of producer {producer_id}, current is {state.epoch}"
            )
        position = self._append_marker(partition, producer_id, epoch, self._broker.clock.wall_ms(), committed=False)
        self._broker.when_durable(position, lambda error: None if error else self._broker.hold.look_at([partition]))
        return position

    # -- time ----------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """When `expire` has work (monotonic ms); None while nothing is ongoing."""
        due = self._due
        while due and self._current(due[0]) is None:
            heapq.heappop(due)
        return due[0][0] if due else None

    def _expect(self, entry: TransactionalId, due_ms: int) -> None:
        self._next_number += 1
        self._numbers[entry.name] = self._next_number
        heapq.heappush(self._due, (due_ms, self._next_number, entry.name))
        if len(self._due) > 64 and len(self._due) > 4 * self.ongoing:  # most of them ended long before they were due
            self._due = [due for due in self._due if self._current(due) is not None]
            heapq.heapify(self._due)

    def _current(self, due: tuple[int, int, str]) -> TransactionalId | None:
        """The transaction that an entry of the heap stands for, if it is still the one that is ongoing."""
        _, number, name = due
        return self._entry(name) if self._numbers.get(name) == number else None

    def expire(self, mono_ms: int) -> None:
        """Abort what has taken too long, and fence its producer: some of it, if there is much."""
        due = self._due
        ended = 0
        while due and due[0][0] <= mono_ms and ended < AT_ONCE:
            entry = self._current(due[0])
            if entry is None:
                heapq.heappop(due)
                continue
            try:
                self._end(entry, rules.bumped(entry, self._new_producer_id), commit=False)
            except BrokerError as error:
                heapq.heapreplace(due, (mono_ms + RETRY_MS, *due[0][1:]))
                self._broker.logger.error("event=transaction_not_aborted id=%s error=%s", entry.name, error)
                continue
            heapq.heappop(due)
            ended += 1
            self.timed_out += 1
            self._broker.logger.info("event=transaction_timed_out id=%s", entry.name)

    def expire_ids(self, now_ms: int) -> bool:
        """Forget some transactional ids that have not been used for `$.transactions.id_expiration`. Returns whether
        there may be more. Raises BrokerError."""
        kept_ms = self._broker.settings.transactions.id_expiration_ms
        if kept_ms is None:
            return False
        gone = list(islice(self._broker.state.transactions.unused(now_ms - kept_ms), IDS_AT_ONCE))
        if gone:
            self._broker.append_control(control.TransactionalIdsExpired(gone))
        return len(gone) == IDS_AT_ONCE

    def retain(self, now_ms: int) -> Iterator[None]:
        """The part of the retention walk that is transactional ids'. Raises BrokerError."""
        while self.expire_ids(now_ms):
            yield

    # -- operators -----------------------------------------------------------------------------------------------------

    @property
    def ongoing(self) -> int:
        return len(self._broker.state.transactions.ongoing)

    @property
    def oldest_ms(self) -> int:
        """For how long the oldest of them has been open; 0 where none is."""
        now_ms = self._broker.clock.wall_ms()
        return max((now_ms - entry.start_ms for entry in self._broker.state.transactions.ongoing.values()), default=0)
