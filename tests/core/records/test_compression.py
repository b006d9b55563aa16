"""Every codec as other implementations write it, and bombs of every codec."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
import textwrap
import tracemalloc
import zlib

import cramjam
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from halfmoon.core.records import compression
from halfmoon.core.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress, decompress
from halfmoon.errors import BrokerError, Fault

CODECS = [GZIP, SNAPPY, LZ4, ZSTD]
NAMES = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}
each_codec = pytest.mark.parametrize("codec", CODECS, ids=NAMES.get)
LIMIT = 1 << 20
TEXT = b"the half moon " * 5000
XERIAL_HEADER = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)


def refused(codec, data, limit=LIMIT):
    with pytest.raises(BrokerError) as caught:
        decompress(codec, data, limit)
    return caught.value


@given(st.sampled_from([NONE, *CODECS]), st.binary(max_size=2000), st.integers(1, 100))
@example(SNAPPY, b"", 1)
@example(LZ4, b"x" * 1000, 1000)
def test_round_trip(codec, piece, times):
    data = piece * times
    assert decompress(codec, memoryview(compress(codec, memoryview(data))), len(data)) == data


@each_codec
def test_the_limit_is_exact(codec):
    data = compress(codec, TEXT)
    assert decompress(codec, data, len(TEXT)) == TEXT
    error = refused(codec, data, len(TEXT) - 1)
    assert error.fault is Fault.INVALID_RECORD
    assert str(len(TEXT) - 1) in error.message


@each_codec
def test_a_buffer_that_proves_too_small_grows(codec):
    data = bytes(4_000_000)  # far more than the first guess
    assert decompress(codec, compress(codec, data), len(data)) == data


@each_codec
def test_cut_and_damaged_data_is_refused(codec):
    data = compress(codec, TEXT)
    for broken in (b"", data[: len(data) // 2], data[:-1], b"\xff" * 40, data + b"more"):
        assert refused(codec, broken).fault is Fault.INVALID_RECORD


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs(codec):
    assert refused(codec, b"").fault is Fault.UNSUPPORTED_COMPRESSION_TYPE
    with pytest.raises(BrokerError):
        compress(codec, b"")


@given(st.sampled_from(CODECS), st.data())
def test_no_garbage_gets_anything_but_a_broker_error(codec, data):
    damaged = bytearray(compress(codec, TEXT[:2000]))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
        damaged += b"\0" * (not damaged)
    try:
        result = decompress(codec, damaged, LIMIT)
    except BrokerError as error:
        result = error
    if isinstance(result, BrokerError):
        assert result.fault is Fault.INVALID_RECORD
    else:
        assert len(result) <= LIMIT


# ------------------------------------------------------------------------------------------------- what others write


def test_gzip_of_several_members():
    assert decompress(GZIP, gzip.compress(b"one") + gzip.compress(b"") + gzip.compress(b"two"), LIMIT) == b"onetwo"


@pytest.mark.parametrize("store_size", [True, False])
@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("checksum", [True, False])
def test_lz4_frames(store_size, linked, checksum):
    lz4 = pytest.importorskip("lz4.frame")
    data = lz4.compress(TEXT, store_size=store_size, block_linked=linked, content_checksum=checksum)
    assert decompress(LZ4, data, LIMIT) == TEXT
    assert decompress(LZ4, data + data, LIMIT) == TEXT + TEXT


@pytest.mark.parametrize("store_size", [True, False])
def test_zstd_frames(store_size):
    zstandard = pytest.importorskip("zstandard")
    data = zstandard.ZstdCompressor(write_content_size=store_size, write_checksum=True).compress(TEXT)
    assert decompress(ZSTD, data, LIMIT) == TEXT
    assert decompress(ZSTD, data + data, LIMIT) == TEXT + TEXT


def raw_snappy(data):
    return bytes(cramjam.snappy.compress_raw(data))


def xerial(*blocks):
    return XERIAL_HEADER + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def test_snappy_bare_and_in_javas_framing():
    first, second = raw_snappy(TEXT[:7000]), raw_snappy(TEXT[7000:])
    assert decompress(SNAPPY, raw_snappy(TEXT), LIMIT) == TEXT
    assert decompress(SNAPPY, xerial(first, second), LIMIT) == TEXT
    assert decompress(SNAPPY, xerial(first) + xerial(second), LIMIT) == TEXT
    assert decompress(SNAPPY, xerial(), LIMIT) == b""
    little_endian = b"\x82SNAPPY\0" + struct.pack("<ii", 1, 1)
    assert decompress(SNAPPY, xerial(first, second).replace(XERIAL_HEADER, little_endian), LIMIT) == TEXT


@pytest.mark.parametrize(
    "data",
    [
        XERIAL_HEADER[:-1],
        XERIAL_HEADER + b"\0\0\0",
        XERIAL_HEADER + struct.pack(">i", 0),
        XERIAL_HEADER + struct.pack(">i", -1) + b"x",
        XERIAL_HEADER + struct.pack(">i", 2**31 - 1) + b"x",
        b"\xff\xff\xff\x0f" + b"x" * 20,  # 32 MiB out of 24 bytes
    ],
)
def test_snappy_that_lies(data):
    assert refused(SNAPPY, data, 1 << 30).fault is Fault.INVALID_RECORD


def test_what_we_write_is_read_by_others():
    codec = pytest.importorskip("kafka.codec")
    assert codec.gzip_decode(compress(GZIP, TEXT)) == TEXT
    if codec.has_snappy():
        assert codec.snappy_decode(compress(SNAPPY, TEXT)) == TEXT
    if codec.has_lz4():
        assert codec.lz4_decode(compress(LZ4, TEXT)) == TEXT
    if codec.has_zstd():
        assert codec.zstd_decode(compress(ZSTD, TEXT)) == TEXT
    assert compress(LZ4, TEXT)[4] & 0x20, "Java refuses LZ4 frames whose blocks depend on one another"


# ----------------------------------------------------------------------------------------------------------- bombs

BOMB_BYTES = 256 << 20
BOMB_LIMIT = 4 << 20


def bomb(codec):
    """256 MiB of zeros, which never exist at once."""
    piece = bytes(1 << 20)
    pieces = range(BOMB_BYTES >> 20)
    if codec == GZIP:
        stream = zlib.compressobj(9, zlib.DEFLATED, 31)
        return b"".join([stream.compress(piece) for _ in pieces]) + stream.flush()
    if codec == SNAPPY:
        return xerial(*[raw_snappy(piece)] * len(pieces))
    # The others allow frame behind frame.
    return compress(codec, piece) * len(pieces)


@each_codec
def test_a_bomb_takes_no_more_than_the_limit(codec):
    data = bomb(codec)
    tracemalloc.start()
    try:
        error = refused(codec, data, BOMB_LIMIT)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert error.fault is Fault.INVALID_RECORD
    assert peak < BOMB_LIMIT * 3 // 2


@each_codec
def test_a_bomb_takes_no_memory_that_python_does_not_see(codec, tmp_path):
    """tracemalloc does not count what the library allocates; the kernel does."""
    path = tmp_path / "bomb"
    path.write_bytes(bomb(codec))
    script = f"""
        import pathlib
        from halfmoon.core.records.compression import decompress
        from halfmoon.errors import BrokerError
        def high_water():
            status = pathlib.Path("/proc/self/status").read_text()
            return int(status.split("VmHWM:")[1].split()[0]) * 1024
        data = pathlib.Path({str(path)!r}).read_bytes()
        before = high_water()
        try:
            decompress({codec}, data, {BOMB_LIMIT})
        except BrokerError:
            print(high_water() - before)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    # The limit, a decoder's own state and window, and what the allocator rounds up to.
    assert int(done.stdout) < 2 * BOMB_LIMIT + (8 << 20)


