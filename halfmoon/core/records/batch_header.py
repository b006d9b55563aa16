"""The header of a record batch of format 2: what every produce and fetch looks at, and all they look at.

All numbers are big-endian.

     byte  size  field
        0     8  base offset                     set by the broker
        8     4  length of what follows, bytes
       12     4  partition leader epoch          set by the broker
       16     1  magic: the format, here 2 (at this byte in formats 0 and 1 too)
       17     4  CRC-32C of everything behind it
       21     2  attributes: bits 0–2 codec, 3 timestamp type (1: LogAppendTime), 4 transactional, 5 control,
                                               6 the base timestamp is a delete horizon (set by compaction)
                                               14 each record is due at its own timestamp (of batches that wait)
       23     4  last offset delta
       27     8  base timestamp, Unix ms
       35     8  max timestamp, Unix ms
       43     8  producer id (−1: none)
       51     2  producer epoch
       53     4  base sequence
       57     4  record count
       61        records, compressed as one where there is a codec

The CRC begins behind what the broker sets, so that `stamp` costs no new CRC (org.apache.kafka.common.record.
DefaultRecordBatch). The checks here are those that need no look at the records; record_codec.py has the others.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from halfmoon.core.crc import crc32c
from halfmoon.core.records.compression import ZSTD
from halfmoon.errors import BrokerError, Fault

if TYPE_CHECKING:
    from typing_extensions import Buffer

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size
LENGTH_AT: Final = 8
LENGTH_END: Final = 12
"""Where the bytes counted by the length field begin."""
MAGIC_AT: Final = 16
CRC_AT: Final = 17
CRC_START: Final = 21
"""The first byte that the CRC covers."""
MAGIC: Final = 2
assert HEADER_BYTES == 61
_SMALLEST_LENGTH: Final = 14
"""What follows the length in a message of format 0 without key and value: Kafka takes less for damage."""

CODEC_MASK: Final = 7
TIMESTAMP_TYPE: Final = 8
"""Set: every record's timestamp is the batch's max timestamp, and that is the broker's time (LogAppendTime)."""
TRANSACTIONAL: Final = 16
CONTROL: Final = 32
DELETE_HORIZON: Final = 64
"""Set by the broker: the base timestamp says when the batch's tombstones, or its marker, may go (KIP-534)."""

OWN_TIMES: Final = 1 << 14
"""Of a batch that waits in an internal topic: each of its records is due at its own timestamp. Kafka gives this bit no
meaning; clients do not see it."""
SMALLEST_RECORD: Final = 7
"""Bytes of a record: length, attributes, two deltas, two lengths of −1, no headers take one each."""
_MOST_EXPANSION: Final[tuple[int, ...]] = (1, 1032, 22, 255, 32_768)
"""By codec: how many bytes one compressed byte can become at best. DEFLATE: 258 for 2 bits; snappy: 64 for 3 bytes;
LZ4: 255 for a byte of length; zstd: a block of 128 KiB for 4 bytes."""

_unpack: Final = HEADER.unpack_from
_pack_broker_fields: Final = struct.Struct(">qii").pack_into
_pack_crc: Final = struct.Struct(">I").pack_into
_pack_attributes: Final = struct.Struct(">h").pack_into
_pack_max_timestamp: Final = struct.Struct(">q").pack_into
NO_TIMESTAMP: Final = -1
_ATTRIBUTES_AT: Final = 21
_MAX_TIMESTAMP_AT: Final = 35


class BatchHeader(NamedTuple):
    """The header's fields, in their order. Offsets are queue offsets, timestamps Unix ms."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


def _made(fields: tuple[int, ...]) -> BatchHeader:
    """As `_make`, which is a function of Python's own."""
    return tuple.__new__(BatchHeader, fields)


def parse_header(batch: Buffer) -> BatchHeader:
    """The header of `batch`, believed as it stands. Raises BrokerError(CORRUPT_MESSAGE) where it is cut short."""
    try:
        return _made(_unpack(batch))
    except struct.error:
        raise BrokerError(Fault.CORRUPT_MESSAGE, "shorter than a record batch's header") from None


