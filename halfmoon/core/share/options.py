"""What a share group may configure: the group configurations of Kafka 4.3 and KIP-1191, over `$.groups.share`.

Who keeps the groups' own configurations is somebody else's business: they are looked up by a function, and are text as
clients send them (`share.record.lock.duration.ms` → "30000"). What is not valid there counts as not given; nor is a
topic for dead letters that is not called `dlq.…` (Kafka: errors.deadletterqueue.topic.name.prefix), so that nobody who
may only produce to one topic has the broker write to any other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

from halfmoon.core.group_topics import DEAD_LETTER_PREFIX, dead_letter_topic
from halfmoon.core.sections import Section, SettingError
from halfmoon.core.share.share_partition import Terms
from halfmoon.core.topic_configs import INT_MAX, integer
from halfmoon.core.units import PositiveDuration, format_duration

LockDuration = Annotated[PositiveDuration, Meta(ge=1_000, le=3_600_000)]
Reset = Annotated[str, Meta(pattern=r"^(latest|earliest|by_duration:.+)$")]

_DURATION = re.compile(
    r"P(?:(?P<days>\d{1,6})D)?(?:T(?=\d)(?:(?P<hours>\d{1,8})H)?(?:(?P<minutes>\d{1,9})M)?"
    r"(?:(?P<seconds>\d{1,10})(?:\.(?P<fraction>\d{1,9}))?S)?)?"
)


class ShareSettings(Section, frozen=True, kw_only=True):
    """`$.groups.share`: what a share group gets that does not say otherwise."""

    session_timeout_ms: PositiveDuration = 45_000
    heartbeat_interval_ms: PositiveDuration = 5_000
    record_lock_duration_ms: LockDuration = 30_000
    delivery_count_limit: Annotated[int, Meta(ge=2, le=100)] = 5
    partition_max_record_locks: Annotated[int, Meta(ge=100, le=100_000)] = 2_000
    auto_offset_reset: Reset = "latest"
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    renew_acknowledge: bool = True
    dead_letters: bool = True
    """Whether what is rejected or exhausted goes to `dlq.<group>`; as in Kafka, it is only finished if not."""
    max_size: Annotated[int, Meta(ge=1)] = 200
    max_sessions: Annotated[int, Meta(ge=1)] = 2_000

    def __post_init__(self) -> None:
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise SettingError(
                "heartbeat_interval",
                f"got {format_duration(self.heartbeat_interval_ms)}, expected less than session_timeout "
                f"({format_duration(self.session_timeout_ms)})",
            )
        if reset_ms(self.auto_offset_reset) is None:
            raise SettingError(
                "auto_offset_reset",
                f"got '{self.auto_offset_reset}', expected latest, earliest, or by_duration: and a duration like PT1H",
            )


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


LATEST_MS, EARLIEST_MS = -1, -2
_positive = integer(1, INT_MAX)


def reset_ms(reset: str) -> int | None:
    """How long before now a group begins: LATEST_MS, EARLIEST_MS, or ms. None if it says neither of them."""
    if reset == "latest":
        return LATEST_MS
    if reset == "earliest":
        return EARLIEST_MS
    match = (
        _DURATION.fullmatch(reset.removeprefix("by_duration:").upper()) if reset.startswith("by_duration:") else None
    )
    if match is None or not any(match.groups()):
        return None
    days, hours, minutes, seconds = (int(match[name] or 0) for name in ("days", "hours", "minutes", "seconds"))
    fraction_ms = int((match["fraction"] or "0").ljust(3, "0")[:3])
    return ((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1_000 + fraction_ms


def _number(given: Mapping[str, str], name: str, default: int) -> int:
    try:
        return _positive(given.get(name, ""))
    except ValueError:
        return default


def _truth(given: Mapping[str, str], name: str, default: bool) -> bool:
    return {"true": True, "false": False}.get(given.get(name, "").lower(), default)
