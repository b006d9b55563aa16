"""Markers: the control batches that end a transaction in a partition.

A marker is a batch of one record. Its attributes say transactional and control; it has the producer's id and epoch, and
no sequence (−1). All numbers are big-endian:

    key    version i16 = 0, type i16: 0 abort, 1 commit
    value  version i16 = 0, coordinator epoch i32

Clients skip it by its attributes; readers of committed records also learn from it that an aborted transaction is over.
Formats: ControlRecordType.json, EndTxnMarker.json.
"""

from __future__ import annotations

import struct

from halfmoon.core.records import record_codec
from halfmoon.core.records.batch_header import CONTROL, HEADER_BYTES, TRANSACTIONAL, BatchHeader, assemble
from halfmoon.errors import BrokerError, Fault

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION = 0
_ABORT, _COMMIT = 0, 1


def build(producer_id: int, epoch: int, coordinator_epoch: int, now_ms: int, *, committed: bool) -> bytearray:
    """A marker, whose offset is still to be set. `now_ms` is its record's time (Unix ms)."""
    body = bytearray()
    key = _KEY.pack(_VERSION, _COMMIT if committed else _ABORT)
    record_codec.write(body, 0, 0, key, _VALUE.pack(_VERSION, coordinator_epoch), ())
    header = BatchHeader(0, 0, 0, 0, 0, TRANSACTIONAL | CONTROL, 0, now_ms, now_ms, producer_id, epoch, -1, 1)
    return bytearray(assemble(header, body))


def is_commit(batch: memoryview) -> bool:
    """Whether a marker says commit; all others say abort. Raises BrokerError(INVALID_RECORD) where it is no marker."""
    record = record_codec.read_one(bytes(batch[HEADER_BYTES:]), 0, 0, 0, None)
    if record.key is None or len(record.key) < _KEY.size:
        raise BrokerError(Fault.INVALID_RECORD, "a control batch that is no transaction's marker")
    _, kind = _KEY.unpack_from(record.key)
    return bool(kind == _COMMIT)
