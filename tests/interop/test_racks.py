"""Kafka's Java consumer reads in its rack from nodes of a cluster, and goes on elsewhere when its replica dies."""

from __future__ import annotations

import time
from typing import Any

import pytest

from halfmoon.testing.cluster import ClusterProcesses
from tests.clients.kafka_jvm.jvm import KafkaJvm, each
from tests.server.nodes.load import PARTITIONS, WAIT_S, Writing, make_topic, need_services

RACKS = {1: "east", 2: "west", 3: "north"}
HERE = 2
"""The node that is in the consumer's rack."""

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]


class InRacks(ClusterProcesses):
    def reached(self, number: int, link: int) -> dict[str, Any]:
        return {"rack": RACKS[number]}


class Reading:
    """A Java consumer of all partitions."""

    def __init__(self, jvm: KafkaJvm, bootstrap: str, topic: str) -> None:
        self._jvm = jvm
        self._consumer = jvm.consumer(
            bootstrap, client_rack=RACKS[HERE], auto_offset_reset="none", metadata_max_age_ms=30_000
        )
        places = [jvm.partition(topic, index) for index in range(PARTITIONS)]
        self._consumer.assign(jvm.list(places))
        for place in places:
            self._consumer.seek(place, jvm.longs(0).get(0))
        self.found: list[list[int]] = [[] for _ in places]

    def until(self, counts: list[int]) -> None:
        """It has so many records of each partition."""
        until_s = time.monotonic() + WAIT_S
        while any(len(found) < count for found, count in zip(self.found, counts, strict=True)):
            assert time.monotonic() < until_s, (counts, [len(found) for found in self.found])
            for record in self._jvm.poll(self._consumer):
                self.found[record.partition()].append(int(record.value()))

    def replicas(self) -> set[int]:
        """Nodes that it is told to read from, as its metrics say; −1: the leader."""
        return {
            int(metric.getValue().metricValue())
            for metric in each(self._consumer.metrics().entrySet())
            if metric.getKey().name() == "preferred-read-replica"
        }

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.parametrize("durability", ["fast", "object"])
def test_a_java_consumer_reads_in_its_rack(
    jvm: KafkaJvm, tmp_path_factory: pytest.TempPathFactory, durability: str
) -> None:
    need_services()
    with InRacks(tmp_path_factory.mktemp("racks"), len(RACKS), fast=4, objects=4, durable=False) as cluster:
        cluster.wait_until_shared()
        make_topic(cluster.bootstrap, "t", durability, replicas=3)
        writing = Writing(cluster.bootstrap, "t")
        reading = Reading(jvm, cluster.bootstrap, "t")
        try:
            writing.until(50)
            reading.until([50] * PARTITIONS)
            assert reading.replicas() == {-1, HERE}
            cluster.nodes[HERE].kill()
            writing.until(50)
            reading.until([100] * PARTITIONS)
            cluster.nodes[HERE].start()
            cluster.wait_until_shared()
            writing.until(50)
        finally:
            acknowledged = writing.end()
            try:
                reading.until([len(one) for one in acknowledged])
                assert reading.replicas() <= {-1, HERE}
            finally:
                reading.close()
        assert reading.found == acknowledged
