"""Retry and dead letters: a group hands a record back, to consume it again later, and gives it up in the end (B19,
B35).

A record that is produced to `retry.<group>` is handed back by that group. It comes again in `retry.<group>` when its
delay is over, with the number of times it was handed back in RECONSUME_TIME; once that was `max_reconsume_times`, it
goes to `dlq.<group>` instead (org.apache.rocketmq.broker.processor.AbstractSendMessageProcessor.consumerSendMsgBack).
What a consumer sends is the record as it got it, key, value and headers, and may say more by headers:

    RETRY_OF             TOPIC/PARTITION/OFFSET where it had consumed the record. With it a record is handed back
                         once, however often that is sent: by a client that retries, by a consumer that died before it
                         committed. Forgotten when the group has committed beyond the offset twice, or is set back.
    DELAY, TIMER_…       a delay of its own, as of every record; TIMER_DELAY_MS=0 is none, a negative DELAY gives the
                         record up at once.
                         Without one, the delay is level 3 + RECONSUME_TIME.
    MAX_RECONSUME_TIMES  another limit than the broker's

What the broker adds: RECONSUME_TIME; from the first RETRY_OF, RETRY_TOPIC (the topic the record was first consumed
from) and ORIGIN_MESSAGE_ID (TOPIC/PARTITION/OFFSET there). In a dead letter, `halfmoon.reason` says why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator
from functools import partial
from typing import Annotated, Any

from msgspec import Meta

from halfmoon.plugin import (
    RETRY_PREFIX,
    BrokerError,
    ConfigSection,
    Fault,
    Feature,
    FeatureContext,
    Headers,
    Nacked,
    PluginContext,
    Put,
    PutInterceptor,
    Record,
    Redirect,
    Redirected,
    Section,
    TopicPolicy,
    build_in_slices,
    dead_letter_topic,
    finish,
    hookimpl,
    iter_records,
    retrying_group,
    uncompressed,
)
from halfmoon.plugin.moving import NackedMessages, Topics
from halfmoon.plugins.store.delay.delays import CANCEL, LEVEL
from halfmoon.plugins.store.delay.delays import NAMES as DELAYS
from halfmoon.plugins.store.retry import metrics
from halfmoon.plugins.store.retry.expiring import Expiring
from halfmoon.plugins.store.retry.state import NackedState
from halfmoon.schema.lifetimes import CARRIED, CONSUMED_TIMESTAMP, EXPIRES, TTL

api_version = 1

TIMES, LIMIT, OF = "RECONSUME_TIME", "MAX_RECONSUME_TIMES", "RETRY_OF"
TOPIC, ORIGIN = "RETRY_TOPIC", "ORIGIN_MESSAGE_ID"
FIRST_LEVEL = 3
REASON = "halfmoon.reason"
MOST_RECORDS = 10_000
"""Of a batch that is handed back."""

SLICE = 64
"""Records that are looked at between two pauses."""

_NUMBER = re.compile(rb"-?[0-9]{1,9}")
_PLACE = re.compile(rb"([a-zA-Z0-9._-]{1,249})/([0-9]{1,9})/([0-9]{1,18})")

Place = tuple[str, int, int]
"""Topic, partition, offset."""
Row = tuple[bytes | None, bytes | None, int, Headers]


class RetrySettings(Section, frozen=True, kw_only=True):
    """`$.plugins.retry`."""

    max_reconsume_times: Annotated[int, Meta(ge=0, le=1_000)] = 16


@hookimpl
def halfmoon_config() -> ConfigSection:
    return ConfigSection(RetrySettings)


@hookimpl
def halfmoon_features(ctx: FeatureContext) -> list[Feature]:
    """A consumer asks for its group's retry topic before anything was handed back, and librdkafka's consumers allow no
    creation by default: they would look again after five minutes."""
    retries = _retries(ctx.plugin)
    if ctx.lifetimes is not None:
        retries.expiring = Expiring(ctx.lifetimes, ctx.topics)
    offered = NackedMessages(partial(_nacked, ctx.topics, ctx.state.section(NackedState)))
    provided = TopicPolicy(provides=lambda name: retrying_group(name) is not None)
    read = partial(metrics.read, retries)
    return [Feature("retry", topics=provided, services=(offered,), families=metrics.FAMILIES, read_metrics=read)]


@hookimpl(tryfirst=True)  # before delays, which act on the level that is set here
def halfmoon_commitlog(ctx: PluginContext) -> list[PutInterceptor]:
    retries = _retries(ctx)
    return [
        PutInterceptor(
            "retry", (), retries.before_put, topic_prefixes=(RETRY_PREFIX,), in_slices=retries.in_slices
        )
    ]  # fmt: skip


def _retries(ctx: PluginContext) -> Retries:
    """The hooks of one broker share it."""
    if ctx.memory is None:
        ctx.memory = Retries(ctx.settings_as(RetrySettings).max_reconsume_times, ctx.was_nacked)
    assert isinstance(ctx.memory, Retries)
    return ctx.memory


class Retries:
    def __init__(self, max_reconsume_times: int, was_nacked: Callable[[str, str, int, int], bool]) -> None:
        self._max = max_reconsume_times
        self._was_nacked = was_nacked
        self.expiring: Expiring | None = None
        """None where nothing expires."""
        self.retried = 0
        self.dead_lettered = 0

    def before_put(self, put: Put) -> memoryview | Redirect:
        return finish(self.in_slices(put))

    def in_slices(self, put: Put) -> Generator[Any, Any, memoryview | Redirect]:
        group = retrying_group(put.topic)
        if group is None:
            return put.batch
        again: list[Row] = []
        given_up: list[Row] = []
        places: dict[Place, None] = {}
        batch = yield lambda: uncompressed(put.batch)
        for index, record in enumerate(iter_records(batch)):
            if index % SLICE == SLICE - 1:
                yield None
            if index == MOST_RECORDS:
                raise BrokerError(Fault.INVALID_RECORD, f"a batch has more than {MOST_RECORDS} records to redeliver")
            place = _place(index, record)
            if place is not None:
                if place in places or self._was_nacked(group, *place):
                    continue
                places[place] = None
            reason, headers = self._headers(index, record, place)
            row = record.key, record.value, record.timestamp
            if reason is None:
                again.append((*row, headers))
            else:
                given_up.append((*row, (*headers, (REASON, reason.encode()))))
        dead: tuple[Redirected, ...] = ()
        if given_up:
            dead = (Redirected(dead_letter_topic(group), 0, (yield from build_in_slices(given_up))),)
        back = Nacked(group, tuple(places)) if places else None
        kept = (yield from build_in_slices(again)) if again else None

        def appended(_: tuple[Place, ...]) -> None:
            self.retried += len(again)
            self.dead_lettered += len(given_up)

        def holds() -> bool:
            return not any(self._was_nacked(group, *place) for place in places)

        return Redirect(kept, dead, back, appended=appended, holds=holds)

    def _headers(self, index: int, record: Record, place: Place | None) -> tuple[str | None, Headers]:
        """Why the record is dead-lettered, or None; and the headers it goes on with."""
        found = dict(record.headers)
        times = _number(index, found, TIMES, 0)
        limit = _number(index, found, LIMIT, self._max)
        level = _number(index, found, LEVEL, 0)
        kept = tuple(
            header
            for header in record.headers
            if header[0] not in (TIMES, OF, CANCEL, CONSUMED_TIMESTAMP)  # what is handed back cancels nothing
            and (header[0] == TTL or not header[0].startswith("halfmoon."))
        )
        end_ms = None if self.expiring is None else self.expiring.end_ms(record, place)
        expired = None
        if end_ms is not None and self.expiring is not None:
            expired = self.expiring.why_dead(end_ms, record, place)
            kept = (*kept, (EXPIRES, b"%d" % end_ms))
        if place is not None:
            said = {TOPIC: place[0].encode(), ORIGIN: f"{place[0]}/{place[1]}/{place[2]}".encode()}
            kept = (*kept, *((name, content) for name, content in said.items() if name not in found))
        if expired is not None or times >= limit or level < 0:
            how = f"{times} times" if times >= limit else f"with {LEVEL}={level}"
            reason = expired or f"negatively acknowledged {how}"
            left = (header for header in kept if header[0] not in DELAYS and header[0] not in CARRIED)
            return reason, (*left, (TIMES, b"%d" % times))
        if any(_is_zero(found.get(name)) for name in DELAYS[1:]):
            # At once. The header must not stay, or the next time would be at once too.
            kept = tuple(header for header in kept if header[0] not in DELAYS)
        elif not any(name in found for name in DELAYS) or (LEVEL in found and level == 0):
            kept = (*(header for header in kept if header[0] != LEVEL), (LEVEL, b"%d" % (FIRST_LEVEL + times)))
        return None, (*kept, (TIMES, b"%d" % (times + 1)))


def _nacked(
    topics: Topics, state: NackedState, names: Collection[str]
) -> Callable[[], list[tuple[str, str, int, list[tuple[int, int]]]]]:
    found = {topic.number: topic.name for name in names if (topic := topics.get(name)) is not None}
    nacked = state.nacked_in(found)
    return lambda: [
        (group, found[number], partition, runs) for (group, number, partition), runs in sorted(nacked.items())
    ]


def _is_zero(content: bytes | None) -> bool:
    return content is not None and _NUMBER.fullmatch(content) is not None and int(content) == 0


def _number(index: int, found: dict[str, bytes | None], name: str, default: int) -> int:
    """Raises BrokerError(INVALID_RECORD)."""
    content = found.get(name)
    if content is None:
        return default
    if not _NUMBER.fullmatch(content):
        raise BrokerError(Fault.INVALID_RECORD, f"record {index}: header {name} is {content[:40]!r}, not a number")
    return int(content)


def _place(index: int, record: Record) -> Place | None:
    """Raises BrokerError(INVALID_RECORD)."""
    content = dict(record.headers).get(OF)
    if content is None:
        return None
    match = _PLACE.fullmatch(content)
    if match is None:
        raise BrokerError(
            Fault.INVALID_RECORD, f"record {index}: header {OF} is {content[:40]!r}, expected TOPIC/PARTITION/OFFSET"
        )
    return match[1].decode(), int(match[2]), int(match[3])