def check_batch(batch: memoryview, max_bytes: int) -> BatchHeader:
    """The header of a batch that a client produced, checked as far as it goes without reading records.

    `batch` is all that a request carries for one partition. Raises BrokerError, in this order:
    INVALID_RECORD where the bytes are not exactly one batch of format 2, CORRUPT_MESSAGE for a length or a format that
    cannot be; MESSAGE_TOO_LARGE over `max_bytes`; CORRUPT_MESSAGE where the checksum fails; then, for what the header
    says, UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD (also where so many records do not fit into so many bytes) or
    INVALID_TIMESTAMP. The codes are Kafka's (ProduceRequest.validateRecords, ByteBufferLogInputStream, LogValidator).
    """
    size = len(batch)
    if size < HEADER_BYTES:
        raise _framing_error(batch)
    fields = _unpack(batch)
    if fields[1] != size - LENGTH_END or fields[3] != MAGIC:
        raise _framing_error(batch)
    if size > max_bytes:
        raise BrokerError(Fault.MESSAGE_TOO_LARGE, f"the batch has {size} bytes, {max_bytes} are allowed")
    if fields[4] != crc32c(batch[CRC_START:]):
        raise BrokerError(Fault.CORRUPT_MESSAGE, "the batch fails its checksum")
    header = _made(fields)
    count = fields[12]
    # Attributes 0–4 are a known codec and nothing else, as in all but odd batches; the rest is sorted out elsewhere.
    if (
        not 0 <= fields[5] <= ZSTD
        or count < 1
        or count != fields[6] + 1
        or count * SMALLEST_RECORD > (size - HEADER_BYTES) * _MOST_EXPANSION[fields[5]]
        or (fields[9] >= 0 and (fields[10] < 0 or fields[11] < 0))
    ):
        _refuse_fields(header)
    return header


def refuse_timestamps(header: BatchHeader, now_ms: int, before_max_ms: int, after_max_ms: int) -> None:
    """Raise BrokerError(INVALID_TIMESTAMP) for timestamps too far from the broker's clock, as far as the header tells.

    It has the first record's and the latest one; Kafka reads each record's (LogValidator). -1 is no timestamp.
    """
    behind, ahead = now_ms - header.base_timestamp, header.max_timestamp - now_ms
    if behind > before_max_ms and header.base_timestamp != NO_TIMESTAMP:
        raise BrokerError(
            Fault.INVALID_TIMESTAMP,
            f"timestamp {header.base_timestamp} is {behind} ms old, more than message.timestamp.before.max.ms, which "
            f"is {before_max_ms}",
        )
    if ahead > after_max_ms:
        raise BrokerError(
            Fault.INVALID_TIMESTAMP,
            f"timestamp {header.max_timestamp} is {ahead} ms ahead, more than message.timestamp.after.max.ms, which is "
            f"{after_max_ms}",
        )


def is_whole(batch: bytes | bytearray | memoryview) -> bool:
    """Whether the bytes are one batch of format 2, as long as it says, with a checksum that is right. `batch` has
    HEADER_BYTES at least."""
    header = parse_header(batch)
    if header.batch_length != len(batch) - LENGTH_END or header.magic != MAGIC:
        return False
    return header.crc == crc32c(memoryview(batch)[CRC_START:])


