"""The batches that relays make: of records that were found in other batches, in the order they are found.

Key, value and headers are copied byte for byte; the deltas in front of them are written anew, since offsets are dense.
"""

from __future__ import annotations

from halfmoon.core.catalog.topics import Partition
from halfmoon.core.records.batch_header import OWN_TIMES, TRANSACTIONAL, BatchHeader, assemble, new_batch
from halfmoon.core.records.batches import LONGEST_DELTA_MS
from halfmoon.core.records.compression import compress
from halfmoon.core.records.record_codec import Extent, Record, renumber
from halfmoon.schema.provenance import SourceRun

MERGE_RECORDS = 1_000
"""Most waiting messages that become one batch."""
MERGE_BYTES = 128 << 10
"""A batch is appended once it takes so much, before compression."""


class TimestampsTooFarApartError(Exception):
    """More than 64 bits lie between two timestamps of what is to become one batch."""


class Mark:
    """How far a batch was gathered."""

    __slots__ = ("count", "max_ms", "size")

    def __init__(self, size: int, count: int, max_ms: int) -> None:
        self.size = size
        self.count = count
        self.max_ms = max_ms


class Gathered:
    """The batch that the next matches go into."""

    __slots__ = ("base_ms", "body", "codec", "count", "far_apart", "marks", "max_ms", "whole")

    def __init__(self, codec: int = 0, marks: int = 0) -> None:
        self.codec = codec
        self.marks = marks
        """Other attributes of the batch."""
        self.begin()

    def begin(self) -> None:
        """Anew."""
        self.body = bytearray()
        self.count = 0
        self.base_ms = self.max_ms = 0
        self.far_apart = False
        """Timestamps are counted from 0, because they may lie further apart than 64 bits reach."""
        self.whole: tuple[BatchHeader, memoryview] | None = None
        """A batch of which everything goes in, as it stands: its header and body. Nothing else is gathered then."""

    def add(self, body: bytes, record: Record | Extent, timestamp: int) -> None:
        """A record of `body`, with this timestamp (Unix ms). Raises TimestampsTooFarApartError."""
        if not self.count:
            self.max_ms = timestamp
            self.base_ms = 0 if self.far_apart else timestamp
        elif timestamp > self.max_ms:
            self.max_ms = timestamp
        delta_ms = timestamp - self.base_ms
        if not -LONGEST_DELTA_MS <= delta_ms <= LONGEST_DELTA_MS and not self.far_apart:
            raise TimestampsTooFarApartError
        renumber(self.body, body, record, self.count, delta_ms)
        self.count += 1

    @property
    def is_empty(self) -> bool:
        return not self.count and self.whole is None

    @property
    def takes_long(self) -> bool:
        """Whether making the batch is for a thread."""
        return self.codec != 0 and len(self.body) > 2 * MERGE_BYTES

    def mark(self) -> Mark:
        return Mark(len(self.body), self.count, self.max_ms)

    def back_to(self, mark: Mark) -> None:
        del self.body[mark.size :]
        self.count, self.max_ms = mark.count, mark.max_ms

    def batch(self) -> bytearray:
        """As one record batch, of no producer; it must not be empty."""
        if self.whole is not None:
            header, body = self.whole
            attributes = header.attributes & ~(TRANSACTIONAL | OWN_TIMES)
            return bytearray(
                assemble(
                    header._replace(attributes=attributes, producer_id=-1, producer_epoch=-1, base_sequence=-1), body
                )
            )
        packed = compress(self.codec, self.body) if self.codec else self.body
        return new_batch(packed, self.count, self.base_ms, self.max_ms, self.codec | self.marks)


class Outgoing(Gathered):
    """The batch that waiting messages go into which are dealt with together, and which messages these are."""

    __slots__ = ("_runs", "target")

    def __init__(self, target: Partition, codec: int = 0, marks: int = 0) -> None:
        self.target = target
        super().__init__(codec, marks)

    def begin(self) -> None:
        super().begin()
        # Timestamps of waiting messages are anything, and a few bytes more for each record are nothing here.
        self.far_apart = True
        self._runs: list[list[int]] = []

    def take(self, source: Partition, offset: int, body: bytes, record: Record | Extent) -> None:
        """The waiting message at `offset` of `source`, which is this record of `body`."""
        self.add(body, record, record.timestamp)
        self._name(source, offset, 1)

    def take_whole(self, source: Partition, offset: int, header: BatchHeader, body: memoryview) -> None:
        """All messages of a batch, which begins at `offset` of `source` and has this header and this body, compressed
        or not. Nothing else is gathered."""
        self.whole = header, body
        self._name(source, offset, header.record_count)

    def _name(self, source: Partition, offset: int, count: int) -> None:
        last = self._runs[-1] if self._runs else None
        if last is not None and last[2] + last[3] == offset and last[:2] == [source.topic.number, source.index]:
            last[3] += count
        else:
            self._runs.append([source.topic.number, source.index, offset, count])

    @property
    def is_full(self) -> bool:
        return self.count >= MERGE_RECORDS or len(self.body) >= MERGE_BYTES

    def sources(self) -> list[SourceRun]:
        return [SourceRun(*run) for run in self._runs]
