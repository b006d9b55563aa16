"""What is left of batches, by itself: keys, marks, markers, horizons."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.core.record_keys import LONGEST_KEY, read_keys
from halfmoon.core.records import record_codec
from halfmoon.core.records.batch_header import CONTROL, DELETE_HORIZON, TRANSACTIONAL, BatchHeader, assemble
from halfmoon.core.records.batches import batch_body, build_batch, iter_records, parse_header, set_log_append_time
from halfmoon.errors import BrokerError
from halfmoon.services.cleaner.compaction import (
    DEAD,
    LIVE,
    TOMBSTONE,
    UNDECIDED,
    LastOfKey,
    filter_marker,
    filter_records,
)

KEYS = st.none() | st.binary(max_size=80)
VALUES = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2)
Rows = list[tuple[bytes | None, bytes | None, int, list[object]]]
RECORDS = st.lists(st.tuples(KEYS, VALUES, st.integers(-(2**40), 2**60), HEADERS), min_size=1, max_size=20)


def keys_of(batch: bytes) -> list[bytes | None]:
    header = parse_header(batch)
    return read_keys(bytes(batch_body(batch)), header.record_count).keys


@given(RECORDS)
def test_keys_are_those_that_a_reader_finds(records: Rows) -> None:
    batch = build_batch(records)  # type: ignore[arg-type]
    found = read_keys(bytes(batch_body(batch)), len(records))
    for key, none, (said, value, _, _) in zip(found.keys, found.without_value, records, strict=True):
        assert bool(none) == (value is None)
        if said is None or len(said) <= LONGEST_KEY:
            assert key == said
        else:
            assert key is not None
            assert len(key) > LONGEST_KEY
    long_ones = {said for said, *_ in records if said is not None and len(said) > LONGEST_KEY}
    assert len({key for key in found.keys if key is not None and len(key) > LONGEST_KEY}) == len(long_ones)


@given(RECORDS, st.integers(0, 10**6), st.integers(1, 255))
def test_whatever_the_bytes_only_broker_errors_come_out(records: Rows, at: int, change: int) -> None:
    body = bytearray(batch_body(build_batch(records)))  # type: ignore[arg-type]
    body[at % len(body)] ^= change
    for cut in (body, body[: at % len(body)]):
        try:
            found = read_keys(bytes(cut), len(records))
        except BrokerError:
            continue
        assert len(found.keys) == len(records)


@given(
    st.lists(
        st.tuples(st.integers(1, 90), st.integers(0, 40), st.none() | st.integers(0, 70), st.integers(0, 9)),
        min_size=1,
        max_size=5,
    ),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=3),
)
def test_stretches_of_one_layout_are_read_as_any_records(
    stretches: list[tuple[int, int, int | None, int]], changes: list[tuple[int, int]]
) -> None:
    records = [
        (b"%0*d" % (key_size, at), None if value_size is None else b"v" * value_size, at << times, ())
        for count, key_size, value_size, times in stretches
        for at in range(count)
    ]
    batch = bytearray(build_batch(records))
    for at, byte in changes:
        batch[61 + at % (len(batch) - 61)] = byte
    header = parse_header(batch)
    body = bytes(batch[61:])
    try:
        bounds = record_codec.walk(body, len(records))
        expected = [record_codec.read_one(body, at, 0, 0, None) for at in bounds[:-1]]
    except BrokerError:
        return  # what is wrong with a value or a header is not seen here
    found = read_keys(body, header.record_count)
    for key, record in zip(found.keys, expected, strict=True):
        assert key == record.key or len(record.key or b"") > LONGEST_KEY
    assert list(found.without_value) == [each.value is None for each in expected]
    assert list(found.starts) == list(bounds[:-1])


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=6), max_size=12),
    st.integers(1, 2_000),
)
def test_the_marks_are_those_of_a_simple_map(batches: list[list[tuple[int, bool]]], most_bytes: int) -> None:
    """However little memory there is for keys."""
    found = [
        read_keys(
            bytes(batch_body(build_batch([(b"%d" % key, None if none else b"v", 0, ()) for key, none in batch]))),
            len(batch),
        )
        for batch in batches
    ]
    walk = LastOfKey(most_bytes)
    marks = [walk.mark(each) for each in reversed(found)]
    walks = 1
    while any(mark & UNDECIDED for each in marks for mark in each):
        walk = LastOfKey(most_bytes)
        for each, mark in zip(reversed(found), marks, strict=True):
            walk.mark_again(each, mark)
        walks += 1
        assert walks <= 50
    expected = {}
    for nth, batch in enumerate(batches):
        for at, (key, none) in enumerate(batch):
            expected[key] = nth, at, TOMBSTONE if none else LIVE
    places = {(nth, at): mark for nth, at, mark in expected.values()}
    for nth, each in enumerate(reversed(marks)):
        assert list(each) == [places.get((nth, at), DEAD) for at in range(len(each))]


def rows(*keys: bytes | None, value: bytes | None = b"v") -> list[tuple[bytes | None, bytes | None, int, tuple[()]]]:
    return [(key, value, 5_000 + at, ()) for at, key in enumerate(keys)]


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("append_time", [False, True])
def test_records_that_go_leave_holes_and_nothing_else_changes(codec: int, append_time: bool) -> None:
    data = bytearray(
        build_batch(
            rows(b"a", b"b", b"c", b"d"), base_offset=70, codec=codec, producer_id=7, producer_epoch=1, base_sequence=9
        )
    )
    if append_time:
        set_log_append_time(memoryview(data), 9_000)
    header = parse_header(data)
    left = filter_records(memoryview(data), header, bytes([DEAD, LIVE, LIVE, DEAD]), 0, 0)
    assert left is not None
    after = parse_header(left)
    changed = {"record_count": 2, "max_timestamp": 9_000 if append_time else 5_002}
    assert after == header._replace(crc=after.crc, batch_length=after.batch_length, **changed)
    assert [(each.offset_delta, each.key, each.timestamp) for each in iter_records(left)] == [
        (1, b"b", 9_000 if append_time else 5_001), (2, b"c", 9_000 if append_time else 5_002),
    ]  # fmt: skip


def test_what_is_whole_is_not_touched_and_what_is_empty_goes() -> None:
    batch = memoryview(build_batch(rows(b"a", b"b")))
    header = parse_header(batch)
    assert filter_records(batch, header, bytes([LIVE, LIVE]), 0, 0) is batch
    assert filter_records(batch, header, bytes([DEAD, DEAD]), 0, 0) is None


def test_a_horizon_is_set_kept_and_obeyed() -> None:
    batch = memoryview(build_batch([(b"a", b"v", 5_000, ()), (b"b", None, 5_500, ())]))
    first = filter_records(batch, parse_header(batch), bytes([LIVE, TOMBSTONE]), 10_000, 1_000)
    assert first is not None
    header = parse_header(first)
    assert (header.attributes, header.base_timestamp, header.max_timestamp) == (DELETE_HORIZON, 11_000, 5_500)
    assert [record.timestamp for record in iter_records(first)] == [5_000, 5_500]
    view = memoryview(first)
    assert filter_records(view, header, bytes([LIVE, TOMBSTONE]), 10_999, 1_000) is view
    later = filter_records(view, header, bytes([LIVE, TOMBSTONE]), 11_000, 1_000)
    assert later is not None
    assert [record.key for record in iter_records(later)] == [b"a"]
    assert parse_header(later).attributes == DELETE_HORIZON
    shorter = filter_records(view, header, bytes([DEAD, TOMBSTONE]), 10_500, 1_000)
    assert shorter is not None
    assert parse_header(shorter).base_timestamp == 11_000
    assert [record.timestamp for record in iter_records(shorter)] == [5_500]


def marker(base_offset: int, producer_id: int, kind: int) -> memoryview:
    """0: abort, 1: commit."""
    batch = build_batch([(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0), 6_000, ())], base_offset=base_offset)
    header: BatchHeader = parse_header(batch)
    header = header._replace(attributes=TRANSACTIONAL | CONTROL, producer_id=producer_id, producer_epoch=0)
    return memoryview(assemble(header, batch[61:]))


def test_a_marker_stays_while_it_is_needed_and_until_its_horizon() -> None:
    batch = marker(7, 3, 1)
    assert filter_marker(batch, parse_header(batch), 0, 0, needed=True) is batch
    kept = filter_marker(batch, parse_header(batch), 10_000, 1_000, needed=False)
    assert kept is not None
    header = parse_header(kept)
    assert (header.base_timestamp, header.base_offset, header.producer_id) == (11_000, 7, 3)
    assert header.attributes == TRANSACTIONAL | CONTROL | DELETE_HORIZON
    assert [record.timestamp for record in iter_records(kept)] == [6_000]
    view = memoryview(kept)
    assert filter_marker(view, header, 10_999, 1_000, needed=False) is view
    assert filter_marker(view, header, 11_000, 1_000, needed=False) is None
    assert filter_marker(view, header, 11_000, 1_000, needed=True) is view
