"""Nodes as processes, over a real PostgreSQL and a real object store: killed, stopped and started while clients write.

The store is versitygw, the database PostgreSQL; where one of them is not installed these tests are skipped.
"""

from __future__ import annotations

import asyncio
import signal
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from halfmoon.testing.cluster import ClusterProcesses, NodeProcess
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


def metrics(node: NodeProcess) -> Mapping[tuple[str, str], float]:
    """Of the cluster: by the name, and the durability."""
    with urllib.request.urlopen(f"{node.http}/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {
        (sample.name, sample.labels.get("durability", "")): sample.value
        for family in families
        for sample in family.samples
        if sample.name.startswith("halfmoon_cluster_")
    }


def test_nodes_have_metrics(cluster: ClusterProcesses) -> None:
    cluster.wait_until_shared()
    for durability in ("fast", "object"):
        make_topic(cluster.bootstrap, f"measured-{durability}", durability)
        writing = Writing(cluster.bootstrap, f"measured-{durability}")
        try:
            writing.until(20)
        finally:
            writing.end()
    found = [metrics(node) for node in cluster.nodes.values()]
    for durability in ("fast", "object"):
        assert sum(each["halfmoon_cluster_shards", durability] for each in found) == 4
        assert all(each["halfmoon_cluster_commits_total", durability] > 0 for each in found)
    for each in found:
        assert each["halfmoon_cluster_object_bytes_total", ""] > 0
        assert each["halfmoon_cluster_pieces", ""] > 0
        assert each["halfmoon_cluster_cache_bytes", ""] > 0
        assert each["halfmoon_cluster_store_reached", ""] == 1
        assert 0 <= each["halfmoon_cluster_lease_age_seconds", ""] < 3
        assert each["halfmoon_cluster_clock_offset_seconds", ""] == 0


@pytest.mark.timeout(120)
def test_connections_are_as_many_as_cluster_check_counts(cluster: ClusterProcesses) -> None:
    import asyncpg

    from halfmoon.cluster.checks.database import PER_NODE

    async def count() -> int:
        connection = await asyncpg.connect(cluster.database.dsn())
        try:
            found = "select count(*) from pg_stat_activity where application_name = 'halfmoon'"
            return int(await connection.fetchval(found))
        finally:
            await connection.close()

    cluster.wait_until_shared()
    assert 3 < asyncio.run(count()) <= 3 * PER_NODE


def test_a_process_that_was_paused_while_the_database_was_brought_back_ends(tmp_path: Path) -> None:
    need_services()
    with ClusterProcesses(tmp_path / "cluster", 2, fast=2, objects=1, durable=False) as cluster:
        cluster.wait_until_shared()
        paused, stopped = cluster.nodes.values()
        assert stopped.stop() == 0
        paused.signal(signal.SIGSTOP)
        try:
            assert "3 shards begin anew" in cluster.cluster("resume")
        finally:
            paused.signal(signal.SIGCONT)
        assert paused.wait() == 1
        assert "event=node_lost" in (paused.folder / "log").read_text()
        assert not [row for row in cluster.state() if row["state"] == "up"]
        stopped.start()
        cluster.wait_until_shared()
