"""HalfmoonMessages (18502, "HF"): messages by a key or a place, and what became of one, for `halfmoon message`; what
groups have negatively acknowledged, for `halfmoon dlq`.

Kafka has no such API, so this is one of our own, on the same port. It is not advertised: clients conclude from the APIs
of a broker which Kafka it is. Version 0, request header 1, response header 0; both bodies are JSON, bytes in it base64:

    {"type": "find", "topic": …, "key": …, "from_ms": …, "to_ms": …, "most": …, "ended": …}
    {"type": "show", "topic": …, "partition": …, "offset": …}
    {"type": "nacked", "topics": […]}

    {"results": {…}}   {"shown": {…}}   {"nacked": […]}   {"fault": "OFFSET_OUT_OF_RANGE", "message": …}

The fields are those of services/keyindex/questions.py. The first two need services.keyindex, the third plugins.retry.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from halfmoon.adapters.kafka.registry import Context, Deferred
from halfmoon.adapters.tcp.access import sees
from halfmoon.adapters.tcp.steps import run_steps
from halfmoon.core.steps import Steps
from halfmoon.errors import BrokerError, Fault
from halfmoon.hooks.features import NackedMessages
from halfmoon.services.keyindex.messages import MOST_BYTES, Messages
from halfmoon.services.keyindex.questions import Answer, Find, Nacked, NackedOffsets, Show, Shown, Trace

KEY = 18502

log = logging.getLogger("halfmoon.kafka")
_question = msgspec.json.Decoder(Find | Show | Nacked)


def handle(ctx: Context, body: memoryview) -> object:
    try:
        return answer(ctx, asked(ctx, body))
    except BrokerError as error:
        return refused(error)


def asked(ctx: Context, body: memoryview) -> Find | Show | Nacked:
    """The question of a client, who may ask it. Raises BrokerError."""
    try:
        question: Find | Show | Nacked = _question.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BrokerError(Fault.INVALID_REQUEST, str(error)) from None
    if isinstance(question, Nacked):
        for topic in question.topics:
            ctx.check("describe", "topic", topic)
    else:
        # Where a message is may be told; a search by key would tell what is in it.
        reads = isinstance(question, Find) or ctx.allows("read", "topic", question.topic)
        ctx.check("read" if reads else "describe", "topic", question.topic)
    return question


def answer(ctx: Context, question: Find | Show | Nacked | Trace) -> object:
    """What this log knows. Raises BrokerError."""
    steps = _nacked(ctx, question) if isinstance(question, Nacked) else _messages(ctx, question)
    deferred = Deferred()
    buffers = ctx.core.fetch_buffers

    def in_thread(work: Callable[[], object], then: Callable[[object, BaseException | None], None]) -> None:
        ctx.peer.load(MOST_BYTES, work, then)

    def answered(answer: bytes) -> None:
        # As what a fetch has loaded: so that nobody fills the memory with answers that he does not read.
        counted = buffers.take(len(answer))
        counted[:] = answer
        deferred.complete([counted])

    def failed(error: Exception) -> None:
        deferred.complete(refused(error) if isinstance(error, BrokerError) else _failed(error))

    run_steps(steps, in_thread, answered, failed)
    return deferred


def _messages(ctx: Context, question: Find | Show | Trace) -> Steps[bytes]:
    """Raises BrokerError."""
    messages = ctx.services.find(Messages)
    if messages is None:
        raise BrokerError(Fault.UNSUPPORTED_VERSION, "services.keyindex is off")

    def describes(kind: str, name: str) -> bool:
        return ctx.allows("describe", kind, name)

    def answer() -> Steps[bytes]:
        if isinstance(question, Trace):
            return msgspec.json.encode(Answer(traced=(yield from messages.trace(question, describes))))
        found = yield from messages.ask(
            question,
            describes,
            reads=ctx.allows("read", "topic", question.topic),
            sees=lambda found: sees(ctx.rights, found.topic, found.headers),
        )
        return msgspec.json.encode(Answer(shown=found) if isinstance(found, Shown) else Answer(results=found))

    return answer()


def _nacked(ctx: Context, question: Nacked) -> Steps[bytes]:
    """Raises BrokerError."""
    nacked = ctx.services.find(NackedMessages)
    if nacked is None:
        raise BrokerError(Fault.UNSUPPORTED_VERSION, "plugins.retry is off")
    work_out = nacked.of_topics(question.topics)

    def answer() -> Steps[bytes]:
        rows = yield work_out
        mine = [NackedOffsets(group, *rest) for group, *rest in rows if ctx.allows("describe", "group", group)]
        encoded: bytes = yield lambda: msgspec.json.encode(Answer(nacked=tuple(mine)))
        return encoded

    return answer()


def refused(error: BrokerError) -> bytes:
    return msgspec.json.encode(Answer(fault=error.fault.name, message=error.message))


def _failed(error: Exception) -> bytes:
    if isinstance(error, OSError):
        log.error("event=message_search_failed error=%s", error)
        return refused(BrokerError(Fault.KAFKA_STORAGE_ERROR, f"the log cannot be read now: {error}"))
    log.error("event=message_search_failed", exc_info=error)
    return refused(BrokerError(Fault.UNKNOWN_SERVER_ERROR, "the search failed; see the broker's log"))
