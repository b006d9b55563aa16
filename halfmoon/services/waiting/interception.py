"""Produced batches that carry a header an interceptor acts on: changed, or taken apart (B38).

Most batches carry none. So the first look is a search for the names of such headers in the batch's bytes, which knows
nothing of records; compressed batches are decompressed for it. Only what it finds is read, by the interceptors that
plugins gave, in their order (hook `halfmoon_commitlog`). In the end headers that only the broker sets are taken off:
they come from programs that copy what they have read, and are no reason to refuse anything. Those of a TTL stay.

What goes elsewhere waits there, in an internal topic, until it is due. The pieces of one produced batch are one frame
group in the log, all there or none. Of the records that stay, the offsets have holes where the others stood, as
compaction leaves them in Kafka; but the batch ends with its last record, because some clients loop for ever on a
trimmed tail. A batch of which nothing stays takes no offset.

A batch of many records is inspected in slices, and others have their turns in between; then it is appended as one. What
an interceptor has found may be true no more by then (`Redirect.holds`): then it is asked again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from halfmoon.core.append_types import Elsewhere, Sender
from halfmoon.core.records.batch_header import TRANSACTIONAL, BatchHeader
from halfmoon.core.records.batches import is_plain
from halfmoon.core.steps import Slices, finish
from halfmoon.errors import BrokerError, Fault, NotHereYetError, TakesLongError
from halfmoon.schema.lifetimes import CARRIED
from halfmoon.services.common.header_search import HeaderSearch
from halfmoon.services.common.record_edit import without_headers, without_headers_in_slices
from halfmoon.services.waiting.taken import Taken, body_of
from halfmoon.services.waiting.types import Put, Redirect

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from halfmoon.core.catalog.topics import Partition
    from halfmoon.services.waiting.due_clock import DueClock
    from halfmoon.services.waiting.redirecting import Redirecting
    from halfmoon.services.waiting.types import Nacked, PutInterceptor

IN_SLICES = 200
"""Batches of more records are inspected in slices; so many take a few milliseconds."""

AT_ONCE: Final = 4
TOPICS_AT_ONCE = 100
"""That are asked for between two pauses."""

OWN_PREFIX: Final = "halfmoon."
"""Headers that begin so are the broker's."""


