"""The walkers of records: the one in Python, and the compiled one where it was built, say the same of all bytes, and
take exactly what the reader of records reads."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halfmoon.core.records import record_codec
from halfmoon.core.records import walk as w
from halfmoon.errors import BrokerError, Fault

LONGS = st.integers(-(2**63), 2**63 - 1)
CONTENT = st.none() | st.binary(max_size=90)
RECORD = st.tuples(
    LONGS | st.integers(0, 100),
    CONTENT,
    CONTENT,
    st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=70), CONTENT), max_size=3),
)


def in_python(body, count, base_timestamp, most=10**9):
    """What the walk finds, and how often it has let others have a turn."""
    walking, turns = w.walk(body, count, base_timestamp, most), 0
    while True:
        try:
            next(walking)
            turns += 1
        except StopIteration as done:
            return tuple(done.value), turns


def python(body, count, base_timestamp=0):
    return in_python(body, count, base_timestamp)[0]


def compiled(body, count, base_timestamp=0):
    """Where the records begin is an argument, and any buffer will do."""
    walk = importlib.import_module("halfmoon.core.records._walk").walk
    found = walk(memoryview(b"head" + body), 4, count, base_timestamp)
    assert found == walk(bytearray(body), 0, count, base_timestamp)
    return found


def is_built():
    try:
        importlib.import_module("halfmoon.core.records._walk")
    except ImportError:
        return False
    return True


FORMS = [python, compiled] if is_built() else [python]


def found_by_all(body, count, base_timestamp=0):
    """What every form finds."""
    (found,) = {form(body, count, base_timestamp) for form in FORMS}
    for most in (1, 2, 7):
        assert in_python(body, count, base_timestamp, most)[0] == found, "slices change nothing"
    assert python(memoryview(body), count, base_timestamp) == found
    return found


def is_read(body, count, base_timestamp):
    fault = None
    try:
        for _ in record_codec.read(body, count, count - 1, base_timestamp, None):
            pass
    except BrokerError as error:
        fault = error.fault
    assert fault in (None, Fault.INVALID_RECORD)
    return fault is None


def body_of(records):
    output = bytearray()
    for index, (timestamp_delta, key, value, headers) in enumerate(records):
        record_codec.write(output, index, timestamp_delta, key, value, headers)
    return bytes(output)


def number(value):
    output = bytearray()
    record_codec.put_varint(output, value)
    return bytes(output)


def record(*, length=None, attributes=b"\0", timestamp=b"\0", offset=b"\0", key=b"\1", value=b"\1", headers=b"\0"):
    """One record from its parts as bytes; `length` as a number, the right one by default."""
    content = attributes + timestamp + offset + key + value + headers
    return (number(len(content)) if length is None else length) + content


@given(st.lists(RECORD, min_size=1, max_size=6), LONGS | st.just(0))
def test_good_records(records, base_timestamp):
    body = body_of(records)
    fault, _, keyless, has_headers = found_by_all(body, len(records), base_timestamp)
    fits = all(-(2**63) <= base_timestamp + delta < 2**63 for delta, *_ in records)
    assert fault == (w.SOUND if fits else w.TIMESTAMP)
    if fits:
        keys = [key for _, key, *_ in records]
        assert keyless == (keys.index(None) if None in keys else -1)
        assert has_headers == any(headers for *_, headers in records)


@st.composite
def broken_bodies(draw):
    """Good records with some bytes changed, taken away or added, and a count that may be wrong."""
    body = bytearray(body_of(draw(st.lists(RECORD, min_size=1, max_size=5))))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(body)))
        new = draw(st.binary(max_size=2) | st.sampled_from([b"\1", b"\3", b"\xff" * 5, b"\xff" * 10, b"\x80\0"]))
        body[at : at + draw(st.integers(0, 3))] = new
    return bytes(body)


@settings(max_examples=500)
@given(broken_bodies(), st.integers(1, 7), st.sampled_from([0, 1_700_000_000_000, -(2**63), 2**63 - 1]))
def test_broken_records_are_refused_where_they_cannot_be_read(body, count, base_timestamp):
    fault, index, *_ = found_by_all(body, count, base_timestamp)
    assert (fault == w.SOUND) == is_read(body, count, base_timestamp)
    assert 0 <= index <= count


@settings(max_examples=500)
@given(st.binary(max_size=60), st.integers(1, 9), LONGS)
def test_any_bytes(body, count, base_timestamp):
    fault, *_ = found_by_all(body, count, base_timestamp)
    assert (fault == w.SOUND) == is_read(body, count, base_timestamp)


LONG_NUMBER = b"\xff\xff\xff\xff\x1f"
"""33 bits."""
CASES = {
    "good": (record(), w.SOUND),
    "nothing": (b"", w.CUT),
    "cut": (record(value=number(5) + b"12345")[:-1], w.LENGTH),
    "cut within a number": (number(6) + b"\0\0\0\1\1\x80", w.CUT),
    "length with six bytes": (b"\x80" * 5 + b"\0", w.FIVE_BYTES),
    "length of 33 bits": (LONG_NUMBER + bytes(6), w.BITS_32),
    "negative length": (record(length=number(-1)), w.LENGTH),
    "length too small": (number(5) + bytes(6), w.LENGTH),
    "length reaches beyond": (record(length=number(7)), w.LENGTH),
    "length too short for its parts": (record(length=number(6), headers=b"\2\0\1"), w.HEADERS),
    "length too long for its parts": (number(8) + record()[1:] + b"\0\0", w.SIZE),
    "timestamp with eleven bytes": (record(timestamp=b"\x80" * 10 + b"\0"), w.TEN_BYTES),
    "timestamp of 65 bits": (record(timestamp=b"\xff" * 9 + b"\2"), w.BITS_64),
    "timestamp of 64 bits": (record(timestamp=b"\xff" * 9 + b"\1"), w.SOUND),
    "offset delta 1": (record(offset=number(1)), w.OFFSET),
    "offset delta -1": (record(offset=number(-1)), w.OFFSET),
    "key of length -2": (record(key=number(-2)), w.NEGATIVE),
    "value of length -2": (record(value=number(-2)), w.NEGATIVE),
    "key beyond": (record(key=number(4) + b"1"), w.BEYOND),
    "value beyond": (record(value=number(9) + b"1"), w.BEYOND),
    "value of 2 GiB": (record(value=number(2**31 - 1)), w.BEYOND),
    "negative header count": (record(headers=number(-1)), w.HEADERS),
    "too many headers": (record(headers=number(2**30)), w.HEADERS),
    "header without key": (record(headers=number(1) + number(-1) + b"\1"), w.NO_NAME),
    "header key of length -2": (record(headers=number(1) + number(-2) + b"\1"), w.NEGATIVE),
    "header key beyond": (record(headers=number(1) + number(9) + b"\1"), w.BEYOND),
    "header value of length -2": (record(headers=number(1) + b"\0" + number(-2)), w.NEGATIVE),
    "header value beyond": (record(headers=number(1) + b"\0" + number(3)), w.BEYOND),
    "the header count begins where the record ends": (number(6) + b"\0\x80\0\0\1\1\0", w.SIZE),
    "the header count ends behind the record": (b"\x0e\0\0\0\1\4\0\0\x80\0", w.SIZE),
    "more bytes": (record() + b"\0", w.REST),
    "a second record": (record() + record(offset=number(1)), w.REST),
    "numbers longer than needed": (record(offset=b"\x80\0", key=b"\x81\0"), w.SOUND),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES)
def test_by_hand(form, case):
    body, fault = CASES[case]
    found = form(body, 1)
    assert found[0] == fault
    assert found[1] == (1 if fault == w.REST else 0)
    assert is_read(body, 1, 0) == (fault == w.SOUND)


@pytest.mark.parametrize("form", FORMS)
def test_the_offset_delta_is_the_index(form):
    bodies = {deltas: b"".join(record(offset=number(delta)) for delta in deltas) for deltas in
              [(0, 1, 2), (2, 1, 0), (0, 0, 0), (0, 2, 4), (1, 2, 3)]}  # fmt: skip
    assert [form(body, 3)[:2] for body in bodies.values()] == [
        (w.SOUND, 2), (w.OFFSET, 0), (w.OFFSET, 1), (w.OFFSET, 1), (w.OFFSET, 0),
    ]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", [2**31 - 1, 2])
def test_a_count_that_is_too_large_ends_with_the_body(form, count):
    assert form(record(), count) == (w.CUT, 1, 0, False)


def test_a_large_body_lets_others_have_a_turn():
    """Records and headers count, since a record may have a million of them."""
    tiny = b"".join(record(offset=number(index)) for index in range(10))
    assert in_python(tiny, 10, 0, 3) == ((w.SOUND, 9, 0, False), 3)
    headers = record(headers=number(100) + b"\0\1" * 100)
    assert in_python(headers, 1, 0, 10) == ((w.SOUND, 0, 0, True), 10)


@pytest.mark.parametrize("fault", range(w.CUT, w.REST + 1))
def test_what_is_said_names_the_record(fault):
    with pytest.raises(BrokerError, match="end before" if fault == w.REST else "record 3 of the batch") as caught:
        w.refuse(w.Walked(fault, 3, -1, False))
    assert caught.value.fault is Fault.INVALID_RECORD


def test_records_without_a_key_are_found():
    keys = [b"\1", number(1) + b"k", b"\1", number(1) + b"k", b"\1"]
    body = b"".join(record(offset=number(index), key=key) for index, key in enumerate(keys))
    places: list[int] = []
    for _ in w.walk(body, len(keys), 0, 2, places):
        pass
    assert places == [0, 2, 4]
    if is_built():
        from halfmoon.core.records._walk import keyless

        assert keyless(b"head" + body, 4, len(keys)) == [0, 2, 4]
        assert keyless(body[:-1], 0, len(keys)) == [0, 2], "as far as they are sound"
        with pytest.raises(ValueError, match="outside of the buffer"):
            keyless(body, len(body) + 1, 1)


def test_what_is_said_of_records_without_a_key():
    assert w.without_keys([4]).message.startswith("record 4 of the batch has no key, and ")
    assert w.without_keys([4, 6, 9]).message.startswith("record 4 of the batch has no key (as 3 in all), and ")
    assert w.without_keys([4, 6]).records == [4, 6]
    assert w.without_keys(list(range(20_000))).records == list(range(w.MOST_NAMED))


@pytest.mark.parametrize(("value", "form"), [("1", "python"), ("0", None), ("", None)])
def test_the_environment_can_ask_for_python(value, form):
    script = "from halfmoon.core.records import walk; print(walk.FORM)"
    said = subprocess.run(
        [sys.executable, "-c", script], env={"HALFMOON_PURE": value}, capture_output=True, text=True, check=True
    ).stdout.strip()
    assert said == (form or ("compiled" if is_built() else "python"))
