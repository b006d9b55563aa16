"""The frame: what the commitlog is made of.

A frame is a fixed header, an optional provenance list, and a payload (a record batch, a control record, or nothing).
All numbers are little-endian.

     byte  size  field
        0     4  magic "HMf1"
        4     1  version (1)
        5     1  kind: 1 batch, 2 control, 3 end of segment
        6     2  flags: 1 to be looked into by the key index
        8     4  length of the whole frame, bytes
       12     4  length of the provenance list, bytes
       16     8  position: where in the log this frame begins
       24     8  flushed: up to which position the log was known to be on disk when this was written
       32     4  generation: raised durably at every start; also the leader epoch inside the batch
       36     4  topic number (−1: none)
       40     4  partition (−1: none)
       44     4  record count
       48     8  base offset
       56     4  span: offsets taken in the partition
       60     4  original span: sequence numbers taken from the producer
       64     8  store time, Unix ms
       72     8  due time, Unix ms (0: none)
       80     2  part k (from 0) …
       82     2  … of n: the frame group; all parts or none count (1 for a lone frame)
       84     4  CRC-32C of the payload of a control frame; 0 where the payload has its own (a batch)
       88     4  CRC-32C of bytes 0–87 and of the provenance list
       92        provenance list, then payload

Why a frame says its own position: recycled segments are full of old, valid frames. Why it says what was flushed: damage
below the highest such mark is rot, damage above it is a torn tail. Why a batch's CRC is not repeated: it covers all but
the first 21 bytes of the batch, and those are compared with this header field by field. A later version changes the
version byte; a reader that meets a version it does not know must refuse the directory, never cut it.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from halfmoon.core.crc import crc32c
from halfmoon.core.storage.files import Buffer

MAGIC: Final = b"HMf1"
VERSION = 1
"""What this program writes."""
READABLE_VERSIONS = frozenset({1})
"""What it reads. Magic, version, position and the place of the header's checksum are where they are in every
version."""

INDEXED: Final = 1
"""A flag: a key may stand in this frame, or it names messages that were dealt with."""

_FIELDS: Final = struct.Struct("<4sBBHIIQQIiiIqIIQQHHI")
_CRC: Final = struct.Struct("<I")
HEADER_BYTES: Final = _FIELDS.size + _CRC.size
assert HEADER_BYTES == 92

_pack: Final = _FIELDS.pack
_pack_crc: Final = _CRC.pack

BATCH_HEADER: Final = struct.Struct(">qiibI")
"""The first 21 bytes of a record batch: base offset, length, leader epoch, magic, CRC."""


class Kind:
    BATCH: Final = 1
    CONTROL: Final = 2
    END: Final = 3
    """The rest of the segment holds nothing. Its length runs to the segment's end; no payload is written."""


class Frame(NamedTuple):
    """A frame's header, as fields. Positions are log positions; times Unix ms; lengths bytes."""

    kind: int
    flags: int
    length: int
    provenance_length: int
    position: int
    flushed: int
    generation: int
    topic_number: int
    partition: int
    record_count: int
    base_offset: int
    span: int
    original_span: int
    store_ms: int
    due_ms: int
    part: int
    parts: int
    payload_crc: int

    @property
    def payload_position(self) -> int:
        return self.position + HEADER_BYTES + self.provenance_length

    @property
    def payload_length(self) -> int:
        return self.length - HEADER_BYTES - self.provenance_length

    @property
    def end(self) -> int:
        return self.position + self.length


class BadFrameError(Exception):
    """These bytes are no frame of this log at this place."""


class UnknownVersionError(Exception):
    """A whole frame of a version that this program does not know."""


def encode(
    kind: int,
    length: int,
    position: int,
    flushed: int,
    generation: int,
    topic_number: int,
    partition: int,
    record_count: int,
    base_offset: int,
    span: int,
    original_span: int,
    store_ms: int,
    *,
    flags: int = 0,
    due_ms: int = 0,
    part: int = 0,
    parts: int = 1,
    payload_crc: int = 0,
    provenance: bytes = b"",
) -> bytes:
    """The header and provenance list of a frame; the payload follows in a buffer of its own."""
    fields = _pack(
        MAGIC, VERSION, kind, flags, length, len(provenance), position, flushed, generation, topic_number, partition,
        record_count, base_offset, span, original_span, store_ms, due_ms, part, parts, payload_crc,
    )  # fmt: skip
    if provenance:
        return fields + _pack_crc(crc32c(provenance, crc32c(fields))) + provenance
    return fields + _pack_crc(crc32c(fields))


