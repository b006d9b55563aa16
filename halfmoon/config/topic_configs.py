"""The table of topic configurations: what each is called, what it takes, what it defaults to, what it means.

A topic stores only its *overrides*, as strings, exactly as a client sent them. Everything else follows from the table
and the node's settings: what is accepted (`validate`), what is shown (`effective`), and what the core acts on
(`resolve`).

Every name of Kafka 4.3 is accepted, with the values that Kafka accepts: tools copy configurations from cluster to
cluster, and give up where one is refused. There are two kinds:

- those the core acts on (`retention.ms`, ...);
- those that only tune what is not here, such as `segment.ms` (all topics share one commitlog): kept and shown, and
  marked with NO_EFFECT and the reason (config/kept_configs.py).

Refused are unknown names, and the one value that would promise a client what does not happen:
`remote.storage.enable=true`, as by a Kafka without tiered storage.

The rows here are the core's own. Features add theirs when the table is made, which is before recovery. A topic may
store configurations of a feature that is off: they are kept by every change, not shown, and refused from clients. Any
other name is refused by name, too.

Names and value syntax are Kafka's (org.apache.kafka.common.config.TopicConfig and ConfigDef); `halfmoon.*` are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct, field

from halfmoon.config.kept_configs import KEPT_OF_TOPICS, without_effect
from halfmoon.config.values import (
    INT_MAX,
    LONG_MAX,
    LONG_MIN,
    Kind,
    always,
    boolean,
    checked,
    integer,
    one_of,
    stated,
    unknown,
)
from halfmoon.errors import BrokerError, Fault, StartError

if TYPE_CHECKING:
    from halfmoon.config.settings import Settings

LOG_APPEND_TIME = "LogAppendTime"
NONE: Mapping[str, str] = MappingProxyType({})
DELETE_FORCE = "halfmoon.delete.force"


class TopicConfig(Struct, frozen=True):
    """One row of the table. `check` raises ValueError saying what is expected; it gets the value without outer
    blanks."""

    name: str
    kind: Kind
    default: Callable[[Settings], str]
    check: Callable[[str], object]
    documentation: str
    node_name: str
    """What the node-wide setting is called that the default comes from, in Kafka's words; shown as a synonym. Empty:
    there is no such setting, and no default."""
    read_only: bool = False
    """Set once, when the topic is created, or only shown."""
    setting: str = ""
    """Where broker.yaml sets the default; empty: nowhere."""
    rule: str = ""
    """The field of TopicRules that the parsed value goes to, where the core asks for it."""
    no_effect: bool = False
    """It is kept and shown, and nothing acts on it."""


class TopicConfigPrefix(Struct, frozen=True):
    """Configurations of which only the beginning of the name is fixed: a feature's definition of a topic. They have no
    default, and are always shown."""

    name: str
    """What their names begin with, the last dot included."""
    row: Callable[[str], TopicConfig]
    """The row of such a name."""


OfFeature = TopicConfig | TopicConfigPrefix
"""What a feature adds to the table."""


def _is_rule_of_feature(row: TopicConfig) -> bool:
    """Whether features ask the topic's rules for it. What is set once says where the topic is, and is asked of its
    configurations then."""
    return not (row.rule or row.no_effect or row.read_only)


class Effective(NamedTuple):
    """One configuration as it holds for a topic."""

    config: TopicConfig
    value: str
    override: str | None
    """What the topic itself says, None if it leaves it to the node."""
    default: str


class TopicRules(Struct, frozen=True):
    """What the core acts on, parsed once when a topic is created or altered."""

    retention_ms: int
    """How long a record is kept, counted from when it was stored; -1 = for ever."""
    retention_bytes: int
    """How many bytes of a partition are kept; -1 = all."""
    max_message_bytes: int
    """The largest record batch taken, in bytes."""
    log_append_time: bool
    """Whether the broker's clock stamps the records (LogAppendTime)."""
    deletes: bool
    """Whether old records go: the cleanup policy has "delete"."""
    compacts: bool
    """Whether of each key the last record stays: the cleanup policy has "compact"."""
    min_dirty_ratio: float = 0.5
    """How much of what could be compacted must be new before it is."""
    min_compaction_lag_ms: int = 0
    """How long a record stays, counted from when it was stored, though a later one has its key."""
    max_compaction_lag_ms: int = LONG_MAX
    """When it is inspected at the latest."""
    delete_retention_ms: int = 86_400_000
    """How long a record without a value stays after it was first cleaned."""
    headers_enabled: bool = False
    """Whether feature headers (DELAY, TAGS, ...) act on this topic."""
    key_index: bool = False
    """Whether records can be found by their own key (services/common/keys.py)."""
    of_features: Mapping[str, str] = field(default_factory=dict)
    """By name, what the other rows of features say, but for those without effect."""
    delete_forced: bool = False
    """Whether the topic may be deleted although others are derived from it."""
    min_insync_replicas: int = 1
    """How many replicas must be in sync where acks=all is asked for; there is one."""
    timestamp_before_max_ms: int = LONG_MAX
    """How far records' timestamps may lie behind the clock."""
    timestamp_after_max_ms: int = LONG_MAX
    """How far records' timestamps may lie ahead of the clock."""
    limits_timestamps: bool = False
    """Whether one of these two says anything."""


