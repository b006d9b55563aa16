"""Recurring messages: a record with a cron expression is sent again whenever that is due.

A record with these headers is not stored in its topic. It is the message that is sent there, to the same partition:

    SCHEDULE_NAME       what the schedule is called in its topic: 1 to 100 of a-z, A-Z, 0-9, '.', '_' and '-'
    SCHEDULE_CRON       when it is sent: `0 9 * * 1-5`; with six fields, the first is the second
    SCHEDULE_ZONE       the time zone of that, such as Europe/Berlin; without it UTC
    SCHEDULE_MISSED     what becomes of times that were missed while the broker was away: once, or skip
    SCHEDULE_PARTITION  the partition, which the record must have been sent to; or `fixed`: the client sends to the same
                        one, always. It is needed where a topic has several
                        and the record has no key, or comes from a client of RocketMQ: the next time the same schedule
                        would be sent to another one

A schedule of this name is replaced; the same one again changes nothing. A record with SCHEDULE_NAME and SCHEDULE_STATE
(`paused`, `active` or `cancelled`), sent to the same partition, changes it.

Each message has `halfmoon.schedule` (the name) and `halfmoon.schedule-time` (the time for which it is sent, Unix ms),
and the time at which it is sent for a timestamp. It is sent with the rights that the schedule's creator has then.

Schedules are kept in the compacted internal topic `halfmoon.schedules` (records.py); docs/schedules.md is for users.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

from msgspec import Meta

from halfmoon.plugin import (
    ConfigSection,
    Duration,
    Feature,
    FeatureContext,
    PluginContext,
    PositiveSize,
    PutInterceptor,
    Section,
    TopicPolicy,
    hookimpl,
)
from halfmoon.plugin.moving import Schedules
from halfmoon.plugins.store.schedule import metrics
from halfmoon.plugins.store.schedule.answering import Answering
from halfmoon.plugins.store.schedule.book import Book, Limits
from halfmoon.plugins.store.schedule.firing import Firing
from halfmoon.plugins.store.schedule.records import CONFIGS, TOPIC, Policy
from halfmoon.plugins.store.schedule.taking import CRON, STATE, Taking

api_version = 1

MOST_WARNINGS = 10


class ScheduleSettings(Section, frozen=True, kw_only=True):
    """`$.plugins.schedule`."""

    max_schedules: Annotated[int, Meta(ge=0, le=100_000)] = 1_000
    """Of one log: of each shard where there are several."""
    max_message_bytes: PositiveSize = 64 << 10
    """Key, value and headers. All messages are in memory."""
    missed_after_ms: Duration = 60_000
    """A time is missed if it is longer ago."""
    missed: Policy = "once"
    """What becomes of such times where the schedule does not say it."""


@hookimpl
def halfmoon_config() -> ConfigSection:
    return ConfigSection(ScheduleSettings)


@hookimpl(tryfirst=True)  # others would act on headers that the message must not have
def halfmoon_commitlog(ctx: PluginContext) -> list[PutInterceptor]:
    settings = ctx.settings_as(ScheduleSettings)
    book = Book(Limits(settings.max_schedules, settings.max_message_bytes))
    ctx.memory = book, Taking(book, settings.missed)
    taking = ctx.memory[1]
    return [
        PutInterceptor(
            "schedule", (CRON, STATE), taking.before_put, in_slices=taking.in_slices, own_topics={TOPIC: CONFIGS}
        )
    ]


@hookimpl
def halfmoon_features(ctx: FeatureContext) -> list[Feature]:
    settings = ctx.plugin.settings_as(ScheduleSettings)
    book: Book
    taking: Taking
    book, taking = ctx.plugin.memory
    firing = Firing(ctx, book, settings.missed_after_ms)
    taking.topics, taking.on_change = ctx.topics, firing.wake
    answering = Answering(ctx, book, firing, settings.missed)
    return [
        Feature(
            "schedule",
            start=firing.start,
            stop=firing.stop,
            topics=TopicPolicy(reserves=TOPIC.__eq__, deleted=firing.topic_deleted),
            services=(Schedules(answering.ask, book.when_ready),),
            families=metrics.FAMILIES,
            read_metrics=partial(metrics.read, book, firing.counters),
            warnings=partial(_warnings, book),
        )
    ]


def _warnings(book: Book) -> list[str]:
    refused = [each for each in book if each.progress.problem]
    said = [f"schedule {each.id}: its last message was not sent: {each.progress.problem}" for each in refused]
    more = len(said) - MOST_WARNINGS
    return [*said[:MOST_WARNINGS], f"{more} more schedules could not send their last message"] if more > 0 else said
