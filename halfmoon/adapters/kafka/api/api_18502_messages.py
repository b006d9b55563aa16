"""HalfmoonMessages (18502, "HF"): messages by a key or a place, and what became of one. For `halfmoon message`.

Kafka has no such API, so this is one of our own, on the same port. It is not advertised: clients conclude from the APIs
of a broker which Kafka it is. Version 0, request header 1, response header 0; both bodies are JSON, bytes in it base64:

    {"type": "find", "topic": …, "key": …, "from_ms": …, "to_ms": …, "most": …, "ended": …}
    {"type": "show", "topic": …, "partition": …, "offset": …}

    {"results": {…}}   {"shown": {…}}   {"fault": "OFFSET_OUT_OF_RANGE", "message": …}

The fields are those of core/messages.py.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from halfmoon.adapters.kafka.registry import Context, Deferred, api
from halfmoon.core.errors import BrokerError, Fault
from halfmoon.core.messages import Answer, Find, Results, Show, Shown, Steps

KEY = 18502

log = logging.getLogger("halfmoon.kafka")
_question = msgspec.json.Decoder(Find | Show)


@api(KEY, "HalfmoonMessages", 0, 0, raw=True, own=True)
def handle(ctx: Context, body: memoryview) -> object:
    try:
        question = _question.decode(body)
    except msgspec.DecodeError as error:
        return _refused(BrokerError(Fault.INVALID_REQUEST, str(error)))
    deferred = Deferred()
    _advance(ctx, ctx.broker.messages.ask(question), deferred, None)
    return deferred


def _advance(ctx: Context, steps: Steps[Results | Shown], deferred: Deferred, value: object) -> None:
    """Go on with the next step in a thread, or answer."""
    try:
        load = steps.send(value)
    except StopIteration as done:
        deferred.complete(_encode(done.value))
    except BrokerError as error:
        deferred.complete(_refused(error))
    except Exception as error:
        deferred.complete(_failed(error))
    else:
        ctx.peer.in_thread(load, lambda result, error: _loaded(ctx, steps, deferred, result, error))


def _loaded(
    ctx: Context, steps: Steps[Results | Shown], deferred: Deferred, result: object, error: BaseException | None
) -> None:
    if error is None:
        _advance(ctx, steps, deferred, result)
        return
    steps.close()
    deferred.complete(_refused(error) if isinstance(error, BrokerError) else _failed(error))


def _encode(found: Results | Shown) -> bytes:
    answer = Answer(shown=found) if isinstance(found, Shown) else Answer(results=found)
    return msgspec.json.encode(answer)


def _refused(error: BrokerError) -> bytes:
    return msgspec.json.encode(Answer(fault=error.fault.name, message=error.message))


def _failed(error: Any) -> bytes:
    log.error("event=message_search_failed", exc_info=error)
    return _refused(BrokerError(Fault.UNKNOWN_SERVER_ERROR, "looking for messages failed; the broker's log says why"))
