"""Searching a queue by when its messages were stored."""

from __future__ import annotations

import random
from typing import Any

import pytest

from halfmoon.adapters.rocketmq.store_times import first_stored_since, frame_at
from halfmoon.config.settings import load_settings
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.records.batches import build_batch
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock


@pytest.fixture
def broker() -> BareNode:
    settings = load_settings(None, {}, {"log.segment_bytes": "1MiB", "log.low_disk_bytes": 0})
    made = BareNode(FaultyFileSystem(random.Random(1)), settings, VirtualClock(), random.Random(2).randbytes)
    made.open()
    return made


def fill(broker: BareNode, times_ms: list[int], records: int = 1) -> Partition:
    partition = broker.create_topic("t", 1)[0].partitions[0]
    for time_ms in times_ms:
        batch = build_batch([(None, b"x", 5, ())] * records)  # whose own time says nothing
        broker.append(partition, memoryview(bytearray(batch)), time_ms)
    broker.flush()
    broker.settle()
    return partition


def run(steps: Any) -> Any:
    value = None
    while True:
        try:
            load = steps.send(value)
        except StopIteration as done:
            return done.value
        value = load()


@pytest.mark.parametrize("records", [1, 3])
def test_the_first_message_stored_then_or_later(broker: BareNode, records: int) -> None:
    partition = fill(broker, [100, 200, 200, 300], records)
    for time_ms, batch in ((0, 0), (100, 0), (101, 1), (200, 1), (201, 3), (300, 3), (301, 4)):
        assert run(first_stored_since(broker.frames, partition, time_ms)) == batch * records, time_ms


def test_an_empty_queue(broker: BareNode) -> None:
    assert run(first_stored_since(broker.frames, fill(broker, []), 5)) == 0


def test_what_has_expired_is_not_found(broker: BareNode) -> None:
    partition = fill(broker, [100, 200, 300], 2)
    broker.delete_records(partition, 3)
    assert run(first_stored_since(broker.frames, partition, 0)) == 3
    assert run(first_stored_since(broker.frames, partition, 250)) == 4


def test_any_times(broker: BareNode) -> None:
    dice = random.Random(3)
    times_ms = sorted(dice.randrange(1_000) for _ in range(200))
    partition = fill(broker, times_ms)
    for time_ms in range(0, 1_001, 7):
        expected = next((at for at, stored in enumerate(times_ms) if stored >= time_ms), 200)
        assert run(first_stored_since(broker.frames, partition, time_ms)) == expected


def test_what_is_lost_to_rot_is_passed_over(broker: BareNode) -> None:
    partition = fill(broker, [100, 200, 300, 400])
    partition.queue.lose(1, 2)
    assert run(frame_at(broker.frames, partition, 1)) is None
    assert run(first_stored_since(broker.frames, partition, 150)) == 2
