"""What readers get of a partition: whole batches from an offset on, and where times and aborted transactions are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from halfmoon.core.catalog.topics import Partition
from halfmoon.core.records.batches import newest_record, offset_for_time, parse_header
from halfmoon.core.storage import frame
from halfmoon.core.storage.storage import Place, Read, ReadSide
from halfmoon.core.transactions.aborted import Aborted
from halfmoon.errors import BrokerError, Fault

Search = Callable[[], tuple[int, int] | None]
"""For a thread: (offset, timestamp) of a record, None where there is none."""


class PartitionReader:
    """Reads by offset; what is not here yet is left to a thread (storage.Read)."""

    def __init__(self, reader: ReadSide) -> None:
        self._read = reader.read
        self._load = reader.load
        self.frames = reader.frames
        self.bring = reader.bring
        self.load_at = reader.load
        self.read_at = reader.read
        """What stands at places of the log."""
        self._one_search = threading.Lock()
        """A batch may be a decompression bomb. It costs its limit's memory once, and not once per thread."""

    def read(
        self,
        partition: Partition,
        offset: int,
        max_bytes: int,
        *,
        min_one: bool,
        committed: bool = False,
        load_bytes: int | None = None,
    ) -> Read:
        """Whole batches from the one that holds `offset` on, about `max_bytes` of them; of what `loads` no more than
        `load_bytes`, and no more batches than MOST_PLACES.

        With `min_one` the first comes whatever its size. Nothing at the high watermark; with `committed`, nothing at
        the last stable offset. Batches that count more records than any has are left out.
        Raises BrokerError(OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE).
        """
        places = self.places(partition, offset, max_bytes, min_one=min_one, committed=committed)
        if load_bytes is not None and min_one and places:
            load_bytes = max(load_bytes, places[0][1])
        return self._read(places, load_bytes)

    def places(
        self, partition: Partition, offset: int, max_bytes: int, *, min_one: bool, committed: bool = False
    ) -> list[Place]:
        """Where what `read` would give stands in the log; raises as that does."""
        if not partition.start_offset <= offset <= partition.high_watermark:
            # Between the two ends a client may be that was here before a restart with unflushed records.
            if not partition.start_offset <= offset <= partition.next_offset:
                raise BrokerError(Fault.OFFSET_OUT_OF_RANGE)
            return []
        queue = partition.queue
        if queue.damaged and queue.damage_at(offset):
            raise BrokerError(Fault.CORRUPT_MESSAGE, f"offset {offset} of {partition!r} was lost to disk corruption")
        before = partition.stable_offset if committed and partition.transactions is not None else None
        return queue.places(offset, max_bytes, min_one=min_one, before=before, readable=True)

    def read_framed(self, partition: Partition, offset: int, max_bytes: int) -> tuple[list[Place], Read]:
        """As `read`, the first batch always, with the `frame.BEFORE_BYTES` bytes before each batch in front of it;
        and where each batch stands in the log."""
        if not partition.start_offset <= offset < partition.stable_offset:
            raise BrokerError(Fault.OFFSET_OUT_OF_RANGE)
        queue = partition.queue
        if queue.damaged and queue.damage_at(offset):
            raise BrokerError(Fault.CORRUPT_MESSAGE, f"offset {offset} of {partition!r} was lost to disk corruption")
        stable = partition.stable_offset if partition.transactions is not None else None
        places = queue.places(offset, max_bytes, min_one=True, before=stable)
        before = frame.BEFORE_BYTES
        return places, self._read([(position - before, length + before) for position, length in places])

    def bytes_available(self, partition: Partition, offset: int, enough: int, *, committed: bool = False) -> int:
        """Bytes a reader at `offset` could get; counts no further than `enough`. `committed`: as of `read`."""
        queue = partition.queue
        if not committed or partition.transactions is None:
            return queue.bytes_from(offset, enough) if offset < queue.end_offset else 0
        stable = partition.stable_offset
        return queue.bytes_from(offset, enough, before=stable) if offset < stable else 0

    def aborted_in(self, partition: Partition, offset: int, size: int) -> Sequence[Aborted]:
        """The aborted transactions of which the `size` bytes of batches from `offset` on may hold batches."""
        transactions = partition.transactions
        if transactions is None or not transactions.aborted or not size:
            return ()
        return tuple(transactions.aborted_in(offset, partition.queue.offset_after(offset, size)))

    def batch_for_time(self, partition: Partition, timestamp_ms: int) -> Search | None:
        """For the first record of `timestamp_ms` or later: None if there is none, else a function for a thread.

        That raises OSError. Of a batch whose records cannot be read it takes the first offset, and the header's time.
        """
        start_offset = partition.start_offset
        loads = [self._load([place]) for place in partition.queue.places_for_time(timestamp_ms, start_offset)]
        if not loads:
            return None

        def search() -> tuple[int, int] | None:
            with self._one_search:
                for load in loads:
                    batch = load()[0]
                    try:
                        found = offset_for_time(batch, timestamp_ms, min_offset=start_offset)
                    except BrokerError:
                        header = parse_header(batch)
                        found = max(header.base_offset, start_offset), header.max_timestamp
                    if found is not None:
                        return found
            return None

        return search

    def max_timestamp(self, partition: Partition) -> Search | None:
        """For the record with the largest timestamp (KIP-734): as `batch_for_time`."""
        start_offset = partition.start_offset
        newest = partition.queue.max_ms(start_offset)
        whole = None if newest is None else self.batch_for_time(partition, newest)
        cut = partition.queue.cut_batch(start_offset)
        if cut is None or (newest is not None and cut[1] < newest):
            return whole
        # DeleteRecords has cut into a batch: what is left of it may have the largest, and the index does not know.
        load = self._load([cut[0]])

        def compare() -> tuple[int, int] | None:
            with self._one_search:
                left = newest_record(load()[0], min_offset=start_offset)
            return left if whole is None or (left is not None and newest is not None and left[1] >= newest) else whole()

        return compare
