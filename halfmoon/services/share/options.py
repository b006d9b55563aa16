"""What a share group may configure: the group configurations of Kafka 4.3 and KIP-1191, over `$.groups.share`.

The groups' own configurations are kept elsewhere: they are looked up by a function, and are text as clients send them
(`share.record.lock.duration.ms` → "30000"). A value that is not valid counts as not given. So does a topic for dead
letters that is not called `dlq.…` (Kafka: errors.deadletterqueue.topic.name.prefix), so that a client that may only
produce to one topic cannot have the broker write to any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from halfmoon.config.settings import Settings
from halfmoon.config.share_settings import ShareSettings, reset_ms
from halfmoon.config.values import INT_MAX, integer
from halfmoon.core.live import Live
from halfmoon.schema.group_topics import DEAD_LETTER_PREFIX, dead_letter_topic
from halfmoon.services.share.share_partition import Terms

_positive = integer(1, INT_MAX)

DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"


class Options(NamedTuple):
    """Of one group, now."""

    terms: Terms
    session_timeout_ms: int
    heartbeat_interval_ms: int
    auto_offset_reset: str
    committed_only: bool
    dead_letter_topic: str
    """Empty: no dead letters are written."""
    copy_records: bool


def resolve(group: str, settings: ShareSettings, given: Mapping[str, str]) -> Options:
    given = {name: value.strip() for name, value in given.items()}
    topic = given.get(DEAD_LETTER_TOPIC)
    if topic is None or (topic and not topic.startswith(DEAD_LETTER_PREFIX)):
        topic = default_dead_letter_topic(group, settings)
    session_ms = _number(given, "share.session.timeout.ms", settings.session_timeout_ms)
    heartbeat_ms = _number(given, "share.heartbeat.interval.ms", settings.heartbeat_interval_ms)
    reset = given.get("share.auto.offset.reset", settings.auto_offset_reset)
    return Options(
        Terms(
            _number(given, "share.record.lock.duration.ms", settings.record_lock_duration_ms),
            _number(given, "share.delivery.count.limit", settings.delivery_count_limit),
            _number(given, "share.partition.max.record.locks", settings.partition_max_record_locks),
            bool(topic),
            _truth(given, "share.renew.acknowledge.enable", settings.renew_acknowledge),
        ),
        session_ms,
        heartbeat_ms if heartbeat_ms < session_ms else max(session_ms // 3, 1),
        settings.auto_offset_reset if reset_ms(reset) is None else reset,
        given.get("share.isolation.level", settings.isolation_level) == "read_committed",
        topic,
        _truth(given, "errors.deadletterqueue.copy.record.enable", True),
    )


def default_dead_letter_topic(group: str, settings: ShareSettings) -> str:
    """The topic for dead letters of a group that configures none; empty if there is none."""
    return dead_letter_topic(group) if settings.dead_letters else ""


def _number(given: Mapping[str, str], name: str, default: int) -> int:
    try:
        return _positive(given.get(name, ""))
    except ValueError:
        return default


def _truth(given: Mapping[str, str], name: str, default: bool) -> bool:
    return {"true": True, "false": False}.get(given.get(name, "").lower(), default)


class ShareOptions:
    """The options of all share groups, as they are now."""

    def __init__(self, settings: Live[Settings], rules: Callable[[str], Mapping[str, str]]) -> None:
        """`rules(group)`: the group's own configurations, over the node's for all groups."""
        self._settings = settings
        self._rules = rules

    def of(self, group: str) -> Options:
        return resolve(group, self._settings.current.groups.share, self._rules(group))
