"""Which records of a batch a filter lets through, with and without bytes to search for."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.core.records.batches import Record, build_batch, iter_records, parse_header, splice
from halfmoon.core.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.common.filtering import READ, WALKED, FoundInThread, found_in_thread, matches, matching
from halfmoon.services.common.filters import IN_LOOP_BYTES, takes_long


class Filter:
    """Matches what `match` says, and has seen the records that it was asked about."""

    def __init__(self, match: Callable[[Record], bool], needle: re.Pattern[bytes] | None = None) -> None:
        self.needle = needle
        self.seen: list[Record] = []
        self._match = match

    def match(self, record: Record) -> bool:
        self.seen.append(record)
        return self._match(record)


def colour(wanted: bytes) -> Callable[[Record], bool]:
    return lambda record: ("colour", wanted) in record.headers


def painted(*colours: bytes, codec: int = NONE) -> bytes:
    return build_batch(
        [(b"key", b"value %d" % at, 1000 + at, [("x", b"y"), ("colour", colour)]) for at, colour in enumerate(colours)],
        codec=codec, base_offset=50,
    )  # fmt: skip


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("needle", [None, re.compile(b"red")])
def test_the_records_that_match(codec: int, needle: re.Pattern[bytes] | None) -> None:
    batch = painted(b"red", b"blue", b"red", b"infrared", b"red", codec=codec)
    assert matching(batch, Filter(colour(b"red"), needle)) == [0, 2, 4]
    assert matching(batch, Filter(colour(b"green"), needle)) == []


@pytest.mark.parametrize("count", [READ, READ + 1, WALKED, WALKED + 1, 3 * WALKED, 3 * WALKED + 5])
@pytest.mark.parametrize("needle", [None, re.compile(b"red")])
def test_large_batches_come_in_parts(count: int, needle: re.Pattern[bytes] | None) -> None:
    colours = [b"red" if at % 97 == 0 or at == count - 1 else b"blue" for at in range(count)]
    batch = painted(*colours)
    wanted = [at for at, colour in enumerate(colours) if colour == b"red"]
    assert matching(batch, Filter(colour(b"red"), needle)) == wanted
    looking = Filter(colour(b"red"), needle)
    parts = []
    for part in matches(batch[61:], parse_header(batch), looking):
        assert len(looking.seen) <= READ, "a part is no longer than that"
        looking.seen.clear()
        parts.append(part)
    assert len(parts) == -(-count // (WALKED if needle else READ))
    records = list(iter_records(batch))
    assert [found for part in parts for found in part] == [(at, records[at]) for at in wanted]


def test_where_all_records_hold_the_bytes_the_parts_are_as_short() -> None:
    batch = painted(*[b"red"] * 500)
    parts = list(matches(batch[61:], parse_header(batch), Filter(colour(b"red"), re.compile(b"red"))))
    assert max(map(len, parts)) == READ
    assert [index for part in parts for index, _ in part] == list(range(500))


def test_what_a_filter_raises_may_count_as_no_match() -> None:
    def match(record: Record) -> bool:
        if record.offset_delta == 1:
            raise ValueError("one")
        return True

    batch = painted(b"a", b"b", b"c")
    errors: list[Exception] = []
    parts = matches(batch[61:], parse_header(batch), Filter(match), errors.append)
    assert [index for part in parts for index, _ in part] == [0, 2]
    assert [str(error) for error in errors] == ["one"]


def test_only_what_holds_the_bytes_is_read() -> None:
    one = Filter(colour(b"red"), re.compile(b"red"))
    assert matching(painted(b"blue", b"red", b"blue", b"infrared"), one) == [1]
    assert [(record.offset_delta, record.timestamp, record.value) for record in one.seen] == [
        (1, 1001, b"value 1"), (3, 1003, b"value 3"),
    ]  # fmt: skip


def test_without_the_bytes_a_batch_is_not_even_walked() -> None:
    broken = bytearray(painted(b"blue", b"blue"))
    broken[61] = 0xFF  # the first record's length
    assert matching(bytes(broken), Filter(colour(b"red"), re.compile(b"red"))) == []
    with pytest.raises(BrokerError) as caught:
        matching(bytes(broken), Filter(colour(b"blue"), re.compile(b"blue")))
    assert caught.value.fault is Fault.INVALID_RECORD


def test_a_malformed_record_is_named_by_its_place() -> None:
    batch = bytearray(painted(b"blue", b"red"))
    at = batch.rindex(b"\x0ccolour\x06red")
    batch[at] = 0x7E  # a name of 63 bytes
    with pytest.raises(BrokerError, match="record 1"):
        matching(bytes(batch), Filter(colour(b"red"), re.compile(b"red")))


def test_bytes_that_reach_from_one_record_into_the_next_hide_nothing() -> None:
    one = Filter(lambda record: True, re.compile(b"v.*red", re.DOTALL))
    assert matching(painted(b"blue", b"blue", b"red"), one) == [0, 1, 2]


def test_holes_stay_where_they_are() -> None:
    batch = splice(painted(b"red", b"blue", b"blue", b"red"), [1, 3])
    one = Filter(colour(b"red"), re.compile(b"red"))
    assert matching(batch, one) == [1], "the index among those that are there"
    assert one.seen[0].offset_delta == 3


def test_what_a_filter_raises_comes_out() -> None:
    def fail(record: Record) -> bool:
        raise KeyError("x")

    with pytest.raises(KeyError):
        matching(painted(b"red"), Filter(fail))


@given(
    st.lists(st.sampled_from([b"red", b"blue", b"redder", b"r"]), min_size=1, max_size=30),
    st.sampled_from([NONE, ZSTD]),
)
def test_searching_first_changes_nothing(colours: list[bytes], codec: int) -> None:
    batch = painted(*colours, codec=codec)
    expected = [index for index, one in enumerate(colours) if one == b"red"]
    assert matching(batch, Filter(colour(b"red"))) == expected
    assert matching(batch, Filter(colour(b"red"), re.compile(b"red"))) == expected


# -- filters that take long --------------------------------------------------------------------------------------------


def test_a_thread_finds_the_same_and_gives_the_errors_back() -> None:
    def red(record: Record) -> bool:
        if ("colour", b"bad") in record.headers:
            raise ValueError("bad")
        return ("colour", b"red") in record.headers

    batch = painted(*[b"red", b"bad", b"blue"] * READ)
    found = found_in_thread(batch[61:], parse_header(batch), Filter(red))
    assert isinstance(found, FoundInThread)
    assert [index for part in found.parts for index, _ in part] == list(range(0, 3 * READ, 3))
    assert list(map(str, found.errors)) == ["bad"] * READ


def test_a_thread_gives_back_that_a_batch_cannot_be_read() -> None:
    batch = painted(b"red", b"blue")
    error = found_in_thread(batch[61:-3], parse_header(batch), Filter(colour(b"red")))
    assert isinstance(error, BrokerError)
    assert error.fault is Fault.INVALID_RECORD


def test_a_filter_says_whether_it_takes_long() -> None:
    quick, slow = Filter(colour(b"red")), Filter(colour(b"red"))
    slow.takes_long = True  # type: ignore[attr-defined]
    assert takes_long(slow, bytes(IN_LOOP_BYTES + 1))
    assert not takes_long(slow, bytes(IN_LOOP_BYTES)), "a thread costs more"
    assert not takes_long(quick, bytes(1 << 20))
