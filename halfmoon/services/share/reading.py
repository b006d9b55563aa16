"""Reading for share partitions: whole batches as they are in the log, and which of their records may be given out.

Batches stay unchanged: a fetch is answered with slices of the mapped log, and with the list of the offsets that the
member has acquired in them. So nothing is decoded here but the header of a transactional batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from halfmoon.core.catalog.topics import Partition
from halfmoon.core.partition_reader import PartitionReader
from halfmoon.core.records.batch_header import CONTROL, TRANSACTIONAL, parse_header
from halfmoon.core.transactions.aborted import NONE_ABORTED, AbortedBatches
from halfmoon.services.common.lifetimes import Looked
from halfmoon.services.share.share_partition import Acquired, Extent

_ATTRIBUTES_AT = 22
"""In a batch: the lower byte of its attributes (batch_header.HEADER)."""

Buffer = memoryview | bytes


class Found:
    """What was read: whole batches, the offset from which on they were looked for, and which of them were aborted. And
    what of it is given out."""

    __slots__ = ("aborted", "acquired", "batches", "ends", "first", "slices")

    def __init__(
        self, first: int, batches: list[Extent], aborted: AbortedBatches, slices: Sequence[Buffer] = ()
    ) -> None:
        self.first = first
        self.batches = batches
        self.aborted = aborted
        self.slices = slices
        self.acquired: list[Acquired] = []
        self.ends: Sequence[Looked] = ()
        """When the records of each batch expire, where that was looked at."""

    @property
    def size(self) -> int:
        return sum(map(len, self.slices))

    @property
    def records(self) -> int:
        """How many records are given out."""
        return sum(piece.end - piece.first for piece in self.acquired)

    def for_nobody(self) -> Iterator[Extent]:
        """Offsets that nobody is to get: between batches, control batches, aborted ones."""
        at = self.first
        for piece, batch in zip(self.slices, self.batches, strict=True):
            if batch.first > at:
                yield Extent(at, batch.first)
            at = max(at, batch.end)
            if piece[_ATTRIBUTES_AT] & (CONTROL | TRANSACTIONAL) and self.aborted.hide(parse_header(piece)):
                yield batch

    def expired(self, now_ms: int) -> Iterator[tuple[str, Extent]]:
        """Offsets of records that have expired, ascending, and the topic that says what becomes of them. Records side
        by side are one extent."""
        topic, first, end = "", -1, -1
        for batch, looked in zip(self.batches, self.ends, strict=False):
            for each in looked.ends if looked.first_ms <= now_ms else ():
                offset = batch.first + each.offset_delta
                if each.expires_ms > now_ms or offset >= batch.end:
                    continue
                if offset != end or each.topic != topic:
                    if end > first:
                        yield topic, Extent(first, end)
                    topic, first = each.topic, offset
                end = offset + 1
        if end > first:
            yield topic, Extent(first, end)

    def cut(self) -> Found:
        """Leave only batches that hold something that was acquired."""
        slices, batches, at = [], [], 0
        acquired = self.acquired
        for piece, batch in zip(self.slices, self.batches, strict=True):
            while at < len(acquired) and acquired[at].end <= batch.first:
                at += 1
            if at == len(acquired):
                break
            if acquired[at].first < batch.end:
                slices.append(piece)
                batches.append(batch)
        self.slices, self.batches = slices, batches
        return self


class Loading(NamedTuple):
    """`load` is to be run in a thread; it returns the slices of `found`, which are `size` bytes."""

    load: Callable[[], Sequence[Buffer]]
    found: Found
    size: int

    @property
    def records(self) -> int:
        """How many records that may be, at most."""
        return sum(batch.end - batch.first for batch in self.found.batches)


class Lost(Extent):
    """Offsets that disk corruption has lost."""

    __slots__ = ()


class Reading:
    def __init__(self, reader: PartitionReader) -> None:
        self._reader = reader

    def read(
        self,
        partition: Partition,
        first: int,
        end: int,
        limit: int,
        max_bytes: int,
        *,
        committed: bool,
        load_bytes: int | None = None,
    ) -> Found | Loading | Extent:
        """The batches that have offsets in [first, end), as many as `max_bytes` hold and one at least. Where there are
        none: the stretch of offsets up to the next batch, or up to `limit`, that nothing stands in. `load_bytes`: as of
        `PartitionReader.read`.

        Which of them were aborted is looked up in the same moment: once they are read from the disk, it may be
        forgotten, as their records are deleted or compacted away meanwhile."""
        queue = partition.queue
        if queue.damaged:
            lost = next((high for low, high in queue.damaged if low <= first < high), None)
            if lost is not None:
                return Lost(first, min(lost, limit))
        rows = queue.rows_upto(first, end, max_bytes)
        if not rows:
            return Extent(first, self._next_batch(partition, first, limit))
        if load_bytes is not None:
            load_bytes = max(load_bytes, rows[0][3])
        read = self._reader.read_at([(position, length) for _, _, position, length in rows], load_bytes)
        batches, size = [], 0
        for base, span, _, length in rows:
            if size == read.size:
                break
            batches.append(Extent(base, base + span))
            size += length
        aborted = NONE_ABORTED
        if committed and partition.transactions is not None:
            aborted = AbortedBatches(partition.transactions.aborted_in(first, batches[-1].end))
        found = Found(first, batches, aborted)
        if read.cold is not None:
            return Loading(read.cold, found, read.size)
        found.slices = read.slices
        return found

    def _next_batch(self, partition: Partition, first: int, limit: int) -> int:
        """Where the next batch begins, or what is lost to disk corruption; `limit` if nothing does before."""
        queue = partition.queue
        following = [base for base, _, _, _ in queue.rows_upto(first, limit, 0)]
        return min([*following, *(low for low, _ in queue.damaged if low > first), limit])
