"""Fills one partition of a view from the same partition of its source (B39).

It walks over the source's batches up to the stable offset, leaves out control batches and what corruption has taken,
and appends the records that match, in their order. Key, value and headers stay byte for byte; the deltas in front of
them are written anew, since a view's offsets are dense (there are clients that stall on a batch without records, or
loop on a trimmed one), and so is the batch's header. Matches of several small batches become one.

Each appended batch carries the range [from, next) of source offsets that it stands for. So after a crash the view
goes on exactly where its last whole batch ended, also when the source's records have expired since. A stretch without
a match is not written down at once: to inspect it again does no harm (`Views.save_progress`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from halfmoon.plugin import BrokerError, Fault, MessageFilter, Record
from halfmoon.plugin.moving import (
    CODEC_MASK,
    HEADER_BYTES,
    MERGE_BYTES,
    NONE_ABORTED,
    TIMESTAMP_TYPE,
    AbortedBatches,
    BatchHeader,
    FoundInThread,
    Gathered,
    Lifetimes,
    Load,
    LogReader,
    LogWriter,
    NodeClock,
    Partition,
    SourceRange,
    TimestampsTooFarApartError,
    batch_body,
    found_in_thread,
    matches,
    parse_header,
    takes_long,
)

if TYPE_CHECKING:
    import logging

READ_BYTES = 1 << 20
"""Bytes of the source that are looked up at once."""
WHOLE_BYTES = 16 << 10
"""A batch of this size that matches as a whole is not taken apart."""
THREAD_BYTES = 64 << 10
"""Compressed batches of this size and more are decompressed in a thread, so that nobody waits for that."""


class ViewCounters(Struct):
    """Of one view."""

    looked_at: int = 0
    """Records of the source."""
    matched: int = 0
    skipped: int = 0
    """Source offsets that had expired, or were lost to corruption, before the view came to them."""
    malformed: int = 0
    """Batches of the source that cannot be read."""
    filter_errors: int = 0
    """Records at which the filter raised; they count as no match."""


class Tools(NamedTuple):
    """What all view updaters of a broker use."""

    reader: LogReader
    writer: LogWriter
    clock: NodeClock
    logger: logging.Logger
    lifetimes: Lifetimes | None = None
    """None where nothing expires."""


class ViewUpdater:
    """A relay task (halfmoon.plugin.moving.Mover) for one partition of a view."""

    def __init__(
        self,
        tools: Tools,
        view: Partition,
        source: Partition,
        message_filter: MessageFilter,
        counters: ViewCounters,
    ) -> None:
        self._reader, self._writer, self._clock, self._logger, self._lifetimes = tools
        self._view = view
        self.source = source
        self._filter = message_filter
        self._counters = counters
        self.next_offset = view.source_next
        """The source's offset that is inspected next."""
        self.passed_offset = view.source_next
        """What is located before it is in the view, or does not match."""
        self._from_offset = view.source_next
        """Where the batch that is being gathered begins."""
        self._expired = 0
        """Matches of the batch that is being inspected, whose TTL is over."""
        self.skipped_ms: int | None = None
        """When it last had to skip something (wall clock)."""

    def __str__(self) -> str:
        return f"view {self._view!r}"

    @property
    def lag(self) -> int:
        """Source offsets still to be inspected."""
        return max(0, self.source.stable_offset - self.next_offset)

    def run(self) -> Generator[Load | None, Any, None]:
        """Raises BrokerError where nothing can be appended."""
        gathered = Gathered()
        self._from_offset = self.passed_offset
        self.next_offset = self.passed_offset  # the last run may have ended in the middle
        while self.next_offset < self.source.stable_offset:
            batches, aborted = yield from self._read()
            for batch in batches:
                yield from self._inspect(batch, aborted, gathered)
                if len(gathered.body) >= MERGE_BYTES:
                    yield from self._append(gathered)
                if gathered.is_empty:
                    self.passed_offset = self.next_offset
                yield None
        yield from self._append(gathered)
        self.passed_offset = self.next_offset

    # -- reading -----------------------------------------------------------------------------------------------------

    def _read(self) -> Generator[Load | None, Any, tuple[list[memoryview], AbortedBatches]]:
        """Whole batches from `next_offset` on, none where something had to be skipped; and which of them do not
        count."""
        source = self.source
        if self.next_offset < source.start_offset:
            self._skip(source.start_offset, "they have expired")
            return [], NONE_ABORTED
        try:
            read = self._reader.read(source, self.next_offset, READ_BYTES, min_one=True, committed=True)
        except BrokerError as error:
            if error.fault is not Fault.CORRUPT_MESSAGE:
                raise
            self._skip(
                next(high for low, high in source.queue.damaged if low <= self.next_offset < high), error.message
            )
            return [], NONE_ABORTED
        aborted = AbortedBatches(self._reader.aborted_in(source, self.next_offset, read.size))
        passable = min(source.compacted_upto, source.stable_offset)
        batches = read.slices if read.cold is None else (yield read.cold)
        if not batches:
            if self.next_offset < passable:  # up to a transaction that is open, compaction has left nothing
                self.next_offset = passable
                return [], NONE_ABORTED
            # The index has a hole that nobody knows of.
            raise BrokerError(Fault.KAFKA_STORAGE_ERROR, f"offset {self.next_offset} of {source!r} cannot be found")
        return [memoryview(batch) for batch in batches], aborted

    def _skip(self, offset: int, reason: str) -> None:
        self._logger.warning(
            "event=view_skipped view=%r source=%r from=%d next=%d reason=%s",
            self._view, self.source, self.next_offset, offset, reason,
        )  # fmt: skip
        self._counters.skipped += offset - self.next_offset
        self.skipped_ms = self._clock.wall_ms()
        self.next_offset = offset

    # -- looking -----------------------------------------------------------------------------------------------------

    def _inspect(
        self, batch: memoryview, aborted: AbortedBatches, gathered: Gathered
    ) -> Generator[Load | None, Any, None]:
        header = parse_header(batch)
        after = header.base_offset + header.last_offset_delta + 1
        if aborted.hide(header):
            self.next_offset = after
            return
        if gathered.codec != header.attributes & CODEC_MASK:
            yield from self._append(gathered)
            gathered.codec = header.attributes & CODEC_MASK
        mark = gathered.mark()
        self._expired = 0
        try:
            body = yield from self._body(header, batch)
            try:
                yield from self._gather(header, body, gathered)
            except TimestampsTooFarApartError:
                gathered.back_to(mark)
                yield from self._append(gathered)
                gathered.far_apart = True
                mark = gathered.mark()
                self._expired = 0
                yield from self._gather(header, body, gathered)
        except BrokerError as error:
            if error.fault is Fault.KAFKA_STORAGE_ERROR:
                raise
            gathered.back_to(mark)
            self._counters.malformed += 1
            if self._counters.malformed == 1:  # the others are counted
                self._logger.warning(
                    "event=view_skips_batch view=%r source=%r offset=%d reason=%s",
                    self._view, self.source, header.base_offset, error.message,
                )  # fmt: skip
        else:
            kept = gathered.count - mark.count
            self._counters.looked_at += header.record_count
            self._counters.matched += kept
            if self._lifetimes is not None:
                self._lifetimes.count("view", self._expired)
            if _is_whole(header, batch, kept):
                gathered.back_to(mark)
                yield from self._append(gathered)
                gathered.whole = header, batch[HEADER_BYTES:]
        self.next_offset = after
        if gathered.whole is not None:
            yield from self._append(gathered)

    def _body(self, header: BatchHeader, batch: memoryview) -> Generator[Load | None, Any, bytes]:
        if not header.attributes & CODEC_MASK or len(batch) < THREAD_BYTES:
            return bytes(batch_body(batch))
        body = yield partial(_body_or_error, batch)
        if isinstance(body, BrokerError):
            raise body
        assert isinstance(body, bytes)
        return body

    def _gather(self, header: BatchHeader, body: bytes, gathered: Gathered) -> Generator[Load | None, Any, None]:
        first = self.next_offset - header.base_offset
        lifetimes = self._lifetimes
        is_over = None if lifetimes is None else lifetimes.over(self.source.topic, body)
        parts: Iterable[list[tuple[int, Record]]]
        if takes_long(self._filter, body):
            found = yield partial(found_in_thread, body, header, self._filter)
            if isinstance(found, BrokerError):
                raise found
            assert isinstance(found, FoundInThread)
            for error in found.errors:
                self._filter_failed(error)
            parts = found.parts
        else:
            parts = matches(body, header, self._filter, self._filter_failed)
        for part in parts:
            for _, record in part:
                if record.offset_delta < first:  # DeleteRecords has cut into the batch
                    continue
                if is_over is not None and is_over(record):
                    self._expired += 1
                    continue
                gathered.add(body, record, record.timestamp)
            yield None

    def _filter_failed(self, error: Exception) -> None:
        self._counters.filter_errors += 1
        if self._counters.filter_errors == 1:
            self._logger.error("event=filter_failed view=%r reason=%r", self._view, error, exc_info=error)

    # -- appending ---------------------------------------------------------------------------------------------------

    def _append(self, gathered: Gathered) -> Generator[Load | None, Any, None]:
        """Append what was gathered, if anything: it stands for all that was inspected since the last batch."""
        if gathered.is_empty:
            return
        batch = (yield gathered.batch) if gathered.takes_long else gathered.batch()
        view, source = self._view, self.source
        dealt_with = SourceRange(source.topic.number, source.index, self._from_offset, self.next_offset)
        self._writer.append_relayed(view, batch, range=dealt_with)
        self.passed_offset = self._from_offset = self.next_offset
        view.passed(self.next_offset)
        gathered.begin()


def _is_whole(header: BatchHeader, batch: memoryview, kept: int) -> bool:
    """Whether the batch can go into the view as it stands: nothing of it is left out, and nothing needs correcting."""
    return (
        kept == header.record_count == header.last_offset_delta + 1
        and len(batch) >= WHOLE_BYTES
        and not header.attributes & TIMESTAMP_TYPE
    )


def _body_or_error(batch: memoryview) -> bytes | BrokerError:
    """For a thread. A batch that cannot be read does not stop the task."""
    try:
        return bytes(batch_body(batch))
    except BrokerError as error:
        return error
