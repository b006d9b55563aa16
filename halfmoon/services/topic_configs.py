"""Every topic configuration there is: the core's rows, and by the name of its feature what each of ours adds.

The table is made before recovery, from the features that are on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from halfmoon.config.topic_configs import FeatureConfigs, TopicConfig, TopicConfigs
from halfmoon.config.values import LONG_MAX, Kind, always, boolean, integer, one_of, ratio, stated
from halfmoon.services.view.definition import VIEW_CONFIGS

ROCKETMQ_BODY = "halfmoon.rocketmq.body"
VERBATIM = "verbatim"

_HEADERS = TopicConfig(
    "halfmoon.headers.enable", Kind.BOOLEAN, stated("topics.headers"), boolean,
    "Whether headers that ask for a feature (delay, transaction, retry) act on records produced to this topic.",
    "halfmoon.topics.headers", setting="topics.headers", rule="headers_enabled",
)  # fmt: skip
_KEY_INDEX = TopicConfig(
    "halfmoon.key.index", Kind.BOOLEAN, stated("topics.key_index"), boolean,
    "Whether records can be found by their own key, as they can by the headers KEYS and UNIQ_KEY.",
    "halfmoon.topics.key_index", setting="topics.key_index", rule="key_index",
)  # fmt: skip
_BODY = TopicConfig(
    ROCKETMQ_BODY, Kind.STRING, always("plain"), one_of("plain", VERBATIM),
    "How bodies are kept that RocketMQ clients have compressed: plain, so that all clients read them, or verbatim.",
    ROCKETMQ_BODY,
)  # fmt: skip

_CLEANER = (
    TopicConfig(
        "delete.retention.ms", Kind.LONG, stated("log.cleaner.delete_retention_ms"), integer(0, LONG_MAX),
        "How long a record without a value (tombstone) of a compacted topic stays after it was first cleaned, in ms.",
        "log.cleaner.delete.retention.ms", rule="delete_retention_ms",
    ),
    TopicConfig(
        "max.compaction.lag.ms", Kind.LONG, always(LONG_MAX), integer(1, LONG_MAX),
        "A record of a compacted topic is looked into after so many ms at the latest, whatever the dirty ratio.",
        "log.cleaner.max.compaction.lag.ms", rule="max_compaction_lag_ms",
    ),
    TopicConfig(
        "min.cleanable.dirty.ratio", Kind.DOUBLE, stated("log.cleaner.min_dirty_ratio"), ratio,
        "A partition is compacted when more than this part of what it would look into has come since the last time.",
        "log.cleaner.min.cleanable.ratio", rule="min_dirty_ratio",
    ),
    TopicConfig(
        "min.compaction.lag.ms", Kind.LONG, stated("log.cleaner.min_compaction_lag_ms"), integer(0, LONG_MAX),
        "How long a record of a compacted topic stays at least, in ms since it was stored.",
        "log.cleaner.min.compaction.lag.ms", rule="min_compaction_lag_ms",
    ),
)  # fmt: skip

OF_FEATURES: Mapping[str, FeatureConfigs] = {
    "cleaner": FeatureConfigs(_CLEANER),
    "waiting": FeatureConfigs((_HEADERS,)),
    "keyindex": FeatureConfigs((_KEY_INDEX,)),
    "view": VIEW_CONFIGS,
    "rocketmq": FeatureConfigs((_BODY,)),
}
"""By the name of the feature."""


def topic_configs(off: Collection[str] = (), more: Sequence[TopicConfig] = ()) -> TopicConfigs:
    """The table without what the features add that are `off`, and with `more` from plugins. Raises StartError for a
    name that is there twice."""
    added = [each for name, each in OF_FEATURES.items() if name not in off]
    absent = {name: each for name, each in OF_FEATURES.items() if name in off}
    return TopicConfigs([*added, FeatureConfigs(tuple(more))], absent)
