"""`services: {NAME: off}`: without a trace in what is offered, measured and configured; refused where it is needed; and
nothing that the log says is lost.

`tests/golden/stored_data/57d488e.tar.xz` has every kind of state in it (tests/core/test_stored_data.py).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from prometheus_client.parser import text_string_to_metric_families

import halfmoon.testing
from halfmoon.adapters.kafka.api import registered
from halfmoon.config.settings import ServiceSettings, load_settings
from halfmoon.core.catalog import snapshot
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.errors import HalfmoonError, StartError
from halfmoon.hooks.context import PluginContext
from halfmoon.hooks.plugins import load_plugins
from halfmoon.plugins import BUILT_IN
from halfmoon.schema.snapshot import Snapshot
from halfmoon.server.needs import NEEDS, check_needs
from halfmoon.server.plugin_features import context_of
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, open_broker, relay, turn
from tests.services.transactions.transaction_bench import TxnClient

STORED = Path(__file__).parents[1] / "golden" / "stored_data" / "57d488e.tar.xz"
SERVICES = ServiceSettings.__struct_fields__
ALWAYS = {
    "AlterPartitionReassignments", "AlterReplicaLogDirs", "AlterUserScramCredentials", "ApiVersions",
    "CreateDelegationToken", "CreatePartitions", "CreateTopics", "DeleteRecords", "DeleteTopics",
    "DescribeCluster", "DescribeDelegationToken", "DescribeLogDirs", "DescribeProducers", "DescribeQuorum",
    "DescribeTopicPartitions", "DescribeUserScramCredentials", "ElectLeaders", "ExpireDelegationToken", "Fetch",
    "FindCoordinator", "HalfmoonSecurity", "HalfmoonUsers", "InitProducerId", "ListOffsets",
    "ListPartitionReassignments", "Metadata",
    "OffsetForLeaderEpoch", "Produce", "RenewDelegationToken", "SaslAuthenticate", "SaslHandshake", "UpdateFeatures",
}  # fmt: skip
APIS = {
    "acls": {"DescribeAcls", "CreateAcls", "DeleteAcls"},
    "cleaner": set(),
    "configs": {
        "DescribeConfigs", "AlterConfigs", "IncrementalAlterConfigs", "ListConfigResources",
        "GetTelemetrySubscriptions", "PushTelemetry",
    },
    "delays": {"HalfmoonDelays"},
    "expiry": set(),
    "groups": {
        "OffsetCommit", "OffsetFetch", "JoinGroup", "Heartbeat", "LeaveGroup", "SyncGroup", "DescribeGroups",
        "ListGroups", "DeleteGroups", "OffsetDelete", "ConsumerGroupHeartbeat", "ConsumerGroupDescribe",
        "TxnOffsetCommit", "AddOffsetsToTxn",
    },
    "keyindex": set(),  # HalfmoonMessages remains, which plugins.retry answers too
    "quotas": {"DescribeClientQuotas", "AlterClientQuotas"},
    "scrubber": set(),
    "share": {
        "ShareGroupHeartbeat", "ShareGroupDescribe", "ShareFetch", "ShareAcknowledge", "DescribeShareGroupOffsets",
        "AlterShareGroupOffsets", "DeleteShareGroupOffsets",
    },
    "transactions": {
        "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "WriteTxnMarkers", "TxnOffsetCommit",
        "DescribeTransactions", "ListTransactions",
    },
    "waiting": {"HalfmoonSchedules"},  # of a plugin that needs it
}  # fmt: skip
"""By service, what is not there without it."""
METRICS = {
    "cleaner": "halfmoon_cleaner_",
    "delays": "halfmoon_rescheduled_",
    "expiry": "halfmoon_expired",
    "groups": ("halfmoon_group", "kafka_consumergroup"),
    "keyindex": "halfmoon_key_index_",
    "quotas": "halfmoon_throttle",
    "scrubber": "halfmoon_scrubber_",
    "share": "halfmoon_share_",
    "transactions": "halfmoon_transaction",
    "waiting": "halfmoon_deliver",
}  # fmt: skip
CONFIGS = {
    "cleaner": {"log.cleaner.enable", "log.cleaner.min.cleanable.ratio", "min.cleanable.dirty.ratio"},
    "delays": set(),
    "expiry": {"halfmoon.ttl.ms", "halfmoon.ttl.action"},
    "groups": {"group.max.size", "offsets.retention.minutes", "group.consumer.session.timeout.ms"},
    "keyindex": {"halfmoon.key.index"},
    "quotas": {"quota.window.num"},
    "scrubber": set(),
    "share": {"group.share.max.size", "group.share.delivery.count.limit"},
    "transactions": {"transaction.max.timeout.ms"},
    "waiting": {"halfmoon.headers.enable"},
}


def closure(service: str) -> set[str]:
    """The service, and the others that must be off with it, or are."""
    if service == "waiting":
        return {service, "delays"}  # where nothing waits, nobody has to switch off who tells of it
    return {service} | {
        who.removeprefix("services.")
        for who, needs in NEEDS.items()
        if service in needs and who.startswith("services.")
    }


def config_without(*services: str) -> dict[str, Any]:
    off = set().union(*map(closure, services))
    plugins = {
        who.removeprefix("plugins.") for who, needs in NEEDS.items() if who.startswith("plugins.") and off & set(needs)
    }
    return {
        "services": dict.fromkeys(sorted(off), False),
        "plugins": dict.fromkeys(sorted(plugins), False),
        "listeners": {"http": {"bind": "127.0.0.1:0"}},
    }


def broker_without(*services: str, **more: Any) -> halfmoon.testing.Broker:
    return halfmoon.testing.Broker(config=config_without(*services), **more)


def offered(broker: halfmoon.testing.Broker) -> set[str]:
    assert broker.app is not None
    return {each.name for each in broker.app.kafka.routes.values()}


def families(broker: halfmoon.testing.Broker) -> set[str]:
    assert broker.app is not None
    with urllib.request.urlopen(f"http://{broker.app.http_address}/metrics") as answer:
        return {family.name for family in text_string_to_metric_families(answer.read().decode())}


def a_record_comes_back(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("t", 1)])["t"].result(10)
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    producer.produce("t", b"v")
    assert producer.flush(10) == 0
    consumer = Consumer({"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", 0, 0)])
    message = consumer.poll(10)
    while message is not None and message.error() is not None:
        # Confluent's consumer asks for a group's coordinator even where it assigns partitions itself.
        assert "services.groups is off" in message.error().str()
        message = consumer.poll(10)
    assert message is not None
    assert message.value() == b"v"
    assert consumer.get_watermark_offsets(TopicPartition("t", 0)) == (0, 1)
    consumer.close()
    admin.delete_topics(["t"])["t"].result(10)


def test_the_tables_of_this_test_have_every_service() -> None:
    assert set(APIS) == set(SERVICES)
    own = {each.name for each in registered().values()}
    assert set().union(ALWAYS, *APIS.values(), {"HalfmoonMessages"}) == own


@pytest.mark.parametrize("service", SERVICES)
def test_each_alone(service: str) -> None:
    off = closure(service)
    with broker_without(service) as broker:
        gone = set().union(*(APIS[name] for name in off))
        assert offered(broker) == {each.name for each in registered().values()} - gone
        shown = families(broker)
        for name, start in METRICS.items():
            assert any(family.startswith(start) for family in shown) == (name not in off), name
        if service != "configs":
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            admin.create_topics([NewTopic("c", 1)])["c"].result(10)
            found: set[str] = set()
            for resource in (ConfigResource("broker", "1"), ConfigResource("topic", "c")):
                found |= set(admin.describe_configs([resource])[resource].result(10))
            for name, configs in CONFIGS.items():
                assert found & configs == (set() if name in off else configs), name
        a_record_comes_back(broker.bootstrap_servers)


def test_all_of_them() -> None:
    """A log remains."""
    with broker_without(*SERVICES) as broker:
        assert offered(broker) == ALWAYS
        shown = families(broker)
        assert not [family for family in shown for start in METRICS.values() if family.startswith(start)]
        a_record_comes_back(broker.bootstrap_servers)
        assert broker.app is not None
        assert broker.app.health() == broker.app.warnings() == []


def test_clients_that_need_a_service_that_is_off_are_refused_at_once() -> None:
    with broker_without("groups", "transactions") as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x"})
        with pytest.raises(KafkaException) as caught:
            producer.init_transactions(10)
        assert caught.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_commands_say_that_it_is_not_there() -> None:
    with broker_without(*SERVICES) as broker:

        def halfmoon(*command: str) -> tuple[int, str]:
            done = subprocess.run(
                [sys.executable, "-m", "halfmoon", *command, "--bootstrap-server", broker.bootstrap_servers],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            return done.returncode, done.stdout + done.stderr

        assert halfmoon("topic", "create", "t")[0] == 0
        code, told = halfmoon("topic", "describe", "t")
        assert (code, "topic" in told) == (0, True)
        for command in (("group", "list"), ("group", "describe", "g"), ("topic", "alter", "t", "--config", "a=b")):
            assert halfmoon(*command) == (
                1,
                "halfmoon: UNSUPPORTED_VERSION: the broker does not offer what this needs; "
                "look for a service that is off in its broker.yaml\n",
            )


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"services": {"groups": False}}, "$.services.share needs services.groups, which is off"),
        ({"services": {"waiting": False}}, "$.plugins.delay needs services.waiting, which is off"),
        ({"services": {"keyindex": False}}, "$.plugins.delay needs services.keyindex, which is off"),
        (
            {"services": {"waiting": False}, "plugins": {"delay": False}},
            "$.plugins.retry needs services.waiting, which is off",
        ),
        (
            {"services": {"waiting": False}, "plugins": {"delay": False, "retry": False}},
            "$.plugins.schedule needs services.waiting, which is off",
        ),
        (
            {"services": {"waiting": False}, "plugins": {"delay": False, "retry": False, "schedule": False}},
            "$.plugins.transaction needs services.waiting, which is off",
        ),
        (
            {"services": {"groups": False, "share": False}, "listeners": {"rocketmq": {}}},
            "$.listeners.rocketmq needs services.groups, which is off",
        ),
    ],
)
def test_what_needs_a_service_that_is_off_says_so_at_start(config: Mapping[str, Any], expected: str) -> None:
    settings = load_settings(config, {}, {})
    plugins = load_plugins(settings, BUILT_IN)
    with pytest.raises(StartError) as caught:
        check_needs(settings, {plugin.name for plugin in plugins.infos if plugin.enabled})
    assert str(caught.value) == f"{expected}; switch both off, or neither"
    with pytest.raises(StartError, match="switch both off, or neither"):
        halfmoon.testing.Broker(config=config).start()


def test_a_service_that_there_is_not_is_refused() -> None:
    with pytest.raises(StartError, match=r"\$\.services\.quota: no such setting; did you mean quotas\?"):
        load_settings({"services": {"quota": False}}, {}, {})


# -- off and on again --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("stored")
    with tarfile.open(STORED) as archive:
        archive.extractall(folder, filter="data")
    yield folder
    shutil.rmtree(folder)


def said(broker: BareNode) -> dict[str, object]:
    """What the log says, by the name of its slot."""
    data = snapshot.take(broker.catalog, 0, 0)
    found = dict(zip(Snapshot.__struct_fields__, msgspec.msgpack.decode(data), strict=False))
    return {name: value for name, value in found.items() if name not in ("position", "generation", "clean")}


@pytest.mark.parametrize("service", [*SERVICES, "all"])
def test_off_and_on_again_loses_nothing(stored: Path, tmp_path: Path, service: str) -> None:
    off = set(SERVICES) if service == "all" else closure(service)
    clock = VirtualClock()
    clock.now_ms = json.loads((stored / "clean.json").read_text())["now_ms"]

    def opened(folder: Path, off: set[str]) -> BareNode:
        if not folder.exists():
            shutil.copytree(stored / "clean", folder)
        return open_broker(OsFileSystem(folder), clock, off=off)

    reference = opened(tmp_path / "reference", set())
    expected = said(reference)
    reference.close()
    for _ in range(2):
        without = opened(tmp_path / "data", off)
        turn(without)
        assert said(without) == expected
        without.close()
    again = opened(tmp_path / "data", set())
    assert said(again) == expected
    relay(again)
    assert again.health() == []
    again.close()


def test_scheduled_messages_wait_meanwhile(tmp_path: Path) -> None:
    """More of it in tests/plugins/store."""
    data_dir = str(tmp_path)

    def values(broker: halfmoon.testing.Broker, count: int) -> list[bytes | None]:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused"})
        consumer.assign([TopicPartition("t", 0, 0)])
        found = [message.value() for message in consumer.consume(count, 10)]
        consumer.close()
        return found

    def produce(broker: halfmoon.testing.Broker, value: bytes, **headers: str) -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("t", value, headers=headers)
        assert producer.flush(10) == 0

    with halfmoon.testing.Broker(data_dir=data_dir) as broker:
        produce(broker, b"late", TIMER_DELAY_MS="1000")
    with broker_without("waiting", data_dir=data_dir) as broker:
        assert broker.app is not None
        assert broker.app.warnings() == ["services.waiting is off, and 1 messages wait"]
        produce(broker, b"at once", TIMER_DELAY_MS="600000")
        assert values(broker, 1) == [b"at once"]
    with halfmoon.testing.Broker(data_dir=data_dir) as broker:
        assert values(broker, 2) == [b"at once", b"late"]


def test_an_open_transaction_stays_open_and_is_warned_of(tmp_path: Path) -> None:
    fs, clock = OsFileSystem(tmp_path), VirtualClock()
    broker = open_broker(fs, clock)
    broker.create_topic("t", 1)
    client = TxnClient(broker, "mine")
    client.init()
    client.send("t", b"open")
    turn(broker)
    broker.close()
    broker = open_broker(fs, clock, off={"transactions"})
    clock.now_ms += 86_400_000
    turn(broker)
    assert broker.warnings() == ["services.transactions is off, and readers of committed records wait for mine"]
    assert broker.topic("t").partitions[0].stable_offset == 0
    broker.close()
    broker = open_broker(fs, clock)
    assert broker.state.transactions.ongoing.keys() == {"mine"}
    broker.timers.expire(clock.mono_ms() + 60_000)
    turn(broker)
    assert broker.topic("t").partitions[0].stable_offset == 2
    assert broker.warnings() == []
    broker.close()


def test_a_plugin_that_looks_up_keys_is_told_that_there_is_no_index(tmp_path: Path) -> None:
    broker = open_broker(OsFileSystem(tmp_path), VirtualClock(), off={"keyindex", "delay"})
    keys = context_of(broker, PluginContext("other"), {}).keys
    with pytest.raises(HalfmoonError, match=r"services\.keyindex is off"):
        keys.covers(0)
    with pytest.raises(HalfmoonError, match=r"services\.keyindex is off"):
        keys.find_key(1, b"key")
