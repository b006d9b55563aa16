"""HalfmoonDelays (18506, "HJ"): scheduled messages listed, counted, cancelled and rescheduled, for `halfmoon delay`.

Not advertised, as 18502. Version 0, request header 1, response header 0; both bodies are JSON, bytes in it base64. The
fields are those of services/delays/questions.py:

    {"type": "list", "selection": {"topic": …, "group": …, "kind": …, "due_before_ms": …}, "most": …, "after": …}
    {"type": "count", "selection": {…}}   {"type": "cancel", "selection": {…}}   {"type": "cancel", "ids": […]}
    {"type": "reschedule", "ids": […], "in_ms": …}

    {"listed": {"messages": […], "next": {…}}}   {"counted": {…}}   {"changed": {…}}   {"fault": …, "message": …}

A question is answered for a stretch of what waits: ask again with `next` until there is none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from halfmoon.adapters.kafka.registry import Context, Deferred
from halfmoon.adapters.tcp import delays
from halfmoon.adapters.tcp.steps import run_steps
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.delays.frames import READ_BYTES
from halfmoon.services.delays.questions import Question
from halfmoon.services.delays.service import Delays

KEY = 18506

log = logging.getLogger("halfmoon.kafka")


def handle(ctx: Context, body: memoryview) -> object:
    try:
        return answer(ctx, asked(ctx, body))
    except BrokerError as error:
        return delays.refused(error)


def asked(ctx: Context, body: memoryview) -> Question:
    """The question of a client, who may ask it. Raises BrokerError."""
    question = delays.decoded(body)
    delays.check_named(question, ctx.rights)
    return question


def answer(ctx: Context, question: Question) -> Deferred:
    """What this log knows. Completes with a list of one buffer, or with bytes that say what is wrong."""
    deferred = Deferred()
    buffers = ctx.core.fetch_buffers

    def in_thread(work: Callable[[], object], then: Callable[[object, BaseException | None], None]) -> None:
        ctx.peer.load(READ_BYTES, work, then)

    def answered(encoded: bytes) -> None:
        def durable(error: BrokerError | None) -> None:
            if error is not None:
                deferred.complete(delays.refused(error))
                return
            # As what a fetch has loaded: so that nobody fills the memory with answers that he does not read.
            counted = buffers.take(len(encoded))
            counted[:] = encoded
            deferred.complete([counted])

        ctx.core.when_durable(ctx.core.log.end, durable)

    def failed(error: Exception) -> None:
        deferred.complete(delays.refused(error if isinstance(error, BrokerError) else _failed(error)))

    steps = delays.worked_out(ctx.services.find(Delays), question, ctx.rights)
    run_steps(steps, in_thread, answered, failed, ctx.peer.soon)
    return deferred


def _failed(error: Exception) -> BrokerError:
    if isinstance(error, OSError):
        log.error("event=scheduled_messages_failed error=%s", error)
        return BrokerError(Fault.KAFKA_STORAGE_ERROR, f"the log cannot be read now: {error}")
    log.error("event=scheduled_messages_failed", exc_info=error)
    return BrokerError(Fault.UNKNOWN_SERVER_ERROR, "the question failed; see the broker's log")
