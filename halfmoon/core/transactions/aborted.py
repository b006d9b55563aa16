"""The aborted transactions of one partition, packed: four columns of 8 bytes.

A reader of committed records gets whole batches, and with them the transactions whose batches it has to leave out. An
entry says which producer, from which offset on, and where its marker stands. Entries are made when markers are
appended, so their last offsets grow.

`stable` is the last stable offset right behind the marker. A transaction that was open then begins at or above it, and
so does every one that is aborted later: a search for what begins below an offset may end there (Kafka:
TransactionIndex).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from halfmoon.core.batch_header import CONTROL, TRANSACTIONAL, BatchHeader


class Aborted(NamedTuple):
    """The producer's transactional batches from `first_offset` on, up to the marker at `last_offset`, do not count."""

    producer_id: int
    first_offset: int
    last_offset: int


def is_hidden(header: BatchHeader, aborted: Iterable[Aborted]) -> bool:
    """Whether a decided batch is nothing for a reader of committed records: a marker, or of one of these
    transactions."""
    if header.attributes & CONTROL:
        return True
    return bool(header.attributes & TRANSACTIONAL) and any(
        each.producer_id == header.producer_id and each.first_offset <= header.base_offset <= each.last_offset
        for each in aborted
    )


class AbortedTransactions:
    __slots__ = ("_columns", "_first", "_last", "_producer", "_stable")

    def __init__(self, columns: bytes = b"") -> None:
        """`columns`: what `to_bytes` gave."""
        self._producer, self._first, self._last, self._stable = self._columns = tuple(array("q") for _ in range(4))
        size = len(columns) // 4
        for at, column in enumerate(self._columns):
            column.frombytes(columns[at * size : (at + 1) * size])

    def __len__(self) -> int:
        return len(self._last)

    def add(self, aborted: Aborted, stable_offset: int) -> None:
        assert not self._last or self._last[-1] < aborted.last_offset
        for column, value in zip(self._columns, (*aborted, stable_offset), strict=True):
            column.append(value)

    def overlapping(self, low: int, high: int) -> Iterator[Aborted]:
        """Those with batches that may lie in the offsets [low, high), in the order of their markers."""
        for at in range(bisect_left(self._last, low), len(self._last)):
            if self._first[at] < high:
                yield Aborted(self._producer[at], self._first[at], self._last[at])
            if self._stable[at] >= high:
                return

    def __iter__(self) -> Iterator[Aborted]:
        return map(Aborted, self._producer, self._first, self._last)

    def forget(self, start_offset: int) -> None:
        """Nobody reads below `start_offset` any more."""
        gone = bisect_left(self._last, start_offset)
        if gone:
            for column in self._columns:
                del column[:gone]

    def to_bytes(self) -> bytes:
        return b"".join(column.tobytes() for column in self._columns)
