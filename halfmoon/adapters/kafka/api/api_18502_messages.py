"""HalfmoonMessages (18502, "HF"): messages by a key or a place, and what became of one. For `halfmoon message`.

Kafka has no such API, so this is one of our own, on the same port. It is not advertised: clients conclude from the APIs
of a broker which Kafka it is. Version 0, request header 1, response header 0; both bodies are JSON, bytes in it base64:

    {"type": "find", "topic": …, "key": …, "from_ms": …, "to_ms": …, "most": …, "ended": …}
    {"type": "show", "topic": …, "partition": …, "offset": …}

    {"results": {…}}   {"shown": {…}}   {"fault": "OFFSET_OUT_OF_RANGE", "message": …}

The fields are those of services/keyindex/questions.py.
"""

from __future__ import annotations

import logging

import msgspec

from halfmoon.adapters.kafka.registry import Context, Deferred, api
from halfmoon.adapters.tcp.steps import run_steps
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.keyindex.messages import Messages
from halfmoon.services.keyindex.questions import Answer, Find, Results, Show, Shown

KEY = 18502

log = logging.getLogger("halfmoon.kafka")
_question = msgspec.json.Decoder(Find | Show)


@api(KEY, "HalfmoonMessages", 0, 0, raw=True, own=True, service=Messages)
def handle(ctx: Context, body: memoryview) -> object:
    try:
        question = _question.decode(body)
    except msgspec.DecodeError as error:
        return _refused(BrokerError(Fault.INVALID_REQUEST, str(error)))
    try:
        ctx.check("read", "topic", question.topic)
    except BrokerError as error:
        return _refused(error)
    deferred = Deferred()

    def failed(error: Exception) -> None:
        deferred.complete(_refused(error) if isinstance(error, BrokerError) else _failed(error))

    steps = ctx.services.get(Messages).ask(question)
    run_steps(steps, ctx.peer.in_thread, lambda found: deferred.complete(_encode(found)), failed)
    return deferred


def _encode(found: Results | Shown) -> bytes:
    answer = Answer(shown=found) if isinstance(found, Shown) else Answer(results=found)
    return msgspec.json.encode(answer)


def _refused(error: BrokerError) -> bytes:
    return msgspec.json.encode(Answer(fault=error.fault.name, message=error.message))


def _failed(error: Exception) -> bytes:
    if isinstance(error, OSError):
        log.error("event=message_search_failed error=%s", error)
        return _refused(BrokerError(Fault.KAFKA_STORAGE_ERROR, f"the log cannot be read now: {error}"))
    log.error("event=message_search_failed", exc_info=error)
    return _refused(BrokerError(Fault.UNKNOWN_SERVER_ERROR, "the search failed; see the broker's log"))
