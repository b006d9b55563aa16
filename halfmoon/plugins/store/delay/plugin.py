"""Delayed messages: a header says how long, or until when, and the broker delivers the record then (B29, B30, B38).

    DELAY             a level, 1 to 18: 1s 5s 10s 30s 1m 2m … 2h (RocketMQ: MessageConst.PROPERTY_DELAY_TIME_LEVEL)
    TIMER_DELAY_SEC   seconds
    TIMER_DELAY_MS    milliseconds
    TIMER_DELIVER_MS  a time, Unix ms
    TIMER_DEL_UNIQKEY the UNIQ_KEY of a record sent to this topic before, which is not to be delivered any more; the
                      record that says so is not stored (RocketMQ: MessageConst.PROPERTY_TIMER_DEL_UNIQKEY)

Levels wait in SCHEDULE_TOPIC_XXXX, in queue level − 1, as in RocketMQ; any other time in halfmoon.timers. A level
above the last is the last, level 0 is none; a time that has passed is now. Of several such headers the first in the
list above counts. What is no number, or further away than `max_delay`, is refused with the record's index.

A delivered record has `halfmoon.delayed` (how it was asked for: `DELAY=3`) and `halfmoon.original-timestamp` in place
of these headers, and the time of its delivery for a timestamp (LogAppendTime: it is the broker's).
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from halfmoon.plugin import (
    ConfigSection,
    Duration,
    Feature,
    FeatureContext,
    PluginContext,
    PutInterceptor,
    Section,
    SettingError,
    hookimpl,
    parse_duration,
)
from halfmoon.plugins.store.delay.cancelling import Cancelling
from halfmoon.plugins.store.delay.delays import AT_TIMES, CANCEL, LEVEL_TOPIC, NAMES, TIMER_TOPIC, Delays

api_version = 1

LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
DAY_MS = 86_400_000


class DelaySettings(Section, frozen=True, kw_only=True):
    """`$.plugins.delay`."""

    levels: Annotated[str, Meta(min_length=1)] = LEVELS
    """How long each level is, from 1 on."""
    max_delay_ms: Duration = 40 * DAY_MS

    def __post_init__(self) -> None:
        for level in self.levels.split():
            try:
                parse_duration(level)
            except ValueError as error:
                raise SettingError("levels", f"got {level!r}: {error}") from None

    def level_ms(self) -> list[int]:
        return [parse_duration(level) for level in self.levels.split()]


@hookimpl
def halfmoon_config() -> ConfigSection:
    return ConfigSection(DelaySettings)


@hookimpl(trylast=True)  # others may hold a record back, or give it a delay
def halfmoon_commitlog(ctx: PluginContext) -> list[PutInterceptor]:
    settings = ctx.settings_as(DelaySettings)
    delays = Delays(settings.level_ms(), settings.max_delay_ms)
    return [
        PutInterceptor(
            "delay", (*NAMES, CANCEL), delays.before_put, scheduled_topics=(LEVEL_TOPIC, TIMER_TOPIC),
            in_slices=delays.in_slices, clock_queues=((TIMER_TOPIC, AT_TIMES),), max_delay_ms=settings.max_delay_ms,
        )
    ]  # fmt: skip


@hookimpl
def halfmoon_features(ctx: FeatureContext) -> list[Feature]:
    return [Cancelling(ctx).feature()]
