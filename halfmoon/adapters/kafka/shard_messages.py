"""HalfmoonMessages where several shards share the topics: a client asks any process, and hears of all shards.

A search by key, and the one for what groups have negatively acknowledged, go to each shard. A message is shown by the
shard of its partition; each shard has topics of its own, which may have the same names: the first that has something
there shows it. Its history may go on in another one, that of a group which has handed it back, or begin there:
so all others are asked about the places at which it has stood.

Shards are asked one after the other: each answer may be 8 MiB, and so may all of them together. If one of them cannot
be reached there is no answer: one that lacks messages without saying so would be worse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import msgspec

from halfmoon.adapters.kafka.api import api_18502_messages as messages
from halfmoon.adapters.kafka.guards import Handler
from halfmoon.adapters.kafka.registry import Context, Deferred
from halfmoon.adapters.kafka.shard_asking import AllShards
from halfmoon.adapters.kafka.shards import Homes, at
from halfmoon.cluster.messages import AskMessages, MessagesFound
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.keyindex.history import HIDDEN, MOST_EVENTS
from halfmoon.services.keyindex.key_file import LAST_MS
from halfmoon.services.keyindex.messages import MOST_BYTES, MOST_FOUND
from halfmoon.services.keyindex.questions import Answer, Event, Find, Found, Nacked, Results, Show, Shown, Trace

_answer = msgspec.json.Decoder(Answer)

_NOT_HERE = (Fault.UNKNOWN_TOPIC_OR_PARTITION.name, Fault.OFFSET_OUT_OF_RANGE.name)

Question = Find | Show | Nacked | Trace


def ask(homes: Homes, _response: Any, _handler: Handler, ctx: Context, body: memoryview) -> object:
    try:
        question = messages.asked(ctx, body)
    except BrokerError as error:
        return messages.refused(error)
    asking = Asking(homes, ctx)
    if isinstance(question, Show):
        asking.show(question)
    else:
        asking.everywhere(question)
    return asking.deferred


class Asking:
    """On behalf of one request."""

    def __init__(self, homes: Homes, ctx: Context) -> None:
        self.deferred = Deferred()
        self._ctx = ctx
        self._homes = {}
        for home in homes.all():
            state = home.core.catalog.shard
            if state is not None:
                self._homes[state.number] = home
        self._shards = ctx.services.get(AllShards)

    def everywhere(self, question: Find | Nacked) -> None:
        def told(found: list[Answer]) -> None:
            if isinstance(question, Find):
                self._end(found[0])
            else:
                rows = chain.from_iterable(each.nacked or () for each in found)
                self._end(Answer(nacked=tuple(sorted(rows, key=lambda row: (row.group, row.topic, row.partition)))))

        self._each(question, list(range(self._shards.count)), [], told)

    def show(self, question: Show) -> None:
        topic = self._ctx.core.catalog.topic(question.topic)
        if question.shard is not None and 0 <= question.shard < self._shards.count:
            self._show(question, [question.shard])
            return
        if topic is None:
            self._show(question, list(range(self._shards.count)))
            return
        shard = self._shards.shard_of(topic.number, question.partition)
        self._show(question, [max(shard, 0)])  # which says that there is no such partition

    def _show(self, question: Show, shards: list[int]) -> None:
        """The message is in one of these shards."""
        shard, *others = shards

        def shown(answer: Answer) -> None:
            if answer.shown is not None:
                self._trace(question, shard, answer.shown.message)
            elif others and answer.fault in _NOT_HERE:
                self._show(question, others)
            else:
                self._end(answer)

        self._decoded(shard, question, shown)

    def _trace(self, question: Show, shard: int, message: Found) -> None:
        def traced(found: list[Answer]) -> None:
            own = found[0].traced
            assert own is not None
            others = [each for each in range(self._shards.count) if each != shard]
            self._each(Trace(own.places), others, found, told)

        def told(found: list[Answer]) -> None:
            events = in_time(each.traced.events for each in found if each.traced is not None)
            self._end(Answer(shown=Shown(message, events)))

        place = question.topic, question.partition, question.offset
        self._each(Trace((place,)), [shard], [], traced)

    def _each(
        self, question: Question, shards: list[int], found: list[Answer], told: Callable[[list[Answer]], None]
    ) -> None:
        """Ask these shards, too; hand all the answers over."""
        if not shards:
            told(found)
            return
        shard, *others = shards

        def decoded(answer: Answer) -> None:
            if answer.fault and not (isinstance(question, Find) and answer.fault in _NOT_HERE and (others or found)):
                self._end(answer)
                return
            if not answer.fault:  # else it is a topic that another shard has made for itself
                found.append(answer)
            if isinstance(question, Find):
                results = [each.results for each in found if each.results is not None]
                found[:] = [Answer(results=merged(results, question.most))] if results else []
            self._each(question, others, found, told)

        self._decoded(shard, question, decoded)

    def _decoded(self, shard: int, question: Question, told: Callable[[Answer], None]) -> None:
        def decoded(answer: object, error: BaseException | None) -> None:
            if not isinstance(answer, Answer):
                answer = _fault(BrokerError(Fault.UNKNOWN_SERVER_ERROR, f"shard {shard} has not answered: {error}"))
            told(answer)

        def answered(answer: object) -> None:
            if isinstance(answer, BrokerError):
                told(_fault(answer))
            else:
                self._ctx.peer.in_thread(lambda: _answer.decode(answer), decoded)  # type: ignore[arg-type]

        self._ask(shard, question, answered)

    def _ask(self, shard: int, question: Question, told: Callable[[object], None]) -> None:
        """`told` bytes, or a BrokerError."""
        home = self._homes.get(shard)
        if home is not None:
            ask_here(at(home, self._ctx), question, told)
            return
        peer = self._ctx.peer

        def answered(answer: object) -> None:
            if isinstance(answer, BrokerError):
                told(BrokerError(answer.fault, f"shard {shard} cannot be reached now: ask again"))
            else:
                assert isinstance(answer, MessagesFound)
                told(answer.body)

        body = msgspec.json.encode(question)
        self._shards.asking.ask(shard, AskMessages(body, str(peer.principal), peer.peer_host), answered)

    def _end(self, answer: Answer) -> None:
        encoded = msgspec.json.encode(answer)
        # Counted as what a fetch has loaded, as in api_18502_messages.
        counted = self._ctx.core.fetch_buffers.take(len(encoded))
        counted[:] = encoded
        self.deferred.complete([counted])


def _fault(error: BrokerError) -> Answer:
    return Answer(fault=error.fault.name, message=error.message)


def ask_here(ctx: Context, question: Question, told: Callable[[bytes], None]) -> None:
    """Ask the shard of this context; `told` its answer, as JSON."""
    try:
        answer = messages.answer(ctx, question)
    except BrokerError as error:
        told(messages.refused(error))
        return
    assert isinstance(answer, Deferred)
    answer.then(lambda made: told(b"".join(made) if isinstance(made, list) else bytes(made)))  # type: ignore[call-overload]


def merged(results: Iterable[Results], most: int) -> Results:
    """Of several shards, the newest first. Where one has more than it says, nothing older than that is told."""
    results = list(results)
    cut = [each.messages[-1].store_ms for each in results if each.more and each.messages]
    oldest = max(cut, default=-1)
    all_found = sorted(
        (found for each in results for found in each.messages), key=lambda found: found.store_ms, reverse=True
    )
    kept: list[Found] = []
    size = 0
    for found in all_found:
        size += _size(found)
        if found.store_ms < oldest or len(kept) == min(most, MOST_FOUND) or (kept and size > MOST_BYTES):
            break
        kept.append(found)
    more = len(kept) < len(all_found) or any(each.more for each in results)
    return Results(tuple(kept), more, sum(each.behind_bytes for each in results))


def _size(found: Found) -> int:
    return sum(len(part) for part in (found.key, found.value, *(content for _, content in found.headers)) if part)


def in_time(histories: Iterable[Iterable[Event]]) -> tuple[Event, ...]:
    """Those of several shards as one. One that is hidden has no time: it stays beside its neighbour, or comes last.
    What stands in files that several shards have is told once."""
    rows: list[tuple[int, Event]] = []
    seen: set[Event] = set()
    for history in map(list, histories):
        at_ms = next((event.at_ms for event in history if event != HIDDEN), LAST_MS)
        for event in history:
            at_ms = at_ms if event == HIDDEN else max(at_ms, event.at_ms)
            if event == HIDDEN or event not in seen:
                seen.add(event)
                rows.append((at_ms, event))
    rows.sort(key=lambda row: row[0])
    return tuple(event for _, event in rows[:MOST_EVENTS])
