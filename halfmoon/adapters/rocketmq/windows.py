"""Stretches of queues as RocketMQ's clients read them: written once, handed out in slices of 32 messages (B04).

A *window* is what a filter lets through of the messages [first, next) of a partition, as stored messages one behind the
other. Pulls go on where the last one ended, so most of them are a slice of a window that is there. A consumer at the
end of a queue has one message a time; such windows are not kept.

Batches are read as they lie in the log. A large one (Kafka's producers make them of up to some MiB, compressed or not)
is opened once, in a thread, and windows are made of parts of it.

Both caches are small and forget what was used longest ago.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from halfmoon.adapters.rocketmq.filters import Filter
from halfmoon.adapters.rocketmq.names import HALF_TOPIC
from halfmoon.adapters.rocketmq.open_batches import Loading, OpenBatch
from halfmoon.adapters.rocketmq.to_messages import MessageWriter, Sheet
from halfmoon.adapters.tcp.core import Core
from halfmoon.core.catalog.topics import Partition, Topic
from halfmoon.core.records import record_codec
from halfmoon.core.records.batch_header import CODEC_MASK, BatchHeader, parse_header
from halfmoon.core.records.batches import batch_body, is_plain
from halfmoon.core.records.record_codec import Record
from halfmoon.core.storage.frame import BEFORE_BYTES, before_payload
from halfmoon.core.storage.storage import Place
from halfmoon.core.transactions.aborted import AbortedBatches
from halfmoon.errors import BrokerError
from halfmoon.remoting.message import physical_offset
from halfmoon.schema import provenance
from halfmoon.services.common.leaving_out import LeavingOut
from halfmoon.services.common.lifetimes import End
from halfmoon.services.common.services import Services
from halfmoon.services.expiry.service import Expiry

log: Final = logging.getLogger("halfmoon.rocketmq")

READ_BYTES: Final = 256 << 10
"""So much of a queue is read for a window."""
WINDOW_MESSAGES: Final = 512
"""Most messages of a window: a millisecond."""
LARGE_BYTES = 256 << 10
"""A batch of this size is kept open, …"""
COMPRESSED_BYTES: Final = 32 << 10
"""… and one that is compressed and has so much, or that has four times as much as a large one, opened in a thread."""
MOST_LOGGED: Final = 1_000
"""Batches that cannot be read are logged once, as long as there are no more of them."""
KEPT_OPEN_BYTES: Final = 64 << 20
KEPT_FILTERS: Final = 8
"""Filters of which an open batch keeps what they let through: groups that read it side by side."""
KEPT_BYTES = 16 << 20
"""Of windows."""


class Expiring(NamedTuple):
    """A message of a window that expires. `record`: where it may have to be dead-lettered then."""

    row: int
    expires_ms: int
    topic: str
    """Whose configuration says what becomes of it."""
    record: Record | None


class Window(NamedTuple):
    """Stored messages of the offsets [first, next) of a partition."""

    first: int
    next: int
    offsets: list[int]
    starts: list[int]
    """Where each message begins in `data`, and as last entry where the last one ends."""
    data: bytes
    marked: Sequence[tuple[int, Record]] = ()
    """Messages that plugins may leave out: which of the window's, and its record."""
    ends: Sequence[Expiring] = ()
    """Messages that expire, ascending."""


Key = tuple["Partition", "Filter | None", MessageWriter]


