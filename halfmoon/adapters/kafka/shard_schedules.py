"""HalfmoonSchedules where several shards share the topics: a schedule is in the shard of its partition.

Those of a topic are asked for in the shards that it lies in, all of them in every shard. If one of the shards cannot be
reached there is no answer: one that lacks schedules without saying so would be worse. What has been changed in the
others by then is changed; whoever asks again changes the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from halfmoon.adapters.kafka.api import api_18508_schedules as schedules
from halfmoon.adapters.kafka.guards import Handler
from halfmoon.adapters.kafka.registry import Context
from halfmoon.adapters.kafka.shard_asking import AllShards, Answers
from halfmoon.adapters.kafka.shards import Homes, after_all
from halfmoon.cluster.asking import error_in
from halfmoon.cluster.messages import AskSchedules, SchedulesFound
from halfmoon.errors import BrokerError, Fault
from halfmoon.hooks.schedules import Answer, ChangeSchedule, CreateSchedule, ListSchedules, Question

_answer = msgspec.json.Decoder(Answer)
_NOT_FOUND = Fault.RESOURCE_NOT_FOUND.name


def ask(_homes: Homes, _response: Any, _handler: Handler, ctx: Context, body: memoryview) -> object:
    try:
        question = schedules.asked(ctx, body)
    except BrokerError as error:
        return schedules.refused(error)
    if isinstance(question, ListSchedules):
        return _ask(ctx, question, lambda found: schedules.encoded(_listed(question, found)))
    if isinstance(question, ChangeSchedule):
        return _ask(ctx, question, lambda found: schedules.encoded(_changed(found)))
    return _create(ctx, question)


def _create(ctx: Context, question: CreateSchedule) -> object:
    """A name is one schedule's in a topic: who asks for it would else not know which one is meant."""
    topic = ctx.core.catalog.topic(question.topic)
    assert topic is not None, "it was looked for"
    home = ctx.services.get(AllShards).shard_of(topic.number, question.partition)

    def go_on(found: Mapping[int, Answer]) -> object:
        listed = _listed(ListSchedules(), found)
        others = [each for each in listed.schedules or () if each.partition != question.partition]
        if listed.fault or others:
            return schedules.encoded(listed if listed.fault else schedules.in_another(others[0].id))
        return _ask(ctx, question, lambda made: schedules.encoded(made[home]), [home])

    return after_all(
        [_ask(ctx, ListSchedules(question.topic, question.name, times=0), lambda found: found)], _first(go_on)
    )


def _first(go_on: Callable[[Mapping[int, Answer]], object]) -> Callable[[list[Any]], object]:
    return lambda values: go_on(values[0])


def _ask(
    ctx: Context, question: Question, then: Callable[[Mapping[int, Answer]], object], only: Iterable[int] | None = None
) -> object:
    """What `then` makes of the shards' answers, now or later."""
    shards = ctx.services.get(AllShards)
    peer = ctx.peer
    asked = AskSchedules(msgspec.json.encode(question), str(peer.principal), peer.peer_host)
    places = _places(ctx, shards, question.topic) if only is None else only

    def told(answers: Answers) -> object:
        return then({shard: _read(shard, answer) for shard, answer in answers.items()})

    return shards.ask(dict.fromkeys(places, asked), told)


def _places(ctx: Context, shards: AllShards, topic: str | None) -> list[int]:
    if topic is None:
        return list(range(shards.count))
    found = ctx.core.catalog.topic(topic)
    if found is None:
        return []
    return sorted({shards.shard_of(found.number, index) for index in range(len(found.partitions))} - {-1})


def _read(shard: int, answer: object) -> Answer:
    if isinstance(answer, SchedulesFound):
        return _answer.decode(answer.body)
    error = error_in(answer)
    if error.fault is Fault.NOT_LEADER_OR_FOLLOWER:
        error = BrokerError(error.fault, f"shard {shard} cannot be reached now: ask again")
    return schedules.fault(error)


def _listed(question: ListSchedules, found: Mapping[int, Answer]) -> Answer:
    """In the order of their ids. Where a shard has more than it says, nothing behind that is told."""
    for answer in found.values():
        if answer.fault:
            return answer
    rows = sorted((each for answer in found.values() for each in answer.schedules or ()), key=lambda each: each.id)
    ends = [max(each.id for each in answer.schedules) for answer in found.values() if answer.more and answer.schedules]
    kept = [each for each in rows if not ends or each.id <= min(ends)][: max(1, question.most)]
    return Answer(tuple(kept), more=len(kept) < len(rows) or bool(ends))


def _changed(found: Mapping[int, Answer]) -> Answer:
    for answer in found.values():
        if answer.fault and answer.fault != _NOT_FOUND:
            return answer
    rows = [each for answer in found.values() for each in answer.schedules or ()]
    if rows:
        return Answer(tuple(sorted(rows, key=lambda each: each.id)))
    missing = BrokerError(Fault.RESOURCE_NOT_FOUND, "there is no such topic")
    return next(iter(found.values()), schedules.fault(missing))
