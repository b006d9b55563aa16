"""A broker under glass, with dispatchers that note what they are shown."""

from __future__ import annotations

from typing import Any

import msgspec

from halfmoon.services.following.service import Following
from halfmoon.services.following.types import Batch, Dispatcher
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, open_broker

Row = tuple[str, int, int, int, bool]
"""Topic, partition, base offset, end offset, aborted."""


class Notebook:
    """A dispatcher whose state is what it was shown."""

    def __init__(self, name: str = "notes") -> None:
        self.name = name
        self.rows: list[Row] = []
        self.batches = 0
        self.restored: list[bytes | None] = []
        self.fails = False
        self.checkpoints = 0

    def on_batches(self, batches: Any) -> None:
        if self.fails:
            raise RuntimeError("no luck")
        for each in batches:
            assert isinstance(each, Batch)
            assert not each.control or not list(each.records())
            self.rows.append((each.topic, each.partition, each.base_offset, each.end_offset, each.aborted))

    def checkpoint(self) -> bytes:
        self.checkpoints += 1
        return msgspec.msgpack.encode(self.rows)

    def restore(self, state: bytes | None) -> None:
        self.restored.append(state)
        self.rows = [] if state is None else [tuple(row) for row in msgspec.msgpack.decode(state)]

    def dispatcher(self) -> Dispatcher:
        return Dispatcher(self.name, self.on_batches, self.checkpoint, self.restore)

    def of(self, topic: str, partition: int = 0) -> list[tuple[int, int]]:
        return [(base, end) for name, index, base, end, _ in self.rows if (name, index) == (topic, partition)]


def follow(broker: BareNode, *notebooks: Notebook) -> Following:
    following = Following(broker.log, broker.reader, broker.catalog, broker.turn, broker.relays, broker.logger)
    broker.extend([following.feature()])
    following.start([("mine", notebook.dispatcher()) for notebook in notebooks], broker.cluster_id)
    return following


def opened(fs: FaultyFileSystem, *notebooks: Notebook, **log: Any) -> tuple[BareNode, Following]:
    broker = open_broker(fs, VirtualClock(), **log)
    return broker, follow(broker, *notebooks)


def is_whole(broker: BareNode, notebook: Notebook, topic: str, partition: int = 0) -> bool:
    """Every offset of the partition was shown once, in order, up to its end."""
    found = broker.topic(topic)
    assert found is not None
    rows = notebook.of(topic, partition)
    at = 0
    for base, end in rows:
        if base != at:
            return False
        at = end
    return at == found.partitions[partition].next_offset
