"""Every topic configuration there is: the core's rows, and by the name of its feature what each of ours adds.

The table is made before recovery, from the features that are on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from halfmoon.config.kept_configs import without_effect
from halfmoon.config.topic_configs import OfFeature, TopicConfig, TopicConfigs
from halfmoon.config.values import LONG_MAX, Kind, always, boolean, integer, one_of, ratio, stated
from halfmoon.schema import lifetimes
from halfmoon.schema.durability import DURABILITY, FAST, OBJECT, REPLICATION_FACTOR

ROCKETMQ_BODY = "halfmoon.rocketmq.body"
VERBATIM = "verbatim"
ROCKETMQ_MESSAGE_TYPE = "halfmoon.rocketmq.message.type"
ROCKETMQ_ORDER = "halfmoon.rocketmq.order"
ROCKETMQ_QUEUE_TYPE = "halfmoon.rocketmq.queue.type"
ROCKETMQ_RESERVE_TIME = "halfmoon.rocketmq.reserve.time"
MESSAGE_TYPES = ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")
"""org.apache.rocketmq.common.attribute.TopicMessageType."""
QUEUE_TYPES = ("SimpleCQ", "BatchCQ")
"""org.apache.rocketmq.common.attribute.CQType."""

MOST_REPLICAS = (1 << 15) - 1

_HEADERS = TopicConfig(
    "halfmoon.headers.enable", Kind.BOOLEAN, stated("topics.headers"), boolean,
    "Whether feature headers (delay, transaction, retry) take effect on records produced to this topic.",
    "halfmoon.topics.headers", setting="topics.headers", rule="headers_enabled",
)  # fmt: skip
_KEY_INDEX = TopicConfig(
    "halfmoon.key.index", Kind.BOOLEAN, stated("topics.key_index"), boolean,
    "Whether the records' own keys are indexed, as the headers KEYS and UNIQ_KEY are.",
    "halfmoon.topics.key_index", setting="topics.key_index", rule="key_index",
)  # fmt: skip
_BODY = TopicConfig(
    ROCKETMQ_BODY, Kind.STRING, always("plain"), one_of("plain", VERBATIM),
    "Storage of bodies that RocketMQ clients compressed: plain, for all clients, or verbatim.",
    ROCKETMQ_BODY,
)  # fmt: skip
_DURABILITY = TopicConfig(
    DURABILITY, Kind.STRING, always(FAST), one_of(FAST, OBJECT),
    "In a cluster of nodes: where messages are stored before they are acknowledged. fast: in the database, within "
    "milliseconds; object: in the object store, which costs less. It is set when the topic is created.",
    "", read_only=True,
)  # fmt: skip
_REPLICATION = TopicConfig(
    REPLICATION_FACTOR, Kind.INT, always(1), integer(1, MOST_REPLICAS),
    "In a cluster of nodes: how many nodes are named as replicas, so in how many racks consumers can read. It is set "
    "when the topic is created.",
    "", read_only=True,
)  # fmt: skip
_ATTRIBUTES = (
    TopicConfig(
        ROCKETMQ_MESSAGE_TYPE, Kind.STRING, always("NORMAL"), one_of(*MESSAGE_TYPES),
        without_effect("a topic takes messages of all types. It is RocketMQ's attribute message.type"),
        "", no_effect=True,
    ),
    TopicConfig(
        ROCKETMQ_ORDER, Kind.BOOLEAN, always("false"), boolean,
        without_effect("every queue is in order. It is RocketMQ's flag order"), "", no_effect=True,
    ),
    TopicConfig(
        ROCKETMQ_QUEUE_TYPE, Kind.STRING, always("SimpleCQ"), one_of(*QUEUE_TYPES),
        without_effect("each message of a batch has its offset. It is RocketMQ's attribute queue.type"),
        "", no_effect=True,
    ),
    TopicConfig(
        ROCKETMQ_RESERVE_TIME, Kind.LONG, always(-1), integer(-1, LONG_MAX),
        without_effect("there is no tiered storage. It is RocketMQ's attribute reserve.time"), "", no_effect=True,
    ),
)  # fmt: skip

_CLEANER = (
    TopicConfig(
        "delete.retention.ms", Kind.LONG, stated("log.cleaner.delete_retention_ms"), integer(0, LONG_MAX),
        "Time that a tombstone of a compacted topic is kept after its first compaction, in ms.",
        "log.cleaner.delete.retention.ms", rule="delete_retention_ms",
    ),
    TopicConfig(
        "max.compaction.lag.ms", Kind.LONG, always(LONG_MAX), integer(1, LONG_MAX),
        "Maximum age of an uncompacted record, in ms: then the partition is compacted at any dirty ratio.",
        "log.cleaner.max.compaction.lag.ms", rule="max_compaction_lag_ms",
    ),
    TopicConfig(
        "min.cleanable.dirty.ratio", Kind.DOUBLE, stated("log.cleaner.min_dirty_ratio"), ratio,
        "Minimum share of uncompacted bytes at which a partition is compacted.",
        "log.cleaner.min.cleanable.ratio", rule="min_dirty_ratio",
    ),
    TopicConfig(
        "min.compaction.lag.ms", Kind.LONG, stated("log.cleaner.min_compaction_lag_ms"), integer(0, LONG_MAX),
        "Minimum time that a record of a compacted topic is kept, in ms since it was stored.",
        "log.cleaner.min.compaction.lag.ms", rule="min_compaction_lag_ms",
    ),
)  # fmt: skip


def _ttl(value: str) -> int:
    """Raises ValueError. 0 means "never" to some brokers and "at once" to others."""
    said = integer(-1, LONG_MAX)(value)
    if said == 0:
        raise ValueError("expected -1 or a number from 1 on")
    return said


_EXPIRY = (
    TopicConfig(
        lifetimes.TTL, Kind.LONG, always(-1), _ttl,
        "Time to live of messages, in ms since their timestamps; -1: unlimited. The header of this name shortens it.",
        lifetimes.TTL,
    ),
    TopicConfig(
        lifetimes.ACTION, Kind.STRING, always(lifetimes.DROP), one_of(lifetimes.DROP, lifetimes.DEAD_LETTER),
        "What groups do with an expired message: pass over it (drop), or dead-letter it.",
        lifetimes.ACTION,
    ),
)  # fmt: skip

OF_FEATURES: Mapping[str, Sequence[TopicConfig]] = {
    "cleaner": _CLEANER,
    "waiting": (_HEADERS,),
    "keyindex": (_KEY_INDEX,),
    "rocketmq": (_BODY, *_ATTRIBUTES),
    "cluster": (_DURABILITY, _REPLICATION),
    "expiry": _EXPIRY,
}
"""By the name of the feature."""
OF_PLUGINS: Mapping[str, str] = {"view": "halfmoon.view."}
"""Built-in plugin → what the names of its configurations begin with. For what a refusal says where it is off; the rows
are the plugin's (hook `halfmoon_topic_configs`)."""


def topic_configs(off: Collection[str] = (), more: Sequence[OfFeature] = ()) -> TopicConfigs:
    """The table without what the features add that are `off`, and with `more` from plugins. Raises StartError for a
    name that is there twice."""
    added = [row for name, rows in OF_FEATURES.items() if name not in off for row in rows]
    absent = {row.name: name for name, rows in OF_FEATURES.items() if name in off for row in rows}
    absent |= {prefix: name for name, prefix in OF_PLUGINS.items() if name in off}
    return TopicConfigs([*added, *more], absent)
