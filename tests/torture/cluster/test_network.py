"""Nodes on machines of their own, whose network fails: links that go down, packets that are lost one way, connections
that are refused. What was acknowledged is there once and in order, and each node has its part again in the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from halfmoon.testing.cluster import ClusterProcesses
from halfmoon.testing.object_store import StoreServer
from halfmoon.testing.postgres import PostgresServer
from tests.server.nodes.load import Writing, make_topic, need_services, read_all
from tests.torture.cluster.network import Network, why_not

pytestmark = [pytest.mark.torture, pytest.mark.timeout(300)]

STRUCK = 2
LASTS_S = 6.0
"""Twice a lease."""


class Spread(ClusterProcesses):
    """Three nodes, each on its machine."""

    def __init__(self, folder: Path, network: Network) -> None:
        self.network = network
        super().__init__(folder, 3, fast=4, objects=4, durable=False)
        self.database = PostgresServer(self.apart / "data", durable=False, host=network.bridge)
        self.store = StoreServer(folder / "store", host=network.bridge)

    def machine_of(self, number: int) -> tuple[str, Sequence[str]]:
        return self.network.address(number), self.network.prefix(number)

    def has(self, number: int) -> int:
        """How many shards the database says are a node's."""
        return sum(row["fast"] + row["object"] for row in self.state() if row["node"] == number)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spread]:
    need_services()
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with Network(3) as network, Spread(tmp_path_factory.mktemp("spread"), network) as found:
        found.wait_until_shared()
        yield found


def unplugged(cluster: Spread) -> None:
    cluster.network.unplug(STRUCK)


def no_way_to_the_database(cluster: Spread) -> None:
    cluster.network.filter(STRUCK, f"output tcp dport {cluster.database.port} drop")


def no_answer_of_the_database(cluster: Spread) -> None:
    cluster.network.filter(STRUCK, f"input tcp sport {cluster.database.port} drop")


def refused_by_the_database(cluster: Spread) -> None:
    cluster.network.filter(STRUCK, f"output tcp dport {cluster.database.port} reject with tcp reset")


def no_way_to_the_store(cluster: Spread) -> None:
    cluster.network.filter(STRUCK, f"output tcp dport {cluster.store.port} drop")


def apart(cluster: Spread) -> None:
    """From the other nodes, both ways."""
    for other in (cluster.network.address(number) for number in cluster.nodes if number != STRUCK):
        cluster.network.filter(STRUCK, f"input ip saddr {other} drop", f"output ip daddr {other} drop")


LOSES_ALL = (unplugged, no_way_to_the_database, no_answer_of_the_database, refused_by_the_database)
"""So that the others take its shards."""
KEEPS_ALL = (no_way_to_the_store, apart)


@pytest.mark.parametrize("strike", [*LOSES_ALL, *KEEPS_ALL], ids=lambda strike: strike.__name__)
def test_a_network_that_fails(cluster: Spread, strike: Callable[[Spread], None]) -> None:
    topics = {durability: f"{strike.__name__}-{durability}" for durability in ("fast", "object")}
    for durability, topic in topics.items():
        make_topic(cluster.bootstrap, topic, durability)
    writing = [Writing(cluster.bootstrap, topic) for topic in topics.values()]
    try:
        for each in writing:
            each.until(20)
        strike(cluster)
        ends_s = time.monotonic() + LASTS_S
        if strike in LOSES_ALL:
            while cluster.has(STRUCK):
                assert time.monotonic() < ends_s + 30
            for each in writing:
                each.until(20)  # the others serve all
        else:
            writing[0].until(20)
        time.sleep(max(0.0, ends_s - time.monotonic()))
        if strike in KEEPS_ALL:
            assert cluster.has(STRUCK)
        cluster.network.heal(STRUCK)
        for each in writing:
            each.until(50)
    finally:
        cluster.network.heal(STRUCK)
        acknowledged: list[Any] = [each.end() for each in writing]
    for topic, of_topic in zip(topics.values(), acknowledged, strict=True):
        assert read_all(cluster.bootstrap, topic) == of_topic
    cluster.wait_until_shared(60)
