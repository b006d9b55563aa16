"""Configurations of groups: what is taken, what holds, and that it is there after a restart."""

from __future__ import annotations

import msgspec
import pytest

from halfmoon.config.settings import load_settings
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.control import ResourceConfigsSet
from halfmoon.services.configs.group_configs import GROUP_CONFIGS, NOT_HERE, GroupRules, resolve, validate
from halfmoon.services.configs.state import ALL_NODES, GROUP
from halfmoon.services.share.options import resolve as share_options
from halfmoon.testing.node import BareNode
from tests.adapters.rig import BrokerRig

DEFAULTS = {
    "consumer.assignment.interval.ms": "0",
    "consumer.heartbeat.interval.ms": "200",
    "consumer.session.timeout.ms": "45000",
    "errors.deadletterqueue.copy.record.enable": "true",
    "errors.deadletterqueue.topic.name": "dlq.g",
    "share.assignment.interval.ms": "0",
    "share.auto.offset.reset": "latest",
    "share.delivery.count.limit": "5",
    "share.heartbeat.interval.ms": "5000",
    "share.isolation.level": "read_uncommitted",
    "share.partition.max.record.locks": "2000",
    "share.record.lock.duration.ms": "30000",
    "share.renew.acknowledge.enable": "true",
    "share.session.timeout.ms": "45000",
}
"""Kafka's, but for the intervals of assignments, the heartbeats of consumer groups, and dead letters."""

CHANGED = {
    "consumer.heartbeat.interval.ms": "100",
    "consumer.session.timeout.ms": "1000",
    "errors.deadletterqueue.copy.record.enable": "FALSE",
    "errors.deadletterqueue.topic.name": "dlq.elsewhere",
    "share.auto.offset.reset": "by_duration:P1DT2H3M4.5S",
    "share.delivery.count.limit": "10",
    "share.heartbeat.interval.ms": "15000",
    "share.isolation.level": "read_committed",
    "share.partition.max.record.locks": "4000",
    "share.record.lock.duration.ms": "60000",
    "share.renew.acknowledge.enable": "false",
    "share.session.timeout.ms": "60000",
}


@pytest.fixture
def rig() -> BrokerRig:
    return BrokerRig()


def test_the_defaults(rig: BrokerRig) -> None:
    assert {name: row.default(rig.settings, "g") for name, row in GROUP_CONFIGS.items()} == DEFAULTS
    assert list(DEFAULTS) == list(GROUP_CONFIGS) == sorted(DEFAULTS)
    assert rig.broker.group_configs.of("g") == GroupRules(None, None)
    validate(DEFAULTS)


def test_what_is_shown_is_what_share_groups_have(rig: BrokerRig) -> None:
    shown = {name: row.default(rig.settings, "g") for name, row in GROUP_CONFIGS.items()}
    assert share_options("g", rig.settings.groups.share, shown) == share_options("g", rig.settings.groups.share, {})


def test_each_has_its_effect(rig: BrokerRig) -> None:
    """Those that can be changed, changed alone, change what their kind of group does."""
    for name, value in CHANGED.items():
        validate({name: value})
        if name.startswith("consumer."):
            assert resolve({name: value}, {}) != resolve({}, {}), name
        else:
            given = rig.settings.groups.share
            assert share_options("g", given, {name: value}) != share_options("g", given, {}), name
    assert GROUP_CONFIGS.keys() - CHANGED.keys() == {"consumer.assignment.interval.ms", "share.assignment.interval.ms"}


def test_a_group_its_node_and_all_nodes(rig: BrokerRig) -> None:
    broker = rig.broker
    assert broker.group_configs.of("g").consumer_session_timeout_ms is None
    broker.dynamic_configs.alter(ALL_NODES, {"group.consumer.session.timeout.ms": "6000"})
    assert broker.group_configs.of("g").consumer_session_timeout_ms == 6000
    broker.dynamic_configs.alter("1", {"group.consumer.session.timeout.ms": "7000"})
    assert broker.group_configs.of("g").consumer_session_timeout_ms == 7000
    broker.group_configs.alter("g", {"consumer.session.timeout.ms": "8000"})
    assert broker.group_configs.of("g").consumer_session_timeout_ms == 8000
    assert broker.group_configs.of("other").consumer_session_timeout_ms == 7000
    assert broker.group_configs.configured() == ["g"]
    broker.group_configs.alter("g", {})
    assert broker.group_configs.of("g").consumer_session_timeout_ms == 7000
    assert broker.group_configs.configured() == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("consumer.heartbeat.interval.ms", "99"),
        ("consumer.heartbeat.interval.ms", "15001"),
        ("consumer.session.timeout.ms", "3600001"),
        ("consumer.session.timeout.ms", "1s"),
        ("consumer.heartbeat.interval.ms", "x"),
        ("share.heartbeat.interval.ms", "-1"),
        ("share.session.timeout.ms", "999"),
        ("share.record.lock.duration.ms", "3600001"),
        ("share.delivery.count.limit", "1"),
        ("share.delivery.count.limit", "101"),
        ("share.partition.max.record.locks", "99"),
        ("share.auto.offset.reset", "EARLIEST"),
        ("share.auto.offset.reset", "by_duration:"),
        ("share.auto.offset.reset", "by_duration:P"),
        ("share.auto.offset.reset", "by_duration:PT"),
        ("share.auto.offset.reset", "by_duration:-PT1H"),
        ("share.auto.offset.reset", "by_duration:1h"),
        ("share.isolation.level", "committed"),
        ("share.renew.acknowledge.enable", "yes"),
        ("errors.deadletterqueue.topic.name", "dlq.a b"),
        ("errors.deadletterqueue.topic.name", "orders"),
        ("consumer.assignment.interval.ms", "1000"),
        ("share.session.timeout.ms", "5000"),
        ("no.such.config", "1"),
        *((name, "1") for name in NOT_HERE),
    ],
)
def test_what_is_refused(rig: BrokerRig, name: str, value: str) -> None:
    with pytest.raises(BrokerError, match=name.replace(".", r"\.")) as caught:
        rig.broker.group_configs.alter("g", {name: value})
    assert caught.value.fault is Fault.INVALID_CONFIG
    assert rig.broker.group_configs.configured() == []