def _cleanup_policy(value: str) -> str:
    if not _policies(value) <= {"delete", "compact"}:
        raise ValueError("expected delete, compact, both with a comma, or nothing")
    return value


def _policies(value: str) -> set[str]:
    return {part.strip() for part in value.split(",")} if value else set()


_ROWS: tuple[TopicConfig, ...] = (
    TopicConfig(
        "cleanup.policy", Kind.LIST, always("delete"), _cleanup_policy,
        "Removal of old records: after their retention (delete), all but the last one of each key (compact), both, or "
        "none (empty).",
        "log.cleanup.policy",
    ),
    TopicConfig(
        DELETE_FORCE, Kind.BOOLEAN, always("false"), boolean,
        "Whether the topic can be deleted while it has views. The views keep their records.",
        DELETE_FORCE, rule="delete_forced",
    ),
    TopicConfig(
        "max.message.bytes", Kind.INT, stated("topics.max_message_bytes"), integer(0, INT_MAX),
        "Maximum size of a record batch, in bytes, as compressed by the producer.",
        "message.max.bytes", setting="topics.max_message_bytes", rule="max_message_bytes",
    ),
    TopicConfig(
        "message.timestamp.after.max.ms", Kind.LONG, always(LONG_MAX), integer(0, LONG_MAX),
        "Maximum lead of a batch's latest timestamp over the broker's clock, in ms. For CreateTime.",
        "log.message.timestamp.after.max.ms", rule="timestamp_after_max_ms",
    ),
    TopicConfig(
        "message.timestamp.before.max.ms", Kind.LONG, always(LONG_MAX), integer(0, LONG_MAX),
        "Maximum lag of the timestamp of a batch's first record behind the broker's clock, in ms. For CreateTime.",
        "log.message.timestamp.before.max.ms", rule="timestamp_before_max_ms",
    ),
    TopicConfig(
        "message.timestamp.type", Kind.STRING, always("CreateTime"), one_of("CreateTime", LOG_APPEND_TIME),
        "Clock of the records' timestamps: the producer's (CreateTime) or the broker's (LogAppendTime).",
        "log.message.timestamp.type",
    ),
    TopicConfig(
        "min.insync.replicas", Kind.INT, always(1), integer(1, INT_MAX),
        "Replicas that must be in sync for acks=all. A single node has one: from 2 on, acks=all is refused. In a "
        "cluster of nodes it counts as met.",
        "min.insync.replicas", rule="min_insync_replicas",
    ),
    TopicConfig(
        "retention.bytes", Kind.LONG, stated("log.retention_bytes"), integer(LONG_MIN, LONG_MAX),
        "Maximum size of a partition, in bytes; -1, or another negative number: unlimited.",
        "log.retention.bytes", setting="log.retention_bytes", rule="retention_bytes",
    ),
    TopicConfig(
        "retention.ms", Kind.LONG, stated("log.retention_ms"), integer(-1, LONG_MAX),
        "Retention of records, in ms since they were stored, not since their timestamps; -1: unlimited.",
        "log.retention.ms", setting="log.retention", rule="retention_ms",
    ),
)  # fmt: skip


_KEPT = tuple(
    TopicConfig(
        kept.name, kept.kind, kept.default, kept.check, without_effect(kept.why), kept.node_name, no_effect=True
    )
    for kept in KEPT_OF_TOPICS
)


NOT_HERE: Mapping[str, str] = dict.fromkeys(
    ("message.downconversion.enable", "message.format.version", "message.timestamp.difference.max.ms"),
    "Kafka 4.0 has removed it",
)
"""Topic configurations that Kafka had once, with the reason a refusal gives. Deleting one changes nothing."""


def known_elsewhere(name: str) -> bool:
    """Whether Kafka had a configuration of that name; so it is never set."""
    return name in NOT_HERE


def check_lags(least: str, most: str) -> None:
    """Raise BrokerError(INVALID_CONFIG) where records would have to stay longer than they may wait to be cleaned."""
    if int(least) > int(most):
        raise BrokerError(
            Fault.INVALID_CONFIG, f"min.compaction.lag.ms is {least}, more than max.compaction.lag.ms, which is {most}"
        )


