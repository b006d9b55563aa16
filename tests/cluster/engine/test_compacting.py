"""Compaction where a store takes little at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from halfmoon.cluster.engine.objects import MOST_BYTES, StoreUnavailableError
from halfmoon.cluster.engine.pieces import Durability
from halfmoon.cluster.s3 import CALL_S
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.testing.node import BareNode
from tests.cluster.engine.one_shard import CountingStore, one_shard
from tests.core.bench import VirtualClock, open_broker, turn
from tests.core.clean_bench import COMPACT, clean, put, state

BYTES_A_SECOND = 10_000_000
COUNT = 150
"""Of keys with 1 MB each: more than the store takes by one request."""


def value(number: int) -> bytes:
    return b"%06d" % number * 166_667


class SlowStore(CountingStore):
    largest = 0

    async def put(self, key: str, data: bytes) -> None:
        if len(data) > BYTES_A_SECOND * CALL_S:
            raise StoreUnavailableError("it takes too long")
        self.largest = max(self.largest, len(data))
        await super().put(key, data)


def test_what_is_compacted_is_stored_in_objects_that_a_slow_store_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with one_shard(Durability.OBJECT) as shard:
        shard.store = store = SlowStore()
        kept = shard.make(OsFileSystem(tmp_path), shard.settings(segment_bytes=1 << 30, low_disk_bytes=0))
        monkeypatch.setattr(BareNode, "storage", staticmethod(lambda fs, settings: kept))
        clock = VirtualClock()
        broker = open_broker(kept.log.fs, clock, segment_bytes=1 << 30)
        broker.create_topic("t", 1, COMPACT)
        for number in range(COUNT):
            put(broker, "t", (b"%d" % number, value(number)))
            if number % 20 == 19:
                turn(broker)
        put(broker, "t", (b"end", b""))
        clean(broker, clock)
        assert broker.cleaner.failures == 0
        files = [file.segment.size for file in broker.cleaner.files]
        assert len(files) == 3
        assert max(files) <= MOST_BYTES
        assert store.largest <= MOST_BYTES
        found = state(broker, "t")
        assert found == {b"%d" % number: value(number) for number in range(COUNT)} | {b"end": b""}
        broker.close()
