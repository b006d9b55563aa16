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

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import chain, compress
from struct import Struct
from typing import NamedTuple

from msgspec.structs import replace

from halfmoon.core import provenance, record_codec
from halfmoon.core.batch_header import (
    CODEC_MASK,
    DELETE_HORIZON,
    TIMESTAMP_TYPE,
    BatchHeader,
    assemble,
)
from halfmoon.core.compression import compress as compressed
from halfmoon.core.errors import BrokerError, Fault
from halfmoon.core.files import Buffer
from halfmoon.core.provenance import SourceRun
from halfmoon.core.record_codec import MalformedError
from halfmoon.core.records import batch_body, iter_records

DEAD, LIVE, TOMBSTONE = 0, 1, 2
UNDECIDED = 4
"""Added to a mark by a walk whose memory was full."""

LONGEST_KEY = 32
"""Longer keys are remembered by a digest."""
_LONGEST_KEY_CODE = 2 * LONGEST_KEY
KEY_BYTES = 112
"""What a key takes in memory beside its own bytes: the object, and its place in a set that is a third full."""
_DIGEST = b"digest of 16 byte"
assert len(_DIGEST) + 16 > LONGEST_KEY

_SHORTEST_STRETCH = 16
"""Records of one layout that are worth being taken together."""
_FIRST_LOOK = 64
"""So many records are compared at first; then some times as many as were alike the time before."""
_GOES_ON = bytes(byte >= 0x80 for byte in range(256))
_IS_NULL = bytes(byte == 1 for byte in range(256))
_NOT = bytes((1, 0)) + bytes(254)


class Keys(NamedTuple):
    """Of a batch's records, in their order: the keys, None where there is none; which have no value (1); and where they
    begin in the body."""

    keys: list[bytes | None]
    without_value: bytearray
    starts: array[int]


def read_keys(body: bytes, count: int) -> Keys:
    """Raises BrokerError(INVALID_RECORD) where the records are malformed as far as they are looked at.

    It runs for each record that is compacted, so calls are avoided for what is common; and what machines write is often
    of one layout for long stretches, whose keys are cut out together.
    """
    record_codec.checked_count(body, count)
    keys: list[bytes | None] = []
    starts = array("I")
    append, begins = keys.append, starts.append
    without_value = bytearray(count)
    size = len(body)
    at = index = stride = 0
    plain_upto = 0
    """Up to this record no stretch is looked for, the longer the more often it was in vain."""
    most = _FIRST_LOOK
    rest = _SHORTEST_STRETCH
    try:
        while index < count:
            start = at
            begins(at)
            length = body[at]
            if length < 0x80:
                end = at + 1 + (length >> 1)
                at += 2  # the length and the attributes
            elif body[at + 1] < 0x80:
                length = (length & 0x7F) | body[at + 1] << 7
                end = at + 2 + (length >> 1)
                at += 3
            else:
                length, at = record_codec.varint(body, at)
                end = at + length
                length <<= 1
                at += 1
            if length & 1 or length < 12 or end > size:
                raise MalformedError("its length is impossible")
            times = at
            while body[at] >= 0x80:  # the time
                at += 1
            at += 1
            while body[at] >= 0x80:  # the offset
                at += 1
            at += 1
            length = body[at]
            if length <= _LONGEST_KEY_CODE and not length & 1:
                at += 1
                key_at, after = at, at + (length >> 1)
                append(body[at:after])
            else:
                length, at = record_codec.varint(body, at)
                if length < -1:
                    raise MalformedError("a length in it is negative")
                key_at, after = 0, at if length < 0 else at + length
                append(None if length < 0 else _short(body[at:after]))
            if after >= end:
                raise MalformedError("a length in it reaches beyond its end")
            if body[after] == 1:
                without_value[index] = 1
            at = end
            index += 1
            last_stride, stride = stride, end - start
            if key_at and stride == last_stride and index > plain_upto:
                alike = _alike(body, start, times, key_at, end, min(most, count - index))
                most = max(_FIRST_LOOK, 4 * alike)
                if alike < _SHORTEST_STRETCH:
                    rest *= 2
                    plain_upto = index + rest
                    continue
                rest = _SHORTEST_STRETCH
                upto = at + alike * stride
                cut = _cutter(key_at - start, after - key_at, end - after)
                keys += chain.from_iterable(cut(memoryview(body)[at:upto]))
                starts.extend(range(at, upto, stride))
                nulls = body[after + stride : upto : stride].translate(_IS_NULL)
                without_value[index : index + alike] = nulls
                at = upto
                index += alike
    except MalformedError as error:
        raise record_codec.invalid(len(starts) - 1, str(error)) from None
    except IndexError:
        raise record_codec.invalid(len(starts) - 1, "the batch ends within it") from None
    record_codec.check_end(body, count, at)
    return Keys(keys, without_value, starts)


def _alike(body: bytes, start: int, times: int, key_at: int, end: int, most: int) -> int:
    """How many records of the layout of body[start:end] follow it, `most` at most: of the same length, with numbers and
    a key of as many bytes. `times`: where its numbers begin. Each byte that says so is compared in all of them at once.
    """
    stride = end - start
    count = min(most, (len(body) - end) // stride)
    for at in (*range(start, times - 1), key_at - 1):
        column = body[at + stride : at + stride * count + 1 : stride]
        count = len(column) - len(column.lstrip(body[at : at + 1]))
    for at in range(times, key_at - 1):
        column = body[at + stride : at + stride * count + 1 : stride]
        goes_on = column.translate(_GOES_ON)
        count = len(goes_on) - len(goes_on.lstrip(b"\1" if body[at] >= 0x80 else b"\0"))
    return count


@lru_cache(1024)
def _cutter(before: int, length: int, after: int) -> Callable[[Buffer], Iterator[tuple[bytes]]]:
    """Takes so many bytes out of each piece."""
    return Struct(f"{before}x{length}s{after}x").iter_unpack


def _short(key: bytes) -> bytes:
    """What a key is remembered by."""
    return key if len(key) <= LONGEST_KEY else _DIGEST + blake2b(key, digest_size=16).digest()


def refuse_without_key(body: bytes, count: int) -> None:
    """Raises BrokerError(INVALID_RECORD) where a record of a produced batch has no key (Kafka: LogValidator)."""
    try:
        index = read_keys(body, count).keys.index(None)
    except ValueError:
        return
    raise BrokerError(
        Fault.INVALID_RECORD, f"record {index} of the batch has no key, and the topic's cleanup.policy is compact"
    )


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
