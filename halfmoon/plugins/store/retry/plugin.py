"""Retry and dead letters: a group hands a record back, to consume it again later, and gives it up in the end (B19,
B35).

A record that is produced to `retry.<group>` is handed back by that group. It comes again in `retry.<group>` when its
delay is over, with the number of times it was handed back in RECONSUME_TIME; once that was `max_reconsume_times`, it
goes to `dlq.<group>` instead (org.apache.rocketmq.broker.processor.AbstractSendMessageProcessor.consumerSendMsgBack).
The group's retry policy (policy.py) may say other delays, another number, another topic, and what is not to come again.
What a consumer sends is the record as it got it, key, value and headers, and may say more by headers:

    RETRY_OF             TOPIC/PARTITION/OFFSET where it had consumed the record. With it a record is handed back
                         once, however often that is sent: by a client that retries, by a consumer that died before it
                         committed. Forgotten when the group has committed beyond the offset twice, or is set back.
    DELAY, TIMER_…       a delay of its own, as of every record; TIMER_DELAY_MS=0 is none, a negative DELAY gives the
                         record up at once.
                         Without one, the policy says it, or it is level 3 + RECONSUME_TIME.
    MAX_RECONSUME_TIMES  another limit than the policy's
    RETRY_POLICY         a policy of the message's own. It stays, so it holds for all attempts.
    RETRY_ERROR_CLASS    why it was handed back: the error's class and its bases, separated by commas. Where the policy
                         says that one of them is not retryable, the record is given up at once.
    RETRY_ERROR_MESSAGE  … and what it says. Both stay in a dead letter, and are taken off what comes again.

What the broker adds: RECONSUME_TIME; from the first RETRY_OF, RETRY_TOPIC (the topic the record was first consumed
from) and ORIGIN_MESSAGE_ID (TOPIC/PARTITION/OFFSET there). In a dead letter, `halfmoon.reason` says why; where it is in
another topic than `dlq.<group>`, the header of KIP-1191 says whose it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator
from functools import partial
from hashlib import blake2b
from typing import Any

from halfmoon.plugin import (
    RETRY_PREFIX,
    BrokerError,
    ConfigSection,
    Fault,
    Feature,
    FeatureContext,
    GroupConfig,
    Headers,
    Nacked,
    PluginContext,
    Put,
    PutInterceptor,
    Record,
    Redirect,
    Redirected,
    SettingError,
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
from halfmoon.plugins.store.delay.delays import CANCEL, LEVEL, MILLISECONDS
from halfmoon.plugins.store.delay.delays import NAMES as DELAYS
from halfmoon.plugins.store.retry import metrics
from halfmoon.plugins.store.retry.configs import group_configs
from halfmoon.plugins.store.retry.expiring import Expiring
from halfmoon.plugins.store.retry.policies import POLICY, Policies, RetrySettings
from halfmoon.plugins.store.retry.policy import Rules
from halfmoon.plugins.store.retry.state import NackedState
from halfmoon.schema.lifetimes import CARRIED, CONSUMED_TIMESTAMP, EXPIRES, TTL

api_version = 1

TIMES, LIMIT, OF = "RECONSUME_TIME", "MAX_RECONSUME_TIMES", "RETRY_OF"
TOPIC, ORIGIN = "RETRY_TOPIC", "ORIGIN_MESSAGE_ID"
ERROR_CLASS, ERROR_MESSAGE = "RETRY_ERROR_CLASS", "RETRY_ERROR_MESSAGE"
GROUP = "__dlq.errors.group"
"""KIP-1191 (ShareGroupDLQRecordHelper)."""
_TAKEN_OFF = frozenset((TIMES, OF, CANCEL, CONSUMED_TIMESTAMP, ERROR_CLASS, ERROR_MESSAGE, GROUP))
"""What is handed back cancels nothing, and what was said of an earlier attempt is not said of this one."""
NOT_RETRYABLE = "not retryable"
RETENTION = "retention.ms"
MAX_CLASSES = 100
"""Of an error that are compared with those that are not retryable."""
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


GivenUp = tuple[str, tuple[tuple[str, str], ...]]
"""A dead-letter topic, and its configurations where it is made."""


@hookimpl
def halfmoon_config() -> ConfigSection:
    return ConfigSection(RetrySettings)


@hookimpl
def halfmoon_group_configs(ctx: PluginContext) -> list[GroupConfig]:
    return group_configs(Policies(ctx.settings_as(RetrySettings)).of_unstated)


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
        ctx.memory = Retries(Policies(ctx.settings_as(RetrySettings), ctx.group_configs), ctx.was_nacked)
    assert isinstance(ctx.memory, Retries)
    return ctx.memory


class Retries:
    def __init__(self, policies: Policies, was_nacked: Callable[[str, str, int, int], bool]) -> None:
        self._policies = policies
        self._was_nacked = was_nacked
        self.expiring: Expiring | None = None
        """None where nothing expires."""
        self.retried = 0
        self.dead_lettered = 0
        self.not_retryable = 0

    def before_put(self, put: Put) -> memoryview | Redirect:
        return finish(self.in_slices(put))

    def in_slices(self, put: Put) -> Generator[Any, Any, memoryview | Redirect]:
        group = retrying_group(put.topic)
        if group is None:
            return put.batch
        of_group = self._policies.of(group)
        again: list[Row] = []
        given_up: dict[GivenUp, list[Row]] = {}
        refused = 0
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
            found = dict(record.headers)
            own = found.get(POLICY)
            rules = of_group if own is None else self._rules_of_message(put, group, index, found, own)
            times = _number(index, found, TIMES, 0)
            reason = _reason(index, found, times, rules)
            end_ms, expired = self._end(record, place)
            kept = _kept(record, found, place, end_ms)
            row = record.key, record.value, record.timestamp
            reason = expired or reason
            if reason is None:
                draw = _draw(place, index, times, put.now_ms) if rules.jitter else 0.0
                again.append((*row, _redelivered(index, found, kept, times, rules, draw)))
                continue
            refused += reason.startswith(NOT_RETRYABLE)
            where, made = _dead_letters(group, rules)
            headers = [header for header in kept if header[0] not in DELAYS and header[0] not in CARRIED]
            headers += _of_dead_letter(found, group, where)
            headers += [(TIMES, b"%d" % times), (REASON, reason.encode())]
            given_up.setdefault((where, made), []).append((*row, tuple(headers)))
        dead: list[Redirected] = []
        for (where, made), rows in given_up.items():
            letters = yield from build_in_slices(rows)
            dead.append(Redirected(where, 0, letters, configs=made))
        back = Nacked(group, tuple(places)) if places else None
        kept_batch = (yield from build_in_slices(again)) if again else None

        def appended(_: tuple[Place, ...]) -> None:
            self.retried += len(again)
            self.dead_lettered += sum(map(len, given_up.values()))
            self.not_retryable += refused

        def holds() -> bool:
            return not any(self._was_nacked(group, *place) for place in places)

        return Redirect(kept_batch, tuple(dead), back, appended=appended, holds=holds)

    def _end(self, record: Record, place: Place | None) -> tuple[int | None, str | None]:
        """Until when the record is of use, Unix ms, or None: for ever; and why it is dead-lettered where that is over,
        or None."""
        if self.expiring is None:
            return None, None
        end_ms = self.expiring.end_ms(record, place)
        return end_ms, None if end_ms is None else self.expiring.why_dead(end_ms, record, place)

    def _rules_of_message(
        self, put: Put, group: str, index: int, found: dict[str, bytes | None], header: bytes
    ) -> Rules:
        """Raises BrokerError: the header cannot be read, or names a topic that the sender may not write to. Who gives
        the record up at once can do so all the same: the header may be that of whoever produced it."""
        of_group = self._policies.of(group)
        try:
            rules = self._policies.of_message(group, header)
            if rules.dead_letter_topic != of_group.dead_letter_topic:
                put.check("write", "topic", rules.dead_letter_topic)
        except (SettingError, BrokerError) as error:
            if _number(index, found, LEVEL, 0) < 0:
                return of_group
            if isinstance(error, BrokerError):
                raise
            raise BrokerError(Fault.INVALID_RECORD, f"record {index}: header {error}") from None
        return rules


def _reason(index: int, found: dict[str, bytes | None], times: int, rules: Rules) -> str | None:
    """Why the record is dead-lettered, or None. Raises BrokerError(INVALID_RECORD)."""
    if times >= _number(index, found, LIMIT, rules.max_attempts):
        return f"negatively acknowledged {times} times"
    level = _number(index, found, LEVEL, 0)
    if level < 0:
        return f"negatively acknowledged with {LEVEL}={level}"
    said = found.get(ERROR_CLASS)
    if said and rules.not_retryable:
        classes = [word.strip() for word in said.decode("utf-8", "replace").split(",", MAX_CLASSES)[:MAX_CLASSES]]
        pattern = rules.refuses(classes)
        if pattern is not None:
            return f"{NOT_RETRYABLE}: {classes[0]}" + (f" ({pattern})" if pattern != classes[0] else "")
    return None


def _kept(record: Record, found: dict[str, bytes | None], place: Place | None, end_ms: int | None) -> Headers:
    """The headers that stay, whatever becomes of the record. `end_ms`: until when it is of use."""
    kept = tuple(
        header
        for header in record.headers
        if header[0] not in _TAKEN_OFF and (header[0] == TTL or not header[0].startswith("halfmoon."))
    )
    if end_ms is not None:
        kept = (*kept, (EXPIRES, b"%d" % end_ms))
    if place is None:
        return kept
    said = {TOPIC: place[0].encode(), ORIGIN: f"{place[0]}/{place[1]}/{place[2]}".encode()}
    return (*kept, *((name, content) for name, content in said.items() if name not in found))


def _redelivered(
    index: int, found: dict[str, bytes | None], kept: Headers, times: int, rules: Rules, draw: float
) -> Headers:
    """The headers of a record that is to come again. Raises BrokerError(INVALID_RECORD)."""
    counted = (TIMES, b"%d" % (times + 1))
    if any(_is_zero(found.get(name)) for name in DELAYS[1:]):
        # At once. The header must not stay, or the next time would be at once too.
        return (*(header for header in kept if header[0] not in DELAYS), counted)
    if any(name in found for name in DELAYS) and not (LEVEL in found and _number(index, found, LEVEL, 0) == 0):
        return (*kept, counted)
    delay_ms = rules.delay_after(times, draw)
    delay = (LEVEL, b"%d" % (FIRST_LEVEL + times)) if delay_ms is None else (MILLISECONDS, b"%d" % delay_ms)
    return (*(header for header in kept if header[0] not in DELAYS), delay, counted)


def _dead_letters(group: str, rules: Rules) -> GivenUp:
    retention_ms = rules.dead_letter_retention_ms
    return rules.dead_letter_topic, () if retention_ms is None else ((RETENTION, str(retention_ms)),)


def _of_dead_letter(found: dict[str, bytes | None], group: str, where: str) -> Headers:
    """What the last negative acknowledgement said of the error, and whose dead letter it is."""
    said = tuple((name, found[name]) for name in (ERROR_CLASS, ERROR_MESSAGE) if name in found)
    return said if where == dead_letter_topic(group) else (*said, (GROUP, group.encode()))


def _draw(place: Place | None, index: int, times: int, now_ms: int) -> float:
    """From [0, 1), for the jitter: by what is handed back, so that nothing here depends on chance."""
    text = f"{place} {index} {times} {now_ms}".encode()
    return int.from_bytes(blake2b(text, digest_size=6).digest()) / (1 << 48)


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
