"""What a record can be found by (B05)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.core.records.batches import batch_body, build_batch, iter_records
from halfmoon.services.common.keys import OverlappingError, finds_keys, unique_key
from halfmoon.services.keyindex.keys import keys_of, possible_keys

HEADERS = st.lists(
    st.tuples(
        st.sampled_from(["KEYS", "UNIQ_KEY", "TAGS", "keys", "XKEYS"]),
        st.none()
        | st.binary(max_size=8)
        | st.binary(min_size=60, max_size=200)
        | st.sampled_from([b"a b", b" ", b"KEYS"]),
    ),
    max_size=4,
)


def found(body: bytes) -> set[bytes]:
    """In lists of three and of very many: the same."""
    several = {key for keys in possible_keys(body, 3) for key in keys}
    assert several == {key for keys in possible_keys(body, 100_000) for key in keys}
    return several


@given(
    rows=st.lists(st.tuples(st.none() | st.binary(max_size=4), st.binary(max_size=80), HEADERS), min_size=1, max_size=5)
)
def test_no_key_is_missed(rows: list[tuple[bytes | None, bytes, list[tuple[str, bytes | None]]]]) -> None:
    batch = build_batch((key, value, 0, tuple(headers)) for key, value, headers in rows)
    body = bytes(batch_body(memoryview(batch)))
    wanted = set()
    for record in iter_records(memoryview(batch)):
        wanted |= keys_of(record, own_key=False)
    try:
        assert wanted <= found(body)
    except OverlappingError:  # then records are read
        assert body.count(b"KEY") > sum(name in ("KEYS", "UNIQ_KEY") for row in rows for name, _ in row[2])
    assert finds_keys(body) or not wanted


def test_bytes_that_claim_to_be_more_than_there_are() -> None:
    """Each time they begin, what follows would be a key: without a limit the work grows with the square of them."""
    body = (b"KEYS" + b"\xfe\x3f") * 2_000
    with pytest.raises(OverlappingError):
        found(body)
    assert found((b"KEYS" + b"\xfe\xff\xff\x01") * 2_000) == {b""}


@pytest.mark.parametrize("tail", [b"", b"\x80", b"\x80\x80\x80\x80\x80\x80", b"\x01", b"\x7e", b"\xff\xff\xff\xff\x0f"])
def test_bytes_that_only_look_like_a_header_do_no_harm(tail: bytes) -> None:
    assert all(len(key) <= 0x3F for key in found(b"some KEYS" + tail + b"UNIQ_KEY" + tail))


def test_keys_are_words_and_a_unique_key_is_one() -> None:
    batch = build_batch(
        [(b"own", b"v", 0, (("KEYS", b" a  b "), ("UNIQ_KEY", b"x y"), ("UNIQ_KEY", b"z"), ("KEYS", None)))]
    )
    (record,) = iter_records(memoryview(batch))
    assert keys_of(record, own_key=False) == {b"a", b"b", b"x y", b"z"}
    assert keys_of(record, own_key=True) == {b"a", b"b", b"x y", b"z", b"own"}
    assert unique_key(record) == b"z"
