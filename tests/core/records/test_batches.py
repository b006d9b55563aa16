"""Whole batches: golden bytes of other implementations, parity with them, round trips, splicing, and lies."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.core.crc import load_crcmod
from halfmoon.core.records import batches as rb
from halfmoon.core.records.batch_header import assemble
from halfmoon.core.records.compression import compress
from halfmoon.errors import BrokerError, Fault

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "record_batches.json").read_text())
CODECS = [0, 1, 2, 3, 4]
each_codec = pytest.mark.parametrize("codec", CODECS, ids=["none", "gzip", "snappy", "lz4", "zstd"])
BASE = 1_700_000_000_000
ORDINARY = [
    (None if i % 5 == 0 else b"key %d" % i, b"value " * i, BASE + 10 * i, [("TAGS", b"paid"), ("none", None)][: i % 3])
    for i in range(10)
]

TIMES = st.integers(0, 2**52)
RECORDS = st.tuples(
    st.none() | st.binary(max_size=20),
    st.none() | st.binary(max_size=300),
    TIMES,
    st.lists(
        st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=9), st.none() | st.binary(max_size=9)),
        max_size=3,
    ),
)


def contents(records):
    return [(r.key, r.value, r.timestamp, list(r.headers)) for r in records]


def check_whole(batch):
    """What must hold of every batch we make, whoever reads it."""
    header = rb.parse_header(batch)
    assert header.batch_length == len(batch) - 12
    assert header.magic == 2
    assert header.crc == load_crcmod()(bytes(batch[21:]))
    read = list(rb.iter_records(batch))
    assert header.record_count == len(read)
    assert header.last_offset_delta == read[-1].offset_delta
    assert header.max_timestamp == max(r.timestamp for r in read)
    return header, read


@pytest.fixture(params=["kafka", "aiokafka"])
def foreign_read(request):
    """From a batch to [(offset, timestamp, key, value, headers)], by another implementation."""
    module = pytest.importorskip(f"{request.param}.record.default_records")

    def read(batch):
        parsed = module.DefaultRecordBatch(bytes(batch))
        assert parsed.validate_crc()
        return [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in parsed]

    return read


def skip_unless_installed(codec):
    """kafka-python needs a library per codec, and one of them is none of our dependencies."""
    if codec == 2:
        pytest.importorskip("snappy")
    if codec == 3:
        pytest.importorskip("lz4")
    if codec == 4:
        pytest.importorskip("zstandard")


# ------------------------------------------------------------------------------------------------- others' batches


@pytest.mark.parametrize(
    "golden", GOLDEN["batches"], ids=lambda g: f"{g['library'].split()[0]}-{g['codec']}-{g['producer'][0]}"
)
def test_golden_batches(golden):
    batch = bytes.fromhex(golden["hex"])
    header = rb.check_batch(memoryview(batch), len(batch))
    assert header.attributes == golden["codec"]
    assert [header.producer_id, header.producer_epoch, header.base_sequence] == golden["producer"]
    rb.validate_records(batch)

    def text(content):
        return None if content is None else content.hex()

    assert [
        [r.offset_delta, r.timestamp, text(r.key), text(r.value), [[n, text(c)] for n, c in r.headers]]
        for r in rb.iter_records(batch)
    ] == GOLDEN["records"]
    check_whole(batch)


def test_an_uncompressed_batch_is_byte_for_byte_what_others_build():
    golden = [bytes.fromhex(g["hex"]) for g in GOLDEN["batches"] if g["codec"] == 0 and g["producer"][0] == 4711]
    producer = {"producer_id": 4711, "producer_epoch": 3, "base_sequence": 2**31 - 3}

    def octets(text):
        return None if text is None else bytes.fromhex(text)

    records = [(octets(k), octets(v), t, [(n, octets(c)) for n, c in h]) for _, t, k, v, h in GOLDEN["records"]]
    ours = rb.build_batch(records, **producer)
    assert len(golden) == 2
    for theirs in golden:
        # The leader epoch is the broker's; builders fill in 0 or -1.
        assert (ours[:12], ours[16:]) == (theirs[:12], theirs[16:])


@each_codec
def test_others_read_what_we_build(codec, foreign_read):
    skip_unless_installed(codec)
    batch = rb.build_batch(ORDINARY, base_offset=500, codec=codec)
    assert foreign_read(batch) == [(500 + i, t, k, v, list(h)) for i, (k, v, t, h) in enumerate(ORDINARY)]


@each_codec
def test_others_read_what_we_splice(codec, foreign_read):
    skip_unless_installed(codec)
    batch = rb.build_batch(ORDINARY, base_offset=500, codec=codec)
    spliced = rb.splice(batch, [1, 2, 6])
    assert foreign_read(spliced) == [
        (500 + i, ORDINARY[i][2], ORDINARY[i][0], ORDINARY[i][1], list(ORDINARY[i][3])) for i in (1, 2, 6)
    ]


def test_others_read_log_append_time(foreign_read):
    batch = bytearray(rb.build_batch(ORDINARY))
    rb.set_log_append_time(memoryview(batch), BASE + 12345)
    assert {found[1] for found in foreign_read(batch)} == {BASE + 12345}


# --------------------------------------------------------------------------------------------------- building, reading


@given(st.lists(RECORDS, min_size=1, max_size=8), st.sampled_from(CODECS), st.integers(0, 2**40))
def test_round_trip(records, codec, base_offset):
    batch = rb.build_batch(records, codec=codec, base_offset=base_offset)
    header, read = check_whole(batch)
    assert contents(read) == records
    assert header.base_offset == base_offset
    assert rb.check_batch(memoryview(batch), len(batch)) == header
    rb.validate_records(memoryview(batch))
    body, bounds = rb.record_spans(batch)
    assert [(r.start, r.end) for r in read] == list(itertools.pairwise(bounds))
    assert rb.batch_body(batch) == body


def test_build_says_what_it_is_told():
    batch = rb.build_batch(
        ORDINARY, base_offset=7, codec=4, producer_id=9, producer_epoch=1, base_sequence=5, leader_epoch=3,
        timestamp_type=1,
    )  # fmt: skip
    header, read = check_whole(batch)
    assert header[:3] == (7, len(batch) - 12, 3)
    assert header.attributes == 4 | rb.TIMESTAMP_TYPE
    assert header[9:] == (9, 1, 5, len(ORDINARY))
    assert {r.timestamp for r in read} == {ORDINARY[-1][2]}


def test_a_batch_of_the_earliest_and_the_latest_time():
    times = [0, (1 << 63) - 1, -(1 << 63)]
    for order in itertools.permutations(times):
        _, read = check_whole(rb.build_batch([(None, b"", time, ()) for time in order]))
        assert tuple(record.timestamp for record in read) == order


def test_a_batch_without_records_is_not_built():
    with pytest.raises(ValueError, match="at least one"):
        rb.build_batch([])


def test_the_body_of_an_uncompressed_batch_is_not_copied():
    batch = bytearray(rb.build_batch(ORDINARY))
    body = rb.batch_body(batch)
    batch[61] ^= 1
    assert body[0] == batch[61]


# ------------------------------------------------------------------------------------------------------------- time


@given(st.lists(TIMES, min_size=1, max_size=9), TIMES, st.sampled_from([0, 4]))
def test_offset_for_time_is_the_first_record_that_reaches_it(times, wanted, codec):
    batch = rb.build_batch([(None, None, time, []) for time in times], base_offset=100, codec=codec)
    expected = next(((100 + i, time) for i, time in enumerate(times) if time >= wanted), None)
    assert rb.offset_for_time(batch, wanted) == expected


@given(st.lists(TIMES, min_size=1, max_size=9), st.integers(0, 9), st.sampled_from(CODECS))
def test_newest_record_is_the_first_of_the_largest_time_from_an_offset_on(times, first, codec):
    batch = rb.build_batch([(None, b"", time, ()) for time in times], base_offset=100, codec=codec)
    left = [(time, -index) for index, time in enumerate(times) if index >= first]
    expected = (100 - max(left)[1], max(left)[0]) if left else None
    assert rb.newest_record(batch, min_offset=100 + first) == expected


def test_offset_for_time_of_a_batch_with_holes_and_of_log_append_time():
    batch = rb.splice(rb.build_batch(ORDINARY, base_offset=100), [3, 7])
    assert rb.offset_for_time(batch, 0) == (103, BASE + 30)
    assert rb.offset_for_time(batch, BASE + 31) == (107, BASE + 70)
    assert rb.offset_for_time(batch, BASE + 71) is None
    stamped = bytearray(batch)
    rb.set_log_append_time(memoryview(stamped), BASE - 5)
    assert rb.offset_for_time(stamped, BASE - 5) == (103, BASE - 5)
    assert rb.offset_for_time(stamped, BASE - 4) is None


@each_codec
def test_log_append_time_replaces_every_timestamp_and_the_crc(codec):
    batch = bytearray(rb.build_batch(ORDINARY, codec=codec))
    old_crc = rb.parse_header(batch).crc
    rb.set_log_append_time(memoryview(batch), BASE + 99_999)
    header, read = check_whole(batch)
    assert header.crc != old_crc
    assert header.max_timestamp == BASE + 99_999
    assert [(r.key, r.value) for r in read] == [(k, v) for k, v, *_ in ORDINARY]
    assert {r.timestamp for r in read} == {BASE + 99_999}


# ---------------------------------------------------------------------------------------------------------- splicing


@each_codec
@pytest.mark.parametrize(
    "keep",
    [range(1, 10), range(9), [0, 1, 5, 9], [0], [9], [4], range(10)],
    ids=["front out", "end out", "middle out", "first", "last", "one inside", "all"],
)
def test_splice(codec, keep):
    batch = rb.build_batch(
        ORDINARY, base_offset=500, codec=codec, producer_id=9, producer_epoch=1, base_sequence=5, leader_epoch=3
    )
    spliced = rb.splice(batch, keep)
    before, all_records = check_whole(batch)
    after, read = check_whole(spliced)
    assert contents(read) == [ORDINARY[i] for i in keep]
    assert [r.offset_delta for r in read] == list(keep)
    assert after == before._replace(
        batch_length=after.batch_length,
        crc=after.crc,
        last_offset_delta=keep[-1],
        max_timestamp=ORDINARY[keep[-1]][2],
        record_count=len(keep),
    )
    old, new = rb.record_spans(batch), rb.record_spans(spliced)
    assert new.body == b"".join(old.body[all_records[i].start : all_records[i].end] for i in keep)


@given(st.lists(RECORDS, min_size=1, max_size=8), st.sampled_from(CODECS), st.data())
def test_splice_any_and_splice_again(records, codec, data):
    batch = rb.build_batch(records, codec=codec)
    keep = sorted(data.draw(st.sets(st.integers(0, len(records) - 1), min_size=1)))
    spliced = rb.splice(batch, keep)
    _, read = check_whole(spliced)
    assert contents(read) == [records[i] for i in keep]
    again = rb.splice(spliced, [len(keep) - 1])
    _, (last,) = check_whole(again)
    assert last.offset_delta == keep[-1]


def test_splice_keeps_log_append_time():
    batch = bytearray(rb.build_batch(ORDINARY))
    rb.set_log_append_time(memoryview(batch), BASE + 99_999)
    header, _ = check_whole(rb.splice(batch, [0, 1]))
    assert header.max_timestamp == BASE + 99_999


def test_splice_refuses_what_a_programmer_may_get_wrong():
    batch = rb.build_batch(ORDINARY)
    for keep in ([], [1, 1], [2, 1], [-1]):
        with pytest.raises(AssertionError):
            rb.splice(batch, keep)
    with pytest.raises(IndexError):
        rb.splice(batch, [10])


# -------------------------------------------------------------------------------------------------------------- lies


def fault_of(work):
    """The fault that `work` raises, or None; any other exception fails the test."""
    try:
        work()
    except BrokerError as error:
        return error.fault
    return None


def every_reader(batch, max_bytes=1 << 20):
    """Each function that looks inside, with what it raises."""
    yield lambda: list(rb.iter_records(batch, max_bytes=max_bytes))
    yield lambda: rb.record_spans(batch, max_bytes=max_bytes)
    yield lambda: rb.validate_records(batch, max_bytes=max_bytes)
    yield lambda: rb.offset_for_time(batch, 0, max_bytes=max_bytes)
    yield lambda: rb.splice(batch, [0], max_bytes=max_bytes)


def lie(codec=0, body=None, **fields):
    """A batch with a right checksum whose header, body or both say what is not so."""
    honest = rb.build_batch(ORDINARY, codec=codec)
    body = rb.batch_body(honest) if body is None else body
    return assemble(rb.parse_header(honest)._replace(**fields), compress(codec, body))


@each_codec
@pytest.mark.parametrize(
    "fields",
    [
        {"record_count": 9, "last_offset_delta": 8},
        {"record_count": 11, "last_offset_delta": 10},
        {"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 2},
        {"record_count": -1},
        {"record_count": 0},
        {"body": b""},
        {"body": b"\0" * 70},
        {"body": b"\xff" * 70},
    ],
)
def test_a_lying_batch_with_a_right_checksum(codec, fields):
    for read in every_reader(lie(codec, **fields)):
        with pytest.raises(BrokerError) as caught:
            read()
        assert caught.value.fault is Fault.INVALID_RECORD


def test_a_lying_timestamp_does_not_overflow():
    batch = lie(base_timestamp=2**63 - 1, max_timestamp=2**63 - 1)
    for read in every_reader(batch):
        assert fault_of(read) in (None, Fault.INVALID_RECORD)
    with pytest.raises(BrokerError):
        rb.splice(batch, [9])


def test_offset_deltas_that_are_not_0_1_2_are_refused():
    twice = bytes(rb.batch_body(rb.build_batch(ORDINARY[:1]))) * 2
    with pytest.raises(BrokerError, match="record 1"):
        rb.validate_records(lie(body=twice, record_count=2, last_offset_delta=1))
    with pytest.raises(BrokerError, match="record 1"):
        rb.splice(lie(body=twice, record_count=2, last_offset_delta=1), [0, 1])


@pytest.mark.parametrize(
    "batch", [b"", bytes(60), bytes(61), rb.build_batch(ORDINARY)[:-1], rb.build_batch(ORDINARY) * 2]
)
def test_what_is_not_one_batch_is_corrupt(batch):
    for read in every_reader(batch):
        with pytest.raises(BrokerError) as caught:
            read()
        assert caught.value.fault is Fault.CORRUPT_MESSAGE


@given(st.sampled_from([*CODECS, 5, 7]), st.booleans(), st.data())
def test_mutated_batches_raise_nothing_but_broker_errors(codec, inside, data):
    """`inside` mutates the decompressed records and makes the rest agree, so that the mutation is reached."""
    known = codec if codec < 5 else 0
    honest = rb.build_batch(ORDINARY, codec=known)
    bytes_ = bytearray(rb.batch_body(honest) if inside else honest)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(bytes_) - 1))
        bytes_[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
        bytes_ += b"\0" * (not bytes_)
    if inside:
        header = rb.parse_header(honest)
        bytes_ = bytearray(assemble(header, compress(known, bytes_)))
    if codec > 4 and len(bytes_) > 22:
        bytes_[22] = codec
    batch = bytes(bytes_)
    for read in (lambda: rb.check_batch(memoryview(batch), 1 << 20), *every_reader(batch)):
        fault_of(read)


@each_codec
def test_a_bomb_inside_a_batch_is_bounded(codec):
    limit = 1 << 20
    body = bytes(64 << 20) if codec else b""
    batch = lie(codec, body=body)
    del body
    tracemalloc.start()
    try:
        for read in every_reader(batch, limit):
            with pytest.raises(BrokerError) as caught:
                read()
            assert caught.value.fault is Fault.INVALID_RECORD
        assert tracemalloc.get_traced_memory()[1] < 3 * limit + len(batch)
    finally:
        tracemalloc.stop()


def test_many_smallest_records_take_little_more_than_their_bytes():
    """Record boundaries are kept in an array: a list of them would be nine times as large as the records."""
    count = 200_000
    body = bytes.fromhex("0c000000010100") * count
    batch = lie(4, body=body, record_count=count, last_offset_delta=count - 1)
    tracemalloc.start()
    try:
        rb.record_spans(batch, max_bytes=len(body))
        assert tracemalloc.get_traced_memory()[1] < 4 * len(body)
    finally:
        tracemalloc.stop()
