"""What compaction leaves of a partition: of each key the last record, by batches and by rules, without any file.

The rules are those of Kafka's Cleaner (org.apache.kafka.storage.internals.log), so that clients see the same:

- The last record of each key stays, at its offset. Records without a key go: compacted topics take none.
- A last record without a value (a *tombstone*) stays until `delete.retention.ms` after it was first cleaned. The moment
  it may go, its *delete horizon*, is written into its batch then: bit 6 of the attributes, and the base timestamp.
- What a transaction wrote that was aborted goes, and hides nothing. The marker that ends a transaction stays as long
  as there is a record of it, and then until its own delete horizon.
- Batches keep their base offset, their last offset (also when the last records are gone), their producer's fields and
  their place in the order. A batch of which nothing is left goes: some clients stall on batches without records, and
  what is known of its producer stands in the catalog.

*Marks* say what becomes of each record of a batch, a byte each: DEAD, LIVE, or TOMBSTONE, the last record of its key
without a value. They come from walking over the batches from the newest to the oldest (`LastOfKey`): the first record
of a key that is met is the last one written. Where the keys do not fit into memory, the walk is made again for what it
could not decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress

from msgspec.structs import replace

from halfmoon.core.record_keys import Keys
from halfmoon.core.records import record_codec
from halfmoon.core.records.batch_header import CODEC_MASK, DELETE_HORIZON, TIMESTAMP_TYPE, BatchHeader, assemble
from halfmoon.core.records.batches import batch_body, iter_records
from halfmoon.core.records.compression import compress as compressed
from halfmoon.core.records.record_codec import MalformedError
from halfmoon.core.storage.files import Buffer
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema import provenance
from halfmoon.schema.provenance import SourceRun

DEAD, LIVE, TOMBSTONE = 0, 1, 2
UNDECIDED = 4
"""Added to a mark by a walk whose memory was full."""

KEY_BYTES = 112
"""What a key takes in memory beside its own bytes: the object, and its place in a set that is a third full."""
_NOT = bytes((1, 0)) + bytes(254)


class LastOfKey:
    """One walk from the newest batch to the oldest, with so much memory."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._seen: set[bytes] = set()
        self._bytes = 0

    def __len__(self) -> int:
        """How many keys it has met."""
        return len(self._seen)

    @property
    def is_full(self) -> bool:
        return self._bytes >= self._most_bytes

    def mark(self, found: Keys) -> bytearray:
        """The marks of a batch, older than all before. UNDECIDED is added where a key was not met, but cannot be
        remembered."""
        keys, without_value, _ = found
        seen = self._seen
        marks = bytearray(map(seen.__contains__, keys)).translate(_NOT)
        if LIVE not in marks:
            return marks
        last = dict(zip(compress(keys, marks), compress(range(len(keys)), marks), strict=True))
        last.pop(None, None)
        undecided = UNDECIDED if self.is_full else 0
        if len(last) < marks.count(LIVE) or undecided or 1 in without_value:
            marks = bytearray(len(keys))
            for at in last.values():
                marks[at] = LIVE + without_value[at] + undecided
        if not undecided:
            seen.update(last)  # type: ignore[arg-type]
            self._bytes += sum(map(len, last)) + KEY_BYTES * len(last)  # type: ignore[arg-type]
        return marks

    def mark_again(self, found: Keys, marks: bytearray) -> None:
        """Decide in a further walk what those before could not."""
        keys, seen, full = found.keys, self._seen, self.is_full
        for at, mark in enumerate(marks):
            if mark & UNDECIDED:
                key = keys[at]
                assert key is not None
                if key in seen:
                    marks[at] = DEAD
                elif not full:  # the records that are undecided have different keys
                    marks[at] = mark - UNDECIDED
                    seen.add(key)
                    self._bytes += len(key) + KEY_BYTES

    def marks_of_earlier(self, found: Keys) -> bytearray:
        """The marks of a batch older than all, with whose keys nothing else older is to be compared."""
        seen = self._seen
        return bytearray(
            DEAD if key is None or key in seen else LIVE + none
            for key, none in zip(found.keys, found.without_value, strict=True)
        )


def filter_records(
    batch: memoryview,
    header: BatchHeader,
    marks: bytes | bytearray,
    now_ms: int,
    delete_retention_ms: int,
    starts: Sequence[int] | None = None,
) -> bytes | memoryview | None:
    """What is left of a batch of records: the batch itself, another one, or nothing. `starts`: where those of the
    records begin in the body that are not DEAD, if that is known. Raises BrokerError(INVALID_RECORD) where times of the
    records cannot be read."""
    horizon_ms = delete_horizon(header)
    has_tombstones = TOMBSTONE in marks
    if has_tombstones and horizon_ms is not None and horizon_ms <= now_ms:
        if starts is not None:
            starts = [start for start, mark in zip(starts, filter(None, marks), strict=True) if mark == LIVE]
        marks = marks.replace(bytes((TOMBSTONE,)), bytes((DEAD,)))
        has_tombstones = False
    if not any(marks):
        return None
    sets_horizon = horizon_ms is None and has_tombstones
    if DEAD not in marks and not sets_horizon:
        return batch
    keep = list(compress(range(len(marks)), marks))
    return _rebuilt(batch, header, keep, now_ms + delete_retention_ms if sets_horizon else None, starts)


