"""Appending: what a produced or relayed batch must pass, and the place it gets (B01, B41).

One thread calls everything here. Nothing waits: what has to be waited for is a log position (core/turn.py).

A produced batch takes the path of `append`; three slots are asked on it, each an object or None, resolved at start:
who guards producers' transactions, who looks into batches that carry a feature's header, and who notes keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from halfmoon.core.append_types import NOTHING, Piece, Produced
from halfmoon.core.checking import Checked, Checks, Look
from halfmoon.core.dispatch import Appended
from halfmoon.core.in_order import InOrder
from halfmoon.core.producer_state import Producers
from halfmoon.core.records import walk
from halfmoon.core.records.batch_header import CODEC_MASK, refuse_timestamps
from halfmoon.core.records.batches import (
    HEADER_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    check_batch,
    is_plain,
    parse_header,
    set_log_append_time,
    stamp,
)
from halfmoon.core.storage import frame
from halfmoon.core.storage.frame import Frame, Kind
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema import control, provenance
from halfmoon.schema.provenance import GivenUp, Origin, Provenance, SourceRange, SourceRun, names_messages

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from halfmoon.core.append_types import Interceptor, KeyNotes, Sender, TransactionalProducer, TransactionGuard
    from halfmoon.core.catalog.catalog import Catalog
    from halfmoon.core.catalog.topics import Partition
    from halfmoon.core.clock import Clock
    from halfmoon.core.storage.storage import WriteSide
    from halfmoon.core.turn import Turn

PRODUCER_ID_BLOCK: Final = 1_000
"""Ids reserved at once; after a crash the rest of a block is skipped, so no id is given out twice."""
SMALL_BYTES: Final = 4 << 10
"""Batches of this size are looked into for keys when they are appended."""


class Appender:
    """The one way into the log."""

    def __init__(self, log: WriteSide, catalog: Catalog, turn: Turn, clock: Clock, *, validate_records: bool) -> None:
        self._log = log
        self._catalog = catalog
        self._traffic = catalog.traffic
        self._turn = turn
        self._clock = clock
        self._checks = Checks(self._look, every_record=validate_records, compiled=walk.walk_compiled)
        self._producer_ids = range(0)
        self._reserved_at = 0
        self._in_order: InOrder | None = None
        self.leaves = False
        """The shard goes to another process. Its state is being kept, in a thread: what a client sent would be in that,
        and not in the log, so that the next process would take its repetition for known."""
        self.transaction_guard: TransactionGuard | None = None
        self.interceptor: Interceptor | None = None
        self.indexed: KeyNotes | None = None
        self.finds_keys: Callable[[Buffer], bool] = lambda body: False
        """Whether a record in these bytes (decompressed) may have one of the headers by which records are found."""
        self.began_waiting: Callable[[Partition], None] = lambda partition: None
        """Called when relayed messages begin to wait in a partition."""

    # -- produced batches ----------------------------------------------------------------------------------------------

    def was_elsewhere(self) -> None:
        """The shard was opened while clients had requests for it on their way (core/in_order.py)."""
        self._in_order = InOrder(self._clock)

    def _refuse_ahead(self, in_order: InOrder, partition: Partition, producers: Producers, header: BatchHeader) -> None:
        if in_order.is_over():
            self._in_order = None
        elif in_order.refuses(partition, producers, header):
            raise BrokerError(
                Fault.NOT_LEADER_OR_FOLLOWER,
                f"producer {header.producer_id} sent sequence {header.base_sequence}, and may send earlier ones again",
            )

    def append(
        self,
        partition: Partition,
        batch: memoryview,
        now_ms: int,
        producer: TransactionalProducer | None = None,
        may_wait: bool = False,
        checked: Checked | None = None,
        prepared: object = None,
        sender: Sender | None = None,
    ) -> Produced:
        """Append one produced record batch, in place of nothing but its offset and leader epoch.

        `batch` is writable and is kept until `write` has run. `producer`: who may send transactional ones. `may_wait`:
        where it takes long to check the batch, TakesLongError says so; the caller then comes back with `checked`,
        and keeps the order of what it has. Where interceptors take long, TakesLongError says so in any case, and what
        its steps return is `prepared`. Where another shard knows of the transaction, AsksFirstError says so in any
        case. `sender`: what the client may do; None: everything. That it may write to the topic is asked before. Raises
        BrokerError; nothing is stored then.
        """
        topic = partition.topic
        rules = topic.rules
        # Whoever asks should know; here it would be acknowledged, and nobody would read it.
        if partition.is_remote() or self.leaves:
            raise BrokerError(Fault.NOT_LEADER_OR_FOLLOWER)
        if topic.view is not None:
            raise BrokerError(Fault.POLICY_VIOLATION, f"topic '{topic.name}' is a view: produce to its source")
        if checked is None:
            header = check_batch(batch, rules.max_message_bytes)
            if rules.limits_timestamps and not rules.log_append_time:
                refuse_timestamps(header, now_ms, rules.timestamp_before_max_ms, rules.timestamp_after_max_ms)
            keyed, concerned = self._checks.check(partition, batch, header, may_wait=may_wait)
        else:
            header, (keyed, concerned) = checked
        producer_id = header.producer_id
        transactional = header.attributes & TRANSACTIONAL
        span = header.record_count
        producers = partition.producers if producer_id >= 0 else None
        if producer_id >= 0:
            if producers is None:
                producers = partition.producers = Producers()
                partition.saved = None
            if self._in_order is not None:
                self._refuse_ahead(self._in_order, partition, producers, header)
            if transactional or partition.transactions is not None:
                self._check_transaction(producer, partition, header)
            repeated = producers.check(producer_id, header.producer_epoch, header.base_sequence, span)
            if repeated is not None:
                return Produced(repeated.base_offset, -1, repeated.end_position, partition.start_offset)
        append_ms, max_ms = -1, header.max_timestamp
        if rules.log_append_time:
            set_log_append_time(batch, now_ms)
            append_ms = max_ms = now_ms
        redirected = None
        try:
            if self.interceptor is not None and (concerned or prepared is not None):
                base_offset, end, redirected = self.interceptor.append(
                    partition, batch, header, now_ms, keyed=keyed, prepared=prepared, sender=sender
                )
            else:
                base_offset = partition.next_offset
                end = self._store(partition, batch, span, span, max_ms, now_ms, keyed=keyed)
        except BrokerError as error:
            if producers is not None and error.fault is Fault.KAFKA_STORAGE_ERROR:
                partition.saved = None
                producers.refused(producer_id, header.producer_epoch, header.base_sequence, now_ms)
            raise
        if producers is not None:
            partition.saved = None
            producers.appended(producer_id, header.producer_epoch, header.base_sequence, span, base_offset, end, now_ms)
        if transactional:
            partition.transaction_began(producer_id, base_offset)
        return Produced(base_offset, append_ms, end, partition.start_offset, redirected)

    def _look(self, partition: Partition, body: Buffer | None) -> Look:
        """What the bytes of a batch (decompressed, if headers act in the topic) may have to do with features; None: its
        records have no headers. Runs in any thread."""
        rules = partition.topic.rules
        if not rules.headers_enabled:
            return rules.key_index, False
        return (
            rules.key_index or (body is not None and self.finds_keys(body)),
            self.interceptor is not None and self.interceptor.concerns(partition, body),
        )

    def _check_transaction(
        self, producer: TransactionalProducer | None, partition: Partition, header: BatchHeader
    ) -> None:
        """Raises BrokerError where a batch does not go with what its producer has open in the partition."""
        if header.attributes & TRANSACTIONAL:
            if producer is None or self.transaction_guard is None:
                raise BrokerError(Fault.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            self.transaction_guard.before_append(producer, partition, header)
        elif partition.transactions is not None and header.producer_id in partition.transactions.open:
            raise BrokerError(
                Fault.INVALID_TXN_STATE, f"producer {header.producer_id} has a transaction open in {partition!r}"
            )

    # -- what the broker itself appends --------------------------------------------------------------------------------

    def append_relayed(
        self,
        partition: Partition,
        batch: bytearray,
        *,
        range: SourceRange | None = None,
        sources: Sequence[SourceRun] = (),
        origin: Origin | None = None,
        due_ms: int = 0,
        attempts: Sequence[SourceRun] = (),
        given_up: GivenUp | None = None,
    ) -> int:
        """Append a batch that the broker made from other messages, with the proof of which: a range of a view's source,
        or waiting messages, which are completed by it. `attempts`: waiting messages that are rescheduled with it. With
        `origin` its messages wait themselves, to be delivered there at `due_ms` (Unix ms). `given_up`: records of which
        these are the dead letters. Returns the log position to wait for. Raises BrokerError.
        """
        self._check_open()
        now_ms = self._clock.wall_ms()
        view = memoryview(batch)
        if partition.topic.rules.log_append_time:
            set_log_append_time(view, now_ms)
        header = parse_header(view)
        span = header.last_offset_delta + 1
        base_offset = partition.next_offset
        proof = Provenance(range, tuple(sources), None, origin, tuple(attempts), given_up)
        end = self._store(
            partition, view, header.record_count, span, due_ms or header.max_timestamp, now_ms, due_ms=due_ms,
            provenance=provenance.encode(proof), proof=proof,
            keyed=not sources and given_up is None  # else it is indexed anyway
            and (bool(header.attributes & CODEC_MASK) or partition.topic.rules.key_index or self.finds_keys(view)),
        )  # fmt: skip
        self._catalog.prove(proof)
        if origin is not None:
            partition.wait(base_offset, span)
            self.began_waiting(partition)
        return end

    def append_group(
        self,
        pieces: Sequence[Piece],
        now_ms: int,
        *,
        before: Sequence[control.Any] = (),
        last: control.Any | None = None,
        keyed: bool = False,
        small: bool = False,
    ) -> int:
        """Append batches, and the record `last` behind them, as one frame group: a crash leaves all of it or nothing.

        `before`: records that stand before the group in the same segment. `keyed`: one of the records may have a key.
        `small`: markers, which are taken while the disk is nearly full.
        Returns the log position to wait for. Raises BrokerError; nothing has changed then.
        """
        self._check_open()
        proofs = [provenance.encode(piece.proof) for piece in pieces]
        parts = len(pieces) + (last is not None)
        if parts > 1:
            size = sum(len(proof) + len(piece.batch) for proof, piece in zip(proofs, pieces, strict=True))
            size += sum(len(control.encode(record)) for record in (*before, *(() if last is None else (last,))))
            self._log.reserve(size + (parts + len(before)) * frame.HEADER_BYTES, now_ms, small=small)
        for record in before:
            self.append_control(record)
        end = self._log.end
        for part, (piece, proof) in enumerate(zip(pieces, proofs, strict=True)):
            partition, header, first = piece.partition, piece.header, piece.partition.next_offset
            end = self._store(
                partition, piece.batch, header.record_count, piece.span, piece.due_ms or header.max_timestamp, now_ms,
                original_span=piece.original_span, due_ms=piece.due_ms, part=part, parts=parts, provenance=proof,
                proof=piece.proof, keyed=keyed, small=small,
            )  # fmt: skip
            if piece.due_ms:
                partition.wait(first, piece.span)
            if proof:
                self._catalog.prove(piece.proof)
        return end if last is None else self.append_control(last, part=parts - 1, parts=parts)

    def append_control(self, record: control.Any, *, part: int = 0, parts: int = 1) -> int:
        """Write down a change and make it; returns the log position to wait for. `part` of `parts`: of the frame group
        that it belongs to. Raises BrokerError, with no change made."""
        self._check_open()
        payload = control.encode(record)
        indexed = self.indexed if isinstance(record, control.Settled) else None
        position = self._log.append(
            Kind.CONTROL, -1, -1, 0, 0, 0, 0, self._clock.wall_ms(), payload, payload_crc=frame.control_crc(payload),
            flags=frame.INDEXED if isinstance(record, control.Settled) else 0, part=part, parts=parts,
        )  # fmt: skip
        if indexed is not None:
            indexed.note(position - frame.HEADER_BYTES, frame.HEADER_BYTES + len(payload))
        self._catalog.apply(record)
        self._turn.changed(self._log.end)
        return self._log.end

    def _check_open(self) -> None:
        """Raises BrokerError where the log is closed, or in another thread's hands."""
        if self._turn.is_shut:
            raise BrokerError(Fault.NOT_LEADER_OR_FOLLOWER, "the shard is not here any more")

    def allocate_producer_id(self) -> tuple[int, int]:
        """A producer id that nobody had before, and the log position to wait for. Raises BrokerError."""
        if not self._producer_ids:
            first = self._catalog.next_producer_id
            self._reserved_at = self.append_control(control.ProducerIdsReserved(first + PRODUCER_ID_BLOCK))
            self._producer_ids = range(first, first + PRODUCER_ID_BLOCK)
        producer_id = self._producer_ids[0]
        self._producer_ids = self._producer_ids[1:]
        return producer_id, self._reserved_at

    def skip_producer_ids(self, count: int) -> None:
        """Nobody is given the next so many. Raises BrokerError."""
        next_id = self._catalog.next_producer_id + count
        self._reserved_at = self.append_control(control.ProducerIdsReserved(next_id))
        self._producer_ids = range(0)

    # -- its place -----------------------------------------------------------------------------------------------------

    def _store(
        self,
        partition: Partition,
        batch: memoryview,
        record_count: int,
        span: int,
        max_ms: int,
        now_ms: int,
        *,
        original_span: int = -1,
        due_ms: int = 0,
        provenance: bytes = b"",
        proof: Provenance = NOTHING,
        part: int = 0,
        parts: int = 1,
        keyed: bool = False,
        small: bool = False,
    ) -> int:
        """Give a checked batch its place; returns the log position behind it.

        `original_span` −1: the span. `provenance`: `proof` as bytes. `keyed`: one of its records may have a key
        (`finds_keys`).
        """
        base_offset = partition.next_offset
        log = self._log
        generation = log.generation
        stamp(batch, base_offset, generation)
        indexed = keyed or names_messages(provenance)
        position = log.append(
            Kind.BATCH, partition.topic.number, partition.index, record_count, base_offset, span,
            span if original_span < 0 else original_span, now_ms, batch,
            flags=frame.INDEXED if indexed else 0, due_ms=due_ms, part=part, parts=parts, provenance=provenance,
            small=small,
        )  # fmt: skip
        if indexed and self.indexed is not None:
            self._note_keys(
                self.indexed, partition, batch, position, proof, len(provenance), base_offset, span, now_ms, due_ms,
                part, parts,
            )  # fmt: skip
        partition.next_offset = base_offset + span
        partition.saved = None
        topic = partition.topic
        traffic = topic.traffic or self._traffic.of(topic)
        traffic.in_bytes += len(batch)
        traffic.in_records += record_count
        epochs = partition.epochs
        if not epochs or epochs[-1][0] != generation:
            partition.began_epoch(generation, base_offset)
        turn = self._turn
        turn.unseen.append(Appended(partition, base_offset, span, position, len(batch), max_ms, now_ms))
        if not turn.dirty:
            turn.dirty = True
            turn.on_dirty()
        return log.end

    def _note_keys(
        self,
        notes: KeyNotes,
        partition: Partition,
        batch: memoryview,
        position: int,
        proof: Provenance,
        proof_bytes: int,
        base_offset: int,
        span: int,
        now_ms: int,
        due_ms: int,
        part: int,
        parts: int,
    ) -> None:
        """Tell the key index of a batch, whose payload stands at `position`."""
        topic = partition.topic
        before = frame.HEADER_BYTES + proof_bytes
        length = before + len(batch)
        if len(batch) > SMALL_BYTES or topic.rules.key_index or not is_plain(batch):
            notes.note(position - before, length)
            return
        seen = Frame(
            Kind.BATCH, frame.INDEXED, length, proof_bytes, position - before, 0, self._log.generation, topic.number,
            partition.index, 0, base_offset, span, span, now_ms, due_ms, part, parts, 0,
        )  # fmt: skip
        notes.note_small(seen, proof, bytes(batch[HEADER_BYTES:]))
