"""Configurations of groups: what is taken, what holds, and that it is there after a restart."""

from __future__ import annotations

from dataclasses import fields

import pytest

from halfmoon.core.administration import ALL_NODES
from halfmoon.core.broker import Broker
from halfmoon.core.errors import BrokerError, Fault
from halfmoon.core.group_configs import BY_DURATION, EARLIEST, GROUP_CONFIGS, LATEST, NOT_HERE, GroupRules, resolve
from tests.adapters.rig import BrokerRig

KAFKAS_DEFAULTS = {
    "consumer.assignment.interval.ms": "1000",
    "consumer.heartbeat.interval.ms": "5000",
    "consumer.session.timeout.ms": "45000",
    "share.assignment.interval.ms": "1000",
    "share.auto.offset.reset": "latest",
    "share.delivery.count.limit": "5",
    "share.heartbeat.interval.ms": "5000",
    "share.isolation.level": "read_uncommitted",
    "share.partition.max.record.locks": "2000",
    "share.record.lock.duration.ms": "30000",
    "share.renew.acknowledge.enable": "true",
    "share.session.timeout.ms": "45000",
}
"""What Kafka 4.3.1 tells of a group that has none of its own, without those of Streams groups."""


@pytest.fixture
def rig() -> BrokerRig:
    return BrokerRig()


def test_the_defaults_are_kafkas(rig: BrokerRig) -> None:
    ours = {name: row.default for name, row in GROUP_CONFIGS.items()}
    assert ours == KAFKAS_DEFAULTS | {
        "errors.deadletterqueue.copy.record.enable": "true",
        "errors.deadletterqueue.topic.name": "",
    }
    assert list(ours) == sorted(ours)
    assert rig.broker.group_configs.of("g") == GroupRules(
        consumer_assignment_interval_ms=1000,
        consumer_heartbeat_interval_ms=5000,
        consumer_session_timeout_ms=45000,
        dead_letter_copy_record=True,
        dead_letter_topic="",
        share_assignment_interval_ms=1000,
        share_auto_offset_reset=LATEST,
        share_reset_duration_ms=0,
        share_delivery_count_limit=5,
        share_heartbeat_interval_ms=5000,
        share_read_committed=False,
        share_partition_max_record_locks=2000,
        share_record_lock_duration_ms=30000,
        share_renew_acknowledge=True,
        share_session_timeout_ms=45000,
    )


CHANGED = {
    "consumer.assignment.interval.ms": "0",
    "consumer.heartbeat.interval.ms": "100",
    "consumer.session.timeout.ms": "1000",
    "errors.deadletterqueue.copy.record.enable": "FALSE",
    "errors.deadletterqueue.topic.name": "dlq.orders",
    "share.assignment.interval.ms": "15000",
    "share.auto.offset.reset": "by_duration:P1DT2H3M4.5S",
    "share.delivery.count.limit": "10",
    "share.heartbeat.interval.ms": " 15000 ",
    "share.isolation.level": "read_committed",
    "share.partition.max.record.locks": "4000",
    "share.record.lock.duration.ms": "60000",
    "share.renew.acknowledge.enable": "false",
    "share.session.timeout.ms": "60000",
}


def test_each_has_its_effect() -> None:
    """Each configuration, changed alone, changes a field of the rules."""
    default = resolve({}, {})
    seen = set()
    for name, value in CHANGED.items():
        rules = resolve({name: value}, {})
        different = {f.name for f in fields(GroupRules) if getattr(rules, f.name) != getattr(default, f.name)}
        assert different, name
        assert not different & seen
        seen |= different
    assert seen == {f.name for f in fields(GroupRules)}
    assert CHANGED.keys() == GROUP_CONFIGS.keys()


def test_a_group_its_node_and_all_nodes(rig: BrokerRig) -> None:
    broker = rig.broker
    assert broker.group_configs.of("g").share_delivery_count_limit == 5
    broker.dynamic_configs.alter(ALL_NODES, {"group.share.delivery.count.limit": "6"})
    assert broker.group_configs.of("g").share_delivery_count_limit == 6
    broker.dynamic_configs.alter("0", {"group.share.delivery.count.limit": "7"})
    assert broker.group_configs.of("g").share_delivery_count_limit == 7
    broker.group_configs.alter("g", {"share.delivery.count.limit": "8"})
    assert broker.group_configs.of("g").share_delivery_count_limit == 8
    assert broker.group_configs.of("other").share_delivery_count_limit == 7
    assert broker.group_configs.configured() == ["g"]
    broker.group_configs.alter("g", {})
    assert broker.group_configs.of("g").share_delivery_count_limit == 7
    assert broker.group_configs.configured() == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("consumer.heartbeat.interval.ms", "99"),
        ("consumer.heartbeat.interval.ms", "15001"),
        ("consumer.session.timeout.ms", "60001"),
        ("consumer.session.timeout.ms", "1s"),
        ("consumer.session.timeout.ms", "5000"),
        ("share.heartbeat.interval.ms", "-1"),
        ("share.session.timeout.ms", "999"),
        ("share.record.lock.duration.ms", "60001"),
        ("share.delivery.count.limit", "1"),
        ("share.delivery.count.limit", "11"),
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
        ("no.such.config", "1"),
        *((name, "1") for name in NOT_HERE),
    ],
)
def test_what_is_refused(rig: BrokerRig, name: str, value: str) -> None:
    with pytest.raises(BrokerError, match=name.replace(".", r"\.")) as caught:
        rig.broker.group_configs.alter("g", {name: value})
    assert caught.value.fault is Fault.INVALID_CONFIG
    assert rig.broker.group_configs.configured() == []


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("earliest", (EARLIEST, 0)),
        ("by_duration:PT1H", (BY_DURATION, 3_600_000)),
        ("by_duration:P2D", (BY_DURATION, 172_800_000)),
        ("by_duration:pt0.5s", (BY_DURATION, 500)),
    ],
)
def test_where_a_share_group_begins(value: str, expected: tuple[str, int]) -> None:
    rules = resolve({"share.auto.offset.reset": value}, {})
    assert (rules.share_auto_offset_reset, rules.share_reset_duration_ms) == expected


def test_a_default_of_the_node_that_makes_no_sense_is_refused(rig: BrokerRig) -> None:
    with pytest.raises(BrokerError, match="must be less"):
        rig.broker.dynamic_configs.alter(ALL_NODES, {"group.consumer.session.timeout.ms": "4000"})


def test_rules_are_kept_for_some_groups_only(rig: BrokerRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfmoon.core.group_configs.KEPT_RULES", 10)
    configs = rig.broker.group_configs
    assert configs.of("g") is configs.of("g")
    for number in range(25):
        configs.of(f"g{number}")
    assert len(configs._rules) <= 10


def test_they_are_there_after_a_power_loss(rig: BrokerRig) -> None:
    rig.broker.group_configs.alter("g", {"share.isolation.level": "read_committed"})
    rig.broker.dynamic_configs.alter(ALL_NODES, {"group.share.delivery.count.limit": "6"})
    rig.turn()
    broker = Broker(rig.fs.power_loss(), rig.settings, rig.clock, bytes)
    broker.open()
    assert broker.group_configs.of("g").share_read_committed
    assert broker.group_configs.of("g").share_delivery_count_limit == 6
