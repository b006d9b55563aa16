"""The database fails over to a standby: one that is synchronous has everything; of another one, nodes notice."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from halfmoon.testing.proxies import DOWN, UP
from halfmoon.testing.standby import Standby
from tests.crash.serving import wait_until
from tests.torture.cluster.needed import need_servers
from tests.torture.cluster.scenarios import FAST, OBJECT, SOON_S, TOPICS, Stage, feeding
from tests.torture.cluster.serving import ServingCluster
from tests.torture.cluster.tables import Tables

pytestmark = [pytest.mark.torture, pytest.mark.timeout(400)]


@pytest.fixture(autouse=True)
def servers() -> None:
    need_servers()


SEEN_S = 30.0
TRIES = 3
REPLICATION = "replication"


class Pair(ServingCluster):
    """Nodes know two servers: the primary, and the one that may take over. There is no proxy before either."""

    def __init__(self, folder: Path, *, synchronous: bool) -> None:
        super().__init__(folder)
        self._synchronous = synchronous
        self.standby: Standby | None = None

    def reached(self, number: int, link: int) -> dict[str, Any]:
        found = super().reached(number, link)
        if self.standby is None:
            through = self.proxies.add(REPLICATION, self.database.port)
            self.standby = Standby(self.database.folder.parent / "standby", durable=False)
            self.standby.follow(self.database, through=through, synchronous=self._synchronous)
        hosts = f"127.0.0.1:{self.database.port},127.0.0.1:{self.standby.port}"
        return {**found, "database": f"postgresql://halfmoon@{hosts}/postgres"}

    def __exit__(self, *error: Any) -> None:
        if self.standby is not None and self.standby.is_running:
            self.standby.stop()
        super().__exit__(*error)

    def fail_over(self) -> None:
        """The primary dies, and the standby takes over."""
        assert self.standby is not None
        self.database.stop()
        self.standby.promote()
        self.database = self.standby
        self.tables = Tables(self.database.dsn())


def _tries(serving: ServingCluster, number: int) -> int:
    return serving.log_of(number).count("event=tried_again what=heads_read")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cluster"


def test_a_synchronous_standby_has_all_that_was_acknowledged(folder: Path) -> None:
    with Pair(folder, synchronous=True) as serving:
        serving.start_all()
        stage = Stage(serving, "none")
        with feeding(stage):
            stage.everywhere(FAST, "before")
            serving.fail_over()
            stage.everywhere(FAST, "after")
            time.sleep(1.0)  # the producer goes on, too
        assert stage.verdict() == []


@pytest.mark.parametrize("takes_over", [False, True])
def test_while_a_synchronous_standby_is_away_nothing_is_acknowledged(folder: Path, takes_over: bool) -> None:
    """Whoever stops to wait for such a commit sees it at the primary, and the standby lacks it."""
    with Pair(folder, synchronous=True) as serving:
        serving.start_all()
        serving.wait_until_shared()
        stage = Stage(serving, "none")
        for topic in (FAST, OBJECT):
            stage.everywhere(topic, "before")
        leaders = {topic: {i: n for n in serving.nodes for i in stage.led_by(n, topic)} for topic in (FAST, OBJECT)}
        for stream in (DOWN, UP):
            serving.proxies.spoil(REPLICATION, "timeout", stream, timeout=0)
        time.sleep(1.0)
        with ThreadPoolExecutor(len(leaders)) as threads:
            for topic, told in leaders.items():
                threads.submit(stage.send, told[0], topic, 0, "waits")
            wait_until(
                lambda: all(_tries(serving, told[0]) >= TRIES for told in leaders.values()), SEEN_S,
                "the commits were given up, and looked for, several times",
            )  # fmt: skip
            assert not [each for each in stage.acknowledged if each[2] == "waits"]
            if takes_over:
                serving.proxies.refuse(REPLICATION)
                serving.fail_over()
            else:
                serving.proxies.heal(REPLICATION)
        for topic in leaders:
            stage.everywhere(topic, "after")
        assert stage.verdict() == []


def test_commits_that_another_standby_lacks_are_noticed_and_their_shards_stop(folder: Path) -> None:
    with Pair(folder, synchronous=False) as serving:
        serving.start_all()
        serving.wait_until_shared()
        stage = Stage(serving, "none")
        stage.everywhere(FAST, "before")
        of_before = set(stage.acknowledged)
        wait_until(stage.in_objects, SOON_S, "rows are in objects")
        for stream in (DOWN, UP):  # what is committed from now on does not reach the standby
            serving.proxies.spoil(REPLICATION, "timeout", stream, timeout=0)
        time.sleep(1.0)
        leaders = {index: number for number in serving.nodes for index in stage.led_by(number, FAST)}
        lost = [index for index in range(TOPICS[FAST]) if index % 3 == 0]
        for index in lost:
            wait_until(lambda i=index: stage.send(leaders[i], FAST, i, f"lost/{i}"), SOON_S, "it is acknowledged")
        assert set(stage.acknowledged) > of_before
        serving.proxies.refuse(REPLICATION)
        serving.fail_over()
        said = "event=commits_lost shard="
        wait_until(
            lambda: sum(serving.log_of(number).count(said) for number in serving.nodes) >= len(lost), SEEN_S,
            "each shard that lost commits is named, although nobody writes to it",
        )  # fmt: skip
        for index in lost:
            assert not stage.send(leaders[index], FAST, index, f"refused/{index}")
        for index in set(range(TOPICS[FAST])) - set(lost):
            wait_until(
                lambda i=index: stage.send(leaders[i], FAST, i, f"on/{i}"), SOON_S, "the other shards go on"
            )  # fmt: skip
        serving.stop_all()