def test_a_default_of_the_node_that_makes_no_sense_is_refused(rig: BrokerRig) -> None:
    with pytest.raises(BrokerError, match="must be less"):
        rig.broker.dynamic_configs.alter(ALL_NODES, {"group.share.session.timeout.ms": "4000"})


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_a_default_of_the_node_that_makes_no_sense_in_some_group_is_refused(rig: BrokerRig, kind: str) -> None:
    configs = rig.broker.dynamic_configs
    rig.broker.group_configs.alter("g", {f"{kind}.heartbeat.interval.ms": "15000"})
    with pytest.raises(BrokerError, match=r"group g: .* must be less"):
        configs.alter(ALL_NODES, {f"group.{kind}.session.timeout.ms": "15000"})
    rig.broker.group_configs.alter(
        "g", {f"{kind}.heartbeat.interval.ms": "15000", f"{kind}.session.timeout.ms": "20000"}
    )
    configs.alter(ALL_NODES, {f"group.{kind}.session.timeout.ms": "15000"})


def test_what_makes_no_sense_beside_new_settings_is_not_obeyed_and_told(rig: BrokerRig) -> None:
    heartbeats = {"consumer.heartbeat.interval.ms": "15000", "share.heartbeat.interval.ms": "15000"}
    rig.broker.group_configs.alter("g", heartbeats)
    rig.broker.close()
    short = {"groups.consumer_session_timeout": "9s", "groups.share.session_timeout": "12s"}
    given = {"log.segment_bytes": "8MiB", "log.low_disk_bytes": 0}
    broker = BareNode(rig.fs, load_settings(None, {}, given | short), rig.clock, bytes)
    broker.open()
    assert broker.groups.coordinator.settings.heartbeat_interval("g", 1) == 200
    assert broker.shares.options("g").heartbeat_interval_ms == 4_000
    (warning,) = broker.warnings()
    assert warning.startswith("group g: consumer.heartbeat.interval.ms (15000)")
    broker.dynamic_configs.alter(ALL_NODES, {"num.partitions": "6"})  # which has nothing to do with it
    broker.group_configs.alter("g", {})
    assert broker.warnings() == []


def test_rules_are_kept_for_some_groups_only(rig: BrokerRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfmoon.services.configs.group_configs.KEPT_RULES", 10)
    configs = rig.broker.group_configs
    assert configs.of("g") is configs.of("g")
    for number in range(25):
        configs.of(f"g{number}")
    assert len(configs._rules) <= 10


def test_what_another_process_has_set_holds_at_once(rig: BrokerRig) -> None:
    """Its record comes by the catalog that they share."""
    configs = rig.broker.group_configs
    assert configs.of("g").consumer_session_timeout_ms is None
    rig.broker.state.configs.apply(ResourceConfigsSet(GROUP, "g", {"consumer.session.timeout.ms": "60000"}))
    assert configs.of("g").consumer_session_timeout_ms == 60_000
    snapshot = msgspec.Raw(msgspec.msgpack.encode([]))  # taken over by a process that has missed too much
    rig.broker.state.configs.restore("configs", snapshot)
    assert configs.of("g").consumer_session_timeout_ms is None


def test_they_are_there_after_a_power_loss(rig: BrokerRig) -> None:
    rig.broker.group_configs.alter("g", {"share.isolation.level": "read_committed"})
    rig.broker.dynamic_configs.alter(ALL_NODES, {"group.consumer.session.timeout.ms": "6000"})
    rig.turn()
    broker = BareNode(rig.fs.power_loss(), rig.settings, rig.clock, bytes)
    broker.open()
    assert broker.group_configs.overrides("g") == {"share.isolation.level": "read_committed"}
    assert broker.group_configs.of("g").consumer_session_timeout_ms == 6000
