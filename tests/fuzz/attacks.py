"""Directed attacks: each function does one kind of harm through bare sockets, and leaves the judging to the test."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Iterator
from random import Random

import cramjam

from halfmoon.adapters.kafka.api import registered
from halfmoon.adapters.kafka.routes import PRODUCE
from halfmoon.core.records.batch_header import BatchHeader, assemble
from halfmoon.kafka_wire.primitives import encode_uvarint
from tests.fuzz.campaign import BEHIND, versions
from tests.fuzz.grammar import World, join, valid_request
from tests.fuzz.mutations import sealed
from tests.fuzz.peer import ClosedError, Peer, framed

Address = tuple[str, int]

MAX_PREFIXES = 12
"""Cuts of one request."""


def header(key: int, version: int, *, flexible: bool = False) -> bytes:
    return struct.pack(">hhih", key, version, 1, -1) + (b"\0" if flexible else b"")


def prefixes(chance: Random) -> Iterator[tuple[int, int, bytes]]:
    """Every request of every version, cut at up to MAX_PREFIXES places: (key, version, the beginning)."""
    for key, version in versions():
        body = join(valid_request(chance, World(), key, version))
        cuts = set(range(len(body)))
        if len(cuts) > MAX_PREFIXES:
            cuts = {0, 1, 3, 4, 8, 9, len(body) - 1, *chance.sample(sorted(cuts), MAX_PREFIXES - 7)}
        for cut in sorted(cuts):
            yield key, version, body[:cut]


def wrong_versions() -> Iterator[bytes]:
    """Versions that are not offered, of APIs that are and are not."""
    for key in range(-2, 100):
        api = registered().get(key)
        for version in (-1, 0, 1, 5, 99, 32767, -32768):
            if api is None or not api.min_version <= version <= api.max_version:
                yield header(key, version) + bytes(40)
    for key in (101, 1000, 32767, -32768):
        yield header(key, 0)


FRAME_SIZES = (-1, -(2**31), 0, 1, 9, 2**31 - 1, 2**30, (32 << 20) + 1)
"""What frames may say of their size and will not be believed; the last is over `max_request_bytes` of the tests."""


def many(key: int, version: int, before: bytes, element: bytes, count: int, after: bytes = b"\0") -> bytes:
    """A flexible request that consists of one array of the same small element."""
    return header(key, version, flexible=True) + before + encode_uvarint(count + 1) + element * count + after


SMALL_ELEMENTS: dict[str, Callable[[int], bytes]] = {
    "Produce topics": lambda n: many(0, 9, b"\0" + struct.pack(">hi", 1, 100), b"\x01\x01\0", n),
    "Produce partitions": lambda n: many(0, 9, b"\0" + struct.pack(">hi", 1, 100) + b"\x02\x02x", bytes(6), n, b"\0\0"),
    "Fetch": lambda n: many(1, 12, struct.pack(">iiiibii", -1, 0, 0, 1000, 0, 0, -1), b"\x01\x01\0", n, b"\x01\x01\0"),
    "ListOffsets": lambda n: many(2, 6, struct.pack(">ib", -1, 0), b"\x01\x01\0", n),
    "Metadata": lambda n: many(3, 9, b"", b"\x01\0", n, bytes(4)),
    "OffsetCommit": lambda n: many(8, 8, b"\x02g" + struct.pack(">i", -1) + b"\x01\0", b"\x01\x01\0", n),
    "OffsetFetch": lambda n: many(9, 8, b"", b"\x01\0\0", n, b"\0\0"),
    "FindCoordinator": lambda n: many(10, 4, b"\0", b"\x01", n),
    "DescribeGroups": lambda n: many(15, 5, b"", b"\x01", n, b"\0\0"),
    "DeleteTopics": lambda n: many(20, 5, b"", b"\x01", n, bytes(5)),
    "DescribeConfigs": lambda n: many(32, 4, b"", b"\x04\x020\0\0", n, b"\1\1\0"),
    "AlterConfigs": lambda n: many(33, 2, b"", b"\x01\x01\x01\0", n, b"\0\0"),
}
"""Requests of n elements of a few bytes, each of which would become an object and an answer."""


def tag_bomb(count: int) -> bytes:
    """Metadata whose header has `count` tagged fields of no content."""
    return struct.pack(">hhih", 3, 9, 1, -1) + encode_uvarint(count) + b"\x01\x00" * count


def bombs(uncompressed: int) -> Iterator[tuple[str, bytes]]:
    """Batches whose few bytes claim to be `uncompressed` many, in every codec; their checksums are right."""
    zeroes = bytes(uncompressed)
    yield "gzip", _bomb(1, gzip.compress(zeroes, 6))
    yield "gzip in gzip", _bomb(1, gzip.compress(gzip.compress(zeroes, 6)))
    yield "snappy", _bomb(2, bytes(cramjam.snappy.compress_raw(zeroes)))
    yield "snappy that says 4 GiB", _bomb(2, b"\xff\xff\xff\xff\x0f" + bytes(20))
    xerial = b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, 2**31 - 1)
    yield "xerial of a block that says 2 GiB", _bomb(2, xerial + bytes(9))
    yield "lz4", _bomb(3, bytes(cramjam.lz4.compress(zeroes)))
    yield "zstd", _bomb(4, bytes(cramjam.zstd.compress(zeroes)))
    window = b"\x28\xb5\x2f\xfd\x00\xf8" + bytes(20)
    yield "zstd with a window of terabytes", _bomb(4, window)
    yield "zlib", _bomb(1, zlib.compress(zeroes))


def _bomb(codec: int, body: bytes, count: int = 2**31 - 1) -> bytes:
    batch = assemble(
        BatchHeader(0, 0, -1, 2, 0, codec, count - 1, 1_700_000_000_000, 1_700_000_000_000, -1, -1, -1, count), body
    )
    return sealed(bytearray(batch))


def lengths_in_records() -> Iterator[bytes]:
    """Uncompressed batches whose record lies about a length: of itself, its key, value, headers."""
    worst = b"\xfe\xff\xff\xff\x0f"  # 2^31 − 1, zigzag
    negative = b"\xff\xff\xff\xff\x0f"  # −2^31
    for hostile in (worst, negative, b"\xff" * 10, b"\x80" * 5 + b"\x01"):
        yield _bomb(0, hostile + bytes(20), 1)
        for at in range(5):
            fields = [b"\x00", b"\x00", b"\x00", b"\x01", b"\x01", b"\x00"]  # attributes, deltas, key, value, headers
            fields[at + 1] = hostile
            record = b"".join(fields)
            yield _bomb(0, encode_uvarint(2 * len(record)) + record, 1)


def produce(batch: bytes, topic: str = "fuzz-bombs", acks: int = 1, partition: int = 0) -> bytes:
    """Produce 7 of one batch, whatever its bytes."""
    name = topic.encode()
    return (
        header(PRODUCE, 7)
        + struct.pack(">hhii", -1, acks, 1000, 1)
        + struct.pack(">h", len(name)) + name
        + struct.pack(">iii", 1, partition, len(batch)) + batch
    )  # fmt: skip


def offset_for_time(topic: str = "fuzz-bombs", timestamp: int = 1) -> bytes:
    """ListOffsets 2: makes the broker look into the batches."""
    name = topic.encode()
    return (
        header(2, 2)
        + struct.pack(">ibi", -1, 0, 1)
        + struct.pack(">h", len(name)) + name
        + struct.pack(">iiq", 1, 0, timestamp)
    )  # fmt: skip


def answered_or_closed(address: Address, data: bytes, timeout_s: float = 5.0) -> bool:
    """Send bytes and then ApiVersions; True if that was answered, False if the connection was closed instead.

    Raises TimeoutError where neither happens.
    """
    with Peer(address) as peer:
        peer.send(data + framed(struct.pack(">hhih", 18, 0, BEHIND, -1)))
        try:
            while struct.unpack_from(">i", peer.frame(timeout_s))[0] != BEHIND:
                pass
        except ClosedError:
            return False
        return True
