"""Batches made of other batches' records: with other headers, or fewer records. For what acts on headers.

None of this is on the path of a batch without feature headers.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Sequence, Set
from typing import TYPE_CHECKING

from halfmoon.core.records import record_codec
from halfmoon.core.records.batch_header import (
    CODEC_MASK,
    HEADER_BYTES,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
    BatchHeader,
    assemble,
    new_batch,
    parse_header,
)
from halfmoon.core.records.batches import LONGEST_DELTA_MS, batch_body
from halfmoon.core.records.compression import compress
from halfmoon.core.records.record_codec import Headers, Record
from halfmoon.core.steps import Slices, finish
from halfmoon.services.common.header_search import HeaderSearch

if TYPE_CHECKING:
    from typing_extensions import Buffer


Row = tuple[bytes | None, bytes | None, int, Headers]
"""Key, value, timestamp, headers."""

SLICE = 64
"""Records that are read between two pauses: a millisecond."""
GLANCED = 1_000
"""Records of which only the places are looked for, or the timestamps."""
WRITTEN = 100
"""Records that are written between two pauses."""
LARGE_BYTES = 128 << 10
"""So much is compressed or decompressed in a thread."""


def uncompressed(batch: Buffer) -> memoryview:
    """The same batch without a codec: for one who reads its records more than once, or in slices. Raises BrokerError as
    `batch_body`."""
    header = parse_header(batch)
    codec = header.attributes & CODEC_MASK
    if not codec:
        return memoryview(batch)
    return memoryview(assemble(header._replace(attributes=header.attributes ^ codec), batch_body(batch)))


def build_in_slices(rows: Sequence[Row]) -> Slices[bytes]:
    """As `build_batch`, of (key, value, timestamp in Unix ms, headers), with pauses."""
    base_ms, max_ms = rows[0][2], max(row[2] for row in rows)
    least_ms = min(row[2] for row in rows)
    if max_ms - base_ms > LONGEST_DELTA_MS or base_ms - least_ms > LONGEST_DELTA_MS:
        base_ms = 0  # further apart than 64 bits reach; from 0 each is within
    body = bytearray()
    for index, (key, value, timestamp, headers) in enumerate(rows):
        if index % WRITTEN == WRITTEN - 1:
            yield None
        record_codec.write(body, index, timestamp - base_ms, key, value, headers)
    return bytes(new_batch(body, len(rows), base_ms, max_ms))


def map_records(batch: Buffer, fn: Callable[[Record], Record]) -> bytes:
    """The batch with each record as `fn(record)` gives it back: with another key, value or headers
    (`record._replace(value=…)`). All else stays: which records there are, their offsets and timestamps, the codec, and
    what the batch says of its producer and transaction. Raises BrokerError as `batches.iter_records`, TypeError where
    `fn` gives something else than a record."""
    header = parse_header(batch)
    body = bytes(batch_body(batch))
    codec = header.attributes & CODEC_MASK
    output = bytearray()
    records = record_codec.read(body, header.record_count, header.last_offset_delta, header.base_timestamp, None)
    ask: Callable[[Record], object] = fn  # a plugin's: it may give anything
    for record in records:
        made = ask(record)
        if not isinstance(made, Record):
            raise TypeError(f"a function for map_records gave {made!r}, expected the record, or one made of it")
        delta_ms = record.timestamp - header.base_timestamp
        record_codec.write(output, record.offset_delta, delta_ms, made.key, made.value, made.headers)
    return assemble(header, compress(codec, output) if codec else output)


def rewrite(batch: Buffer, search: HeaderSearch, change: Callable[[int, Record], Record | None]) -> bytes | None:
    """The batch with its records as `change(index, record)` gives them back, asked about those that may carry one of
    the headers searched for: the same record (its bytes stay), one with other headers, or None to leave it out.

    None if nothing is left. Offset deltas stay, so holes arise; the batch ends with its last record. Codec, producer
    fields, base timestamp and the type of timestamp stay. Raises BrokerError as `batches.iter_records`.
    """
    header = parse_header(batch)
    if header.record_count == 1:
        return _rewritten_alone(batch, header, bytes(batch_body(batch)), change)
    return finish(rewrite_in_slices(batch, search, change))


def rewrite_in_slices(
    batch: Buffer, search: HeaderSearch, change: Callable[[int, Record], Record | None]
) -> Slices[bytes | None]:
    """As `rewrite`, with pauses."""
    header = parse_header(batch)
    codec = header.attributes & CODEC_MASK
    count = header.record_count
    body: bytes
    if codec and len(memoryview(batch)) > LARGE_BYTES:
        body = yield lambda: bytes(batch_body(batch))
    else:
        body = bytes(batch_body(batch))
    record_codec.checked_count(body, count)
    output = bytearray()
    copied = 0  # bytes of the body
    bounds = array("I", [0])
    left_out: set[int] = set()
    newest_left_out = -(1 << 63)
    changed = False
    for first in range(0, count, GLANCED):
        part = record_codec.walk_part(body, bounds[-1], first, min(GLANCED, count - first))
        bounds.extend(part[1:])
        for nth, at in enumerate(search.records(body, part)):
            if nth % SLICE == SLICE - 1:
                yield None
            index = first + at
            record = record_codec.read_one(body, bounds[index], index, header.base_timestamp, None)
            kept = change(index, record)
            if kept is record:
                continue
            changed = True
            output += body[copied : record.start]
            copied = record.end
            if kept is None:
                left_out.add(index)
                newest_left_out = max(newest_left_out, record.timestamp)
            else:
                delta_ms = record.timestamp - header.base_timestamp
                record_codec.write(output, record.offset_delta, delta_ms, kept.key, kept.value, kept.headers)
        if count - first > GLANCED:
            yield None
    record_codec.check_end(body, count, bounds[-1])
    if not changed:
        return bytes(batch)
    if len(left_out) == count:
        return None
    output += body[copied:]
    made = header._replace(record_count=count - len(left_out))
    if left_out:
        made = yield from _corrected(made, body, bounds, left_out, newest_left_out)
    if codec:
        compressed: bytes
        if len(output) > LARGE_BYTES:
            compressed = yield lambda: compress(codec, output)
        else:
            compressed = compress(codec, output)
        return assemble(made, compressed)
    return assemble(made, output)


def _rewritten_alone(
    batch: Buffer, header: BatchHeader, body: bytes, change: Callable[[int, Record], Record | None]
) -> bytes | None:
    """As `rewrite`, of a batch of one record: a third of what it takes to look for those to be asked about."""
    record = record_codec.read_one(body, 0, 0, header.base_timestamp, None)
    record_codec.check_end(body, 1, record.end)
    kept = change(0, record)
    if kept is record:
        return bytes(batch)
    if kept is None:
        return None
    output = bytearray()
    delta_ms = record.timestamp - header.base_timestamp
    record_codec.write(output, record.offset_delta, delta_ms, kept.key, kept.value, kept.headers)
    codec = header.attributes & CODEC_MASK
    return assemble(header, compress(codec, output) if codec else output)


def _corrected(
    header: BatchHeader, body: bytes, bounds: array[int], left_out: Set[int], newest_left_out: int
) -> Slices[BatchHeader]:
    """The header with the last offset delta and the largest timestamp of what is left of the batch."""
    # From the end, where the latest record tends to stand.
    kept = (index for index in range(len(bounds) - 2, -1, -1) if index not in left_out)
    last = next(kept)
    last_offset_delta, newest = record_codec.glance(body, bounds[last], last, header.base_timestamp)
    largest = header.max_timestamp
    if header.attributes & TIMESTAMP_TYPE or newest_left_out < largest:
        return header._replace(last_offset_delta=last_offset_delta)
    for nth, index in enumerate(kept):
        if newest >= largest:
            break
        newest = max(newest, record_codec.glance(body, bounds[index], index, header.base_timestamp)[1])
        if nth % GLANCED == GLANCED - 1:
            yield None
    return header._replace(last_offset_delta=last_offset_delta, max_timestamp=newest)


def without_headers(batch: Buffer, search: HeaderSearch, prefix: str, but: Collection[str] = frozenset()) -> bytes:
    """The batch without headers whose names begin so, except for some. Raises BrokerError as `batches.iter_records`."""
    return finish(without_headers_in_slices(batch, search, prefix, but))


def without_headers_in_slices(
    batch: Buffer, search: HeaderSearch, prefix: str, but: Collection[str] = frozenset()
) -> Slices[bytes]:
    """As `without_headers`, with pauses."""

    def change(_: int, record: Record) -> Record:
        headers: Headers = tuple(
            header for header in record.headers if not header[0].startswith(prefix) or header[0] in but
        )
        return record if len(headers) == len(record.headers) else record._replace(headers=headers)

    made = yield from rewrite_in_slices(batch, search, change)
    assert made is not None, "nothing is left out"
    return made


def of_producer(batch: Buffer, like: BatchHeader) -> bytes:
    """The batch with the producer fields of another one, which it is a part of, and of its transaction: whoever made it
    by `build_batch` did not say whose it is."""
    header = parse_header(batch)
    attributes = header.attributes & ~TRANSACTIONAL | like.attributes & TRANSACTIONAL
    made = header._replace(
        attributes=attributes, producer_id=like.producer_id, producer_epoch=like.producer_epoch,
        base_sequence=like.base_sequence,
    )  # fmt: skip
    return assemble(made, memoryview(batch)[HEADER_BYTES:])
