"""The one table of topic configurations: what each is called, what it takes, what it defaults to, what it means.

A topic stores only its *overrides*, as strings, exactly as a client sent them. Everything else follows from this
table and the node's settings: what is accepted (`validate`), what is shown (`effective`), and what the core acts on
(`resolve`).

A configuration is accepted only if it is obeyed, but for `segment.bytes`, without which there is no Kafka Streams. So
there are three kinds:

- those the core acts on (`retention.ms`, ...);
- those with a single true value here (`min.insync.replicas` is 1 on a single node):
  stating it is accepted, since tools write such defaults out, and any other value is refused;
- those of Kafka's that cannot hold here (`segment.ms`: all topics share one commitlog): refused with the reason.
  Some are still shown, read-only, because tools look for them.

The definition of a view (`halfmoon.view.source`, `.from`, and the filter, `halfmoon.view.<language>`) is stored and
shown like the others; what it means, and that it never changes, is core/views.py's.

Any other name is refused by name. Names and value syntax are Kafka's (org.apache.kafka.common.config.TopicConfig and
ConfigDef); `halfmoon.*` are ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from halfmoon.core.errors import BrokerError, Fault, StartError

if TYPE_CHECKING:
    from halfmoon.core.config import Settings

VIEW_PREFIX = "halfmoon.view."
VIEW_SOURCE = "halfmoon.view.source"
VIEW_FROM = "halfmoon.view.from"
VIEW_STATE = "halfmoon.view.state"
VIEW_POSITION = "halfmoon.view.position"
VIEW_SHOWN = (VIEW_STATE, VIEW_POSITION)
"""Only shown, and no part of a definition: see `Views.state`, `Views.position`."""

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class Kind(Enum):
    """The type of a value, as Kafka's tools name it."""

    UNKNOWN = "unknown"
    BOOLEAN = "boolean"
    STRING = "string"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    LIST = "list"


@dataclass(frozen=True, slots=True)
class TopicConfig:
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


class Effective(NamedTuple):
    """One configuration as it holds for a topic."""

    config: TopicConfig
    value: str
    override: str | None
    """What the topic itself says, None if it leaves it to the node."""
    default: str


@dataclass(frozen=True, slots=True)
class TopicRules:
    """What the core acts on, parsed once when a topic is created or altered."""

    retention_ms: int
    """How long a record is kept, counted from when it was stored; -1 = for ever."""
    retention_bytes: int
    """How many bytes of a partition are kept; -1 = all."""
    max_message_bytes: int
    """The largest record batch taken, in bytes."""
    log_append_time: bool
    """Whether the broker's clock stamps the records (LogAppendTime)."""
    headers_enabled: bool
    """Whether feature headers (DELAY, TAGS, ...) act on this topic."""
    key_index: bool
    """Whether records can be found by their own key (core/keys.py)."""
    delete_force: bool
    """Whether the topic may be deleted although views are filled from it."""
    verbatim_bodies: bool
    """Whether bodies that RocketMQ clients have compressed are kept so."""
    deletes: bool
    """Whether old records go: the cleanup policy has "delete"."""
    compacts: bool
    """Whether of each key the last record stays: the cleanup policy has "compact"."""
    min_dirty_ratio: float
    """How much of what could be compacted must be new before it is."""
    min_compaction_lag_ms: int
    """How long a record stays, counted from when it was stored, though a later one has its key."""
    max_compaction_lag_ms: int
    """When it is looked into at the latest."""
    delete_retention_ms: int
    """How long a record without a value stays after it was first cleaned."""


_INTEGER = re.compile(r"[+-]?[0-9]{1,19}\Z")


def integer(least: int, most: int) -> Callable[[str], int]:
    """A check, which returns the number too."""

    def check(value: str) -> int:
        if not _INTEGER.match(value) or not least <= int(value) <= most:
            raise ValueError(f"expected an integer from {least} to {most}")
        return int(value)

    return check


