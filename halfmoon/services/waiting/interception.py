"""Produced batches that carry a header an interceptor acts on: changed, or taken apart (B38).

Most batches carry none. So the first look is a search for the names of such headers in the batch's bytes, which knows
nothing of records; compressed batches are decompressed for it. Only what it finds is read, by the interceptors that
plugins gave, in their order (hook `halfmoon_commitlog`). In the end headers that only the broker sets are taken off:
they come from programs that copy what they have read, and are no reason to refuse anything.

What goes elsewhere waits there, in an internal topic, until it is due. The pieces of one produced batch are one frame
group in the log, all there or none. Of the records that stay, the offsets have holes where the others stood, as
compaction leaves them in Kafka; but the batch ends with its last record, because some clients loop for ever on a
trimmed tail. A batch of which nothing stays takes no offset.

A batch of many records is inspected in slices, and others have their turns in between; then it is appended as one. What
an interceptor has found may be true no more by then (`Redirect.holds`): then it is asked again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from halfmoon.core.append_types import Elsewhere, Sender
from halfmoon.core.records.batch_header import HEADER_BYTES, TRANSACTIONAL, BatchHeader, is_whole, parse_header
from halfmoon.core.records.batches import batch_body, is_plain
from halfmoon.core.steps import Slices, finish
from halfmoon.errors import BrokerError, Fault, NotHereYetError, TakesLongError
from halfmoon.services.common.header_search import HeaderSearch
from halfmoon.services.common.record_edit import without_headers_in_slices
from halfmoon.services.waiting.taken import Appended, Taken, check_not_redirected
from halfmoon.services.waiting.types import Nacked, Put, PutInterceptor, Redirect, Redirected

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from halfmoon.core.catalog.topics import Partition
    from halfmoon.services.waiting.due_clock import DueClock
    from halfmoon.services.waiting.redirecting import Redirecting
    from halfmoon.services.waiting.taken import Place
    from halfmoon.services.waiting.types import Nacked, PutInterceptor, Redirected

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
        self._any = HeaderSearch([name for each in interceptors for name in each.header_names], [OWN_PREFIX])

    def concerns(self, partition: Partition, body: Buffer | None) -> bool:
        """As core's Interceptor says it."""
        if body is not None and self._any.finds(body):
            return True
        return bool(self._prefixes) and partition.topic.name.startswith(self._prefixes)

    def take(self, partition: Partition, batch: memoryview, now_ms: int, sender: Sender | None = None) -> Taken:
        """Have the interceptors inspect the batch. Raises BrokerError, the interceptors' own included."""
        return finish(self._take(partition, batch, now_ms, sender, waits=False))

    def _take(
        self, partition: Partition, batch: memoryview, now_ms: int, sender: Sender | None, *, waits: bool
    ) -> Slices[Taken]:
        """As `take`, with pauses. `waits`: for older messages that have to be read first; else it raises
        NotHereYetError."""
        name = partition.topic.name
        body: memoryview
        if waits and not is_plain(batch):
            body = yield lambda: batch_body(batch)
        else:
            body = batch_body(batch)
        kept: memoryview | None = batch
        redirected: list[Redirected] = []
        nacked: Nacked | None = None
        release: list[Place] = []
        complete: list[Place] = []
        cancel: list[bytes] = []
        appended: list[Appended] = []
        holds: list[Callable[[], bool]] = []
        for search, interceptor in self._interceptors:
            if kept is None or not (name.startswith(interceptor.topic_prefixes) or search.finds(body)):
                continue
            put = Put(name, partition.index, kept, now_ms, sender)
            given = yield from self._ask(interceptor, put, waits=waits)
            if isinstance(given, Redirect):
                if sender is not None and given.nacked is not None:
                    yield from _check_consumed(put, given.nacked)
                first = len(redirected)
                redirected += given.redirected
                nacked = given.nacked or nacked
                release += given.release
                complete += given.complete
                cancel += given.cancel
                if given.appended is not None:
                    appended.append(Appended(given.appended, first, len(redirected)))
                if given.holds is not None:
                    holds.append(given.holds)
                if given.kept is None:
                    kept, body = None, memoryview(b"")
                    continue
                given = given.kept
            if given is not kept:
                self._check(interceptor.name, given, kept)
                kept = _writable(given)
                body = batch_body(kept)
        if kept is not None and self._own.finds(body):
            kept = _writable((yield from without_headers_in_slices(kept, self._own, OWN_PREFIX)))
        return Taken(
            kept, tuple(redirected), nacked, tuple(release), tuple(complete), tuple(dict.fromkeys(cancel)),
            tuple(appended), holds=tuple(holds),
        )  # fmt: skip

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
        taken = yield from self._take(partition, batch, now_ms, sender, waits=True)
        redirecting = self._redirecting
        if taken.nacked is not None:
            sent_back, stands = yield from redirecting.sent_back_in_slices(taken.nacked)
            taken = replace(taken, sent_back=sent_back, holds=(*taken.holds, stands))
        if not taken.release and not taken.complete:
            return taken
        while True:
            waiting = yield from redirecting.waiting_in_slices(taken.release)
            try:
                released = yield from redirecting.released_in_slices(waiting)
                break
            except NotHereYetError as error:
                load = error.load
            yield load
        completed = yield from redirecting.waiting_in_slices(taken.complete)
        holds = (*taken.holds, redirecting.still_wait([*waiting, *completed]))
        return replace(taken, released=released, completed=completed, holds=holds)

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
            check_not_redirected(taken)
        base_offset, end, redirected = self._redirecting.append(partition, batch, header, taken, now_ms, keyed=keyed)
        places = [(place.topic.name, place.index, offset) for place, offset in redirected]
        for appended in taken.appended:
            appended.call(tuple(places[appended.first : appended.last]))
        first = Elsewhere(*redirected[0], taken.redirected[0].due_ms) if redirected else None
        return base_offset, end, first

    def _check(self, name: str, given: memoryview | bytes, taken: memoryview) -> None:
        """Whether a batch that an interceptor gave can be stored in place of the one it took. Raises BrokerError."""
        wrong = ""
        if not isinstance(given, memoryview | bytes | bytearray):
            wrong = f"{given!r}, expected a batch or a Redirect"
        elif len(given) < HEADER_BYTES or not is_whole(given):
            wrong = "bytes that are no whole record batch of format 2 with its checksum"
        else:
            header, most = parse_header(given), parse_header(taken).last_offset_delta
            if header.record_count < 1 or not header.record_count - 1 <= header.last_offset_delta <= most:
                wrong = "records that the batch did not have"
        if wrong:
            self._logger.error("event=interceptor_failed interceptor=%s gave=%s", name, wrong)
            raise BrokerError(Fault.UNKNOWN_SERVER_ERROR, f"interceptor {name} gave {wrong}")

    def _ask(self, interceptor: PutInterceptor, put: Put, *, waits: bool) -> Slices[memoryview | bytes | Redirect]:
        while True:
            try:
                if waits and interceptor.in_slices is not None:
                    return (yield from interceptor.in_slices(put))
                return self._ask_at_once(interceptor, put)
            except NotHereYetError as error:
                if not waits:
                    raise
                load = error.load
            except TakesLongError as error:
                if not waits:
                    raise
                yield from error.steps(put.batch)
                continue
            yield load

    def _ask_at_once(self, interceptor: PutInterceptor, put: Put) -> memoryview | bytes | Redirect:
        try:
            return interceptor.before_put(put)
        except BrokerError:
            raise
        except Exception as error:
            self._logger.exception("event=interceptor_failed interceptor=%s topic=%s", interceptor.name, put.topic)
            raise BrokerError(Fault.UNKNOWN_SERVER_ERROR, f"{interceptor.name}: {error!r}") from error


def _check_consumed(put: Put, nacked: Nacked) -> Slices[None]:
    """Who hands a record back says where it had it from, and must be one who may read there. Raises BrokerError."""
    for index, topic in enumerate(dict.fromkeys(place[0] for place in nacked.places)):
        if index % TOPICS_AT_ONCE == TOPICS_AT_ONCE - 1:
            yield None
        put.check("read", "topic", topic)


def _writable(batch: memoryview | bytes) -> memoryview:
    view = memoryview(batch)
    return memoryview(bytearray(view)) if view.readonly else view
