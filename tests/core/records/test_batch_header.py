"""The header's checks, one by one, and what the broker writes into it."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.core.crc import load_crcmod
from halfmoon.core.records import batch_header
from halfmoon.core.records.batch_header import (
    BatchHeader,
    assemble,
    check_batch,
    parse_header,
    set_log_append_time,
    stamp,
)
from halfmoon.errors import BrokerError, Fault

GOOD = BatchHeader(
    base_offset=0,
    batch_length=0,
    leader_epoch=-1,
    magic=2,
    crc=0,
    attributes=0,
    last_offset_delta=0,
    base_timestamp=1_700_000_000_000,
    max_timestamp=1_700_000_000_000,
    producer_id=-1,
    producer_epoch=-1,
    base_sequence=-1,
    record_count=1,
)
BODY = b"seven.."
MAX_BYTES = 1000


def batch(**fields):
    return memoryview(bytearray(assemble(GOOD._replace(**fields), BODY)))


def refused(data, max_bytes=MAX_BYTES):
    with pytest.raises(BrokerError) as caught:
        check_batch(memoryview(data), max_bytes)
    return caught.value.fault


def test_a_good_batch_passes_with_its_fields():
    header = check_batch(batch(), MAX_BYTES)
    assert header == parse_header(batch()) == GOOD._replace(batch_length=49 + len(BODY), crc=header.crc)
    assert header.crc == load_crcmod()(batch()[21:])


@pytest.mark.parametrize("codec", range(5))
def test_every_codec_and_unused_attribute_bits_pass(codec):
    assert check_batch(batch(attributes=codec), MAX_BYTES).attributes == codec
    assert check_batch(batch(attributes=codec | 64), MAX_BYTES).attributes == codec | 64
    assert check_batch(batch(attributes=codec - 0x8000), MAX_BYTES).attributes == codec - 0x8000


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"attributes": 5}, Fault.UNSUPPORTED_COMPRESSION_TYPE),
        ({"attributes": 7 - 0x8000}, Fault.UNSUPPORTED_COMPRESSION_TYPE),
        ({"record_count": 0, "last_offset_delta": -1}, Fault.INVALID_RECORD),
        ({"record_count": -1, "last_offset_delta": -2}, Fault.INVALID_RECORD),
        ({"record_count": 2}, Fault.INVALID_RECORD),
        ({"last_offset_delta": 1}, Fault.INVALID_RECORD),
        ({"record_count": 2, "last_offset_delta": 1}, Fault.INVALID_RECORD),
        ({"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 2}, Fault.INVALID_RECORD),
        ({"record_count": 23, "last_offset_delta": 22, "attributes": 2}, Fault.INVALID_RECORD),
        ({"record_count": 256, "last_offset_delta": 255, "attributes": 3}, Fault.INVALID_RECORD),
        ({"record_count": 1033, "last_offset_delta": 1032, "attributes": 1}, Fault.INVALID_RECORD),
        (
            {
                "record_count": 32_769,
                "last_offset_delta": 32_768,
                "attributes": 4 | 16,
                "producer_id": 5,
                "producer_epoch": 0,
                "base_sequence": 0,
            },
            Fault.INVALID_RECORD,
        ),
        ({"attributes": 32}, Fault.INVALID_RECORD),
        ({"attributes": 16}, Fault.INVALID_RECORD),
        ({"attributes": 8}, Fault.INVALID_TIMESTAMP),
        ({"producer_id": 5, "producer_epoch": -1, "base_sequence": 0}, Fault.INVALID_RECORD),
        ({"producer_id": 5, "producer_epoch": 0, "base_sequence": -1}, Fault.INVALID_RECORD),
    ],
)
def test_fields_that_are_refused(fields, fault):
    assert refused(batch(**fields)) is fault


def test_an_idempotent_producers_batch_passes():
    check_batch(batch(producer_id=0, producer_epoch=0, base_sequence=0), MAX_BYTES)


def test_framing():
    """No whole batch is INVALID_RECORD, as in Kafka; a length that no format has is CORRUPT_MESSAGE."""
    good = bytes(batch())
    for size in (0, 11, 16, 17, 60, len(good) - 1):
        assert refused(good[:size]) is Fault.INVALID_RECORD
    assert refused(good + good) is Fault.INVALID_RECORD
    assert refused(good + b"\0") is Fault.INVALID_RECORD
    for length in (-1, 0, 13, 14, 48, -(2**31)):
        assert refused(good[:8] + struct.pack(">i", length) + good[12:]) is Fault.CORRUPT_MESSAGE
    assert refused(good[:8] + struct.pack(">i", 2**31 - 1) + good[12:]) is Fault.INVALID_RECORD


@pytest.mark.parametrize("magic", [0, 1, 3, 127, 255])
@pytest.mark.parametrize("size", [26, 34, 68, 300])
def test_other_message_formats(magic, size):
    """Formats 0 and 1 have no batch header, but their magic stands at the same byte."""
    data = struct.pack(">qiIB", 0, size - 12, 0, magic).ljust(size, b"\0")
    assert refused(data) is (Fault.INVALID_RECORD if magic < 2 else Fault.CORRUPT_MESSAGE)


def test_size_comes_before_the_checksum_and_the_checksum_before_the_fields():
    data = batch(attributes=7)
    data[-1] ^= 1
    assert refused(data, len(data) - 1) is Fault.MESSAGE_TOO_LARGE
    assert refused(data, len(data)) is Fault.CORRUPT_MESSAGE


@given(st.integers(17, 61 + len(BODY) - 1), st.integers(0, 7))
def test_one_flipped_bit_behind_the_crcs_start_is_found(at, bit):
    data = batch()
    data[at] ^= 1 << bit
    assert refused(data) is Fault.CORRUPT_MESSAGE


@given(st.binary(max_size=200), st.integers(0, 300))
def test_garbage_gets_a_broker_error(data, max_bytes):
    refused(data, max_bytes)


@given(st.integers(0, 2**63 - 1), st.integers(-1, 2**31 - 1))
def test_stamp_leaves_the_batch_valid(base_offset, leader_epoch):
    data = batch()
    before = check_batch(data, MAX_BYTES)
    stamp(data, base_offset, leader_epoch)
    after = check_batch(data, MAX_BYTES)
    assert after == before._replace(base_offset=base_offset, leader_epoch=leader_epoch)
    assert bytes(data[61:]) == BODY


@pytest.mark.parametrize("attributes", [0, 4, 64, -0x8000])
def test_log_append_time_is_stamped_with_a_new_crc(attributes):
    data = batch(attributes=attributes)
    before = parse_header(data)
    set_log_append_time(data, 1_800_000_000_000)
    after = parse_header(data)
    assert after == before._replace(attributes=attributes | 8, max_timestamp=1_800_000_000_000, crc=after.crc)
    assert after.crc == load_crcmod()(data[21:]) != before.crc


def test_parse_header_of_too_little():
    with pytest.raises(BrokerError) as caught:
        parse_header(bytes(60))
    assert caught.value.fault is Fault.CORRUPT_MESSAGE


def test_assemble_takes_any_buffer_and_computes_what_follows_from_it():
    wrong = GOOD._replace(batch_length=5, magic=9, crc=77)
    assert assemble(wrong, memoryview(BODY)) == assemble(GOOD, bytearray(BODY)) == bytes(batch())
    assert batch_header.HEADER.size == batch_header.HEADER_BYTES == 61