def boolean(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return value.lower() == "true"


def _one_of(*choices: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if value not in choices:
            raise ValueError(f"expected {' or '.join(choices)}")
        return value

    return check


def _only(truth: str, why: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if value != truth:
            raise ValueError(f"only {truth} is supported: {why}")
        return value

    return check


def _shown_only(value: str) -> str:
    raise ValueError("it is read-only")


def _not_empty(value: str) -> str:
    if not value:
        raise ValueError("expected the name of a topic")
    return value


def _cleanup_policy(value: str) -> str:
    policies = {part.strip() for part in value.split(",")}
    if not policies <= {"delete", "compact"}:
        raise ValueError("expected delete, compact, or both with a comma")
    return value


def _ratio(value: str) -> float:
    try:
        ratio = float(value)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise ValueError("expected a number from 0 to 1")
    return ratio


def _or_unlimited(limit: int | None) -> str:
    """broker.yaml says null where Kafka says -1."""
    return "-1" if limit is None else str(limit)


_lag_ms = integer(0, LONG_MAX)
_max_lag_ms = integer(1, LONG_MAX)
_retention_ms = integer(-1, LONG_MAX)
_retention_bytes = integer(-1, LONG_MAX)
_max_message_bytes = integer(0, INT_MAX)
_timestamp_type = _one_of("CreateTime", "LogAppendTime")
_rocketmq_body = _one_of("plain", "verbatim")

_ROWS = (
    TopicConfig(
        "cleanup.policy",
        Kind.LIST,
        lambda settings: "delete",
        _cleanup_policy,
        "What happens to old records: they go when their retention is over (delete), or of each key the last one stays "
        "(compact), or both.",
        "log.cleanup.policy",
    ),
    TopicConfig(
        "compression.type",
        Kind.STRING,
        lambda settings: "producer",
        _only("producer", "batches are kept byte for byte as they came"),
        'The codec batches are kept in. Only "producer": the one they came in.',
        "compression.type",
    ),
    TopicConfig(
        "delete.retention.ms",
        Kind.LONG,
        lambda settings: str(settings.log.cleaner.delete_retention_ms),
        _lag_ms,
        "How long a record without a value (tombstone) of a compacted topic stays after it was first cleaned, in ms.",
        "log.cleaner.delete.retention.ms",
    ),
    TopicConfig(
        "halfmoon.delete.force",
        Kind.BOOLEAN,
        lambda settings: "false",
        boolean,
        "Whether the topic may be deleted although views are filled from it. They keep what they have then.",
        "halfmoon.delete.force",
    ),
    TopicConfig(
        "halfmoon.headers.enable",
        Kind.BOOLEAN,
        lambda settings: "true" if settings.topics.headers else "false",
        boolean,
        "Whether headers that ask for a feature (delay, transaction, retry) act on records produced to this topic.",
        "halfmoon.topics.headers",
    ),
    TopicConfig(
        "halfmoon.key.index",
        Kind.BOOLEAN,
        lambda settings: "true" if settings.topics.key_index else "false",
        boolean,
        "Whether records can be found by their own key, as they can by the headers KEYS and UNIQ_KEY.",
        "halfmoon.topics.key_index",
    ),
    TopicConfig(
        "halfmoon.rocketmq.body",
        Kind.STRING,
        lambda settings: "plain",
        _rocketmq_body,
        "How bodies are kept that RocketMQ clients have compressed: plain, so that all clients read them, or verbatim.",
        "halfmoon.rocketmq.body",
    ),
    TopicConfig(
        "max.compaction.lag.ms",
        Kind.LONG,
        lambda settings: str(LONG_MAX),
        _max_lag_ms,
        "A record of a compacted topic is looked into after so many ms at the latest, whatever the dirty ratio.",
        "log.cleaner.max.compaction.lag.ms",
    ),
    TopicConfig(
        "max.message.bytes",
        Kind.INT,
        lambda settings: str(settings.topics.max_message_bytes),
        _max_message_bytes,
        "The largest record batch that is taken, in bytes, as compressed by the producer.",
        "message.max.bytes",
    ),
    TopicConfig(
        "message.timestamp.after.max.ms",
        Kind.LONG,
        lambda settings: str(LONG_MAX),
        _only(str(LONG_MAX), "records may carry any timestamp"),
        "How far a record's timestamp may lie after the broker's clock. Not limited.",
        "log.message.timestamp.after.max.ms",
    ),
    TopicConfig(
        "message.timestamp.before.max.ms",
        Kind.LONG,
        lambda settings: str(LONG_MAX),
        _only(str(LONG_MAX), "records may carry any timestamp"),
        "How far a record's timestamp may lie before the broker's clock. Not limited.",
        "log.message.timestamp.before.max.ms",
    ),
    TopicConfig(
        "message.timestamp.type",
        Kind.STRING,
        lambda settings: "CreateTime",
        _timestamp_type,
        "Whose clock stamps the records: the producer's (CreateTime) or the broker's (LogAppendTime).",
        "log.message.timestamp.type",
    ),
    TopicConfig(
        "min.cleanable.dirty.ratio",
        Kind.DOUBLE,
        lambda settings: str(settings.log.cleaner.min_dirty_ratio),
        _ratio,
        "A partition is compacted when more than this part of what it would look into has come since the last time.",
        "log.cleaner.min.cleanable.ratio",
    ),
    TopicConfig(
        "min.compaction.lag.ms",
        Kind.LONG,
        lambda settings: str(settings.log.cleaner.min_compaction_lag_ms),
        _lag_ms,
        "How long a record of a compacted topic stays at least, in ms since it was stored.",
        "log.cleaner.min.compaction.lag.ms",
    ),
    TopicConfig(
        "min.insync.replicas",
        Kind.INT,
        lambda settings: "1",
        _only("1", "a single node keeps one replica"),
        "How many replicas must have a record before acks=all is answered. A single node keeps one.",
        "min.insync.replicas",
    ),
    TopicConfig(
        "retention.bytes",
        Kind.LONG,
        lambda settings: _or_unlimited(settings.log.retention_bytes),
        _retention_bytes,
        "How many bytes of each partition are kept; -1 keeps all.",
        "log.retention.bytes",
    ),
    TopicConfig(
        "retention.ms",
        Kind.LONG,
        lambda settings: _or_unlimited(settings.log.retention_ms),
        _retention_ms,
        "How long records are kept, in milliseconds since they were stored, whatever their timestamps; -1 = for ever.",
        "log.retention.ms",
    ),
    TopicConfig(
        "segment.bytes",
        Kind.INT,
        lambda settings: str(settings.log.segment_bytes),
        integer(1 << 20, INT_MAX),
        "Kept and shown, since Kafka Streams sets it for its topics; changes nothing. All topics share one commitlog, "
        "whose files are log.segment_bytes large (broker.yaml).",
        "log.segment.bytes",
    ),
    TopicConfig(
        "unclean.leader.election.enable",
        Kind.BOOLEAN,
        lambda settings: "false",
        _only("false", "a single node elects no leaders"),
        "Whether a replica that lags may lead. A single node has none.",
        "unclean.leader.election.enable",
    ),
)

TOPIC_CONFIGS: dict[str, TopicConfig] = {row.name: row for row in _ROWS}
"""Every topic configuration there is, sorted by name."""


def add_rows(rows: Sequence[TopicConfig]) -> None:
    """Configurations that plugins offer, before any topic is read. Raises StartError for a name that is taken."""
    ours = {row.name for row in _ROWS}
    for row in rows:
        if row.name in ours or row.name in _NOT_HERE or row.name.startswith(VIEW_PREFIX):
            raise StartError(f"a plugin offers the topic configuration {row.name}, which there is already")
    more = [row for row in TOPIC_CONFIGS.values() if row.name not in ours] + list(rows)
    table = {row.name: row for row in sorted([*_ROWS, *more], key=lambda row: row.name)}
    TOPIC_CONFIGS.clear()
    TOPIC_CONFIGS.update(table)


_ONE_LOG = "all topics share one commitlog; see the section log of broker.yaml"
_NO_TIERS = "tiered storage does not exist here"

_NOT_HERE: Mapping[str, str] = {
    "file.delete.delay.ms": _ONE_LOG,
    "flush.messages": _ONE_LOG,
    "flush.ms": _ONE_LOG,
    "index.interval.bytes": _ONE_LOG,
    "preallocate": _ONE_LOG,
    "segment.index.bytes": _ONE_LOG,
    "segment.jitter.ms": _ONE_LOG,
    "segment.ms": _ONE_LOG,
    "local.retention.bytes": _NO_TIERS,
    "local.retention.ms": _NO_TIERS,
    "remote.log.copy.disable": _NO_TIERS,
    "remote.log.delete.on.disable": _NO_TIERS,
    "remote.storage.enable": _NO_TIERS,
    "compression.gzip.level": "batches are kept as they came",
    "compression.lz4.level": "batches are kept as they came",
    "compression.zstd.level": "batches are kept as they came",
    "message.downconversion.enable": "only record batches of format 2 are kept and served",
    "message.format.version": "only record batches of format 2 are kept and served",
    "message.timestamp.difference.max.ms": "records may carry any timestamp",
    "follower.replication.throttled.replicas": "a single node keeps one replica",
    "leader.replication.throttled.replicas": "a single node keeps one replica",
}
"""Topic configurations that Kafka has and that cannot be obeyed here, with the reason a refusal gives."""


def find(name: str) -> TopicConfig:
    """The row of that name. Raises BrokerError(INVALID_CONFIG) that names it, and says why if Kafka knows it."""
    config = TOPIC_CONFIGS.get(name)
    if config is None and name.startswith(VIEW_PREFIX) and name != VIEW_PREFIX:
        return _view_config(name)
    if config is None:
        reason = _NOT_HERE.get(name)
        raise BrokerError(
            Fault.INVALID_CONFIG,
            f"topic config {name} is not supported: {reason}" if reason else f"unknown topic config name: {name}",
        )
    return config


def known_elsewhere(name: str) -> bool:
    """Whether Kafka has a configuration of that name that cannot be obeyed here; so it is never set."""
    return name in _NOT_HERE


def not_here() -> Mapping[str, str]:
    """Those of Kafka's that are refused here, with the reason."""
    return _NOT_HERE


def _view_config(name: str) -> TopicConfig:
    check: Callable[[str], object]
    if name == VIEW_STATE:
        check, documentation = _shown_only, "Whether this view is filled, or why not."
    elif name == VIEW_POSITION:
        check, documentation = _shown_only, "By partition, S:V: what the source has before S is in this view before V."
    elif name == VIEW_SOURCE:
        check, documentation = _not_empty, "The topic that this view is filled from."
    elif name == VIEW_FROM:
        check, documentation = _one_of("earliest", "latest"), "Whether the view holds what came before its creation."
    else:
        language = name.removeprefix(VIEW_PREFIX)
        check, documentation = str, f"What of the source is in this view, in the filter language {language}."
    return TopicConfig(name, Kind.STRING, lambda settings: "", check, documentation, "", read_only=True)


def view_configs(overrides: Mapping[str, str]) -> dict[str, str]:
    """Those of the overrides that define a view; empty where the topic is none."""
    return {name: value for name, value in overrides.items() if name.startswith(VIEW_PREFIX)}


def validate(overrides: Mapping[str, str]) -> None:
    """Raise BrokerError(INVALID_CONFIG), naming the key, unless every override is known and its value obeyed."""
    for name, value in overrides.items():
        config = find(name)
        try:
            config.check(value.strip())
        except ValueError as error:
            raise BrokerError(
                Fault.INVALID_CONFIG, f"invalid value '{value}' for topic config {name}: {error}"
            ) from None
    least, most = overrides.get("min.compaction.lag.ms"), overrides.get("max.compaction.lag.ms")
    if least is not None and most is not None:
        check_lags(least, most)


def check_lags(least: str, most: str) -> None:
    """Raise BrokerError(INVALID_CONFIG) where records would have to stay longer than they may wait to be cleaned."""
    if int(least) > int(most):
        raise BrokerError(
            Fault.INVALID_CONFIG, f"min.compaction.lag.ms is {least}, more than max.compaction.lag.ms, which is {most}"
        )


def effective(overrides: Mapping[str, str], settings: Settings) -> list[Effective]:
    """Every configuration as it holds for a topic with these overrides, sorted by name."""
    found = []
    for config in TOPIC_CONFIGS.values():
        override = overrides.get(config.name)
        default = config.default(settings)
        found.append(Effective(config, default if override is None else override.strip(), override, default))
    found += [Effective(find(name), value, value, "") for name, value in view_configs(overrides).items()]
    return sorted(found, key=lambda each: each.config.name)


def resolve(overrides: Mapping[str, str], settings: Settings) -> TopicRules:
    """The rules the core acts on. The overrides must have passed `validate`."""

    def value(name: str) -> str:
        override = overrides.get(name)
        return TOPIC_CONFIGS[name].default(settings) if override is None else override.strip()

    policies = {part.strip() for part in value("cleanup.policy").split(",")}
    return TopicRules(
        retention_ms=_retention_ms(value("retention.ms")),
        retention_bytes=_retention_bytes(value("retention.bytes")),
        max_message_bytes=_max_message_bytes(value("max.message.bytes")),
        log_append_time=_timestamp_type(value("message.timestamp.type")) == "LogAppendTime",
        headers_enabled=boolean(value("halfmoon.headers.enable")),
        key_index=boolean(value("halfmoon.key.index")),
        delete_force=boolean(value("halfmoon.delete.force")),
        verbatim_bodies=value("halfmoon.rocketmq.body") == "verbatim",
        deletes="delete" in policies,
        compacts="compact" in policies,
        min_dirty_ratio=_ratio(value("min.cleanable.dirty.ratio")),
        min_compaction_lag_ms=_lag_ms(value("min.compaction.lag.ms")),
        max_compaction_lag_ms=_max_lag_ms(value("max.compaction.lag.ms")),
        delete_retention_ms=_lag_ms(value("delete.retention.ms")),
    )