def filter_marker(
    batch: memoryview, header: BatchHeader, now_ms: int, delete_retention_ms: int, *, needed: bool
) -> bytes | memoryview | None:
    """What is left of a control batch. `needed`: there are records of the transaction that it ends."""
    if needed:
        return batch
    horizon_ms = delete_horizon(header)
    if horizon_ms is None:
        return _rebuilt(batch, header, range(header.record_count), now_ms + delete_retention_ms)
    return None if horizon_ms <= now_ms else batch


def delete_horizon(header: BatchHeader) -> int | None:
    """From when on (Unix ms) a batch's tombstones, or its marker, may go; None where that is not set yet."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON else None


def _rebuilt(
    batch: memoryview,
    header: BatchHeader,
    keep: Sequence[int],
    horizon_ms: int | None,
    starts: Sequence[int] | None = None,
) -> bytes:
    """A batch of these records only; with a horizon their times are written anew, since they count from it."""
    body = bytes(batch_body(batch))
    if starts is None:
        bounds = record_codec.walk(body, header.record_count)
        starts = [bounds[at] for at in keep]
    kept, max_ms = (
        _spliced(body, starts, header.base_timestamp)
        if horizon_ms is None
        else _retimed(body, keep, starts, header.base_timestamp, horizon_ms)
    )
    if header.attributes & TIMESTAMP_TYPE:
        max_ms = header.max_timestamp
    codec = header.attributes & CODEC_MASK
    return assemble(
        header._replace(
            attributes=header.attributes | (DELETE_HORIZON if horizon_ms is not None else 0),
            base_timestamp=header.base_timestamp if horizon_ms is None else horizon_ms,
            max_timestamp=max_ms,
            record_count=len(keep),
        ),
        compressed(codec, kept) if codec else kept,
    )


def _spliced(body: bytes, starts: Iterable[int], base_ms: int) -> tuple[bytes, int]:
    """The records that begin there, neighbours in one piece; and the largest of their times. Raises
    BrokerError(INVALID_RECORD) where one has none."""
    pieces = []
    low = high = 0
    most = -(1 << 63)
    for start in starts:
        length = body[start]
        if length < 0x80:
            times = start + 2
            end = times - 1 + (length >> 1)
        elif body[start + 1] < 0x80:
            times = start + 3
            end = times - 1 + ((length & 0x7F | body[start + 1] << 7) >> 1)
        else:
            length, times = record_codec.varint(body, start)
            end = times + length
            times += 1
        delta = body[times]
        if delta >= 0x80:
            delta = _time_delta(body, times)
        else:
            delta = (delta >> 1) ^ -(delta & 1)
        if delta > most:
            most = delta
        if start != high:
            pieces.append(body[low:high])
            low = start
        high = end
    pieces.append(body[low:high])
    return b"".join(pieces), _in_64_bits(base_ms + most)


def _time_delta(body: bytes, at: int) -> int:
    try:
        return record_codec.varlong(body, at)[0]
    except MalformedError as error:
        raise BrokerError(Fault.INVALID_RECORD, f"a record of the batch is malformed: {error}") from None


def _in_64_bits(number: int) -> int:
    """Raises BrokerError(INVALID_RECORD) where it is not."""
    if not -(1 << 63) <= number < 1 << 63:
        raise BrokerError(Fault.INVALID_RECORD, "a timestamp of the batch has more than 64 bits")
    return number


def _retimed(
    body: bytes, keep: Sequence[int], starts: Sequence[int], base_ms: int, horizon_ms: int
) -> tuple[bytearray, int]:
    """As `_spliced`, their times written anew."""
    kept = bytearray()
    max_ms = -(1 << 63)
    for at, start in zip(keep, starts, strict=True):
        _, timestamp = record_codec.glance(body, start, at, base_ms)
        max_ms = max(max_ms, timestamp)
        length, begin = record_codec.varint(body, start)
        record_codec.write_retimed(kept, body, start, begin + length, _in_64_bits(timestamp - horizon_ms))
    return kept, max_ms


def sources_left(proof: bytes, batch: memoryview, left: Buffer) -> bytes:
    """The provenance list of a batch of which records have gone: its nth source is what its nth record was made of."""
    try:
        said = provenance.decode(proof)
    except provenance.UnknownProvenanceError:
        return proof
    if not said.sources:
        return proof
    kept = {record.offset_delta for record in iter_records(left)}
    places = (
        (run.topic_number, run.partition, run.first_offset + at) for run in said.sources for at in range(run.count)
    )
    found: list[SourceRun] = []
    for record, (number, partition, offset) in zip(iter_records(batch), places, strict=False):
        if record.offset_delta in kept:
            last = found[-1] if found else None
            follows = last is not None and (last.topic_number, last.partition) == (number, partition)
            if last is not None and follows and last.first_offset + last.count == offset:
                found[-1] = SourceRun(number, partition, last.first_offset, last.count + 1)
            else:
                found.append(SourceRun(number, partition, offset, 1))
    return provenance.encode(replace(said, sources=tuple(found)))
