"""Numbers and records as bytes, and the ways in which they can be wrong."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.core.records import record_codec
from halfmoon.errors import BrokerError, Fault

LONGS = st.integers(-(2**63), 2**63 - 1)
RECORDS = st.tuples(
    st.none() | st.binary(max_size=200),
    st.none() | st.binary(max_size=20_000),
    st.lists(
        st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=9), st.none() | st.binary(max_size=80)),
        max_size=4,
    ),
)


def body_of(*records):
    output = bytearray()
    for index, (key, value, headers) in enumerate(records):
        record_codec.write(output, index, 1000 * index, key, value, headers)
    return bytes(output)


def read(body, count, last=None, append_time=None):
    return list(record_codec.read(body, count, count - 1 if last is None else last, 0, append_time))


def refused(body, count, last=None):
    with pytest.raises(BrokerError) as caught:
        read(body, count, last)
    assert caught.value.fault is Fault.INVALID_RECORD
    return caught.value.message


def fault_of(work):
    """The fault that `work` raises, or None; any other exception fails the test."""
    try:
        work()
    except BrokerError as error:
        return error.fault
    return None


@given(LONGS)
def test_numbers_round_trip(number):
    output = bytearray()
    record_codec.put_varint(output, number)
    assert record_codec.varlong(bytes(output), 0) == (number, len(output))
    if -(2**31) <= number < 2**31:
        assert record_codec.varint(bytes(output), 0) == (number, len(output))
        assert len(output) <= 5
    else:
        with pytest.raises(record_codec.MalformedError):
            record_codec.varint(bytes(output), 0)


@pytest.mark.parametrize(
    ("number", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (64, "8001"), (-8193, "818001"), (2**31 - 1, "feffffff0f")],
)
def test_numbers_by_hand(number, encoded):
    output = bytearray()
    record_codec.put_varint(output, number)
    assert output.hex() == encoded


def test_numbers_that_do_not_end():
    for read_number, most in ((record_codec.varint, 5), (record_codec.varlong, 10)):
        with pytest.raises(record_codec.MalformedError):
            read_number(b"\xff" * most + b"\0", 0)
        with pytest.raises(IndexError):
            read_number(b"\xff" * (most - 1), 0)


@given(st.lists(RECORDS, min_size=1, max_size=5), st.none() | st.integers(0, 2**60))
def test_records_round_trip(records, append_time):
    body = body_of(*records)
    result = read(body, len(records), append_time=append_time)
    assert [(r.key, r.value, list(r.headers)) for r in result] == records
    assert [r.offset_delta for r in result] == list(range(len(records)))
    times = [1000 * index for index in range(len(records))]
    assert [r.timestamp for r in result] == ([append_time] * len(records) if append_time is not None else times)
    assert [r.start for r in result] + [result[-1].end] == list(record_codec.walk(body, len(records)))
    assert [record_codec.glance(body, r.start, i, 0) for i, r in enumerate(result)] == list(enumerate(times))


def test_a_header_key_that_is_not_utf8_survives():
    body = bytes.fromhex("14 00 00 00 01 01 02 04 ff61 01".replace(" ", ""))
    (record,) = read(body, 1)
    assert record.headers == (("\udcffa", None),)
    assert body_of((None, None, record.headers)) == body


# A record by hand: length, attributes, timestamp delta, offset delta, key length, value length, header count.
@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("0c 00 00 00 01 01", "do not fit"),
        ("0a 00 00 00 01 01 00", "its length"),
        ("0b 00 00 00 01 01 00", "its length"),
        ("0e 00 00 00 01 01 00", "its length"),
        ("0c 00 00 00 03 01 00", "negative"),
        ("0c 00 00 00 01 03 00", "negative"),
        ("0c 00 00 00 02 01 00", "beyond its end|ends within"),
        ("0c 00 00 00 01 7e 00", "beyond its end"),
        ("0c 00 00 00 01 01 01", "-1 headers"),
        ("0c 00 00 00 01 01 02", "1 headers"),
        ("16 00 00 00 01 01 fe ff ff ff 0f 00", "2147483647 headers"),
        ("10 00 00 00 01 01 02 01 00", "no key"),
        ("10 00 00 00 01 01 02 04 61", "beyond its end"),
        ("10 00 00 00 01 01 00 00 00", "says 9 bytes and has 7"),
        ("18 00 ff ff ff ff ff ff ff ff ff ff 01", "more than 10 bytes"),
        ("1a 00 00 ff ff ff ff ff 01 01 01 00 00 00", "more than 5 bytes"),
        ("0c 00 00 02 01 01 00", "offset delta 1"),
        ("0c 00 00 01 01 01 00", "offset delta -1"),
        ("0c 00 00 00 01 01 00 00", "end at byte 7 of 8"),
        ("ff ff ff ff ff ff 00", "more than 5 bytes"),
        ("0c 00 00 00 01 ff ff", "ends within"),
    ],
)
def test_malformed_records_are_refused_with_a_reason(body, why):
    assert re.search(why, refused(bytes.fromhex(body), 1, 0))


def test_offset_deltas_ascend_and_times_stay_in_range():
    twice = body_of((None, None, []))
    assert "record 1" in refused(twice * 2, 2, 1)
    output = bytearray()
    record_codec.write(output, 0, 2**63 - 1, None, None, [])
    with pytest.raises(BrokerError, match="64 bits"):
        list(record_codec.read(bytes(output), 1, 0, 1, None))
    with pytest.raises(BrokerError, match="64 bits"):
        record_codec.glance(bytes(output), 0, 0, 1)


@pytest.mark.parametrize("count", [-1, -(2**31), 2, 2**31 - 1])
def test_an_impossible_count_is_refused_before_anything_is_read(count):
    body = body_of((None, None, []))
    refused(body, count, 0)
    with pytest.raises(BrokerError):
        record_codec.walk(body, count)


def test_a_length_of_sixteen_gigabytes():
    body = bytes.fromhex("feffffff7f") + bytes(20)
    refused(body, 2)
    with pytest.raises(BrokerError, match="its length is impossible"):
        record_codec.walk(body, 2)


@given(st.binary(max_size=60), st.integers(0, 9))
def test_garbage_gets_a_broker_error_or_records_within_it(body, count):
    for work in (
        lambda: read(body, count, 2**31 - 1),
        lambda: record_codec.walk(body, count),
        lambda: record_codec.glance(body, 0, 0, 0),
    ):
        assert fault_of(work) in (None, Fault.INVALID_RECORD)


@given(st.lists(RECORDS, min_size=1, max_size=3), st.data())
def test_walk_and_read_agree_wherever_a_body_is_cut(records, data):
    body = body_of(*records)
    cut = body[: data.draw(st.integers(0, len(body) - 1))]
    refused(cut, len(records))
    with pytest.raises(BrokerError):
        record_codec.walk(cut, len(records))
