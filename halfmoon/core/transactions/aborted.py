"""The aborted transactions of one partition, packed: four columns of 8 bytes.

A reader of committed records gets whole batches, and with them the transactions whose batches it has to leave out. An
entry says which producer, from which offset on, and where its marker stands. Entries are made when markers are
appended, so their last offsets grow.

Entries are forgotten with the records that they are about. So whoever reads takes the entries in the same moment as the
places of what it reads (`AbortedBatches`), and not when it has read.

`stable` is the last stable offset right behind the marker. A transaction that was open then begins at or above it, and
so does every one that is aborted later: a search for what begins below an offset may end there (Kafka:
TransactionIndex). Beside a transaction that stays open for long it does not move, so a search also steps over blocks of
which all begin too late.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from halfmoon.core.records.batch_header import CONTROL, TRANSACTIONAL, BatchHeader

_BLOCK: Final = 256


class Aborted(NamedTuple):
    """The producer's transactional batches from `first_offset` on, up to the marker at `last_offset`, do not count."""

    producer_id: int
    first_offset: int
    last_offset: int


class AbortedBatches:
    """Which decided batches of a partition are nothing for a reader of committed records."""

    __slots__ = ("_by_producer",)

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._by_producer: dict[int, tuple[list[int], list[int]]] = {}
        """Where the producer's aborted transactions begin and end, one after the other."""
        for producer_id, first, last in aborted:
            firsts, lasts = self._by_producer.setdefault(producer_id, ([], []))
            firsts.append(first)
            lasts.append(last)

    def hold(self, header: BatchHeader) -> bool:
        """Whether one of these transactions has written the batch."""
        if not header.attributes & TRANSACTIONAL or header.attributes & CONTROL:
            return False
        spans = self._by_producer.get(header.producer_id)
        if spans is None:
            return False
        firsts, lasts = spans
        at = bisect_left(lasts, header.base_offset)
        return at < len(lasts) and firsts[at] <= header.base_offset

    def hide(self, header: BatchHeader) -> bool:
        """Whether it is a marker, or of one of these transactions."""
        return bool(header.attributes & CONTROL) or self.hold(header)


NONE_ABORTED: Final = AbortedBatches(())


class AbortedTransactions:
    """Changed in the loop. Other threads may search meanwhile: columns from which something goes are replaced."""

    __slots__ = ("_state",)

    def __init__(self, columns: bytes = b"") -> None:
        """`columns`: what `to_bytes` gave."""
        made = tuple(array("q") for _ in range(4))
        size = len(columns) // 4
        for at, column in enumerate(made):
            column.frombytes(columns[at * size : (at + 1) * size])
        first = made[1]
        earliest = array("q", (min(first[at : at + _BLOCK]) for at in range(0, len(first), _BLOCK)))
        self._state = made, earliest, 0
        """Columns: producer ids, first offsets, last offsets, stable offsets. The lowest first offset of each block.
        How many entries at the beginning are forgotten."""

    def __len__(self) -> int:
        columns, _, begin = self._state
        return len(columns[0]) - begin

    def add(self, aborted: Aborted, stable_offset: int) -> None:
        columns, earliest, _ = self._state
        last = columns[2]
        assert not last or last[-1] < aborted.last_offset
        if len(last) % _BLOCK == 0:
            earliest.append(aborted.first_offset)
        else:
            earliest[-1] = min(earliest[-1], aborted.first_offset)
        for column, value in zip(columns, (*aborted, stable_offset), strict=True):
            column.append(value)

    def overlapping(self, low: int, high: int) -> Iterator[Aborted]:
        """Those with batches that may lie in the offsets [low, high), in the order of their markers."""
        (producer, first, last, stable), earliest, begin = self._state
        at, end = bisect_left(last, low, begin), len(stable)
        while at < end:
            stop = min(end, (at // _BLOCK + 1) * _BLOCK)
            if earliest[at // _BLOCK] < high:
                for each in range(at, stop):
                    if first[each] < high:
                        yield Aborted(producer[each], first[each], last[each])
            if stable[stop - 1] >= high:
                return
            at = stop

    def __iter__(self) -> Iterator[Aborted]:
        (producer, first, last, _), _, begin = self._state
        return map(Aborted, producer[begin:], first[begin:], last[begin:])

    def forget(self, start_offset: int) -> None:
        """Nobody reads below `start_offset` any more."""
        columns, earliest, begin = self._state
        begin = bisect_left(columns[2], start_offset, begin)
        blocks = begin // _BLOCK
        if 2 * blocks * _BLOCK > len(columns[0]):
            gone = blocks * _BLOCK
            columns, earliest, begin = tuple(each[gone:] for each in columns), earliest[blocks:], begin - gone
        self._state = columns, earliest, begin

    def to_bytes(self) -> bytes:
        columns, _, begin = self._state
        return b"".join(column[begin:].tobytes() for column in columns)
