"""HalfmoonSecurity (18504): why somebody may do something, for `halfmoon acl check`, and certificates read anew, for
`halfmoon tls reload`.

Not advertised, as 18502. Version 0, request header 1, response header 0; both bodies are JSON. The fields are those of
services/security.py:

    {"type": "decide", "principal": …, "host": …, "operation": …, "resource_type": …, "name": …}
    {"type": "reload_tls"}

    {"decided": {"allowed": …, "reason": …, "rule": …}}   {"listeners": […]}
    {"fault": "INVALID_REQUEST", "message": …}
"""

from __future__ import annotations

import msgspec

from halfmoon.adapters.kafka.registry import Context
from halfmoon.adapters.tcp.access import CLUSTER
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.security import Answer, Decide, Question, SecurityAnswers

KEY = 18504

_question: msgspec.json.Decoder[Question] = msgspec.json.Decoder(Question)


def handle(ctx: Context, body: memoryview) -> object:
    answers = ctx.services.get(SecurityAnswers)
    try:
        question = _question.decode(body)
        if isinstance(question, Decide):
            ctx.check("describe", "cluster", CLUSTER)
            said = Answer(decided=answers.decide(question))
        else:
            ctx.check("alter", "cluster", CLUSTER)
            said = Answer(listeners=answers.reload_tls())
    except (msgspec.DecodeError, RecursionError) as error:
        return _refused(BrokerError(Fault.INVALID_REQUEST, str(error)))
    except BrokerError as error:
        return _refused(error)
    # As every answer that tells how something is: once that is durable (docs/decisions/0131).
    return ctx.after(ctx.core.turn.state_position, msgspec.json.encode(said), _refused)


def _refused(error: Exception) -> bytes:
    fault = error.fault if isinstance(error, BrokerError) else Fault.UNKNOWN_SERVER_ERROR
    return msgspec.json.encode(Answer(fault=fault.name, message=str(error)))
