"""What a share group may configure: the group configurations of Kafka 4.3 and KIP-1191, over `$.groups.share`.

Who keeps the groups' own configurations is somebody else's business: they are looked up by a function, and are text as
clients send them (`share.record.lock.duration.ms` → "30000"). What is not valid there counts as not given; nor is a
topic for dead letters that is not called `dlq.…` (Kafka: errors.deadletterqueue.topic.name.prefix), so that nobody who
may only produce to one topic has the broker write to any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from halfmoon.core.config_values import INT_MAX, integer
from halfmoon.core.group_topics import DEAD_LETTER_PREFIX, dead_letter_topic
from halfmoon.core.share.share_partition import Terms
from halfmoon.core.share_settings import ShareSettings, reset_ms

DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"


class Options(NamedTuple):
    """Of one group, now."""

    terms: Terms
    session_timeout_ms: int
    heartbeat_interval_ms: int
    auto_offset_reset: str
    committed_only: bool
    dead_letter_topic: str
    """Empty: no letters are written."""
    copy_records: bool


def resolve(group: str, settings: ShareSettings, given: Mapping[str, str]) -> Options:
    given = {name: value.strip() for name, value in given.items()}
    letters = given.get(DEAD_LETTER_TOPIC)
    if letters is None or (letters and not letters.startswith(DEAD_LETTER_PREFIX)):
        letters = letters_of(group, settings)
    session_ms = _number(given, "share.session.timeout.ms", settings.session_timeout_ms)
    heartbeat_ms = _number(given, "share.heartbeat.interval.ms", settings.heartbeat_interval_ms)
    reset = given.get("share.auto.offset.reset", settings.auto_offset_reset)
    return Options(
        Terms(
            _number(given, "share.record.lock.duration.ms", settings.record_lock_duration_ms),
            _number(given, "share.delivery.count.limit", settings.delivery_count_limit),
            _number(given, "share.partition.max.record.locks", settings.partition_max_record_locks),
            bool(letters),
            _truth(given, "share.renew.acknowledge.enable", settings.renew_acknowledge),
        ),
        session_ms,
        heartbeat_ms if heartbeat_ms < session_ms else max(session_ms // 3, 1),
        settings.auto_offset_reset if reset_ms(reset) is None else reset,
        given.get("share.isolation.level", settings.isolation_level) == "read_committed",
        letters,
        _truth(given, "errors.deadletterqueue.copy.record.enable", True),
    )


def letters_of(group: str, settings: ShareSettings) -> str:
    """The topic for dead letters of a group that says nothing; empty if there is none."""
    return dead_letter_topic(group) if settings.dead_letters else ""


_positive = integer(1, INT_MAX)


def _number(given: Mapping[str, str], name: str, default: int) -> int:
    try:
        return _positive(given.get(name, ""))
    except ValueError:
        return default


def _truth(given: Mapping[str, str], name: str, default: bool) -> bool:
    return {"true": True, "false": False}.get(given.get(name, "").lower(), default)
