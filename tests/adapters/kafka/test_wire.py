"""Primitives, and decoding by definitions: what is written is read alike, and no bytes do harm."""

from __future__ import annotations

import random
import time

import pytest

from halfmoon.adapters.kafka.errors import MalformedRequest
from halfmoon.adapters.kafka.fetch_codec import parse as parse_fetch
from halfmoon.adapters.kafka.produce_codec import parse as parse_produce
from halfmoon.adapters.kafka.protocol import REQUESTS, decode_request
from halfmoon.kafka_wire import primitives as wire
from tests.kafka_wire.filling import FULL, filled

MESSAGES = [(key, version) for key, kind in sorted(REQUESTS.items()) for version in range(kind.api.last_version + 1)]


def encoded(key: int, version: int) -> bytes:
    return bytes(filled(REQUESTS[key], version, FULL).encode(version))


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 16_383, 16_384, 2**31 - 1, 2**32 - 1])
def test_uvarint_round_trip(value):
    data = b"\x07" + wire.encode_uvarint(value)
    assert wire.uvarint(memoryview(data), 1) == (value, len(data))


@pytest.mark.parametrize("data", [b"\xff" * 5, b"\xff\xff\xff\xff\x1f", b"\x80" * 1000])
def test_a_varint_beyond_32_bits_is_malformed(data):
    with pytest.raises(MalformedRequest):
        wire.uvarint(memoryview(data), 0)


def test_a_varint_that_is_cut_off_is_truncated():
    with pytest.raises(wire.TRUNCATED):
        wire.uvarint(memoryview(b"\x80\x80"), 0)


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("value", [None, "", "a", "ü" * 200])
def test_strings_round_trip(value, compact):
    data = memoryview(wire.encode_string(value, compact))
    assert wire.nullable_string(data, 0, compact) == (value, len(data))
    if value is None:
        with pytest.raises(MalformedRequest):
            wire.string(data, 0, compact)


def test_a_string_must_be_utf8():
    with pytest.raises(MalformedRequest, match="UTF-8"):
        wire.string(memoryview(b"\x02\xff"), 0, True)


def test_a_length_beyond_the_request_is_refused_before_anything_is_taken():
    for reader in (wire.string, wire.array_size):
        with pytest.raises(MalformedRequest):
            reader(memoryview(b"\x7f\xff\xff\xff"), 0, False)


def test_tags_are_stepped_over():
    data = memoryview(b"\x02\x00\x01A\x05\x02BCrest")
    assert bytes(data[wire.skip_tags(data, 0) :]) == b"rest"


@pytest.mark.parametrize(("key", "version"), MESSAGES)
def test_requests_are_read_as_they_were_written(key, version):
    """tests/kafka_wire compares them with kafka-python's."""
    assert decode_request(key, version, memoryview(encoded(key, version))) == filled(REQUESTS[key], version, FULL)


@pytest.mark.parametrize(("key", "version"), MESSAGES)
def test_a_request_cut_anywhere_is_malformed(key, version):
    raw = memoryview(encoded(key, version))
    for end in range(len(raw)):
        with pytest.raises(MalformedRequest):
            decode_request(key, version, raw[:end])


def test_damaged_requests_are_read_or_malformed_and_nothing_else():
    dice = random.Random(3)
    for key, version in MESSAGES:
        raw = encoded(key, version)
        for _ in range(20 if raw else 0):
            damaged = bytearray(raw)
            for _ in range(dice.randint(1, 3)):
                damaged[dice.randrange(len(raw))] = dice.choice((0, 0x7F, 0x80, 0xFF, dice.randrange(256)))
            try:
                decode_request(key, version, memoryview(damaged))
            except MalformedRequest:
                pass


def test_null_where_none_may_be_is_malformed():
    with pytest.raises(MalformedRequest, match="null"):
        decode_request(11, 0, memoryview(b"\xff\xff" + bytes(20)))


def test_requests_that_hang_kafka_pythons_decoder_are_refused_at_once():
    """A varint of megabytes, and as many structs as there may be that each carry a tagged field."""
    begun = time.perf_counter()
    with pytest.raises(MalformedRequest):
        decode_request(3, 12, memoryview(b"\xff" * (4 << 20)))
    topics = wire.MAX_ELEMENTS
    one = bytes(16) + b"\x02t" + b"\x01\x09\x00"
    body = wire.encode_uvarint(topics + 1) + one * topics + b"\x00\x00\x00"
    assert len(decode_request(3, 12, memoryview(body)).topics) == topics
    assert time.perf_counter() - begun < 20


def many(array: bytes, count: int) -> memoryview:
    """OffsetFetch 6 of `count` topics that each hold `array`."""
    return memoryview(b"\x02g" + wire.encode_uvarint(count + 1) + (b"\x02t" + array + b"\x00") * count + b"\x00")


def test_elements_are_counted_over_all_arrays_of_a_request():
    one = wire.encode_uvarint(100) + bytes(4 * 99)
    fits = wire.MAX_ELEMENTS // 100
    assert len(decode_request(9, 6, many(one, fits)).topics) == fits
    with pytest.raises(MalformedRequest, match="more than 50000 array elements"):
        decode_request(9, 6, many(one, fits + 1))


def test_produce_and_fetch_count_them_too():
    size = wire.encode_uvarint(wire.MAX_ELEMENTS + 2)
    elements = b"\x01\x01\x00" * (wire.MAX_ELEMENTS + 1)
    with pytest.raises(MalformedRequest, match="array elements"):
        parse_produce(memoryview(b"\x00" + bytes(6) + size + elements), 9)
    partitions = b"\x02\x02t" + size + bytes(6) * (wire.MAX_ELEMENTS + 1)
    with pytest.raises(MalformedRequest, match="array elements"):
        parse_produce(memoryview(b"\x00" + bytes(6) + partitions), 9)
    with pytest.raises(MalformedRequest, match="array elements"):
        parse_fetch(memoryview(bytes(25) + size + elements), 12)


def test_tagged_fields_are_few():
    tags = b"\x09\x00" * wire.MAX_TAGS
    body = memoryview(bytes((wire.MAX_TAGS,)) + tags)
    assert wire.skip_tags(body, 0) == len(body)
    for read in (wire.skip_tags, lambda data, pos: decode_request(60, 0, data)):
        with pytest.raises(MalformedRequest, match="65 tagged fields"):
            read(memoryview((b"\x00" if read is not wire.skip_tags else b"") + b"\x41" + tags + b"\x09\x00"), 0)