def stamp(batch: memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write the two fields that are the broker's into `batch`, in place. They lie outside the CRC."""
    _pack_broker_fields(batch, 0, base_offset, len(batch) - LENGTH_END, leader_epoch)


def set_log_append_time(batch: memoryview, now_ms: int) -> None:
    """Make `now_ms` the time of every record of `batch`, in place, which costs a new CRC.

    The base timestamp and the records' deltas stay: where the type bit is set, readers take the max timestamp alone.
    """
    (attributes,) = struct.unpack_from(">h", batch, _ATTRIBUTES_AT)
    _pack_attributes(batch, _ATTRIBUTES_AT, attributes | TIMESTAMP_TYPE)
    _pack_max_timestamp(batch, _MAX_TIMESTAMP_AT, now_ms)
    _pack_crc(batch, CRC_AT, crc32c(batch[CRC_START:]))


def set_own_times(batch: memoryview, *, own: bool) -> None:
    """Say whether each record of `batch` is due at its own timestamp, in place, which costs a new CRC."""
    (attributes,) = struct.unpack_from(">h", batch, _ATTRIBUTES_AT)
    if bool(attributes & OWN_TIMES) != own:
        _pack_attributes(batch, _ATTRIBUTES_AT, attributes ^ OWN_TIMES)
        _pack_crc(batch, CRC_AT, crc32c(batch[CRC_START:]))


def is_plain(batch: memoryview) -> bool:
    """Whether the records of a checked batch are not compressed."""
    return not batch[_ATTRIBUTES_AT + 1] & CODEC_MASK


def assemble(header: BatchHeader, body: Buffer) -> bytes:
    """A batch of `header`'s fields and `body`; length, magic and CRC are computed, whatever `header` says."""
    length = HEADER_BYTES - LENGTH_END + memoryview(body).nbytes
    (base_offset, _, leader_epoch, _, _, *rest) = header
    head = bytearray(HEADER.pack(base_offset, length, leader_epoch, MAGIC, 0, *rest))
    _pack_crc(head, CRC_AT, crc32c(body, crc32c(memoryview(head)[CRC_START:])))
    return b"".join((head, body))


def without_producer(batch: Buffer) -> bytes:
    """The same records, from nobody in particular: no sequence, no transaction."""
    header = parse_header(batch)
    made = header._replace(
        attributes=header.attributes & ~TRANSACTIONAL, producer_id=-1, producer_epoch=-1, base_sequence=-1
    )
    return assemble(made, memoryview(batch)[HEADER_BYTES:])


def new_batch(
    body: bytes | bytearray,
    count: int,
    base_ms: int,
    max_ms: int,
    attributes: int = 0,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """A batch of `count` encoded records without holes; `body` is compressed if `attributes` say so. Times are Unix
    ms."""
    batch = bytearray(
        HEADER.pack(
            base_offset, HEADER_BYTES - LENGTH_END + len(body), leader_epoch, MAGIC, 0, attributes, count - 1, base_ms,
            max_ms, producer_id, producer_epoch, base_sequence, count,
        )
    )  # fmt: skip
    batch += body
    _pack_crc(batch, CRC_AT, crc32c(memoryview(batch)[CRC_START:]))
    return batch


def _framing_error(batch: memoryview) -> BrokerError:
    """Why these bytes are not exactly one batch of format 2. Where Kafka would find no whole batch it says
    INVALID_RECORD, which clients do not retry as they do CORRUPT_MESSAGE."""
    size = len(batch)
    if size >= LENGTH_END:
        (length,) = struct.unpack_from(">i", batch, LENGTH_AT)
        if length < _SMALLEST_LENGTH:
            return BrokerError(Fault.CORRUPT_MESSAGE, f"the batch says {length} bytes follow, which no format has")
    if size <= MAGIC_AT:
        return BrokerError(Fault.INVALID_RECORD, f"{size} bytes are no record batch")
    magic = batch[MAGIC_AT]
    if magic > MAGIC:
        return BrokerError(Fault.CORRUPT_MESSAGE, f"there is no message format {magic}")
    if size < LENGTH_END + length:
        return BrokerError(Fault.INVALID_RECORD, f"the batch says {length} bytes follow, {size - LENGTH_END} do")
    if magic != MAGIC:
        return BrokerError(
            Fault.INVALID_RECORD, f"message format {magic}; only record batches of format 2 are supported"
        )
    if length < HEADER_BYTES - LENGTH_END:
        return BrokerError(Fault.CORRUPT_MESSAGE, f"the batch says {length} bytes follow, fewer than its header has")
    return BrokerError(Fault.INVALID_RECORD, "a request carries exactly one record batch for a partition")


def _refuse_fields(header: BatchHeader) -> None:
    """Raise for what is wrong with the fields of a whole batch. Attribute bits 6–15 are ignored, as in Kafka."""
    attributes = header.attributes
    if attributes & CODEC_MASK > ZSTD:
        raise BrokerError(Fault.UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {attributes & CODEC_MASK} is unknown")
    if header.record_count < 1 or header.record_count != header.last_offset_delta + 1:
        raise BrokerError(
            Fault.INVALID_RECORD,
            f"a produced batch has offsets without holes; this one counts {header.record_count} records "
            f"up to offset delta {header.last_offset_delta}",
        )
    room = header.batch_length - (HEADER_BYTES - LENGTH_END)
    if header.record_count * SMALLEST_RECORD > room * _MOST_EXPANSION[attributes & CODEC_MASK]:
        raise BrokerError(Fault.INVALID_RECORD, f"{header.record_count} records do not fit into {room} bytes")
    if attributes & CONTROL:
        raise BrokerError(Fault.INVALID_RECORD, "clients must not write control batches")
    if attributes & TRANSACTIONAL and header.producer_id < 0:
        raise BrokerError(Fault.INVALID_RECORD, "a transactional batch names its producer")
    if attributes & TIMESTAMP_TYPE:
        # Its timestamps would be whatever the client likes to call the broker's time (Kafka: LogValidator).
        raise BrokerError(Fault.INVALID_TIMESTAMP, "producers must not set the timestamp type to LogAppendTime")
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise BrokerError(
            Fault.INVALID_RECORD,
            f"producer id {header.producer_id} comes with epoch {header.producer_epoch} "
            f"and sequence {header.base_sequence}",
        )
