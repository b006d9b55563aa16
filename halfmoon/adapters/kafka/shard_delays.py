"""HalfmoonDelays where several shards share the topics: a client asks any process, and goes from shard to shard.

Scheduled messages wait in the shard of the partition that they go to. A question about a selection is answered by one
shard, which its cursor names, and the answer's cursor leads to the next one. Ids name their shards themselves.

A question may come twice (decision 0166). What is changed already is not met again: those messages do not wait at their
old places any more. A reschedule of a selection begins with a question that only says how far the log goes, so that no
later one takes in what an earlier one has written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from halfmoon.adapters.kafka.api import api_18506_delays as delays
from halfmoon.adapters.kafka.guards import Handler
from halfmoon.adapters.kafka.registry import Context, Deferred
from halfmoon.adapters.kafka.shard_asking import AllShards
from halfmoon.adapters.kafka.shards import Homes, at
from halfmoon.adapters.tcp.delays import refused, tell_changes
from halfmoon.cluster.messages import AskDelays, DelaysFound
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.delays.paging import together
from halfmoon.services.delays.questions import (
    Answer,
    Cancel,
    Changed,
    Counted,
    Cursor,
    Listed,
    Question,
    Reschedule,
    parse_id,
)

_answer = msgspec.json.Decoder(Answer)


def ask(homes: Homes, _response: Any, _handler: Handler, ctx: Context, body: memoryview) -> object:
    try:
        question = delays.asked(ctx, body)
        return _Asking(homes, ctx).ask(question)
    except BrokerError as error:
        return refused(error)


class _Asking:
    """On behalf of one request."""

    def __init__(self, homes: Homes, ctx: Context) -> None:
        self._deferred = Deferred()
        self._ctx = ctx
        self._homes = {}
        for home in homes.all():
            state = home.core.catalog.shard
            if state is not None:
                self._homes[state.number] = home
        self._shards = ctx.services.get(AllShards)

    def ask(self, question: Question) -> Deferred:
        """Raises BrokerError."""
        if isinstance(question, (Cancel, Reschedule)) and question.selection is None:
            self._by_ids(question)
        else:
            self._stretch(question)
        return self._deferred

    def _stretch(self, question: Question) -> None:
        cursor = question.next or Cursor(0)
        if not 0 <= cursor.shard < self._shards.count:
            raise BrokerError(Fault.INVALID_REQUEST, f"there is no shard {cursor.shard}")
        following = Cursor(cursor.shard + 1) if cursor.shard + 1 < self._shards.count else None

        def told(answer: Answer) -> None:
            self._end(_going_on(answer, following) if following is not None else answer)

        self._one(cursor.shard, replace(question, next=cursor), told)

    def _by_ids(self, question: Cancel | Reschedule) -> None:
        """Raises BrokerError."""
        by_shard: dict[int, list[str]] = {}
        found: list[Changed] = []
        for text in question.ids:
            place = parse_id(text)
            if place is None:
                raise BrokerError(Fault.INVALID_REQUEST, f"{text!r} is no id of a scheduled message")
            by_shard.setdefault(place.shard, []).append(text)
        for shard in [each for each in by_shard if each >= self._shards.count]:
            found.append(Changed(0, tuple(by_shard.pop(shard))))
        if not by_shard:
            by_shard[0] = []  # which says what is wrong with a question without ids, or with its times
        self._each(question, sorted(by_shard.items()), found)

    def _each(self, question: Cancel | Reschedule, left: list[tuple[int, list[str]]], found: list[Changed]) -> None:
        """Ask these shards one after the other."""
        if not left:
            self._end(Answer(changed=together(found)))
            return
        (shard, ids), *others = left

        def told(answer: Answer) -> None:
            if answer.changed is None:
                done = together(found)
                if done.count:
                    answer = replace(answer, message=f"{answer.message} ({done.count} messages are changed already)")
                self._end(answer)
                return
            found.append(answer.changed)
            self._each(question, others, found)

        self._one(shard, replace(question, ids=tuple(ids)), told)

    def _one(self, shard: int, question: Question, told: Callable[[Answer], None]) -> None:
        home = self._homes.get(shard)

        def decoded(answer: object, error: BaseException | None) -> None:
            if not isinstance(answer, Answer):
                answer = _fault(BrokerError(Fault.UNKNOWN_SERVER_ERROR, f"shard {shard} has not answered: {error}"))
            if home is None:
                tell_changes(question, answer, self._ctx.rights)
            told(answer)

        def answered(answer: object) -> None:
            if isinstance(answer, BrokerError):
                away = answer.fault is Fault.NOT_LEADER_OR_FOLLOWER
                said = "cannot be reached now: ask again" if away else f"has refused: {answer.message}"
                told(_fault(BrokerError(answer.fault, f"shard {shard} {said}")))
                return
            body = answer.body if isinstance(answer, DelaysFound) else answer
            self._ctx.peer.in_thread(lambda: _answer.decode(body), decoded)  # type: ignore[arg-type]

        if home is not None:
            ask_here(at(home, self._ctx), question, answered)
            return
        peer = self._ctx.peer
        body = msgspec.json.encode(question)
        self._shards.asking.ask(shard, AskDelays(body, str(peer.principal), peer.peer_host), answered)

    def _end(self, answer: Answer) -> None:
        encoded = msgspec.json.encode(answer)
        # Counted as what a fetch has loaded, as in api_18506_delays.
        counted = self._ctx.core.fetch_buffers.take(len(encoded))
        counted[:] = encoded
        self._deferred.complete([counted])


def _going_on(answer: Answer, following: Cursor) -> Answer:
    """The same, with the next shard behind its last stretch."""

    def led(part: Listed | Counted | Changed | None) -> Any:
        return part if part is None or part.next is not None else replace(part, next=following)

    return replace(
        answer, listed=led(answer.listed), counted=led(answer.counted), changed=led(answer.changed)
    )  # fmt: skip


def _fault(error: BrokerError) -> Answer:
    return Answer(fault=error.fault.name, message=error.message)


def ask_here(ctx: Context, question: Question, told: Callable[[bytes], None]) -> None:
    """Ask the shard of this context; `told` its answer, as JSON."""
    delays.answer(ctx, question).then(
        lambda made: told(b"".join(made) if isinstance(made, list) else bytes(made))  # type: ignore[call-overload]
    )
