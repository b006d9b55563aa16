"""Requests and answers, and the checksum."""

from __future__ import annotations

import pyperf

from benchmarks.clients import wire
from halfmoon.adapters.kafka import produce_codec
from halfmoon.adapters.kafka.fetch_codec import Fetched
from halfmoon.adapters.kafka.fetch_codec import encode as encode_fetch
from halfmoon.adapters.kafka.fetch_codec import parse as parse_fetch
from halfmoon.adapters.kafka.produce_codec import Stored
from halfmoon.core.crc import crc32c

_HEADER_BYTES = 4 + 8 + 2 + len("bench")


def add(runner: pyperf.Runner) -> None:
    batch = wire.batch(b"x" * 100)
    produce = memoryview(wire.produce("a-topic", [(0, batch)]))[_HEADER_BYTES:]
    fetch = memoryview(wire.fetch("a-topic", 0, 0))[_HEADER_BYTES:]
    stored = [("a-topic", [Stored(0, 0, 1_000, -1, 0, None)])]
    runner.bench_func("parse Produce v7", produce_codec.parse, produce, 7)
    runner.bench_func("encode Produce v7", produce_codec.encode, stored, 7)
    runner.bench_func("encode Produce v11", produce_codec.encode, stored, 11)
    runner.bench_func("parse Fetch v11", parse_fetch, fetch, 11)
    runner.bench_func("encode Fetch v11, one batch", _encode_fetch, memoryview(batch))
    runner.bench_func("crc32c 64 KB", crc32c, b"x" * (64 << 10))


def _encode_fetch(batch: memoryview) -> object:
    found = Fetched(0, 0, 1_000, 1_000, 0)
    found.records, found.size = [batch], len(batch)
    return encode_fetch([("a-topic", [found])], 11, False)