def test_a_zstd_run_of_one_byte_is_bounded_within_a_frame():
    """A zstd block of 4 bytes stands for 128 KiB: one frame of 8 KiB claims 256 MiB, and no size."""
    header = struct.pack("<I", 0xFD2FB528) + b"\x00" + b"\x58"  # no content size, window of 2 MiB
    run = struct.pack("<I", (128 * 1024) << 3 | 1 << 1)[:3] + b"\0"
    last = struct.pack("<I", 1)[:3]
    assert decompress(ZSTD, header + run * 2 + last, LIMIT) == bytes(256 * 1024)
    tracemalloc.start()
    try:
        assert refused(ZSTD, header + run * 2048 + last, BOMB_LIMIT).fault is Fault.INVALID_RECORD
        assert tracemalloc.get_traced_memory()[1] < BOMB_LIMIT * 3 // 2
    finally:
        tracemalloc.stop()


def test_many_tiny_snappy_blocks_take_no_more_than_the_limit():
    data = xerial(*[raw_snappy(b"")] * 100_000)
    tracemalloc.start()
    try:
        assert decompress(SNAPPY, data, BOMB_LIMIT) == b""
        assert tracemalloc.get_traced_memory()[1] < BOMB_LIMIT
    finally:
        tracemalloc.stop()


def test_the_librarys_word_for_a_full_buffer():
    """`decompress` tells a full buffer from damage by this text alone."""
    for codec in (GZIP, LZ4, ZSTD):
        with pytest.raises(cramjam.DecompressionError) as caught:
            compression._DECOMPRESS_INTO[codec](memoryview(compress(codec, TEXT)), bytearray(10))
        assert compression._buffer_was_full(caught.value)
