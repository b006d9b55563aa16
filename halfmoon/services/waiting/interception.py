"""Produced batches that carry a header an interceptor acts on: changed, or taken apart (B38).

Most batches carry none. So the first look is a search for the names of such headers in the batch's bytes, which knows
nothing of records; compressed batches are decompressed for it. Only what it finds is read, by the interceptors that
plugins gave, in their order (hook `halfmoon_commitlog`). In the end headers that only the broker sets are taken off:
they come from programs that copy what they have read, and are no reason to refuse anything.

What goes elsewhere waits there, in an internal topic, until it is due. The pieces of one produced batch are one frame
group in the log, all there or none. Of the records that stay, the offsets have holes where the others stood, as
compaction leaves them in Kafka; but the batch ends with its last record, because some clients loop for ever on a
trimmed tail. A batch of which nothing stays takes no offset.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from halfmoon.core.append import Elsewhere
from halfmoon.core.records.batch_header import HEADER_BYTES, TRANSACTIONAL, BatchHeader, is_whole, parse_header
from halfmoon.core.records.batches import batch_body
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.common.header_search import HeaderSearch
from halfmoon.services.common.record_edit import without_headers
from halfmoon.services.waiting.taken import Appended, Taken, check_not_redirected
from halfmoon.services.waiting.types import Nacked, Put, PutInterceptor, Redirect, Redirected

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from halfmoon.core.catalog.topics import Partition
    from halfmoon.services.waiting.due_clock import DueClock
    from halfmoon.services.waiting.redirecting import Redirecting
    from halfmoon.services.waiting.taken import Place
    from halfmoon.services.waiting.types import Nacked, PutInterceptor, Redirected

OWN_PREFIX = "halfmoon."
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
        self._interceptors = [(HeaderSearch(each.header_names), each) for each in interceptors]
        self._prefixes = tuple(prefix for each in interceptors for prefix in each.topic_prefixes)
        self.scheduled_topics = frozenset(name for each in interceptors for name in each.scheduled_topics)
        """Names of internal topics that nobody else makes."""
        self._own = HeaderSearch((), [OWN_PREFIX])
        self._any = HeaderSearch([name for each in interceptors for name in each.header_names], [OWN_PREFIX])

    def concerns(self, partition: Partition, body: Buffer) -> bool:
        """Whether somebody may have something to do with a batch of these bytes (decompressed)."""
        if self._any.finds(body):
            return True
        return bool(self._prefixes) and partition.topic.name.startswith(self._prefixes)

    def take(self, partition: Partition, batch: memoryview, now_ms: int) -> Taken:
        """Have the interceptors inspect the batch. Raises BrokerError, the interceptors' own included."""
        name = partition.topic.name
        body = batch_body(batch)
        kept: memoryview | None = batch
        redirected: list[Redirected] = []
        nacked: Nacked | None = None
        release: list[Place] = []
        complete: list[Place] = []
        cancel: list[bytes] = []
        appended: list[Appended] = []
        for search, interceptor in self._interceptors:
            if kept is None or not (name.startswith(interceptor.topic_prefixes) or search.finds(body)):
                continue
            given = self._ask(interceptor, Put(name, partition.index, kept, now_ms))
            if isinstance(given, Redirect):
                first = len(redirected)
                redirected += given.redirected
                nacked = given.nacked or nacked
                release += given.release
                complete += given.complete
                cancel += given.cancel
                if given.appended is not None:
                    appended.append(Appended(given.appended, first, len(redirected)))
                if given.kept is None:
                    kept, body = None, memoryview(b"")
                    continue
                given = given.kept
            if given is not kept:
                self._check(interceptor.name, given, kept)
                kept = _writable(given)
                body = batch_body(kept)
        if kept is not None and self._own.finds(body):
            kept = _writable(without_headers(kept, self._own, OWN_PREFIX))
        return Taken(
            kept, tuple(redirected), nacked, tuple(release), tuple(complete), tuple(dict.fromkeys(cancel)),
            tuple(appended),
        )  # fmt: skip

    def append(
        self, partition: Partition, batch: memoryview, header: BatchHeader, now_ms: int, *, keyed: bool
    ) -> tuple[int, int, Elsewhere | None]:
        """As core/append.Interceptor says it."""
        taken = self.take(partition, batch, self._clock.now_ms())
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

    def _ask(self, interceptor: PutInterceptor, put: Put) -> memoryview | bytes | Redirect:
        try:
            return interceptor.before_put(put)
        except BrokerError:
            raise
        except Exception as error:
            self._logger.exception("event=interceptor_failed interceptor=%s topic=%s", interceptor.name, put.topic)
            raise BrokerError(Fault.UNKNOWN_SERVER_ERROR, f"{interceptor.name}: {error!r}") from error


def _writable(batch: memoryview | bytes) -> memoryview:
    view = memoryview(batch)
    return memoryview(bytearray(view)) if view.readonly else view
