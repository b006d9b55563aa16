"""CRC-32C against published vectors and against crcmod, which shares no code with the library that serves."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.core import crc

# RFC 3720, B.4, and the usual check value.
VECTORS = [
    (b"", 0),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
]
oracle = crc.load_crcmod()


@pytest.mark.parametrize("checksum", [crc.crc32c, oracle], ids=["chosen", "crcmod"])
@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, lambda data: memoryview(bytearray(data))])
@pytest.mark.parametrize(("data", "expected"), VECTORS)
def test_published_vectors_in_every_kind_of_buffer(checksum, wrap, data, expected):
    assert checksum(wrap(data)) == expected


@given(st.binary(max_size=300), st.integers(0, 300))
def test_agrees_with_the_oracle_whole_and_in_two_parts(data, cut):
    head, tail = data[:cut], data[cut:]
    assert crc.crc32c(data) == oracle(data) == crc.crc32c(tail, crc.crc32c(head)) == oracle(tail, oracle(head))


def test_the_fast_backend_serves_where_it_is_installed():
    pytest.importorskip("crc32c")
    assert crc.BACKEND == "crc32c"
    assert crc.fallback_warning(lambda: 0.0) is None


def missing():
    raise ImportError


def test_falls_back_in_order_and_names_what_is_missing():
    assert crc.choose(("fast", missing), ("slow", lambda: oracle)) == ("slow", oracle)
    with pytest.raises(ImportError, match="tried fast, slow"):
        crc.choose(("fast", missing), ("slow", missing))


def test_speed_is_bytes_over_the_callers_clock():
    ticks = itertools.count(step=0.001)  # 1 ms passes between any two looks at the clock
    assert crc.measure_mb_per_s(lambda: next(ticks), oracle) == pytest.approx(2**20 / 0.002 / 1e6, rel=0.01)


def test_the_fallback_is_announced_with_its_speed():
    ticks = itertools.count(step=0.002)
    warning = crc.fallback_warning(lambda: next(ticks), "crcmod")
    assert warning is not None
    assert "crcmod at 262 MB/s" in warning
