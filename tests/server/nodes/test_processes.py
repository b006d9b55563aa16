"""Nodes as processes, over a real PostgreSQL and a real object store: killed, stopped and started while clients write.

The store is versitygw, the database PostgreSQL; where one of them is not installed these tests are skipped.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from halfmoon.testing.cluster import ClusterProcesses
from tests.server.nodes.load import Writing, make_topic, need_services, read_all


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    need_services()
    with ClusterProcesses(tmp_path_factory.mktemp("cluster"), 3, fast=4, objects=4, durable=False) as found:
        found.wait_until_shared()
        yield found


@pytest.mark.parametrize("durability", ["fast", "object"])
def test_what_is_acknowledged_is_there_once_and_in_order_whatever_happens_to_nodes(
    cluster: ClusterProcesses, durability: str
) -> None:
    make_topic(cluster.bootstrap, f"numbers-{durability}", durability)
    writing = Writing(cluster.bootstrap, f"numbers-{durability}")
    try:
        writing.until(20)
        cluster.nodes[2].kill()
        writing.until(50)
        cluster.nodes[2].start()
        writing.until(20)
        assert cluster.nodes[3].stop() == 0
        writing.until(20)
        cluster.nodes[3].start()
        writing.until(20)
        cluster.nodes[1].signal(signal.SIGSTOP)
        writing.until(20)
        cluster.nodes[1].signal(signal.SIGCONT)
        writing.until(20)
    finally:
        cluster.nodes[1].signal(signal.SIGCONT)
        acknowledged = writing.end()
    assert read_all(cluster.bootstrap, f"numbers-{durability}") == acknowledged
