"""What each version has stored is opened by this one: nothing is lost, and all of it goes on.

tests/golden/stored_data/VERSION.tar.xz has a data directory that was stopped, one that was killed, and what is in them;
tools/stored_directory.py has made it at the end of that version.
"""

from __future__ import annotations

import json
import re
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import AcknowledgeType, ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from packaging.version import Version

import halfmoon
from halfmoon.cli.main import run
from halfmoon.testing import Broker
from tools import stored_directory
from tools.stored_directory import _send as send
from tools.stored_directory import read, share_consumer

STORED = Path(__file__).parents[1] / "golden" / "stored_data"
VERSIONS = sorted((path.name.removesuffix(".tar.xz") for path in STORED.glob("*.*.*.tar.xz")), key=Version)
DEADLINE_S = 60


def test_every_version_before_this_one_is_here() -> None:
    text = (Path(__file__).parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## (\d+\.\d+\.\d+)", text, re.MULTILINE)
    assert released
    assert set(released) <= set(VERSIONS)
    assert stored_directory.FOLDER == STORED


class Opened:
    """A stored directory, with a broker of this version on it."""

    def __init__(self, folder: Path, version: str, way: str) -> None:
        with tarfile.open(STORED / f"{version}.tar.xz") as archive:
            archive.extractall(folder, filter="data")
        self.directory = folder / way
        self.expected: dict[str, Any] = json.loads((folder / f"{way}.json").read_text())
        self.config = yaml.safe_load((folder / "broker.yaml").read_text())
        self.config["listeners"] = {"http": {"bind": "127.0.0.1:0"}}
        self.broker = self.start()

    def start(self) -> Broker:
        broker = Broker(data_dir=str(self.directory), config=self.config)
        broker.start()
        return broker

    @property
    def address(self) -> str:
        return str(self.broker.bootstrap_servers)

    @property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.address})

    def values(self, topic: str) -> list[str]:
        partitions = self.expected["topics"].get(topic, {"partitions": 1})["partitions"]
        return [row["value"] for rows in read(self.address, topic, partitions) for row in rows]


@pytest.fixture(params=[f"{version}-{way}" for version in VERSIONS for way in ("clean", "killed")])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    version, way = request.param.rsplit("-", 1)
    found = Opened(tmp_path, version, way)
    yield found
    found.broker.stop()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_nothing_is_lost_and_all_of_it_goes_on(opened: Opened) -> None:
    expected = opened.expected
    app = opened.broker.app
    assert app is not None
    assert app.health() == []

    # Topics, with their configurations and every record that readers of committed records saw.
    admin = opened.admin
    found = admin.list_topics(timeout=DEADLINE_S).topics
    assert set(found) >= set(expected["topics"])
    for name, topic in expected["topics"].items():
        rows = read(opened.address, name, topic["partitions"])
        assert [part[: len(known)] for part, known in zip(rows, topic["records"], strict=True)] == topic["records"], (
            name
        )
    for name, configs in expected["configs"].items():
        resource = ConfigResource(ResourceType.TOPIC, name)
        there = admin.describe_configs([resource])[resource].result(DEADLINE_S)
        assert {key: there[key].value for key in configs} == configs
    assert [row["value"] for row in expected["topics"]["payments"]["records"][0]] == [
        "committed 0", "committed 1", "committed 2",
    ]  # fmt: skip

    # Groups, and what was set at run time.
    for group, offsets in expected["groups"].items():
        asked = ConsumerGroupTopicPartitions(group)
        said = admin.list_consumer_group_offsets([asked])[group].result(DEADLINE_S).topic_partitions
        assert sorted([each.topic, each.partition, each.offset] for each in said) == offsets
    assert app.node.kernel.settings.topics.partitions == 7

    # Delays: what was due meanwhile comes, what is not due waits. Half messages wait for their end.
    until(lambda: set(opened.values("later")) == {"half committed", *expected["delayed"]["due"]})
    assert app.node.waiting.waiting() == expected["delayed"]["far"] + len(expected["half"])
    first, second = expected["half"]
    for name, state in ((first, "commit"), (second, "rollback")):
        headers = {"PGROUP": "shop", "UNIQ_KEY": name, "TRAN_STATE": state}
        send(opened.address, [("halfmoon.transactions", 0, "", headers)])
    until(lambda: f"half {first}" in opened.values("later"))
    assert app.node.waiting.waiting() == expected["delayed"]["far"]
    assert len(opened.values("later")) == 3, "once each"

    # Views are filled further.
    source, view = expected["view"]
    before = len(opened.values(view))
    send(opened.address, [(source, 0, "new", {"TAGS": "paid"}), (source, 0, "not this", {"TAGS": "open"})])
    until(lambda: len(opened.values(view)) == before + 1)

    # A group negatively acknowledges a record that it has nacked before: that is known still.
    send(opened.address, [("retry.billing", 0, "again", {"RETRY_OF": "orders/0/1", "TIMER_DELAY_MS": "0"})])
    send(opened.address, [("retry.billing", 0, "other", {"RETRY_OF": "orders/0/2", "TIMER_DELAY_MS": "0"})])
    until(lambda: opened.values("retry.billing") == ["other"])


