"""Provenance lists: their bytes stay what they are, and unknown ones are noticed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.schema.provenance import (
    ORIGIN_BYTES,
    GivenUp,
    Origin,
    Provenance,
    SentBack,
    SourceRange,
    SourceRun,
    UnknownProvenanceError,
    decode,
    decode_origin,
    encode,
)

_u32, _u64 = st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 64) - 1)
_runs = st.lists(st.builds(SourceRun, _u32, _u32, _u64, _u32), max_size=5).map(tuple)
_any = st.builds(
    Provenance,
    st.none() | st.builds(SourceRange, _u32, _u32, _u64, _u64),
    _runs,
    st.none() | st.builds(SentBack, st.text(max_size=9), _runs),
    st.none() | st.builds(Origin, _u32, _u32),
    _runs,
    st.none() | st.builds(GivenUp, st.text(max_size=9), _runs),
)


@given(_any)
def test_it_comes_back_as_it_went(provenance: Provenance) -> None:
    data = encode(provenance)
    assert decode(data) == decode(memoryview(data)) == provenance
    if provenance.origin is not None:
        assert decode_origin(data[-ORIGIN_BYTES:]) == provenance.origin
    for cut in range(1, len(data)):
        try:
            assert decode(data[:cut]) != provenance
        except UnknownProvenanceError:
            pass


def test_the_bytes() -> None:
    """What is in a log must be read for ever."""
    assert encode(Provenance(range=SourceRange(1, 2, 3, 4))) == (
        b"\x01\x01\0\0\0\x02\0\0\0\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0"
    )
    assert encode(Provenance(sources=(SourceRun(1, 2, 3, 4), SourceRun(5, 6, 7, 8)))) == (
        b"\x02\x02\0"
        b"\x01\0\0\0\x02\0\0\0\x03\0\0\0\0\0\0\0\x04\0\0\0"
        b"\x05\0\0\0\x06\0\0\0\x07\0\0\0\0\0\0\0\x08\0\0\0"
    )  # fmt: skip
    assert encode(Provenance(origin=Origin(1, 2))) == b"\x03\x01\0\0\0\x02\0\0\0"
    assert encode(Provenance(sent_back=SentBack("g", (SourceRun(1, 2, 3, 1),)))) == (
        b"\x04\x01\0g\x01\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\0\0\0\0\x01\0\0\0"
    )
    assert encode(Provenance(given_up=GivenUp("g", (SourceRun(1, 2, 3, 4),)))) == (
        b"\x06\x01\0g\x01\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\0\0\0\0\x04\0\0\0"
    )
    assert encode(Provenance()) == b""


def test_it_can_be_read_by_people() -> None:
    names = {7: "orders"}
    assert Provenance(range=SourceRange(7, 1, 3, 9)).describe(names) == "from orders-1[3:9]"
    waits = Provenance(sources=(SourceRun(7, 1, 3, 2), SourceRun(7, 0, 9, 1)), origin=Origin(4, 0))
    assert waits.describe(names) == "from orders-1[3:5], orders-0[9:10]; for #4-0"
    assert Provenance(origin=Origin(7, 2)).describe(names) == "for orders-2"
    back = Provenance(sent_back=SentBack("billing", (SourceRun(7, 1, 3, 1),)), origin=Origin(4, 0))
    assert back.describe(names) == "sent back by billing: orders-1[3]; for #4-0"


@pytest.mark.parametrize(
    "data",
    [
        b"\x05",
        b"\x04",
        b"\x04\x01\0\xff\0\0",
        b"\x01\x00",
        b"\x02\x05\x00",
        b"\x03" * 3,
        b"\x03" + bytes(8) + b"\x02\0\0",
    ],
)
def test_what_is_unknown_is_noticed(data: bytes) -> None:
    with pytest.raises(UnknownProvenanceError):
        decode(data)
