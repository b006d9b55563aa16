"""Dispatch: makes what was appended visible (B02).

It walks behind the appends, in the order of the log. For each batch it adds a row to the partition's consume queue,
which moves the high watermark, and notes the arrival. With `flush: sync` it runs behind the fdatasync, else behind
the write: visible is what is acknowledged.

It also closes the index tails at *freeze points*: at each segment boundary, and wherever a checkpoint is to be true.
What it freezes becomes an index file, written in a thread; until the file is there, the rows are served from memory.

    frozen ≤ position ≤ log.written
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

from halfmoon.core.catalog.topics import Partition
from halfmoon.core.storage import index
from halfmoon.core.storage.files import FileSystem
from halfmoon.core.storage.index import Columns, IndexFile, Key, Run


class Appended:
    """A batch that was appended and is not visible yet."""

    __slots__ = ("base_offset", "length", "max_ms", "partition", "position", "span", "store_ms")

    def __init__(
        self, partition: Partition, base_offset: int, span: int, position: int, length: int, max_ms: int, store_ms: int
    ) -> None:
        """Positions and lengths are those of the payload; times Unix ms."""
        self.partition = partition
        self.base_offset = base_offset
        self.span = span
        self.position = position
        self.length = length
        self.max_ms = max_ms
        self.store_ms = store_ms


CLOSED_AT_ONCE = 1_000
ADOPTED_AT_ONCE = 1_000
"""Partitions: about two milliseconds."""


class Frozen(NamedTuple):
    """Tails closed at `end`, to become an index file; with it the snapshot that is true there, if one was asked for.
    The last one's runs may not all be there yet (`Dispatch.closing`)."""

    start: int
    end: int
    newest_store_ms: int
    runs: list[tuple[Partition, Run]]
    checkpoint: bytes | None


class Dispatch:
    def __init__(self, position: int) -> None:
        self.position = position
        """All frames below it are visible."""
        self.frozen_position = position
        self.frozen: deque[Frozen] = deque()
        """Waiting to be written, oldest first."""
        self._points: deque[tuple[int, bytes | None]] = deque()
        self._growing: dict[Partition, None] = {}
        self.closing: dict[Partition, None] = {}
        """Tails that end at the last freeze point, and are not closed yet: there may be 100,000. Each is closed before
        anything is added behind it."""
        self._newest_store_ms = 0
        self.rows = 0
        """Batches made visible since the last freeze."""
        self.last_store_ms = 0
        """When the last batch that is visible was stored, by the wall clock (Unix ms); 0: nobody knows."""

    def freeze_at(self, position: int, checkpoint: bytes | None = None) -> None:
        """Ask for the tails to be closed when dispatch reaches `position`, a frame boundary not passed yet."""
        assert position >= self.position
        assert not self._points or position >= self._points[-1][0]
        self._points.append((position, checkpoint))

    def run(self, appended: Collection[Appended], upto: int, arrivals: dict[Partition, int]) -> None:
        """Make `appended` visible; afterwards everything below `upto` is. Adds up the arrived bytes by partition."""
        points = self._points
        self.rows += len(appended)
        store_ms = self.last_store_ms
        for batch in appended:
            partition, position, length, store_ms = batch.partition, batch.position, batch.length, batch.store_ms
            while points and position >= points[0][0]:
                self._freeze(*points.popleft())
            if partition in self.closing:
                self._close((partition,))
            partition.queue.add(batch.base_offset, batch.span, position, length, batch.max_ms)
            self._growing[partition] = None
            if store_ms > self._newest_store_ms:
                self._newest_store_ms = store_ms
            arrivals[partition] = arrivals.get(partition, 0) + length
        self.last_store_ms = store_ms
        self.position = upto
        while points and upto >= points[0][0]:
            self._freeze(*points.popleft())

    def _freeze(self, position: int, checkpoint: bytes | None) -> None:
        self._close(list(self.closing))
        self.closing, self._growing = self._growing, {}
        self.rows = 0
        if position > self.frozen_position or checkpoint is not None:
            self.frozen.append(Frozen(self.frozen_position, position, self._newest_store_ms, [], checkpoint))
        self.frozen_position = position
        self._newest_store_ms = 0
        self.close_some()

    def close_some(self) -> None:
        """A slice of the tails that are to be closed."""
        self._close(list(islice(self.closing, CLOSED_AT_ONCE)))

    def close_all(self) -> None:
        self._close(list(self.closing))

    def _close(self, partitions: Collection[Partition]) -> None:
        closing = self.closing
        for partition in partitions:
            del closing[partition]
            run = partition.queue.freeze()
            if run is not None:
                self.frozen[-1].runs.append((partition, run))


def _key(partition: Partition) -> Key:
    return Key(partition.topic.number, partition.index)


def write_index(fs: FileSystem, frozen: Frozen) -> IndexFile:
    """Write what was frozen, one file; meant for a thread. Raises OSError."""
    runs = sorted(((_key(partition), [run]) for partition, run in frozen.runs), key=itemgetter(0))
    return index.write(fs, frozen.start, frozen.end, frozen.newest_store_ms, runs)


def adopt(frozen: Frozen, file: IndexFile) -> Iterator[None]:
    """Serve the frozen rows from their file from now on, in slices; `frozen` is empty then, its memory given back."""
    runs = frozen.runs
    while runs:
        for partition, run in runs[-ADOPTED_AT_ONCE:]:
            new = file.runs.get(_key(partition))
            if new is not None:
                partition.queue.replace(partial(_has, run.columns), new)
        del runs[-ADOPTED_AT_ONCE:]
        if runs:
            yield


def _has(columns: Columns, run: Run) -> bool:
    return run.columns is columns