class TopicConfigs:
    """Every topic configuration of a broker: the core's rows, and those of its features.

    `off`: name of a configuration, or its beginning up to a dot → the feature that would add it, and is off. Raises
    StartError where two features add the same.
    """

    def __init__(self, added: Sequence[OfFeature] = (), off: Mapping[str, str] = NONE) -> None:
        of_features = [each for each in added if isinstance(each, TopicConfig)]
        rows: dict[str, TopicConfig] = {}
        for row in (*_ROWS, *_KEPT, *of_features):
            if row.name in rows or row.name in NOT_HERE:
                raise StartError(f"topic configuration {row.name} is offered, and there is one of that name already")
            rows[row.name] = row
        self.rows: Mapping[str, TopicConfig] = dict(sorted(rows.items()))
        """By name, sorted by it; those with a prefix are not among them."""
        self._of_features = tuple(of_features)
        self._prefixes = tuple((each.name, each.row) for each in added if isinstance(each, TopicConfigPrefix))
        self._off = off

    def get(self, name: str) -> TopicConfig | None:
        """The row of that name."""
        config = self.rows.get(name)
        if config is None:
            for prefix, row in self._prefixes:
                if name.startswith(prefix) and name != prefix:
                    return row(name)
        return config

    def find(self, name: str) -> TopicConfig:
        """The row of that name. Raises BrokerError(INVALID_CONFIG) that names it, and says why if it was Kafka's, or is
        that of a feature that is off."""
        config = self.get(name)
        if config is None:
            raise unknown("topic", name, NOT_HERE.get(name) or self._why_off(name))
        return config

    def _why_off(self, name: str) -> str | None:
        for known, feature in self._off.items():
            if name == known or (known.endswith(".") and name.startswith(known)):
                return f"{feature} is off in broker.yaml"
        return None

    def hidden(self, stored: Mapping[str, str]) -> dict[str, str]:
        """Those of a topic's overrides that belong to features that are off: nobody is shown them, and every change
        keeps them."""
        return {name: value for name, value in stored.items() if self.get(name) is None}

    def fixed(self, stored: Mapping[str, str]) -> dict[str, str]:
        """Those that stay when a client replaces all of a topic's overrides: hidden ones, and what the topic was
        created as."""
        return {name: value for name, value in stored.items() if (config := self.get(name)) is None or config.read_only}

    def validate(self, overrides: Mapping[str, str], stored: Mapping[str, str] = NONE) -> None:
        """Raise BrokerError(INVALID_CONFIG), naming the key, unless every override is known and its value obeyed, or
        the topic has `stored` it already and it is hidden."""
        hidden = self.hidden(stored) if stored else NONE
        for name, value in overrides.items():
            if hidden.get(name) == value:
                continue
            checked("topic", name, value, self.find(name).check)
        least, most = overrides.get("min.compaction.lag.ms"), overrides.get("max.compaction.lag.ms")
        if least is not None and most is not None:
            check_lags(least, most)

    def effective(self, overrides: Mapping[str, str], settings: Settings) -> list[Effective]:
        """Every configuration as it holds for a topic with these overrides, sorted by name."""
        found = []
        for config in self.rows.values():
            override = overrides.get(config.name)
            default = config.default(settings)
            found.append(Effective(config, default if override is None else override.strip(), override, default))
        for name, value in overrides.items():
            defined = None if name in self.rows else self.get(name)
            if defined is not None:
                found.append(Effective(defined, value, value, ""))
        return sorted(found, key=lambda each: each.config.name)

    def resolve(self, overrides: Mapping[str, str], settings: Settings) -> TopicRules:
        """The rules the core acts on. The overrides must have passed `validate`; hidden ones are ignored."""

        def value(name: str) -> str:
            override = overrides.get(name)
            return self.rows[name].default(settings) if override is None else override.strip()

        policies = _policies(value("cleanup.policy"))
        parsed: dict[str, Any] = {row.rule: row.check(value(row.name)) for row in self.rows.values() if row.rule}
        before_ms, after_ms = parsed["timestamp_before_max_ms"], parsed["timestamp_after_max_ms"]
        return TopicRules(
            limits_timestamps=before_ms != LONG_MAX or after_ms != LONG_MAX,
            log_append_time=value("message.timestamp.type") == LOG_APPEND_TIME,
            deletes="delete" in policies,
            compacts="compact" in policies,
            of_features={row.name: value(row.name) for row in self._of_features if _is_rule_of_feature(row)},
            **parsed,
        )