def decode(view: memoryview, position: int, base: int, end: int | None = None) -> Frame:
    """The frame at log position `position` in `view`, whose first byte is log position `base`. `end`: where its segment
    ends, if `view` is only a part of that and may lack the payload.

    Checks the header only. Raises BadFrameError, or UnknownVersionError where the header is whole but newer.
    """
    at = position - base
    if at + HEADER_BYTES > len(view):
        raise BadFrameError("no room for a header")
    magic, version, *rest = _FIELDS.unpack_from(view, at)
    if magic != MAGIC:
        raise BadFrameError("no frame begins here")
    frame = Frame(*rest)
    if frame.position != position:
        raise BadFrameError("a frame of another place")
    if frame.provenance_length > len(view) - at - HEADER_BYTES:
        raise BadFrameError("provenance list longer than the segment")
    crc = crc32c(view[at : at + _FIELDS.size])
    if frame.provenance_length:
        crc = crc32c(view[at + HEADER_BYTES : at + HEADER_BYTES + frame.provenance_length], crc)
    if crc != _CRC.unpack_from(view, at + _FIELDS.size)[0]:
        raise BadFrameError("header checksum")
    if version not in READABLE_VERSIONS:
        raise UnknownVersionError(f"frame version {version} at {position}, this program knows up to {VERSION}")
    room = len(view) - at if end is None else end - position
    if not HEADER_BYTES + frame.provenance_length <= frame.length <= room:
        raise BadFrameError("length runs out of the segment")
    return frame


def length_at(data: bytes, position: int) -> int:
    """The length of the frame at log position `position`, which `data` begins with; 0 where there is none."""
    if len(data) < HEADER_BYTES:
        return 0
    magic, _, _, _, length, _, said, *_ = _FIELDS.unpack_from(data)
    return length if magic == MAGIC and said == position else 0


def provenance_length_at(data: memoryview, at: int) -> int:
    """What the header that begins at byte `at` says of its provenance list, whether that is true or not."""
    return int.from_bytes(data[at + _PROVENANCE_LENGTH_AT : at + _PROVENANCE_LENGTH_AT + 4], "little")


_PROVENANCE_LENGTH_AT: Final = 12
_STORE_MS: Final = struct.Struct("<q")
_STORE_MS_AT: Final = 64
_POSITION_AT: Final = 16


BEFORE_BYTES: Final = HEADER_BYTES + 104
"""So many bytes before a payload are looked at by `before_payload`, so it finds provenance lists of five source runs. A
segment has at least as many before its first batch: its head is a snapshot, of no less than 118 bytes."""


def before_payload(data: Buffer, payload_position: int) -> tuple[int, bytes] | None:
    """Store time and provenance list of the frame whose payload begins at this log position, from the bytes before it
    (`BEFORE_BYTES` at most). None where its header is not among them: the list is longer."""
    view = bytes(data)
    at = len(view) - HEADER_BYTES
    while at >= 0:
        (position,) = _STORE_MS.unpack_from(view, at + _POSITION_AT)
        if view.startswith(MAGIC, at) and position == payload_position - (len(view) - at):
            (store_ms,) = _STORE_MS.unpack_from(view, at + _STORE_MS_AT)
            return int(store_ms), view[at + HEADER_BYTES :]
        at = view.rfind(MAGIC, 0, at + len(MAGIC) - 1)
    return None


def check_payload(frame: Frame, payload: memoryview) -> None:
    """Raises BadFrameError unless the payload is whole and agrees with its frame."""
    if frame.kind == Kind.CONTROL:
        if crc32c(payload) != frame.payload_crc:
            raise BadFrameError("control record checksum")
    elif frame.kind == Kind.BATCH and len(payload):
        if len(payload) < 61:
            raise BadFrameError("batch too short")
        base_offset, length, epoch, magic, crc = BATCH_HEADER.unpack_from(payload)
        if (base_offset, length, epoch, magic) != (frame.base_offset, len(payload) - 12, frame.generation, 2):
            raise BadFrameError("batch and frame disagree")
        if crc32c(payload[21:]) != crc:
            raise BadFrameError("batch checksum")


def control_crc(payload: Buffer) -> int:
    return crc32c(payload)
