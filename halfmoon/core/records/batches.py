"""Record batches of format 2: the unit of producing, storing and fetching.

This is what the rest of the broker imports. The header's layout and the checks of the hot path are in batch_header.py,
the records' own layout in record_codec.py, the codecs in compression.py; here the three are put together for all that
looks inside a batch: iterating, searching by time, building, and leaving records out.

None of it trusts a batch: whatever the bytes, only BrokerError comes out, and at most `max_bytes` are decompressed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from halfmoon.core.gil import EVERY, let_others_run
from halfmoon.core.records import record_codec
from halfmoon.core.records.batch_header import (
    CODEC_MASK,
    CONTROL,
    HEADER,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
    BatchHeader,
    assemble,
    check_batch,
    is_plain,
    new_batch,
    parse_header,
    set_log_append_time,
    stamp,
)
from halfmoon.core.records.compression import NONE, compress, decompress
from halfmoon.core.records.record_codec import Headers, Record
from halfmoon.core.records.walk import Walked, refuse, walk_compiled
from halfmoon.errors import BrokerError, Fault

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "CODEC_MASK",
    "CONTROL",
    "DEFAULT_DECOMPRESSED_LIMIT",
    "HEADER",
    "HEADER_BYTES",
    "LONGEST_DELTA_MS",
    "TIMESTAMP_TYPE",
    "TRANSACTIONAL",
    "BatchHeader",
    "Headers",
    "Record",
    "RecordSpans",
    "batch_body",
    "build_batch",
    "check_batch",
    "is_plain",
    "iter_records",
    "offset_for_time",
    "parse_header",
    "record_spans",
    "set_log_append_time",
    "splice",
    "stamp",
    "validate_records",
]

LONGEST_DELTA_MS: Final = (1 << 63) - 1
"""Between the base timestamp of a batch and one of its records."""
DEFAULT_DECOMPRESSED_LIMIT: Final = 64 * 1024 * 1024
"""Bytes a batch may take when decompressed: what 4 MiB, the largest batch by default, hold at sixteen to one."""


class RecordSpans(NamedTuple):
    """A batch's decompressed body and where its records lie in it: record i is body[bounds[i]:bounds[i + 1]]."""

    body: bytes
    bounds: array[int]


def batch_body(batch: Buffer, *, max_bytes: int = DEFAULT_DECOMPRESSED_LIMIT) -> memoryview:
    """The records as one run of bytes, decompressed. No copy is made of a batch that was not compressed.

    Raises BrokerError: CORRUPT_MESSAGE where `batch` is not one whole batch, INVALID_RECORD where it does not
    decompress within `max_bytes`, UNSUPPORTED_COMPRESSION_TYPE.
    """
    return _open(batch, max_bytes)[1]


def iter_records(
    batch: Buffer, *, max_bytes: int = DEFAULT_DECOMPRESSED_LIMIT, created: bool = False
) -> Iterator[Record]:
    """The records of a batch, in order, holes or not. A control batch's too: the caller looks at the header. With
    `created` their timestamps are their producers', also where the broker has stamped the batch.

    Raises BrokerError as `batch_body`, and INVALID_RECORD in the middle of the iteration where a record is malformed.
    """
    header, body = _open(batch, max_bytes)
    append_time = header.max_timestamp if header.attributes & TIMESTAMP_TYPE and not created else None
    return record_codec.read(
        bytes(body), header.record_count, header.last_offset_delta, header.base_timestamp, append_time
    )


def record_spans(batch: Buffer, *, max_bytes: int = DEFAULT_DECOMPRESSED_LIMIT) -> RecordSpans:
    """Where the records of a batch lie, without reading them. Raises BrokerError as `iter_records`."""
    header, body = _open(batch, max_bytes)
    content = bytes(body)
    return RecordSpans(content, record_codec.walk(content, header.record_count))


def validate_records(batch: Buffer, *, max_bytes: int = DEFAULT_DECOMPRESSED_LIMIT) -> None:
    """Look at every record of a stored batch, holes or not (core/checking.py looks at produced ones).

    Raises BrokerError as `batch_body`, and INVALID_RECORD. What the header says of the largest timestamp is not
    checked: Kafka corrects it without a word, so clients may exist that get it wrong.
    """
    header, body = _open(batch, max_bytes)
    if walk_compiled is None or header.record_count != header.last_offset_delta + 1:
        for _ in record_codec.read(
            bytes(body), header.record_count, header.last_offset_delta, header.base_timestamp, None
        ):
            pass  # where there are no holes, that many ascending deltas below that count are 0, 1, 2, …
        return
    refuse(Walked(*walk_compiled.walk(body, 0, header.record_count, header.base_timestamp)))


