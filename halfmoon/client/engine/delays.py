"""What waits, asked of Halfmoon's brokers: scheduled messages listed, counted, cancelled and rescheduled.

A broker of RocketMQ's protocol tells of its own shard alone, so all are asked: those that have queues of the topic,
where one is named, else all that the name service knows. The latter takes Describe on the cluster, where there are
access rules.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

import msgspec

from halfmoon.client.engine.instance import Instance
from halfmoon.client.engine.routes import MASTER
from halfmoon.client.errors import BrokerRefusedError, ConfigError, RouteError
from halfmoon.remoting.codes import Code, RequestCode
from halfmoon.services.delays import paging
from halfmoon.services.delays.paging import Asking
from halfmoon.services.delays.questions import (
    Answer,
    Cancel,
    Changed,
    Kind,
    Question,
    Reschedule,
    ScheduledCount,
    ScheduledMessage,
    Selection,
    parse_id,
)

TIMEOUT_MS = 30_000
RETRY_PREFIX = "%RETRY%"
WILD = frozenset("*?[")

Result = TypeVar("Result")
Broker = tuple[str, str]
"""Its name, and its address."""


class DelayQueries:
    """Of one client."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    async def first(
        self, selection: Selection, most: int, after: ScheduledMessage | None
    ) -> list[ScheduledMessage]:  # fmt: skip
        """Up to `most` messages, those that are due first; behind `after`. Raises ClientError."""
        if most < 1:
            raise ConfigError(f"most is {most}, expected at least 1")
        found: list[ScheduledMessage] = []
        for broker in await self._brokers(selection):
            messages, _ = await self._run(broker, paging.page(selection, most, after))
            found = sorted([*found, *messages], key=paging.order)[:most]
        return found

    async def count(self, selection: Selection) -> list[ScheduledCount]:
        """By kind and topic. Raises ClientError."""
        counts = [await self._run(broker, paging.count(selection)) for broker in await self._brokers(selection)]
        return paging.added(counts)

    async def change(self, question: Cancel | Reschedule, ids: Collection[str]) -> Changed:
        """Cancel or reschedule what is selected, or these. Raises ClientError; what some brokers have changed by then
        is changed."""
        for text in ids:
            if parse_id(text) is None:
                raise ConfigError(f"{text!r} is no id of a scheduled message")
        unique = list(dict.fromkeys(ids))
        brokers = await self._brokers(question.selection or Selection())
        answers = [await self._run(broker, paging.change(question, unique)) for broker in brokers]
        changed = paging.together(answers)
        # An id belongs to one of the brokers; to the others nothing waits there.
        missing = [each for each in unique if all(each in answer.missing for answer in answers)]
        return msgspec.structs.replace(changed, missing=tuple(missing))

    async def _run(self, broker: Broker, asking: Asking[Result]) -> Result:
        """Raises ClientError."""
        try:
            question = next(asking)
            while True:
                question = asking.send(await self._ask(broker, question))
        except StopIteration as done:
            result: Result = done.value
            return result
        except (paging.UnexpectedAnswerError, msgspec.MsgspecError) as error:
            raise BrokerRefusedError(Code.SUCCESS, f"an unreadable answer: {error}", broker[0]) from None

    async def _ask(self, broker: Broker, question: Question) -> Answer:
        name, address = broker
        answer = await self._instance.network.request(
            address, RequestCode.HALFMOON_DELAYS, {"bname": name}, msgspec.json.encode(question), timeout_ms=TIMEOUT_MS
        )
        if answer.code != Code.SUCCESS:
            raise BrokerRefusedError(answer.code, answer.remark, name)
        return msgspec.json.decode(bytes(answer.body), type=Answer)

    async def _brokers(self, selection: Selection) -> Sequence[Broker]:
        topic = selection.topic
        if selection.group is not None and topic is None and WILD.isdisjoint(selection.group):
            topic = RETRY_PREFIX + selection.group
        if topic is not None and WILD.isdisjoint(topic):
            route = await self._instance.routes.ask(topic)
            return _masters(route.brokers)
        return _masters(await self._instance.routes.all_brokers())


def _masters(brokers: Mapping[str, Mapping[int, str]]) -> Sequence[Broker]:
    """Raises RouteError where one has none."""
    found = [(name, nodes[MASTER]) for name, nodes in sorted(brokers.items()) if MASTER in nodes]
    if not found:
        raise RouteError("no broker can be reached now")
    return found


def chosen(
    topic: str | None,
    group: str | None,
    kind: str | None,
    due_after: float | None,
    due_before: float | None,
) -> Selection:
    """Times are Unix seconds. Raises ConfigError."""
    known: Mapping[str | None, Kind | None] = {None: None, "delay": "delay", "redelivery": "redelivery"}
    if kind not in known:
        raise ConfigError(f"kind is {kind!r}, expected 'delay' or 'redelivery'")
    return Selection(topic, group, known[kind], _ms(due_after), _ms(due_before))


def of_ids_or(ids: Collection[str], selection: Selection, *, every: bool) -> Selection | None:
    """None: it is about the ids. Raises ConfigError where it is not clear which messages are meant."""
    if isinstance(ids, str):
        raise ConfigError(f"ids is {ids!r}, expected a list of them")
    given = [bool(ids), selection != Selection(), every]
    if sum(given) != 1:
        raise ConfigError("expected one of ids, what selects messages, and every=True")
    return None if ids else selection


def rescheduling(
    selection: Selection | None, in_seconds: float | None, at: float | None, by_seconds: float | None
) -> Reschedule:
    """Raises ConfigError unless one of the times is given."""
    if [in_seconds, at, by_seconds].count(None) != 2:
        raise ConfigError("expected one of in_seconds, at and by_seconds")
    return Reschedule((), selection, _ms(at), _ms(in_seconds), _ms(by_seconds))


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e3)