class Windows:
    """Of one broker."""

    def __init__(self, core: Core, services: Services) -> None:
        self._core = core
        self._services = services
        self._open: OrderedDict[int, OpenBatch] = OrderedDict()
        """By position in the log."""
        self._open_bytes = 0
        self._kept: OrderedDict[tuple[Key, int], Window] = OrderedDict()
        self._by_key: dict[Key, list[Window]] = {}
        self._kept_bytes = 0
        self._logged: set[BatchHeader] = set()
        self.unreadable = 0
        """Batches that hold no records one could read."""
        self.filter_errors = 0

    # -- windows that are there --------------------------------------------------------------------------------------

    def find(self, key: Key, offset: int) -> Window | None:
        for window in self._by_key.get(key, ()):
            if window.first <= offset < window.next:
                self._kept.move_to_end((key, window.first))
                return window
        return None

    def keep(self, key: Key, window: Window) -> None:
        """Whoever pulls next may go on in it."""
        if (key, window.first) in self._kept:
            return
        self._kept[key, window.first] = window
        self._by_key.setdefault(key, []).insert(0, window)
        self._kept_bytes += len(window.data)
        while self._kept_bytes > KEPT_BYTES:
            (old_key, _), old = self._kept.popitem(last=False)
            self._kept_bytes -= len(old.data)
            windows = self._by_key[old_key]
            windows.remove(old)
            if not windows:
                del self._by_key[old_key]

    # -- making them -------------------------------------------------------------------------------------------------

    def batches(self, partition: Partition, offset: int, max_bytes: int) -> list[OpenBatch] | Loading:
        """The batches from the one on that holds `offset`, opened; or a function for a thread that opens them.

        Raises BrokerError(OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE).
        """
        places, read = self._core.read_framed(partition, offset, max_bytes)
        all_bytes = sum(length for _, length in places)
        aborted = AbortedBatches(self._core.aborted_in(partition, offset, all_bytes))
        known = self._open.get(places[0][0])
        if known is not None:
            self._open.move_to_end(places[0][0])
            return [known]
        cold = read.cold
        topic = partition.topic
        if cold is not None:
            return lambda: self._opened(places, cold(), aborted, topic)
        size = places[0][1]
        if size >= COMPRESSED_BYTES:
            plain = is_plain(memoryview(read.slices[0])[BEFORE_BYTES:])
            if not plain or size >= 4 * LARGE_BYTES:
                return lambda: self._opened(places[:1], read.slices[:1], aborted, topic)
        return self._opened(places, read.slices, aborted, topic)

    def _opened(
        self, places: Sequence[Place], slices: Sequence[memoryview | bytes], aborted: AbortedBatches, topic: Topic
    ) -> list[OpenBatch]:
        """Those that nobody is to see, markers of producers' transactions and aborted ones, have no body. May run in a
        thread."""
        opened: list[OpenBatch] = []
        for (position, _), piece in zip(places, slices, strict=True):
            view = memoryview(piece)
            batch = view[BEFORE_BYTES:]
            header = parse_header(batch)
            if opened and header.attributes & CODEC_MASK and len(batch) >= COMPRESSED_BYTES:
                break  # in a thread, when it is this one's turn
            store_ms, proof = before_payload(view[:BEFORE_BYTES], position) or (header.max_timestamp, b"")
            try:
                body = b"" if aborted.hide(header) else bytes(batch_body(batch))
            except BrokerError as error:
                body = b""
                self._log_unreadable(header, error)
            opened.append(OpenBatch(position, header, body, store_ms, self._prepared(proof) if proof else ()))
            if len(body) >= LARGE_BYTES:
                try:
                    opened[-1].walk()
                    self._ends_of(opened[-1], topic)
                except BrokerError as error:
                    opened[-1].body = b""
                    self._log_unreadable(header, error)
                break  # the rest when this one is read
        return opened

    def _prepared(self, proof: bytes) -> list[int]:
        """Where the half messages waited that a batch was made of; empty where it was not made of any."""
        try:
            sources = provenance.decode(proof).sources
        except provenance.UnknownProvenanceError:
            return []
        found: list[int] = []
        for run in sources:
            half = self._core.catalog.partition(run.topic_number, run.partition)
            if half is None or half.topic.name != HALF_TOPIC:
                return []
            first = physical_offset(half.queue_number, run.first_offset)
            found += range(first, first + run.count)
        return found

    def _hold_open(self, batch: OpenBatch) -> None:
        if batch.position in self._open:
            return
        self._open[batch.position] = batch
        self._open_bytes += len(batch.body)
        while self._open_bytes > KEPT_OPEN_BYTES and len(self._open) > 1:
            _, old = self._open.popitem(last=False)
            self._open_bytes -= len(old.body)

    def make(self, key: Key, offset: int, batches: Sequence[OpenBatch]) -> Window:
        """What the filter lets through of these batches from `offset` on, as far as it is worth a window."""
        partition, wanted, writer = key
        sheet = Sheet()
        after = offset
        for batch in batches:
            if len(sheet.offsets) >= WINDOW_MESSAGES:
                break
            if len(batch.body) >= LARGE_BYTES:
                self._hold_open(batch)
            room = WINDOW_MESSAGES - len(sheet.offsets)
            after = self._write(sheet, writer, partition, wanted, batch, max(offset, after), room)
        leaving_out = self._services.find(LeavingOut)
        marked = () if leaving_out is None else self._marked(leaving_out, sheet, batches)
        starts = [0]
        total = 0
        for size in sheet.sizes:
            total += size
            starts.append(total)
        ends = self._ends(partition.topic, sheet, batches)
        return Window(offset, after, sheet.offsets, starts, b"".join(sheet.parts), marked, ends)

    def _ends(self, topic: Topic, sheet: Sheet, batches: Sequence[OpenBatch]) -> list[Expiring]:
        expiry = self._services.find(Expiry)
        found: list[Expiring] = []
        if expiry is None:
            return found
        rows: dict[int, int] = {}
        for batch in batches:
            try:
                ends = self._ends_of(batch, topic)
            except BrokerError:  # it is unreadable, and none of it is in the sheet
                continue
            if ends and not rows:
                rows = {offset: row for row, offset in enumerate(sheet.offsets)}
            for each in ends:
                offset = batch.header.base_offset + each.offset_delta
                row = rows.get(offset)
                if row is not None:
                    record = batch.record_at(offset) if expiry.dead_letters(each.topic) else None
                    found.append(Expiring(row, each.expires_ms, each.topic, record))
        return found

    def _ends_of(self, batch: OpenBatch, topic: Topic) -> Sequence[End]:
        """Raises BrokerError(INVALID_RECORD)."""
        expiry = self._services.find(Expiry)
        if expiry is None or not batch.body:
            return ()
        ttl_ms = expiry.ttl_ms(topic)
        if batch.ends is None or batch.ends[0] != ttl_ms:
            batch.ends = ttl_ms, expiry.ends(topic, batch.body, batch.header)
        return batch.ends[1]

    def _marked(self, leaving_out: LeavingOut, sheet: Sheet, batches: Sequence[OpenBatch]) -> list[tuple[int, Record]]:
        rows = {offset: row for row, offset in enumerate(sheet.offsets)}
        found = []
        for batch in batches:
            if not batch.body or not leaving_out.finds(batch.body):
                continue
            with suppress(BrokerError):  # then it is unreadable, and none of it is in the sheet
                for index, start in enumerate(batch.walk()[:-1]):
                    record = record_codec.read_one(batch.body, start, index, batch.header.base_timestamp, None)
                    row = rows.get(batch.header.base_offset + record.offset_delta)
                    if row is not None:
                        found.append((row, record))
        return found

    def _write(
        self,
        sheet: Sheet,
        writer: MessageWriter,
        partition: Partition,
        wanted: Filter | None,
        batch: OpenBatch,
        offset: int,
        room: int,
    ) -> int:
        """Write messages of a batch from `offset` on, `room` at most; up to which offset that is all there was."""
        if not batch.body:
            return batch.end_offset
        header = batch.header
        begun = len(sheet.sizes), len(sheet.parts)
        try:
            if wanted is None and header.record_count <= room and offset <= header.base_offset:
                writer.write(sheet, partition, header, batch.body, batch.store_ms, prepared=batch.prepared)
                return batch.end_offset
            rows: Sequence[int]
            if wanted is None:
                rows = range(batch.row_for(offset), header.record_count)
            else:
                known = batch.rows.get(wanted)
                rows = known if known is not None else batch.matching(wanted, self._filter_failed)
                if len(batch.body) >= LARGE_BYTES:
                    if len(batch.rows) >= KEPT_FILTERS:
                        del batch.rows[next(iter(batch.rows))]
                    batch.rows[wanted] = array("I", rows)
                rows = rows[bisect_left(rows, batch.row_for(offset)) :]
            if rows:
                writer.write(
                    sheet, partition, header, batch.body, batch.store_ms,
                    from_offset=offset, rows=rows[:room], bounds=batch.walk(), prepared=batch.prepared,
                )  # fmt: skip
            return batch.end_offset if len(rows) <= room else sheet.offsets[-1] + 1
        except BrokerError as error:
            del sheet.sizes[begun[0] :], sheet.offsets[begun[0] :], sheet.parts[begun[1] :]
            self._log_unreadable(header, error)
            return batch.end_offset

    def _filter_failed(self, error: Exception) -> None:
        """The message counts as no match, as in RocketMQ."""
        self.filter_errors += 1

    def _log_unreadable(self, header: BatchHeader, error: BrokerError) -> None:
        self.unreadable += 1
        if header in self._logged:
            return
        if len(self._logged) >= MOST_LOGGED:
            self._logged.clear()
        self._logged.add(header)
        log.warning("event=batch_skipped base_offset=%d error=%s", header.base_offset, error)
