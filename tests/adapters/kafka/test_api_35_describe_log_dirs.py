"""DescribeLogDirs: sizes of partitions, room on the disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_admin_broker import Client, FakeAdminBroker, versions

from halfmoon.adapters.kafka.protocol import DescribeLogDirsRequest

KEY = 35
Topic = DescribeLogDirsRequest.DescribableLogDirTopic


def client_of(directory: Path) -> Client:
    broker = FakeAdminBroker(node__data_dir=str(directory))
    for partition in broker.add("t", 3).partitions:
        partition.size_bytes = 100 + partition.index
    broker.add("hidden", internal=True)
    return Client(broker)


@pytest.mark.parametrize("version", versions(KEY))
@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        (None, [("hidden", [(0, 0)]), ("t", [(0, 100), (1, 101), (2, 102)])]),
        ([], []),
        ([Topic(topic="t", partitions=[2, 0, 9, -1])], [("t", [(0, 100), (2, 102)])]),
        ([Topic(topic="missing", partitions=[0]), Topic(topic="t", partitions=[7])], []),
    ],
)
def test_sizes(tmp_path, version, topics, expected):
    answer = client_of(tmp_path).ask(KEY, version, topics=topics)
    (result,) = answer.results
    assert (answer.error_code, result.error_code, result.log_dir) == (0, 0, str(tmp_path))
    assert [(t.name, [(p.partition_index, p.partition_size) for p in t.partitions]) for t in result.topics] == expected
    assert all((p.offset_lag, p.is_future_key) == (0, False) for t in result.topics for p in t.partitions)
    if version >= 4:
        assert 0 < result.usable_bytes <= result.total_bytes


def test_a_directory_that_is_not_there_yet(tmp_path):
    (result,) = client_of(tmp_path / "later").ask(KEY, 4, topics=None).results
    assert (result.error_code, result.total_bytes, result.usable_bytes) == (0, -1, -1)
