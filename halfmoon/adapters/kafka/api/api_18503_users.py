"""HalfmoonUsers (18503): users, for `halfmoon user`, as far as Kafka's APIs cannot say it.

Not advertised, as 18502. Version 0, request header 1, response header 0; both bodies are JSON. The fields are those of
services/credentials/questions.py:

    {"type": "create", "name": …, "passwords": […], "admin": …}   {"type": "passwords", "name": …, "passwords": […]}
    {"type": "flags", "name": …, "disabled": …, "admin": …}       {"type": "secret", "name": …, "secret": …}
    {"type": "delete", "name": …}   {"type": "describe", "name": …}   {"type": "list", "after": …}

    {}   {"users": […]}   {"fault": "RESOURCE_NOT_FOUND", "message": …}
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import msgspec

from halfmoon.adapters.kafka.registry import Context
from halfmoon.adapters.tcp.access import CLUSTER
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.credentials.users import Users

if TYPE_CHECKING:
    from halfmoon.services.credentials.questions import Question

KEY = 18503


@cache
def _decoder() -> msgspec.json.Decoder[Question]:
    from halfmoon.services.credentials.questions import Question  # 5 ms of each start, and few ask

    return msgspec.json.Decoder(Question)


def handle(ctx: Context, body: memoryview) -> object:
    from halfmoon.services.credentials.answering import answer, changes  # as above

    try:
        question = _decoder().decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        return _refused(BrokerError(Fault.INVALID_REQUEST, str(error)))
    try:
        ctx.check("alter" if changes(question) else "describe", "cluster", CLUSTER)
    except BrokerError as error:
        return _refused(error)
    try:
        said = msgspec.json.encode(answer(ctx.services.get(Users), question))
    except BrokerError as error:
        said = _refused(error)
    # As every answer that tells how something is: once that is durable (docs/decisions/0131).
    return ctx.after(ctx.core.turn.state_position, said, _refused)


def _refused(error: Exception) -> bytes:
    from halfmoon.services.credentials.questions import Answer  # as above

    fault = error.fault if isinstance(error, BrokerError) else Fault.UNKNOWN_SERVER_ERROR
    return msgspec.json.encode(Answer(fault=fault.name, message=str(error)))
