"""Nodes are replaced by those of the next version, one after the other, while clients write: nothing is lost.

The next version is `halfmoon.testing.next_version`: it adds to everything that two versions see of each other.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from halfmoon.cluster.postgres import schema
from halfmoon.testing.cluster import NEXT_VERSION, PROGRAM, ClusterProcesses
from tests.server.nodes.load import Writing, make_topic, need_services, read_all


def formats(cluster: ClusterProcesses) -> list[int]:
    """Of the nodes that live, in their order."""
    return [row["format"] for row in cluster.state() if row["state"] == "up"]


@pytest.mark.timeout(240)
def test_nodes_of_two_versions_serve_together(tmp_path: Path) -> None:
    need_services()
    now = schema.NEWEST
    with ClusterProcesses(tmp_path / "cluster", 3, fast=4, objects=2, durable=False) as cluster:
        cluster.wait_until_shared()
        topics = {name: Writing(cluster.bootstrap, _made(cluster, name)) for name in ("fast", "object")}

        def go_on() -> None:
            for writing in topics.values():
                writing.until(20)

        go_on()
        said = cluster.cluster("upgrade", program=NEXT_VERSION)
        assert said == f"the tables have format {now + 1}; before, they had {now}\n"
        go_on()
        # One of the version before may die now, and start again.
        cluster.nodes[1].kill()
        go_on()
        cluster.nodes[1].start()
        go_on()
        assert formats(cluster) == [now] * 3
        for number, node in cluster.nodes.items():
            assert node.stop() == 0
            go_on()
            node.program = NEXT_VERSION
            node.start()
            cluster.wait_until_shared()
            go_on()
            assert sorted(formats(cluster)) == [now] * (3 - number) + [now + 1] * number
        # And there is a way back.
        cluster.nodes[2].kill()
        cluster.nodes[2].program = PROGRAM
        cluster.nodes[2].start()
        cluster.wait_until_shared()
        go_on()
        acknowledged = {name: writing.end() for name, writing in topics.items()}
        assert {name: read_all(cluster.bootstrap, f"numbers-{name}") for name in topics} == acknowledged
        logs = "".join((node.folder / "log").read_text() for node in cluster.nodes.values())
        for wrong in ("makes_no_sense", "membership_failed", "ValidationError", "Undefined", "InvalidCachedStatement"):
            assert wrong not in logs


def _made(cluster: ClusterProcesses, durability: str) -> str:
    name = f"numbers-{durability}"
    make_topic(cluster.bootstrap, name, durability)
    return name