def users_log_in_and_rules_count(address: str, stored: dict[str, Any]) -> None:
    login = {
        "bootstrap.servers": address, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": stored["user"], "sasl.password": stored["password"], "log_level": 0,
    }  # fmt: skip
    assert set(AdminClient(login).list_topics(timeout=DEADLINE_S).topics) == {"orders", "payments"}
    failed: list[str] = []
    producer = Producer(login)
    for topic in ("payments", "orders"):
        producer.produce(topic, b"x", on_delivery=lambda error, _: failed.append(error and error.name()))
        assert producer.flush(DEADLINE_S) == 0
    assert failed == [None, "TOPIC_AUTHORIZATION_FAILED"]


def test_users_and_rules_of_this_version_are_there_after_a_restart(tmp_path: Path) -> None:
    """As the tool stores them, which does so from 0.3.0 on."""
    config: dict[str, Any] = {"topics": {"auto_create": False}}
    with Broker(data_dir=str(tmp_path / "data"), config=config) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        stored_directory._create(admin, {name: (1, {}) for name in ("orders", "payments", "state")})
        stored = stored_directory._security(admin)
    config["listeners"] = {"kafka": {"sasl": ["SCRAM-SHA-512"]}}
    with Broker(data_dir=str(tmp_path / "data"), config=config) as broker:
        users_log_in_and_rules_count(str(broker.bootstrap_servers), stored)


def test_share_groups_go_on(opened: Opened) -> None:
    (left,) = opened.expected["share"].values()
    consumer = share_consumer(opened.address)
    taken: set[str] = set()
    deadline = time.monotonic() + DEADLINE_S
    while taken != set(left):
        assert time.monotonic() < deadline, taken
        for message in consumer.poll(1.0):
            if message.error() is None:
                taken.add(message.value().decode())
                consumer.acknowledge(message, AcknowledgeType.ACCEPT)
        assert taken <= set(left), "accepted and rejected ones come no more"
        consumer.commit_sync(DEADLINE_S)
    consumer.close()


def test_it_is_whole_after_a_clean_stop_and_opens_again(opened: Opened, capsys: pytest.CaptureFixture[str]) -> None:
    send(opened.address, [("orders", 0, "of this version", {})])
    opened.broker.stop()
    assert run(["log", "verify", str(opened.directory)]) == 0, capsys.readouterr().err
    opened.broker = opened.start()
    assert "of this version" in opened.values("orders")
    until(lambda: "due" in opened.values("later"))
    admin = opened.admin
    asked = ConsumerGroupTopicPartitions("billing")
    offsets = admin.list_consumer_group_offsets([asked])["billing"].result(DEADLINE_S).topic_partitions
    assert sorted([each.topic, each.partition, each.offset] for each in offsets) == opened.expected["groups"]["billing"]
    if "security" in opened.expected:
        opened.broker.stop()
        opened.config["listeners"]["kafka"] = {"sasl": ["SCRAM-SHA-512"]}
        opened.broker = opened.start()
        users_log_in_and_rules_count(opened.address, opened.expected["security"])


def test_the_version_of_this_code_is_not_behind() -> None:
    assert Version(halfmoon.__version__) > max(map(Version, VERSIONS))
