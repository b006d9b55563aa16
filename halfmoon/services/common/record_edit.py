"""Batches made of other batches' records: with other headers, or fewer records. For what acts on headers.

None of this is on the path of a batch without feature headers.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from halfmoon.core.records import record_codec
from halfmoon.core.records.batch_header import (
    CODEC_MASK,
    HEADER_BYTES,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
    BatchHeader,
    assemble,
    parse_header,
)
from halfmoon.core.records.batches import batch_body
from halfmoon.core.records.compression import compress
from halfmoon.core.records.record_codec import Headers, Record
from halfmoon.services.common.header_search import HeaderSearch

if TYPE_CHECKING:
    from typing_extensions import Buffer


def rewrite(batch: Buffer, search: HeaderSearch, change: Callable[[int, Record], Record | None]) -> bytes | None:
    """The batch with its records as `change(index, record)` gives them back, asked about those that may carry one of
    the headers searched for: the same record (its bytes stay), one with other headers, or None to leave it out.

    None if nothing is left. Offset deltas stay, so holes arise; the batch ends with its last record. Codec, producer
    fields, base timestamp and the type of timestamp stay. Raises BrokerError as `records.iter_records`.
    """
    header = parse_header(batch)
    body = bytes(batch_body(batch))
    if header.record_count == 1:
        return _rewritten_alone(batch, header, body, change)
    bounds = record_codec.walk(body, header.record_count)
    output = bytearray()
    copied = 0  # bytes of the body
    left_out: dict[int, Record] = {}
    changed = False
    for index in search.records(body, bounds):
        record = record_codec.read_one(body, bounds[index], index, header.base_timestamp, None)
        kept = change(index, record)
        if kept is record:
            continue
        changed = True
        output += body[copied : record.start]
        copied = record.end
        if kept is None:
            left_out[index] = record
        else:
            delta_ms = record.timestamp - header.base_timestamp
            record_codec.write(output, record.offset_delta, delta_ms, kept.key, kept.value, kept.headers)
    if not changed:
        return bytes(batch)
    count = header.record_count - len(left_out)
    if not count:
        return None
    output += body[copied:]
    made = header._replace(record_count=count)
    if left_out:
        made = _corrected(made, body, bounds, left_out)
    codec = header.attributes & CODEC_MASK
    return assemble(made, compress(codec, output) if codec else output)


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


def _corrected(header: BatchHeader, body: bytes, bounds: array[int], left_out: Mapping[int, Record]) -> BatchHeader:
    """The header with the last offset delta and the largest timestamp of what is left of the batch."""
    # From the end, where the latest record tends to stand.
    kept = (index for index in range(len(bounds) - 2, -1, -1) if index not in left_out)
    last = next(kept)
    last_offset_delta, newest = record_codec.glance(body, bounds[last], last, header.base_timestamp)
    largest = header.max_timestamp
    if header.attributes & TIMESTAMP_TYPE or all(record.timestamp < largest for record in left_out.values()):
        return header._replace(last_offset_delta=last_offset_delta)
    for index in kept:
        if newest >= largest:
            break
        newest = max(newest, record_codec.glance(body, bounds[index], index, header.base_timestamp)[1])
    return header._replace(last_offset_delta=last_offset_delta, max_timestamp=newest)


def without_headers(batch: Buffer, search: HeaderSearch, prefix: str) -> bytes:
    """The batch without headers whose names begin so. Raises BrokerError as `records.iter_records`."""

    def change(_: int, record: Record) -> Record:
        headers: Headers = tuple(header for header in record.headers if not header[0].startswith(prefix))
        return record if len(headers) == len(record.headers) else record._replace(headers=headers)

    made = rewrite(batch, search, change)
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
