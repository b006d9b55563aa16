"""Recurring messages of nodes: who takes a shard over goes on where the node before was. Each time is kept once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from halfmoon.kafka import Schedules
from halfmoon.testing.cluster import ClusterProcesses
from tests.crash.load import QUICK
from tests.crash.test_kill9_schedules import PARTITIONS, TOPIC, stored
from tests.server.nodes.load import WAIT_S, need_services

SHARDS = {"fast": 4, "objects": 1}


@pytest.mark.timeout(300)
def test_each_time_is_kept_once_whichever_node_has_the_shard(tmp_path: Path) -> None:
    need_services()
    # However busy this machine is: nothing is missed.
    more = {"plugins": {"schedule": {"missed_after": "1h"}}}
    with ClusterProcesses(tmp_path / "cluster", 3, **SHARDS, durable=False, more=more) as cluster:
        cluster.wait_until_shared()
        config = {"bootstrap.servers": cluster.bootstrap, **QUICK}
        admin = AdminClient(config)
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(WAIT_S)
        schedules = Schedules(Producer(config))
        for partition in range(PARTITIONS):
            schedules.create(TOPIC, f"s{partition}", "* * * * * *", b"v", partition=partition).result(WAIT_S)
        time.sleep(2)
        cluster.nodes[2].kill()
        until_s = time.monotonic() + WAIT_S
        before = {partition: times[-1:] for partition, times in stored(cluster.bootstrap).items()}
        while any(times[-1:] <= before[partition] for partition, times in stored(cluster.bootstrap).items()):
            assert time.monotonic() < until_s, "those that node 2 had go on elsewhere"
            time.sleep(0.5)
        cluster.nodes[2].start()
        cluster.wait_until_shared()
        time.sleep(2)
        found = stored(cluster.bootstrap)
    for times in found.values():
        assert times == list(range(times[0], times[-1] + 1)), "each once, in order, and none is missing"
