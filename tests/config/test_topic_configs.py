"""The table of topic configurations: what is taken, what is refused and how, what holds."""

from __future__ import annotations

import pytest

from halfmoon.config.settings import Settings, load_settings
from halfmoon.config.topic_configs import TopicRules
from halfmoon.config.values import LONG_MAX
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.topic_configs import topic_configs

TABLE = topic_configs()
validate, resolve = TABLE.validate, TABLE.resolve


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", "delete"),
        ("cleanup.policy", ""),
        ("compression.type", "producer"),
        ("compression.type", "zstd"),
        ("halfmoon.headers.enable", "False"),
        ("halfmoon.key.index", "true"),
        ("max.message.bytes", "0"),
        ("max.message.bytes", str(2**31 - 1)),
        ("message.timestamp.after.max.ms", str(2**63 - 1)),
        ("message.timestamp.after.max.ms", "3600000"),
        ("message.timestamp.type", "LogAppendTime"),
        ("min.insync.replicas", "1"),
        ("min.insync.replicas", "2"),
        ("segment.ms", "1"),
        ("retention.bytes", "-1"),
        ("retention.ms", " 86400000 "),
        ("retention.ms", str(2**63 - 1)),
        ("unclean.leader.election.enable", "false"),
    ],
)
def test_taken(name, value):
    validate({name: value})


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("no.such.config", "1", "unknown topic config name: no.such.config"),
        ("Retention.ms", "1", "Retention.ms"),
        ("", "1", "unknown"),
        ("cleanup.policy", ",", "expected delete, compact, both"),
        ("cleanup.policy", "compact;delete", "expected delete, compact, both"),
        ("min.cleanable.dirty.ratio", "1.1", "from 0 to 1"),
        ("min.cleanable.dirty.ratio", "nan", "from 0 to 1"),
        ("min.cleanable.dirty.ratio", "half", "from 0 to 1"),
        ("min.compaction.lag.ms", "-1", "from 0"),
        ("max.compaction.lag.ms", "0", "from 1"),
        ("delete.retention.ms", "-1", "from 0"),
        ("compression.type", "brotli", "expected uncompressed or zstd or"),
        ("halfmoon.headers.enable", "yes", "true or false"),
        ("halfmoon.key.index", "1", "true or false"),
        ("max.message.bytes", "-1", "from 0 to 2147483647"),
        ("max.message.bytes", str(2**31), "from 0 to 2147483647"),
        ("message.timestamp.after.max.ms", "-1", "from 0"),
        ("message.timestamp.type", "createtime", "CreateTime or LogAppendTime"),
        ("min.insync.replicas", "0", "from 1"),
        ("retention.ms", "-2", "from -1"),
        ("retention.ms", "1.5", "an integer"),
        ("retention.ms", "1_000", "an integer"),
        ("retention.ms", "٣", "an integer"),
        ("retention.ms", "", "an integer"),
        ("retention.ms", str(2**63), "an integer"),
        ("retention.ms", "9" * 100_000, "an integer"),
        ("segment.bytes", "1000", "1048576"),
        ("segment.ms", "0", "from 1"),
        ("message.format.version", "2.0", "Kafka 4.0 has removed it"),
        ("remote.storage.enable", "true", "tiered"),
    ],
)
def test_refused_by_name(name, value, says):
    with pytest.raises(BrokerError) as caught:
        validate({"retention.bytes": "1", name: value})
    assert caught.value.fault is Fault.INVALID_CONFIG
    assert name in caught.value.message
    assert says in caught.value.message


def test_the_compaction_lags_must_leave_room():
    validate({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"})
    with pytest.raises(BrokerError, match="more than max"):
        validate({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"})


def test_every_default_is_a_value_that_would_be_taken():
    for config, value, override, default in TABLE.effective({}, Settings()):
        assert override is None
        assert value == default
        if not config.read_only:
            validate({config.name: value})


def test_the_table_is_sorted_and_documented():
    assert list(TABLE.rows) == sorted(TABLE.rows)
    assert all(config.documentation.endswith(".") for config in TABLE.rows.values())
    assert TABLE.find("retention.ms") is TABLE.rows["retention.ms"]


def test_overrides_stand_before_what_the_node_says():
    settings = load_settings({"log": {"retention": "1d"}}, {}, {})
    found = {row.config.name: row for row in TABLE.effective({"retention.ms": " 5"}, settings)}
    assert (found["retention.ms"].value, found["retention.ms"].default) == ("5", "86400000")
    assert found["retention.bytes"].value == "-1"


CLEANUP = (True, False, 0.5, 0, LONG_MAX, 86_400_000)
"""What compaction makes of a topic that says nothing."""
NO_TTL = {"halfmoon.ttl.ms": "-1", "halfmoon.ttl.action": "drop"}
FEATURES = {"halfmoon.rocketmq.body": "plain", **NO_TTL}
"""What features make of one."""


def test_what_the_node_says_of_compaction():
    cleaner = {"min_dirty_ratio": 0.1, "delete_retention": "1h", "min_compaction_lag": "1s"}
    rules = resolve({"cleanup.policy": "compact"}, load_settings({"log": {"cleaner": cleaner}}, {}, {}))
    assert (rules.deletes, rules.compacts) == (False, True)
    assert (rules.min_dirty_ratio, rules.delete_retention_ms, rules.min_compaction_lag_ms) == (0.1, 3_600_000, 1_000)


def test_rules_by_default():
    assert resolve({}, Settings()) == TopicRules(7 * 86_400_000, -1, 4 << 20, False, *CLEANUP, True, False, FEATURES)


def test_rules_for_ever():
    settings = load_settings(
        {"log": {"retention": None, "retention_bytes": "1KiB"}, "topics": {"headers": False, "key_index": True}}, {}, {}
    )
    assert resolve({}, settings) == TopicRules(-1, 1024, 4 << 20, False, *CLEANUP, False, True, FEATURES)


def test_rules_of_a_topic():
    overrides = {
        "retention.ms": " 5 ",
        "retention.bytes": "6",
        "max.message.bytes": "7",
        "message.timestamp.type": "LogAppendTime",
        "halfmoon.headers.enable": "FALSE",
        "halfmoon.key.index": "true",
        "halfmoon.delete.force": "true",
        "halfmoon.rocketmq.body": "verbatim",
        "cleanup.policy": " delete ,compact",
        "min.cleanable.dirty.ratio": "0.25",
        "min.compaction.lag.ms": "8",
        "max.compaction.lag.ms": "9",
        "delete.retention.ms": "10",
        "min.insync.replicas": "2",
        "message.timestamp.before.max.ms": "11",
        "message.timestamp.after.max.ms": "12",
    }
    validate(overrides)
    assert resolve(overrides, Settings()) == TopicRules(
        5,
        6,
        7,
        True,
        True,
        True,
        0.25,
        8,
        9,
        10,
        False,
        True,
        {"halfmoon.rocketmq.body": "verbatim", **NO_TTL},
        True,
        2,
        11,
        12,
        True,
    )


def test_nothing_is_removed_where_no_policy_says_so():
    rules = resolve({"cleanup.policy": ""}, Settings())
    assert (rules.deletes, rules.compacts) == (False, False)
