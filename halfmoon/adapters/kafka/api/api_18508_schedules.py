"""HalfmoonSchedules (18508): recurring messages, for `halfmoon schedule`.

Not advertised, as 18502. Version 0, request header 1, response header 0; both bodies are JSON, bytes in it base64. The
fields are those of hooks/schedules.py:

    {"type": "create", "topic": …, "name": …, "cron": …, "zone": …, "key": …, "value": …, "headers": [[…, …]], …}
    {"type": "change", "topic": …, "name": …, "to": "paused" | "active" | "cancelled"}
    {"type": "list", "topic": …, "name": …, "times": …, "after": …, "most": …}

    {"schedules": […], "more": …}   {"fault": "RESOURCE_NOT_FOUND", "message": …}

It needs plugins.schedule. Who may do what: halfmoon/plugins/store/schedule/answering.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from halfmoon.adapters.kafka.registry import Context, Deferred
from halfmoon.adapters.tcp.access import check
from halfmoon.errors import BrokerError, Fault
from halfmoon.hooks.schedules import Answer, Asker, ChangeSchedule, CreateSchedule, Question, Schedules

if TYPE_CHECKING:
    from halfmoon.adapters.tcp.access import Rights
    from halfmoon.adapters.tcp.core import Core
    from halfmoon.services.common.services import Services

KEY = 18508


@cache
def decoder() -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(Question)


def handle(ctx: Context, body: memoryview) -> object:
    try:
        question = asked(ctx, body)
    except BrokerError as error:
        return refused(error)
    deferred = Deferred()
    asker = asker_of(str(ctx.peer.principal), ctx.peer.peer_host, ctx.rights)
    answer_here(ctx.core, ctx.services, question, asker, lambda answer: deferred.complete(encoded(answer)))
    return deferred


def asked(ctx: Context, body: memoryview) -> Question:
    """The question of a client who may ask it; a schedule that it makes has its partition. Raises BrokerError."""
    try:
        question: Question = decoder().decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BrokerError(Fault.INVALID_REQUEST, str(error)) from None
    if isinstance(question, ChangeSchedule):
        ctx.check_either(("alter", "topic", question.topic), ("write", "topic", question.topic))
    elif isinstance(question, CreateSchedule):
        ctx.check("write", "topic", question.topic)
        topic = ctx.core.catalog.topic(question.topic)
        if topic is None:
            raise BrokerError(Fault.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{question.topic}'")
        partition = question.partition_among(len(topic.partitions))
        if partition >= len(topic.partitions):
            raise BrokerError(
                Fault.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{topic.name}' has {len(topic.partitions)} partitions"
            )
        question = replace(question, partition=partition)
    return question


def asker_of(principal: str, host: str, rights: Rights | None) -> Asker:
    def allows(operation: str, topic: str) -> bool:
        return rights is None or rights.allows((operation, "topic", topic))

    def demands(operation: str, topic: str) -> None:
        if rights is not None:
            check(rights, (operation, "topic", topic))

    return Asker(principal, host, allows, demands)


def answer_here(
    core: Core, services: Services, question: Question, asker: Asker, told: Callable[[Answer], None]
) -> None:
    """Ask this log; `told` its answer once all that it rests on is durable (docs/decisions/0131)."""
    schedules = services.find(Schedules)
    if schedules is None:
        told(fault(BrokerError(Fault.UNSUPPORTED_VERSION, "plugins.schedule is off")))
        return

    def ask() -> None:
        try:
            answer = schedules.ask(question, asker)
        except BrokerError as error:
            told(fault(error))
            return
        core.when_durable(core.log.end, lambda error: told(answer if error is None else fault(error)))

    schedules.when_ready(ask)


def fault(error: BrokerError) -> Answer:
    return Answer(fault=error.fault.name, message=error.message)


def in_another(schedule_id: str) -> Answer:
    return fault(BrokerError(Fault.INVALID_RECORD, f"there is {schedule_id}, in another partition: cancel that first"))


def encoded(answer: Answer) -> bytes:
    return msgspec.json.encode(answer)


def refused(error: BrokerError) -> bytes:
    return encoded(fault(error))