class Interception:
    """The interceptors of a broker (core/append.py: Interceptor)."""

    def __init__(
        self,
        interceptors: Sequence[PutInterceptor],
        redirecting: Redirecting,
        clock: DueClock,
        logger: logging.Logger,
    ) -> None:
        self._redirecting = redirecting
        self._clock = clock
        self._logger = logger
        self._at_work = 0
        self._interceptors = [(HeaderSearch(each.header_names), each) for each in interceptors]
        self._prefixes = tuple(prefix for each in interceptors for prefix in each.topic_prefixes)
        self.scheduled_topics = frozenset(name for each in interceptors for name in each.scheduled_topics)
        """Names of internal topics that nobody else makes."""
        self._own = HeaderSearch((), [OWN_PREFIX])
        self._carried = HeaderSearch((), sorted(CARRIED))
        self._any = HeaderSearch([name for each in interceptors for name in each.header_names], [OWN_PREFIX])

    def concerns(self, partition: Partition, body: Buffer | None) -> bool:
        """As core's Interceptor says it."""
        if body is not None and self._any.finds(body):
            return True
        return bool(self._prefixes) and partition.topic.name.startswith(self._prefixes)

    def take(self, partition: Partition, batch: memoryview, now_ms: int, sender: Sender | None = None) -> Taken:
        """Have the interceptors inspect the batch. Raises BrokerError, the interceptors' own included."""
        taken = Taken(batch, body_of(batch))
        for search, interceptor in self._interceptors:
            put = _put(partition, taken, search, interceptor, now_ms, sender)
            if put is not None:
                given = self._ask(interceptor, put)
                if sender is not None and isinstance(given, Redirect) and given.nacked is not None:
                    finish(_check_consumed(put, given.nacked))
                self._add(taken, interceptor, given)
        if taken.kept is not None and self._has_own(taken.body):
            taken.keep(without_headers(taken.kept, self._own, OWN_PREFIX, CARRIED))
        return taken

    def _take_in_slices(
        self, partition: Partition, batch: memoryview, now_ms: int, sender: Sender | None
    ) -> Slices[Taken]:
        """As `take`, with pauses. It waits for older messages that have to be read first."""
        body: memoryview
        if is_plain(batch):
            body = body_of(batch)
        else:
            body = yield lambda: body_of(batch)
        taken = Taken(batch, body)
        for search, interceptor in self._interceptors:
            put = _put(partition, taken, search, interceptor, now_ms, sender)
            if put is not None:
                given = yield from self._ask_in_slices(interceptor, put)
                if sender is not None and isinstance(given, Redirect) and given.nacked is not None:
                    yield from _check_consumed(put, given.nacked)
                self._add(taken, interceptor, given)
        if taken.kept is not None and self._has_own(taken.body):
            taken.keep((yield from without_headers_in_slices(taken.kept, self._own, OWN_PREFIX, CARRIED)))
        return taken

    def _has_own(self, body: memoryview) -> bool:
        """Whether headers may be there that are to be taken off."""
        return self._own.finds(body) and self._own.count(body) > self._carried.count(body)

    def _add(self, taken: Taken, interceptor: PutInterceptor, given: memoryview | bytes | Redirect) -> None:
        try:
            taken.add(given)
        except ValueError as wrong:
            self._logger.error("event=interceptor_failed interceptor=%s gave=%s", interceptor.name, wrong)
            raise BrokerError(Fault.UNKNOWN_SERVER_ERROR, f"interceptor {interceptor.name} gave {wrong}") from None

    def _in_turn(self, slices: Slices[Taken]) -> Slices[Taken]:
        """Few batches are worked at at a time: each has a slice of every round of the loop, and what it is made into
        takes many times its memory."""
        while self._at_work >= AT_ONCE:
            yield None
        self._at_work += 1
        try:
            return (yield from slices)
        finally:
            self._at_work -= 1

    def _prepare(self, partition: Partition, batch: memoryview, now_ms: int, sender: Sender | None) -> Slices[Taken]:
        """As `take`, with pauses, and with all that can be done before it is appended."""
        taken = yield from self._take_in_slices(partition, batch, now_ms, sender)
        redirecting = self._redirecting
        if taken.nacked is not None:
            taken.sent_back, stands = yield from redirecting.sent_back_in_slices(taken.nacked)
            taken.holds.append(stands)
        if not taken.release and not taken.complete:
            return taken
        while True:
            waiting = yield from redirecting.waiting_in_slices(taken.release)
            try:
                taken.released = yield from redirecting.released_in_slices(waiting)
                break
            except NotHereYetError as error:
                load = error.load
            yield load
        taken.completed = completed = yield from redirecting.waiting_in_slices(taken.complete)
        taken.holds.append(redirecting.still_wait([*waiting, *completed]))
        return taken

    def append(
        self,
        partition: Partition,
        batch: memoryview,
        header: BatchHeader,
        now_ms: int,
        *,
        keyed: bool,
        prepared: object = None,
        sender: Sender | None = None,
    ) -> tuple[int, int, Elsewhere | None]:
        """As core/append.Interceptor says it."""
        if isinstance(prepared, Taken) and all(holds() for holds in prepared.holds):
            taken = prepared
        elif header.record_count > IN_SLICES:
            began_ms = self._clock.wall_ms()
            raise TakesLongError(lambda copy: self._in_turn(self._prepare(partition, copy, began_ms, sender)))
        else:
            taken = self.take(partition, batch, self._clock.wall_ms(), sender)
        if header.attributes & TRANSACTIONAL:
            taken.check_nothing_redirected()
        base_offset, end, redirected = self._redirecting.append(partition, batch, header, taken, now_ms, keyed=keyed)
        places = [(place.topic.name, place.index, offset) for place, offset in redirected]
        for appended in taken.appended:
            appended.call(tuple(places[appended.first : appended.last]))
        if not redirected:
            return base_offset, end, None
        other, offset = redirected[0]
        return base_offset, end, Elsewhere(other, offset, taken.redirected[0].due_ms)

    def _ask_in_slices(self, interceptor: PutInterceptor, put: Put) -> Slices[memoryview | bytes | Redirect]:
        while True:
            try:
                if interceptor.in_slices is not None:
                    return (yield from interceptor.in_slices(put))
                return self._ask(interceptor, put)
            except NotHereYetError as error:
                load = error.load
            except TakesLongError as error:
                yield from error.steps(put.batch)
                continue
            yield load

    def _ask(self, interceptor: PutInterceptor, put: Put) -> memoryview | bytes | Redirect:
        try:
            return interceptor.before_put(put)
        except BrokerError:
            raise
        except Exception as error:
            self._logger.exception("event=interceptor_failed interceptor=%s topic=%s", interceptor.name, put.topic)
            raise BrokerError(Fault.UNKNOWN_SERVER_ERROR, f"{interceptor.name}: {error!r}") from error


def _put(
    partition: Partition, taken: Taken, search: HeaderSearch, interceptor: PutInterceptor, now_ms: int,
    sender: Sender | None,
) -> Put | None:  # fmt: skip
    """What it is asked; None where it has nothing to do with what stays."""
    kept, name = taken.kept, partition.topic.name
    if kept is None or not (name.startswith(interceptor.topic_prefixes) or search.finds(taken.body)):
        return None
    return Put(name, partition.index, kept, now_ms, sender)


def _check_consumed(put: Put, nacked: Nacked) -> Slices[None]:
    """Who hands a record back says where it had it from, and must be one who may read there. Raises BrokerError."""
    for index, topic in enumerate(dict.fromkeys(place[0] for place in nacked.places)):
        if index % TOPICS_AT_ONCE == TOPICS_AT_ONCE - 1:
            yield None
        put.check("read", "topic", topic)
