"""Batches that are opened for windows: decompressed, and looked at once for each filter.

A filter that takes long (services/common/filters.py) looks at large batches in a thread, before a window is made.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial

from halfmoon.adapters.rocketmq.filters import Filter
from halfmoon.core.records import record_codec
from halfmoon.core.records.batch_header import TIMESTAMP_TYPE, BatchHeader
from halfmoon.core.records.record_codec import Record
from halfmoon.errors import BrokerError
from halfmoon.services.common.filtering import FoundInThread, found_in_thread, matches
from halfmoon.services.common.filters import takes_long
from halfmoon.services.common.lifetimes import End


class OpenBatch:
    """A batch, decompressed. `bounds`: where its records begin."""

    __slots__ = (
        "body", "bounds", "end_offset", "ends", "found", "header", "position", "prepared", "rows", "store_ms",
    )  # fmt: skip

    def __init__(
        self, position: int, header: BatchHeader, body: bytes, store_ms: int, prepared: Sequence[int] = ()
    ) -> None:
        self.position = position
        self.header = header
        self.body = body
        self.store_ms = store_ms
        self.prepared = prepared
        """Of committed half messages: where each waited, as in message ids."""
        self.end_offset = header.base_offset + header.last_offset_delta + 1
        self.ends: tuple[int, Sequence[End]] | None = None
        """When records of a large one expire, and with which TTL of the topic that was worked out."""
        self.bounds: array[int] | None = None
        self.rows: dict[Filter, Sequence[int]] = {}
        """Which records a filter lets through."""
        self.found: dict[Filter, FoundInThread | BrokerError] = {}
        """What a thread has found for a window that is about to be made."""

    def walk(self) -> array[int]:
        """Raises BrokerError(INVALID_RECORD)."""
        if self.bounds is None:
            self.bounds = record_codec.walk(self.body, self.header.record_count)
        return self.bounds

    def matching(self, wanted: Filter, on_error: Callable[[Exception], None]) -> Sequence[int]:
        """Indexes of the records it lets through. Raises BrokerError(INVALID_RECORD)."""
        there = self.found.pop(wanted, None)
        if there is None:
            found = matches(self.body, self.header, wanted.matcher, on_error)
            return [index for part in found for index, _ in part]
        if isinstance(there, BrokerError):
            raise there
        for error in there.errors:
            on_error(error)
        return [index for part in there.parts for index, _ in part]

    def takes_long(self, wanted: Filter) -> bool:
        return wanted not in self.rows and takes_long(wanted.matcher, self.body)

    def record_at(self, offset: int) -> Record:
        """The record at a queue offset, which is there. Raises BrokerError(INVALID_RECORD)."""
        row, header = self.row_for(offset), self.header
        append_ms = header.max_timestamp if header.attributes & TIMESTAMP_TYPE else None
        return record_codec.read_one(self.body, self.walk()[row], row, header.base_timestamp, append_ms)

    def row_for(self, offset: int) -> int:
        """The index of the first record at or after a queue offset. Raises BrokerError(INVALID_RECORD)."""
        delta = offset - self.header.base_offset
        if delta <= 0:
            return 0
        if self.header.record_count == self.header.last_offset_delta + 1:
            return delta
        bounds = self.walk()
        return bisect_left(
            range(len(bounds) - 1), delta, key=lambda row: record_codec.glance(self.body, bounds[row], row, 0)[0]
        )


Loading = Callable[[], list[OpenBatch]]
"""A function for a thread, whose result `make` goes on with."""


def _looked_at(batches: list[OpenBatch], wanted: Filter) -> list[OpenBatch]:
    """For a thread: the same batches, after a filter that takes long has looked at them."""
    for batch in batches:
        if batch.takes_long(wanted):
            batch.found[wanted] = found_in_thread(batch.body, batch.header, wanted.matcher)
    return batches


def in_thread(wanted: Filter | None, batches: list[OpenBatch] | Loading) -> Loading | None:
    """What a thread has to do before `make`; None where there is nothing."""
    if not isinstance(batches, list):
        load: Loading = batches
        return load if wanted is None else partial(_load_and_look, load, wanted)
    if wanted is None or not any(batch.takes_long(wanted) for batch in batches):
        return None
    return partial(_looked_at, batches, wanted)


def _load_and_look(load: Loading, wanted: Filter) -> list[OpenBatch]:
    return _looked_at(load(), wanted)
