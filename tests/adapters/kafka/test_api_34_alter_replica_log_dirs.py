"""AlterReplicaLogDirs: partitions stay where they are."""

from __future__ import annotations

import pytest
from fake_admin_broker import Client, FakeAdminBroker, versions

from halfmoon.adapters.kafka.protocol import AlterReplicaLogDirsRequest

KEY = 34
Directory = AlterReplicaLogDirsRequest.AlterReplicaLogDir


def moving(path: str, name: str, *indexes: int) -> object:
    return Directory(path=path, topics=[Directory.AlterReplicaLogDirTopic(name=name, partitions=list(indexes))])


@pytest.mark.parametrize("version", versions(KEY))
def test_verdicts(tmp_path, version):
    broker = FakeAdminBroker(node__data_dir=str(tmp_path))
    broker.add("t", 2)
    here = str(tmp_path)
    dirs = [moving(here, "t", 0, 2), moving("/elsewhere", "t", 1), moving(here, "missing", 0)]
    answer = Client(broker).ask(KEY, version, dirs=dirs)
    assert [(t.topic_name, [(p.partition_index, p.error_code) for p in t.partitions]) for t in answer.results] == [
        ("t", [(0, 0), (2, 3), (1, 57)]),
        ("missing", [(0, 3)]),
    ]
    assert broker.written == []
