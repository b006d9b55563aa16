"""The five codecs of record batches, with a bound on what comes out.

    0 none · 1 gzip · 2 snappy · 3 LZ4 frame · 4 zstd      (bits 0–2 of a batch's attributes)

One library does all of it, cramjam, because it can decompress *into* a buffer: what does not fit ends with an error, so
a few bytes that claim to be gigabytes cost no more memory than the caller allowed. (A zstd decoder's window comes on
top, touched only as far as bytes come out.) Input is any contiguous buffer and is not copied.

Sizes that compressed data states about itself are not believed. The output buffer starts at a common ratio
(`_FIRST_GUESS`) and grows fourfold while it proves too small, each time from the beginning: common data takes one try
(JSON: gzip and zstd 5 to 1, LZ4 3 to 1), and what goes up to the limit a third more than its last one. Only snappy has
to be asked for its size, and that is checked against what its format can reach at best.

What other clients send, all of it accepted: several gzip members, LZ4 and zstd frames with or without content size, one
behind the other; snappy as Java frames it (xerial) and bare, as librdkafka and others send it.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import cramjam

from halfmoon.errors import BrokerError, Fault

if TYPE_CHECKING:
    from typing_extensions import Buffer

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

XERIAL_MAGIC: Final[bytes] = b"\x82SNAPPY\0"
_XERIAL_HEADER: Final = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
"""Magic, version, lowest version that can read it. Some writers have the two numbers little-endian: not looked at."""
_XERIAL_BLOCK_BYTES: Final = 32 * 1024

_FIRST_GUESS: Final = {GZIP: 8, LZ4: 4, ZSTD: 8}
_GROWTH: Final = 4
_SMALLEST_BUFFER: Final = 1024
_SNAPPY_BEST_RATIO: Final = 22
"""A snappy copy element gives at most 64 bytes for 3."""

_LARGE_BYTES: Final = 16 << 20

_block_length: Final = struct.Struct(">i")


class TooLargeError(BrokerError):
    """The data takes more than the limit when decompressed."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            Fault.INVALID_RECORD, f"the records take more than the {limit} bytes allowed when decompressed"
        )


_DECOMPRESS_INTO: dict[int, Callable[[memoryview, bytearray | mmap.mmap], int]] = {
    GZIP: cramjam.gzip.decompress_into,
    LZ4: cramjam.lz4.decompress_into,
    ZSTD: cramjam.zstd.decompress_into,
}


def decompress(codec: int, data: Buffer, limit: int) -> memoryview:
    """The bytes behind `data`, at most `limit` of them. Codec 0 gives `data` itself, whatever its size.

    Raises BrokerError: UNSUPPORTED_COMPRESSION_TYPE for a codec above 4; INVALID_RECORD where the data is damaged, cut
    short, or larger than `limit`.
    """
    view = memoryview(data)
    if codec == NONE:
        return view
    if codec == SNAPPY:
        return _decompress_snappy(view, limit)
    into = _DECOMPRESS_INTO.get(codec)
    if into is None:
        raise BrokerError(Fault.UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {codec} is unknown")
    size = min(limit, max(_SMALLEST_BUFFER, _FIRST_GUESS[codec] * len(view)))
    while True:
        output = _buffer(size)
        try:
            return memoryview(output)[: into(view, output)]
        except cramjam.DecompressionError as error:
            if not _buffer_was_full(error):
                raise _damaged(error) from None
        if size >= limit:
            raise TooLargeError(limit)
        del output  # before the larger one is made, so that never both are held
        size = min(limit, size * _GROWTH)


def compress(codec: int, data: Buffer) -> bytes:
    """`data` in the form Java's clients write: xerial snappy, LZ4 with independent blocks, zstd level 3, gzip level 6.

    Raises BrokerError(UNSUPPORTED_COMPRESSION_TYPE) for a codec above 4.
    """
    match codec:
        case 0:
            return bytes(data)
        case 1:
            gzip = zlib.compressobj(6, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
            return gzip.compress(data) + gzip.flush()
        case 2:
            return _compress_snappy(memoryview(data))
        case 3:
            # Java refuses linked blocks. Level 1 is LZ4's fast mode; from 2 on it is five times slower for 15 % less.
            lz4 = cramjam.lz4.Compressor(level=1, content_checksum=False, block_linked=False)
            lz4.compress(bytes(data))  # the one function here that takes nothing else
            return bytes(lz4.finish())
        case 4:
            return bytes(cramjam.zstd.compress(data, level=3))
        case _:
            raise BrokerError(Fault.UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {codec} is unknown")


def _decompress_snappy(view: memoryview, limit: int) -> memoryview:
    if view[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        return memoryview(_snappy_block(view, 0, limit))
    output = bytearray()  # one for all: a list of a million tiny blocks would take many times the limit
    at = len(_XERIAL_HEADER)
    if at > len(view):
        raise _damaged("the snappy header is cut short")
    while at < len(view):
        if view[at : at + len(XERIAL_MAGIC)] == XERIAL_MAGIC:
            at += len(_XERIAL_HEADER)  # Java's reader takes several streams one behind the other, and so does this one
            continue
        if at + _block_length.size > len(view):
            raise _damaged("a snappy block's length is cut short")
        (length,) = _block_length.unpack_from(view, at)
        at += _block_length.size
        if not 0 < length <= len(view) - at:
            raise _damaged("a snappy block's length is not within the data")
        output += _snappy_block(view[at : at + length], len(output), limit)
        at += length
    return memoryview(output)


def _snappy_block(block: memoryview, before: int, limit: int) -> bytearray | mmap.mmap:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > len(block) * _SNAPPY_BEST_RATIO:
            raise _damaged("a snappy block claims more than it can hold")
        if before + size > limit:
            raise TooLargeError(limit)
        output = _buffer(size)
        written = cramjam.snappy.decompress_raw_into(block, output)
    except cramjam.DecompressionError as error:
        raise _damaged(error) from None
    assert written == size, "snappy writes what it said, or fails"
    return output


def _compress_snappy(view: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for at in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[at : at + _XERIAL_BLOCK_BYTES]))
        parts += (_block_length.pack(len(block)), block)
    return b"".join(parts)


def _buffer(size: int) -> bytearray | mmap.mmap:
    """Room for so much. Of a large one the pages are the kernel's, which are zeroed when they are written to: by the
    decoder, which lets go of the GIL. A bytearray is filled with zeros first, 40 ms for 64 MiB."""
    return bytearray(size) if size < _LARGE_BYTES else mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _buffer_was_full(error: Exception) -> bool:
    # cramjam has one exception for everything. This is Rust's text for a writer that takes no more (WriteZero).
    return str(error) == "failed to write whole buffer"


def _damaged(reason: object) -> BrokerError:
    return BrokerError(Fault.INVALID_RECORD, f"the records cannot be decompressed: {reason}")
