"""A node whose database and object store are reached over TLS, with passwords from files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from halfmoon.errors import StartError
from halfmoon.testing.cluster import ClusterProcesses
from halfmoon.testing.object_store import StoreServer
from tests.security.authority import Authority
from tests.server.nodes.load import Writing, make_topic, need_services, read_all

PASSWORD = "correct horse"


class SecureProcesses(ClusterProcesses):
    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder, "services")
        self.other = Authority(folder, "others")
        self.password = folder / "database-password"
        self.password.write_text(f"{PASSWORD}\n")
        super().__init__(folder, 1, fast=2, objects=2, make=SecureProcesses.make)
        self.store = StoreServer(folder / "store", self.authority.pair("store"))

    def make(self) -> None:
        self.database.secure(self.authority.pair("database"), PASSWORD)
        self.init()

    def reached(self, number: int, link: int) -> dict[str, Any]:
        return {
            "database_ca": self.authority.path, "database_password": str(self.password),
            "store_ca": self.authority.path,
        }  # fmt: skip

    def with_other(self, **cluster: str) -> str:
        """What `halfmoon cluster check` says against these settings. Raises StartError."""
        config = self.folder / "other.yaml"
        sections = json.loads(self.nodes[1].config.read_text())
        sections["cluster"].update(cluster)
        config.write_text(json.dumps(sections))
        return self.command("cluster", "check", "--config", str(config))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureProcesses]:
    need_services()
    with SecureProcesses(tmp_path_factory.mktemp("secure")) as found:
        found.wait_until_shared()
        yield found


@pytest.mark.parametrize("durability", ["fast", "object"])
def test_it_serves(cluster: SecureProcesses, durability: str) -> None:
    make_topic(cluster.bootstrap, f"secure-{durability}", durability)
    writing = Writing(cluster.bootstrap, f"secure-{durability}")
    try:
        writing.until(20)
    finally:
        acknowledged = writing.end()
    assert read_all(cluster.bootstrap, f"secure-{durability}") == acknowledged


def test_a_check_passes(cluster: SecureProcesses) -> None:
    assert "ok" in cluster.with_other()


@pytest.mark.parametrize("setting", ["database_ca", "store_ca"])
def test_a_certificate_of_another_authority_is_refused(cluster: SecureProcesses, setting: str) -> None:
    with pytest.raises(StartError, match=r"(?i)certificate"):
        cluster.with_other(**{setting: cluster.other.path})


def test_a_wrong_password_is_refused(cluster: SecureProcesses) -> None:
    wrong = cluster.folder / "wrong-password"
    wrong.write_text("battery staple")
    with pytest.raises(StartError, match="password authentication failed"):
        cluster.with_other(database_password=str(wrong))
