"""What readers get of a partition: whole batches from an offset on, and where times and aborted transactions are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from halfmoon.core.catalog.topics import Partition
from halfmoon.core.storage import frame
from halfmoon.core.storage.reading import Place, Read, Reader
from halfmoon.core.transactions.aborted import Aborted
from halfmoon.errors import BrokerError, Fault

Search = Callable[[], tuple[int, int] | None]
"""For a thread: (offset, timestamp) of a record, None where there is none."""


class PartitionReader:
    """Reads by offset; what has to wait for the disk is left to a thread (reading.Read)."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def read(
        self, partition: Partition, offset: int, max_bytes: int, *, min_one: bool, committed: bool = False
    ) -> Read:
        """Whole batches from the one that holds `offset` on, about `max_bytes` of them.

        With `min_one` the first comes whatever its size. Nothing at the high watermark; with `committed`, nothing at
        the last stable offset.
        Raises BrokerError(OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE).
        """
        if not partition.start_offset <= offset <= partition.high_watermark:
            # Between the two ends a client may be that was here before a restart with unflushed records.
            if not partition.start_offset <= offset <= partition.next_offset:
                raise BrokerError(Fault.OFFSET_OUT_OF_RANGE)
            return Read((), 0, None)
        queue = partition.queue
        if queue.damaged and queue.damage_at(offset):
            raise BrokerError(Fault.CORRUPT_MESSAGE, f"offset {offset} of {partition!r} was lost to disk corruption")
        before = partition.stable_offset if committed and partition.transactions is not None else None
        return self._reader.read(queue.places(offset, max_bytes, min_one=min_one, before=before))

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
        return places, self._reader.read([(position - before, length + before) for position, length in places])

    def read_at(self, places: Sequence[Place]) -> Read:
        """What stands at these places of the log."""
        return self._reader.read(places)

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
        """For the first record of `timestamp_ms` or later: None if there is none, else a function for a thread."""
        places = partition.queue.places_for_time(timestamp_ms, partition.start_offset)
        return self._reader.search_time(places, timestamp_ms, partition.start_offset) if places else None

    def max_timestamp(self, partition: Partition) -> Search | None:
        """For the record with the largest timestamp (KIP-734): as `batch_for_time`."""
        start_offset = partition.start_offset
        newest = partition.queue.max_ms(start_offset)
        whole = None if newest is None else self.batch_for_time(partition, newest)
        cut = partition.queue.cut_batch(start_offset)
        if cut is None or (newest is not None and cut[1] < newest):
            return whole
        # DeleteRecords has cut into a batch: what is left of it may have the largest, and the index does not know.
        search = self._reader.search_newest(cut[0], start_offset)

        def compare() -> tuple[int, int] | None:
            left = search()
            return left if whole is None or (left is not None and newest is not None and left[1] >= newest) else whole()

        return compare
