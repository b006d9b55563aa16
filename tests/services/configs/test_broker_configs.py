"""Configurations of the node that are changed at run time: what follows from them, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from halfmoon.config.settings import Settings, load_settings
from halfmoon.core.steps import finish
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.control import ResourceConfigsSet
from halfmoon.services.configs.broker_configs import BrokerConfigs
from halfmoon.services.configs.refused_configs import REFUSED_CONFIGS
from halfmoon.services.configs.state import ALL_NODES, BROKER
from halfmoon.services.topic_configs import topic_configs
from halfmoon.testing.node import BareNode
from tests.adapters.rig import BrokerRig

NODE = "1"
TABLE = BrokerConfigs(topic_configs())
BROKER_CONFIGS = TABLE.rows


@pytest.fixture
def rig() -> BrokerRig:
    return BrokerRig()


def put(rig: BrokerRig, name: str, **configs: str) -> None:
    rig.broker.dynamic_configs.alter(name, {key.replace("_", "."): value for key, value in configs.items()})
    rig.turn()


CHANGES = {
    "auto.create.topics.enable": ("false", lambda s: s.topics.auto_create, False),
    "connections.max.idle.ms": ("12345", lambda s: s.limits.idle_timeout_ms, 12345),
    "group.initial.rebalance.delay.ms": ("0", lambda s: s.groups.initial_rebalance_delay_ms, 0),
    "group.max.session.timeout.ms": ("50000", lambda s: s.groups.max_session_timeout_ms, 50000),
    "group.max.size": ("3", lambda s: s.groups.max_size, 3),
    "group.min.session.timeout.ms": ("2000", lambda s: s.groups.min_session_timeout_ms, 2000),
    "log.cleaner.backoff.ms": ("700", lambda s: s.log.cleaner.interval_ms, 700),
    "log.cleaner.dedupe.buffer.size": ("2097152", lambda s: s.log.cleaner.memory_bytes, 2 << 20),
    "max.connections": ("70", lambda s: s.limits.max_connections, 70),
    "num.partitions": ("9", lambda s: s.topics.partitions, 9),
    "offsets.retention.minutes": ("2", lambda s: s.groups.offsets_retention_ms, 120_000),
}


def test_every_setting_that_can_be_changed_is_tested() -> None:
    assert CHANGES.keys() == {name for name, row in BROKER_CONFIGS.items() if row.place is not None}


@pytest.mark.parametrize("name", CHANGES)
def test_settings_follow(rig: BrokerRig, name: str) -> None:
    value, read, expected = CHANGES[name]
    before = read(rig.broker.settings)  # type: ignore[no-untyped-call]
    rig.broker.dynamic_configs.alter(NODE, {name: f" {value} "})
    assert read(rig.broker.settings) == expected != before  # type: ignore[no-untyped-call]
    assert BROKER_CONFIGS[name].value(rig.broker.settings) == value
    rig.broker.dynamic_configs.alter(NODE, {})
    assert read(rig.broker.settings) == before  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("connections.max.idle.ms", "-1", None),
        ("offsets.retention.minutes", "2147483647", None),
    ],
)
def test_for_ever(rig: BrokerRig, name: str, value: str, expected: object) -> None:
    put(rig, NODE, **{name.replace(".", "_"): value})
    assert CHANGES[name][1](rig.broker.settings) is expected  # type: ignore[no-untyped-call]


def test_groups_and_their_coordinator_follow(rig: BrokerRig) -> None:
    put(rig, ALL_NODES, group_max_size="2", group_initial_rebalance_delay_ms="77")
    coordinator = rig.broker.groups.coordinator.classic
    assert (coordinator.settings.max_size, coordinator.settings.initial_rebalance_delay_ms) == (2, 77)
    assert coordinator._rebalances.settings is coordinator.settings


def test_offsets_are_kept_for_as_long_as_is_said_now(rig: BrokerRig) -> None:
    (partition,) = rig.topic("t")
    rig.broker.groups.commit("g", -1, "", None, [(partition, 1, -1, "")])
    rig.turn()
    now_ms = rig.clock.now_ms + 3 * 60_000
    assert finish(rig.broker.groups.expire_offsets(now_ms)) == 0
    put(rig, NODE, offsets_retention_minutes="4")
    assert finish(rig.broker.groups.expire_offsets(now_ms)) == 0
    put(rig, NODE, offsets_retention_minutes="3")
    assert finish(rig.broker.groups.expire_offsets(now_ms)) == 1


def test_topics_follow_where_they_do_not_say_otherwise(rig: BrokerRig) -> None:
    rig.topic("own", retention_ms="5")
    rig.topic("plain")
    put(rig, ALL_NODES, log_retention_ms="1000", message_max_bytes="2000")
    broker = rig.broker
    rules = {topic.name: topic.rules for topic in broker.topics()}
    assert (rules["own"].retention_ms, rules["own"].max_message_bytes) == (5, 2000)
    assert (rules["plain"].retention_ms, rules["plain"].max_message_bytes) == (1000, 2000)
    put(rig, NODE, log_retention_ms="3000")
    rig.topic("later")
    rules = {topic.name: topic.rules for topic in broker.topics()}
    assert [rules[name].retention_ms for name in ("own", "plain", "later")] == [5, 3000, 3000]
    put(rig, NODE)
    put(rig, ALL_NODES)
    rules = {topic.name: topic.rules for topic in broker.topics()}
    assert [rules[name].retention_ms for name in ("own", "plain", "later")] == [5, 604_800_000, 604_800_000]


def test_what_is_none_of_topics_leaves_their_rules_as_they_are(rig: BrokerRig) -> None:
    """With thousands of topics, working them out anew takes the loop a while."""
    rig.topic("t")
    rules = rig.broker.catalog.by_name["t"].rules
    put(rig, NODE, num_partitions="6")
    assert rig.broker.catalog.by_name["t"].rules is rules
    put(rig, NODE, num_partitions="6", log_retention_ms="5")
    changed = rig.broker.catalog.by_name["t"].rules
    assert changed.retention_ms == 5
    put(rig, NODE, log_retention_ms="5")
    assert rig.broker.catalog.by_name["t"].rules is changed
    put(rig, NODE)
    assert rig.broker.catalog.by_name["t"].rules == rules


def test_a_message_that_has_become_too_large_is_refused(rig: BrokerRig) -> None:
    (partition,) = rig.topic("t")
    rig.append(partition, b"x" * 500)
    put(rig, NODE, message_max_bytes="300")
    with pytest.raises(BrokerError) as caught:
        rig.append(partition, b"x" * 500)
    assert caught.value.fault is Fault.MESSAGE_TOO_LARGE


def test_partitions_of_new_topics(rig: BrokerRig) -> None:
    put(rig, NODE, num_partitions="6")
    topic, _ = rig.broker.create_topic("t")
    assert len(topic.partitions) == 6


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("no.such.config", "1", Fault.INVALID_CONFIG),
        *((name.replace("*", "x"), "1", Fault.INVALID_REQUEST) for name in REFUSED_CONFIGS),
        *((name, "1", Fault.INVALID_REQUEST) for name, row in BROKER_CONFIGS.items() if row.read_only),
        ("num.partitions", "0", Fault.INVALID_REQUEST),
        ("num.partitions", "many", Fault.INVALID_REQUEST),
        ("num.partitions", "10001", Fault.INVALID_REQUEST),  # no topic could be made
        # Who had set these could not get in any more to undo it.
        ("connections.max.idle.ms", "9999", Fault.INVALID_REQUEST),
        ("connections.max.idle.ms", "0", Fault.INVALID_REQUEST),
        ("max.connections", "9", Fault.INVALID_REQUEST),
        ("auto.create.topics.enable", "yes", Fault.INVALID_REQUEST),
        ("log.retention.ms", "-2", Fault.INVALID_REQUEST),
        ("compression.type", "none", Fault.INVALID_REQUEST),
        ("num.io.threads", "0", Fault.INVALID_REQUEST),
        ("log.cleaner.io.buffer.load.factor", "all", Fault.INVALID_REQUEST),
    ],
)
def test_what_is_refused(rig: BrokerRig, name: str, value: str, fault: Fault) -> None:
    with pytest.raises(BrokerError, match=name.replace(".", r"\.")) as caught:
        rig.broker.dynamic_configs.alter(NODE, {name: value})
    assert caught.value.fault is fault
    assert rig.broker.state.configs.configs == {}


def test_the_most_members_shown_are_those_that_hold(rig: BrokerRig) -> None:
    groups = rig.broker.groups
    assert BROKER_CONFIGS["group.max.size"].value(rig.broker.settings) == "10000"
    for expected in (10_000, 12_000):
        put(rig, NODE, group_max_size=str(expected))
        assert (groups.coordinator.settings.max_size, groups.coordinator.classic.settings.max_size) == (expected,) * 2


def test_values_that_contradict_each_other(rig: BrokerRig) -> None:
    put(rig, ALL_NODES, group_max_session_timeout_ms="5000")
    with pytest.raises(BrokerError, match="min_session_timeout"):
        put(rig, NODE, group_min_session_timeout_ms="6000")
    put(rig, NODE, group_min_session_timeout_ms="6000", group_max_session_timeout_ms="7000")
    with pytest.raises(BrokerError, match="min_session_timeout"):
        put(rig, NODE, group_min_session_timeout_ms="6000")


def test_lags_of_compaction_that_contradict_each_other(rig: BrokerRig) -> None:
    put(rig, ALL_NODES, log_cleaner_max_compaction_lag_ms="5000")
    with pytest.raises(BrokerError, match=r"min\.compaction\.lag\.ms"):
        put(rig, NODE, log_cleaner_min_compaction_lag_ms="5001")
    put(rig, NODE, log_cleaner_min_compaction_lag_ms="5000")


def test_lags_of_compaction_beside_those_of_the_settings() -> None:
    rig = BrokerRig(log__cleaner__min_compaction_lag="10s")
    with pytest.raises(BrokerError, match=r"min\.compaction\.lag\.ms"):
        put(rig, NODE, log_cleaner_max_compaction_lag_ms="5000")


def restarted(rig: BrokerRig, unset: Sequence[str] = (), **settings: object) -> BareNode:
    given = {"log.segment_bytes": "8MiB", "log.low_disk_bytes": 0}
    given |= {path.replace("__", "."): value for path, value in settings.items()}
    rig.broker.close()
    broker = BareNode(rig.fs, load_settings(None, {}, given), rig.clock, bytes)
    broker.open(unset_configs=unset)
    return broker


def test_what_contradicts_new_settings_is_left_out_and_told(rig: BrokerRig) -> None:
    put(rig, ALL_NODES, group_min_session_timeout_ms="600000", num_partitions="6")
    broker = restarted(rig, groups__max_session_timeout="5m")
    assert broker.settings.groups.min_session_timeout_ms == 1_000
    assert broker.settings.topics.partitions == 6
    (warning,) = broker.warnings()
    assert "group.min.session.timeout.ms=600000" in warning
    assert "max_session_timeout (5m)" in warning
    broker.dynamic_configs.alter(ALL_NODES, {"num.partitions": "6"})
    assert broker.warnings() == []


def test_what_only_makes_sense_together_is_kept_together(rig: BrokerRig) -> None:
    put(rig, ALL_NODES, group_min_session_timeout_ms="600000", group_max_session_timeout_ms="700000")
    broker = restarted(rig, groups__max_session_timeout="5m")
    groups = broker.settings.groups
    assert (groups.min_session_timeout_ms, groups.max_session_timeout_ms) == (600_000, 700_000)
    put(rig, ALL_NODES, group_min_session_timeout_ms="1000", group_max_session_timeout_ms="2000")
    groups = restarted(rig, groups__min_session_timeout="3s").settings.groups
    assert (groups.min_session_timeout_ms, groups.max_session_timeout_ms) == (1_000, 2_000)
    assert broker.warnings() == []


def test_what_would_not_be_taken_any_more_is_left_out(rig: BrokerRig) -> None:
    """As an earlier version may have taken it."""
    rig.broker.append_control(ResourceConfigsSet(BROKER, NODE, {"connections.max.idle.ms": "1"}))
    broker = restarted(rig)
    assert broker.settings.limits.idle_timeout_ms == 600_000
    assert "connections.max.idle.ms=1" in broker.warnings()[0]


def test_a_start_may_unset_what_keeps_everybody_out(rig: BrokerRig) -> None:
    put(rig, ALL_NODES, max_connections="10", log_retention_ms="1000")
    put(rig, NODE, max_connections="11")
    broker = restarted(rig, unset=["max.connections", "num.partitions"])
    assert broker.settings.limits.max_connections == 10_000
    assert broker.state.configs.node_overrides() == {"log.retention.ms": "1000"}
    again = BareNode(rig.fs.power_loss(), rig.settings, rig.clock, bytes)
    again.open()
    assert again.state.configs.node_overrides() == {"log.retention.ms": "1000"}


def test_validate_only(rig: BrokerRig) -> None:
    end = rig.broker.log.end
    assert rig.broker.dynamic_configs.alter(NODE, {"num.partitions": "6"}, validate_only=True) == 0
    assert rig.broker.log.end == end
    assert rig.broker.settings.topics.partitions == 4


def test_they_stand_above_the_settings_after_a_restart(rig: BrokerRig) -> None:
    rig.topic("t")
    put(rig, ALL_NODES, num_partitions="6", log_retention_ms="1000")
    for fs in (rig.fs.kill(), rig.fs.power_loss()):
        broker = BareNode(fs, rig.settings, rig.clock, bytes)
        broker.open()
        assert broker.settings.topics.partitions == 6
        assert broker.catalog.by_name["t"].rules.retention_ms == 1000
        assert broker.dynamic_configs.base.topics.partitions == 4


def test_every_default_would_be_taken() -> None:
    """What is shown can be set again."""
    settings = Settings()
    TABLE.validate({name: row.value(settings) for name, row in BROKER_CONFIGS.items() if not row.read_only})


def test_every_topic_config_has_a_row_for_the_node() -> None:
    assert {row.node_name for row in TABLE.topics.rows.values() if row.node_name} <= BROKER_CONFIGS.keys()


def test_an_old_directory_keeps_its_id_and_what_was_set_for_it() -> None:
    rig = BrokerRig(node__id=0)
    put(rig, "0", num_partitions="6")
    broker = restarted(rig)
    assert (broker.kernel.node_id, broker.settings.node.id, broker.settings.topics.partitions) == (0, 0, 6)
    broker.dynamic_configs.alter("0", {"num.partitions": "7"})
    assert broker.dynamic_configs.overrides("0") == {"num.partitions": "7"}
    assert broker.settings.topics.partitions == 7
    assert BROKER_CONFIGS["node.id"].value(broker.settings) == "0"


def test_a_new_node_is_node_1(rig: BrokerRig) -> None:
    assert (rig.broker.kernel.node_id, rig.broker.settings.node.id) == (1, 1)
    assert BROKER_CONFIGS["node.id"].value(rig.broker.settings) == "1"


def test_broker_yaml_that_is_read_again_does_not_take_the_nodes_id_away(rig: BrokerRig) -> None:
    put(rig, NODE, num_partitions="6")
    rig.broker.dynamic_configs.rebase(load_settings({"limits": {"max_connections": 77}}, {}, {}))
    assert (rig.broker.settings.node.id, rig.broker.settings.topics.partitions) == (1, 6)
    assert rig.broker.settings.limits.max_connections == 77
    put(rig, NODE, num_partitions="7")
    assert rig.broker.settings.topics.partitions == 7
