"""Markers are Apache Kafka's, byte for byte."""

from __future__ import annotations

import pytest

from halfmoon.core.records.batch_header import CONTROL, TRANSACTIONAL, check_batch, parse_header, stamp
from halfmoon.core.records.batches import build_batch
from halfmoon.core.records.record_codec import write
from halfmoon.core.transactions import marker
from halfmoon.errors import BrokerError

COMMIT = bytes.fromhex(
    "0000000000000001 00000042 00000000 02 ac4a1cd1 0030 00000000 000001a203ce23a4 000001a203ce23a4"
    "0000000000000005 0000 ffffffff 00000001 20 00 00 00 08 00000001 0c 000000000000 00"
)
ABORT = bytes.fromhex(
    "0000000000000003 00000042 00000000 02 d7474c1d 0030 00000000 000001a203ce23a9 000001a203ce23a9"
    "0000000000000005 0000 ffffffff 00000001 20 00 00 00 08 00000000 0c 000000000000 00"
)
"""What Kafka 4.3.1 wrote for producer id 5, epoch 0, coordinator epoch 0, at the offsets 1 and 3."""


@pytest.mark.parametrize(("golden", "offset", "now_ms"), [(COMMIT, 1, 0x1A203CE23A4), (ABORT, 3, 0x1A203CE23A9)])
def test_the_bytes_are_kafkas(golden: bytes, offset: int, now_ms: int) -> None:
    made = marker.build(5, 0, 0, now_ms, committed=golden is COMMIT)
    stamp(memoryview(made), offset, 0)
    assert bytes(made) == golden
    assert parse_header(made).attributes == TRANSACTIONAL | CONTROL
    assert marker.is_commit(memoryview(golden)) == (golden is COMMIT)


def test_a_producer_cannot_write_one() -> None:
    with pytest.raises(BrokerError, match="control batches"):
        check_batch(memoryview(bytearray(COMMIT)), 1_000)


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0"])
def test_other_control_records(key: bytes | None) -> None:
    body = bytearray()
    write(body, 0, 0, key, b"", ())
    with pytest.raises(BrokerError, match="no transaction's marker"):
        marker.is_commit(memoryview(build_batch([(key, b"", 0, ())])))
