"""How transactions end in the log: markers, and the record that the transaction has ended.

    [marker, …, TransactionEnded]   one frame group, one flush

With the record the offsets count that the transaction commits. So after a crash all of it is there or nothing.

A large transaction ends in slices (`prepared`), and its markers are frames of their own; so are those of transactions
that other shards coordinate (`remote`).

Knows no requests and no time-outs: it is told which identity the producer has afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from halfmoon.core.append import Appender
from halfmoon.core.append_types import Piece
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.clock import Clock
from halfmoon.core.hold import HoldService
from halfmoon.core.records.batch_header import parse_header
from halfmoon.core.storage.storage import WriteSide
from halfmoon.core.transactions import marker
from halfmoon.core.turn import Turn
from halfmoon.errors import BrokerError
from halfmoon.schema import control
from halfmoon.schema.shards import OWN_PRODUCERS_BITS
from halfmoon.schema.transactions import Identity
from halfmoon.services.transactions import rules
from halfmoon.services.transactions.entry import TransactionalId


class TransactionEndings:
    """Of one broker. Positions are those of the log to wait for."""

    def __init__(
        self, log: WriteSide, catalog: Catalog, appender: Appender, turn: Turn, hold: HoldService, clock: Clock
    ) -> None:
        self._log = log
        self._catalog = catalog
        self._appender = appender
        self._turn = turn
        self._hold = hold
        self._clock = clock

    def end(self, entry: TransactionalId, identity: Identity, *, commit: bool) -> int:
        """End a transaction; `identity` is its producer's from then on. Raises BrokerError(KAFKA_STORAGE_ERROR);
        nothing has changed then."""
        now_ms = self._clock.wall_ms()
        written = self._written(entry.producer_id, entry.partitions)
        batch = marker.build(
            entry.producer_id, rules.marker_epoch(entry, identity), self._log.generation, now_ms, committed=commit
        )
        record = control.TransactionEnded(entry.name, identity, commit, now_ms)
        offsets = [partition.next_offset for partition in written]
        pieces = [_marker(partition, batch) for partition in written]
        position = self._appender.append_group(pieces, now_ms, last=record, small=True)
        for piece, offset in zip(pieces, offsets, strict=True):
            _marked(piece, offset, now_ms, committed=commit)
        self._turn.when_durable(position, lambda error: None if error else self._hold.look_at(written))
        return position

    def mark(self, entry: TransactionalId, places: Iterable[tuple[int, int]], *, commit: bool) -> None:
        """Write the markers of a prepared transaction in these of its partitions; each for itself, so that what a crash
        leaves of them counts. Raises BrokerError."""
        assert entry.after is not None
        self.mark_in(
            self._written(entry.producer_id, places), entry.producer_id, rules.marker_epoch(entry, entry.after),
            self._log.generation, committed=commit,
        )  # fmt: skip

    def mark_in(
        self, written: list[Partition], producer_id: int, epoch: int, coordinator_epoch: int, *, committed: bool
    ) -> None:
        """Write a producer's markers in these partitions, each for itself. Raises BrokerError."""
        if not written:
            return
        now_ms = self._clock.wall_ms()
        batch = marker.build(producer_id, epoch, coordinator_epoch, now_ms, committed=committed)
        for partition in written:
            position = self._append_marker(partition, batch, now_ms, committed=committed)
        self._turn.when_durable(position, lambda error: None if error else self._hold.look_at(written))

    def _append_marker(self, partition: Partition, batch: bytearray, now_ms: int, *, committed: bool) -> int:
        piece, offset = _marker(partition, batch), partition.next_offset
        position = self._appender.append_group([piece], now_ms, small=True)
        _marked(piece, offset, now_ms, committed=committed)
        return position

    def _written(self, producer_id: int, places: Iterable[tuple[int, int]]) -> list[Partition]:
        return [partition for place in places if (partition := self.open_at(place, producer_id)) is not None]

    def open_at(self, place: tuple[int, int], producer_id: int) -> Partition | None:
        """The partition, where the producer's transaction has written something that is still there."""
        partition = self._catalog.partition(*place)
        if partition is None or partition.transactions is None:
            return None
        return partition if producer_id in partition.transactions.open else None

    @property
    def generation(self) -> int:
        """Of the log."""
        return self._log.generation

    @property
    def position(self) -> int:
        """The end of the log."""
        return self._log.end

    def when_durable(self, position: int, callback: Callable[[BrokerError | None], None]) -> None:
        """As of core's Turn."""
        self._turn.when_durable(position, callback)

    # -- in one partition ----------------------------------------------------------------------------------------------

    def abort_in(self, partition: Partition, producer_id: int, epoch: int) -> int:
        """Abort what a producer has open in one partition. Raises BrokerError."""
        position = self._append_abort(partition, producer_id, epoch, self._clock.wall_ms())
        self._turn.when_durable(position, lambda error: None if error else self._hold.look_at([partition]))
        return position

    def _append_abort(self, partition: Partition, producer_id: int, epoch: int, now_ms: int) -> int:
        batch = marker.build(producer_id, epoch, self._log.generation, now_ms, committed=False)
        return self._append_marker(partition, batch, now_ms, committed=False)

    def abort_unowned(self, owners: Iterable[TransactionalId]) -> list[tuple[Partition, int]]:
        """Abort transactions that are open in a partition and that no transactional id knows of: corruption has taken
        its records. What a producer of another shard has open is left for that one to end. Returns partition and
        producer id of each. Raises BrokerError."""
        now_ms = self._clock.wall_ms()
        known = {(entry.producer_id, place) for entry in owners for place in entry.partitions}
        shard = self._catalog.shard
        aborted = []
        for partition, producer_id, epoch in self.all_open():
            is_own = shard is None or producer_id >> OWN_PRODUCERS_BITS == shard.number
            if is_own and (producer_id, (partition.topic.number, partition.index)) not in known:
                self._append_abort(partition, producer_id, epoch, now_ms)
                aborted.append((partition, producer_id))
        return aborted

    def all_open(self) -> Iterator[tuple[Partition, int, int]]:
        """(partition, producer id, its epoch there) of all that is open here."""
        for partition in self._catalog.partitions():
            for producer_id in () if partition.transactions is None else tuple(partition.transactions.open):
                known = None if partition.producers is None else partition.producers.by_id.get(producer_id)
                yield partition, producer_id, 0 if known is None else known.epoch


def _marker(partition: Partition, batch: bytearray) -> Piece:
    view = memoryview(bytearray(batch))
    return Piece(partition, view, parse_header(view), original_span=0)


def _marked(piece: Piece, offset: int, now_ms: int, *, committed: bool) -> None:
    """A marker was appended."""
    partition, header = piece.partition, piece.header
    partition.transaction_ended(
        header.producer_id, header.producer_epoch, offset, partition.queue.end_offset, now_ms, committed=committed
    )
