"""The table of topic configurations: what each is called, what it takes, what it defaults to, what it means.

A topic stores only its *overrides*, as strings, exactly as a client sent them. Everything else follows from the table
and the node's settings: what is accepted (`validate`), what is shown (`effective`), and what the core acts on
(`resolve`).

A configuration is accepted only if it is obeyed, but for `segment.bytes`, without which there is no Kafka Streams. So
there are three kinds:

- those the core acts on (`retention.ms`, ...);
- those with a single true value here (`min.insync.replicas` is 1 on a single node):
  stating it is accepted, since tools write such defaults out, and any other value is refused;
- those of Kafka's that cannot hold here (`segment.ms`: all topics share one commitlog): refused with the reason.
  Some are still shown, read-only, because tools look for them.

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

from halfmoon.config.values import (
    INT_MAX,
    LONG_MAX,
    Kind,
    always,
    boolean,
    by_name,
    checked,
    integer,
    one_of,
    only,
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


class TopicConfigPrefix(Struct, frozen=True):
    """Configurations of which only the beginning of the name is fixed: a feature's definition of a topic. They have no
    default, and are always shown."""

    name: str
    """What their names begin with, the last dot included."""
    row: Callable[[str], TopicConfig]
    """The row of such a name."""


OfFeature = TopicConfig | TopicConfigPrefix
"""What a feature adds to the table."""


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
    """By name, what the other rows of features say."""
    delete_forced: bool = False
    """Whether the topic may be deleted although others are derived from it."""


def _cleanup_policy(value: str) -> str:
    policies = {part.strip() for part in value.split(",")}
    if not policies <= {"delete", "compact"}:
        raise ValueError("expected delete, compact, or both with a comma")
    return value


_any_timestamp = only(str(LONG_MAX), "records may carry any timestamp")

_ROWS: tuple[TopicConfig, ...] = (
    TopicConfig(
        "cleanup.policy", Kind.LIST, always("delete"), _cleanup_policy,
        "Removal of old records: after their retention (delete), all but the last one of each key (compact), or both.",
        "log.cleanup.policy",
    ),
    TopicConfig(
        "compression.type", Kind.STRING, always("producer"),
        only("producer", "the broker stores batches unchanged"),
        'Codec of stored batches. Only "producer": the codec that the producer used.',
        "compression.type",
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
        "message.timestamp.after.max.ms", Kind.LONG, always(LONG_MAX), _any_timestamp,
        "Maximum lead of a record's timestamp over the broker's clock. Unlimited.",
        "log.message.timestamp.after.max.ms",
    ),
    TopicConfig(
        "message.timestamp.before.max.ms", Kind.LONG, always(LONG_MAX), _any_timestamp,
        "Maximum lag of a record's timestamp behind the broker's clock. Unlimited.",
        "log.message.timestamp.before.max.ms",
    ),
    TopicConfig(
        "message.timestamp.type", Kind.STRING, always("CreateTime"), one_of("CreateTime", LOG_APPEND_TIME),
        "Clock of the records' timestamps: the producer's (CreateTime) or the broker's (LogAppendTime).",
        "log.message.timestamp.type",
    ),
    TopicConfig(
        "min.insync.replicas", Kind.INT, always(1), only("1", "a single node has one replica"),
        "Replicas that must have a record before acks=all is answered. A single node has one.",
        "min.insync.replicas",
    ),
    TopicConfig(
        "retention.bytes", Kind.LONG, stated("log.retention_bytes"), integer(-1, LONG_MAX),
        "Maximum size of a partition, in bytes; -1: unlimited.",
        "log.retention.bytes", setting="log.retention_bytes", rule="retention_bytes",
    ),
    TopicConfig(
        "retention.ms", Kind.LONG, stated("log.retention_ms"), integer(-1, LONG_MAX),
        "Retention of records, in ms since they were stored, not since their timestamps; -1: unlimited.",
        "log.retention.ms", setting="log.retention", rule="retention_ms",
    ),
    TopicConfig(
        "segment.bytes", Kind.INT, stated("log.segment_bytes"), integer(1 << 20, INT_MAX),
        "Stored and shown without effect, because Kafka Streams sets it. All topics share one commitlog, with segments "
        "of log.segment_bytes (broker.yaml).",
        "log.segment.bytes",
    ),
    TopicConfig(
        "unclean.leader.election.enable", Kind.BOOLEAN, always("false"),
        only("false", "a single node elects no leaders"),
        "Whether a replica that lags may become leader. A single node has no replicas.",
        "unclean.leader.election.enable",
    ),
)  # fmt: skip


NOT_HERE: Mapping[str, str] = by_name({
    "all topics share one commitlog; see the section log of broker.yaml": (
        "file.delete.delay.ms", "flush.messages", "flush.ms", "index.interval.bytes", "preallocate",
        "segment.index.bytes", "segment.jitter.ms", "segment.ms",
    ),
    "Halfmoon has no tiered storage": (
        "local.retention.bytes", "local.retention.ms", "remote.log.copy.disable", "remote.log.delete.on.disable",
        "remote.storage.enable",
    ),
    "the broker stores batches unchanged": (
        "compression.gzip.level", "compression.lz4.level", "compression.zstd.level",
    ),
    "the broker stores and serves only record batches of format 2": (
        "message.downconversion.enable", "message.format.version",
    ),
    "records may carry any timestamp": ("message.timestamp.difference.max.ms",),
    "a single node has one replica": (
        "follower.replication.throttled.replicas", "leader.replication.throttled.replicas",
    ),
})  # fmt: skip
"""Topic configurations that Kafka has and that cannot be obeyed here, with the reason a refusal gives."""


def known_elsewhere(name: str) -> bool:
    """Whether Kafka has a configuration of that name that cannot be obeyed here; so it is never set."""
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
        for row in (*_ROWS, *of_features):
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
        """The row of that name. Raises BrokerError(INVALID_CONFIG) that names it, and says why if Kafka knows it."""
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

        policies = {part.strip() for part in value("cleanup.policy").split(",")}
        parsed: dict[str, Any] = {row.rule: row.check(value(row.name)) for row in self.rows.values() if row.rule}
        return TopicRules(
            log_append_time=value("message.timestamp.type") == LOG_APPEND_TIME,
            deletes="delete" in policies,
            compacts="compact" in policies,
            of_features={row.name: value(row.name) for row in self._of_features if not row.rule},
            **parsed,
        )