def offset_for_time(
    batch: Buffer, timestamp: int, *, min_offset: int = 0, max_bytes: int = DEFAULT_DECOMPRESSED_LIMIT
) -> tuple[int, int] | None:
    """Queue offset and timestamp of the first record from `min_offset` on that is as late as `timestamp` (Unix ms).

    None where the batch has none. Raises BrokerError as `iter_records`.
    """
    header = parse_header(batch)
    if header.max_timestamp < timestamp:
        return None
    append_time = header.attributes & TIMESTAMP_TYPE
    body, bounds = record_spans(batch, max_bytes=max_bytes)
    for index, start in enumerate(bounds[:-1]):
        if index % EVERY == EVERY - 1:
            let_others_run()
        offset_delta, found = record_codec.glance(body, start, index, header.base_timestamp)
        if header.base_offset + offset_delta < min_offset:
            continue
        if append_time:
            return header.base_offset + offset_delta, header.max_timestamp
        if found >= timestamp:
            return header.base_offset + offset_delta, found
    return None


def newest_record(
    batch: Buffer, *, min_offset: int, max_bytes: int = DEFAULT_DECOMPRESSED_LIMIT
) -> tuple[int, int] | None:
    """Queue offset and timestamp of the first of the records with the largest timestamp, from `min_offset` on.

    None where the batch has none there. Raises BrokerError as `iter_records`.
    """
    header = parse_header(batch)
    best: tuple[int, int] | None = None
    body, bounds = record_spans(batch, max_bytes=max_bytes)
    for index, start in enumerate(bounds[:-1]):
        if index % EVERY == EVERY - 1:
            let_others_run()
        offset_delta, timestamp = record_codec.glance(body, start, index, header.base_timestamp)
        if header.attributes & TIMESTAMP_TYPE:
            timestamp = header.max_timestamp
        if header.base_offset + offset_delta >= min_offset and (best is None or timestamp > best[1]):
            best = header.base_offset + offset_delta, timestamp
    return best


def build_batch(
    records: Iterable[tuple[bytes | None, bytes | None, int, Iterable[tuple[str, bytes | None]]]],
    *,
    base_offset: int = 0,
    codec: int = NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    timestamp_type: int = 0,
) -> bytes:
    """A batch of (key, value, timestamp in Unix ms, headers), with offset deltas 0, 1, 2, …

    `timestamp_type` 1 sets LogAppendTime; the time is then the largest timestamp given. ValueError without a record:
    some consumers stall on a batch that has none.
    """
    rows = list(records)
    if not rows:
        raise ValueError("a batch has at least one record")
    timestamps = [row[2] for row in rows]
    base_timestamp, max_timestamp = timestamps[0], max(timestamps)
    if max_timestamp - base_timestamp > LONGEST_DELTA_MS or base_timestamp - min(timestamps) > LONGEST_DELTA_MS:
        base_timestamp = 0  # further apart than 64 bits reach; from 0 each is within
    body = bytearray()
    for index, (key, value, timestamp, headers) in enumerate(rows):
        record_codec.write(body, index, timestamp - base_timestamp, key, value, headers)
    return bytes(
        new_batch(
            compress(codec, body) if codec else body, len(rows), base_timestamp, max_timestamp,
            codec | (TIMESTAMP_TYPE if timestamp_type else 0), base_offset, leader_epoch, producer_id, producer_epoch,
            base_sequence,
        )
    )  # fmt: skip


def splice(batch: Buffer, keep: Sequence[int], *, max_bytes: int = DEFAULT_DECOMPRESSED_LIMIT) -> bytes:
    """A batch of only those records whose index is in `keep` (ascending, not empty), their bytes unchanged.

    The kept records keep their offsets, so holes arise in front and in the middle, as compaction leaves them in Kafka;
    the last offset delta becomes the last kept record's, because some clients loop for ever on a trimmed tail. The base
    timestamp stays, the max timestamp becomes that of the kept (but in a LogAppendTime batch), codec and producer
    fields stay, the CRC is new. Raises BrokerError as `iter_records`; IndexError for an index that is not there.
    """
    assert keep, "a batch of which nothing is kept is no batch"
    header = parse_header(batch)
    body, bounds = record_spans(batch, max_bytes=max_bytes)
    kept = bytearray()
    max_timestamp, last_offset_delta, before = -(1 << 63), -1, -1
    for index in keep:
        assert index > before, "kept indices ascend"
        before = index
        start = bounds[index]
        kept += body[start : bounds[index + 1]]
        offset_delta, timestamp = record_codec.glance(body, start, index, header.base_timestamp)
        if not last_offset_delta < offset_delta <= header.last_offset_delta:
            raise record_codec.invalid(index, f"its offset delta is {offset_delta}")
        last_offset_delta = offset_delta
        if timestamp > max_timestamp:
            max_timestamp = timestamp
    if header.attributes & TIMESTAMP_TYPE:
        max_timestamp = header.max_timestamp
    codec = header.attributes & CODEC_MASK
    return assemble(
        header._replace(last_offset_delta=last_offset_delta, record_count=len(keep), max_timestamp=max_timestamp),
        compress(codec, kept) if codec else kept,
    )


def _open(batch: Buffer, max_bytes: int) -> tuple[BatchHeader, memoryview]:
    view = memoryview(batch)
    header = parse_header(view)
    if header.batch_length != len(view) - LENGTH_END or header.magic != MAGIC:
        raise BrokerError(Fault.CORRUPT_MESSAGE, "not exactly one record batch of format 2")
    return header, decompress(header.attributes & CODEC_MASK, view[HEADER_BYTES:], max_bytes)
