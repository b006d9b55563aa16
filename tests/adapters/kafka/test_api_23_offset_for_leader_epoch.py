"""OffsetForLeaderEpoch: where epochs end."""

from __future__ import annotations

import pytest
from fake_admin_broker import Client, FakeAdminBroker, versions

from halfmoon.adapters.kafka.protocol import OffsetForLeaderEpochRequest

KEY = 23
Topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic


@pytest.fixture
def client():
    broker = FakeAdminBroker()
    partition = broker.add("t").partitions[0]
    partition.next_offset = 50
    partition.epochs = [(1, 10), (3, 30)]
    broker.owners.epoch = 5
    return Client(broker)


ENDS = [(-1, -1, -1), (0, 0, 10), (1, 1, 30), (2, 1, 30), (3, 3, 50), (4, 3, 50), (5, 5, 50), (6, -1, -1)]


def asking(epoch: int, *, topic: str = "t", index: int = 0, current: int = -1) -> list[object]:
    wanted = Topic.OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=epoch)
    return [Topic(topic=topic, partitions=[wanted])]


def told(answer) -> tuple[int, int]:
    (result,) = answer.topics[0].partitions
    return result.error_code, result.end_offset


@pytest.mark.parametrize("version", versions(KEY))
@pytest.mark.parametrize(("epoch", "found", "end"), ENDS)
def test_ends(client, version, epoch, found, end):
    answer = client.ask(KEY, version, topics=asking(epoch))
    assert told(answer) == (0, end)
    if version >= 1:
        assert answer.topics[0].partitions[0].leader_epoch == found


@pytest.mark.parametrize("version", versions(KEY))
@pytest.mark.parametrize(("topic", "index"), [("missing", 0), ("t", 1), ("t", -1)])
def test_unknown_partitions(client, version, topic, index):
    assert told(client.ask(KEY, version, topics=asking(1, topic=topic, index=index))) == (3, -1)


@pytest.mark.parametrize("version", [v for v in versions(KEY) if v >= 2])
@pytest.mark.parametrize(("current", "code"), [(-1, 0), (5, 0), (4, 74), (6, 75)])
def test_current_leader_epochs(client, version, current, code):
    assert told(client.ask(KEY, version, topics=asking(1, current=current)))[0] == code


def test_a_partition_without_records(client):
    client.broker.add("empty")
    assert told(client.ask(KEY, 4, topics=asking(5, topic="empty"))) == (0, 0)
    assert told(client.ask(KEY, 4, topics=asking(3, topic="empty"))) == (0, 0)


def test_a_consumer_notices_a_log_that_was_cut(client):
    """It read up to 60 in epoch 4; a power loss left 50 records, and the node began epoch 5."""
    _, end = told(client.ask(KEY, 4, topics=asking(4, current=5)))
    assert end < 60
