"""DeleteRecords: moving start offsets."""

from __future__ import annotations

import pytest
from fake_admin_broker import FakeAdminBroker, versions

from halfmoon.adapters.kafka.protocol import DeleteRecordsRequest
from halfmoon.errors import BrokerError, Fault

KEY = 21
Topic = DeleteRecordsRequest.DeleteRecordsTopic


@pytest.fixture
def broker():
    broker = FakeAdminBroker()
    for partition in broker.add("t", 3).partitions:
        partition.start_offset, partition.high_watermark = 5, 50
    broker.add("hidden", internal=True)
    return broker


def before(*offsets: tuple[int, int], topic: str = "t") -> list[object]:
    wanted = [Topic.DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in offsets]
    return [Topic(name=topic, partitions=wanted)]


def told(answer) -> list[tuple[int, int, int]]:
    return [(r.partition_index, r.error_code, r.low_watermark) for r in answer.topics[0].partitions]


@pytest.mark.parametrize("version", versions(KEY))
def test_moved_once_the_log_has_it(client, broker, version):
    pending = client.send(KEY, version, DeleteRecordsRequest(topics=before((0, 20), (1, -1), (2, 3)), timeout_ms=1))
    assert pending.answer is None
    broker.flush()
    assert told(pending.answer) == [(0, 0, 20), (1, 0, 50), (2, 0, 5)]
    assert broker.written == [("start", "t", 0, 20), ("start", "t", 1, 50)]


@pytest.mark.parametrize("version", versions(KEY))
@pytest.mark.parametrize(
    ("topics", "code"),
    [
        (before((0, 51)), 1),
        (before((0, -2)), 1),
        (before((3, 1)), 3),
        (before((-1, 1)), 3),
        (before((0, 1), topic="missing"), 3),
        (before((0, 0), topic="hidden"), 17),
    ],
)
def test_refusals(client, broker, version, topics, code):
    ((_, error_code, low_watermark),) = told(client.ask(KEY, version, topics=topics))
    assert (error_code, low_watermark) == (code, -1)
    assert broker.written == []


def test_a_log_that_loses_it(client, broker):
    pending = client.send(KEY, 2, DeleteRecordsRequest(topics=before((0, 20))))
    broker.flush(BrokerError(Fault.KAFKA_STORAGE_ERROR))
    assert told(pending.answer) == [(0, 56, -1)]


def test_what_is_deleted_already_is_told_once_that_is_durable(client, broker):
    """Who asks again, since the first answer was lost, must not believe in what a power loss would undo."""
    client.send(KEY, 2, DeleteRecordsRequest(topics=before((0, 20)), timeout_ms=1))
    again = client.send(KEY, 2, DeleteRecordsRequest(topics=before((0, 20)), timeout_ms=1))
    assert again.answer is None
    broker.flush(BrokerError(Fault.KAFKA_STORAGE_ERROR, "the disk broke"))
    assert told(again.answer) == [(0, 56, -1)]
