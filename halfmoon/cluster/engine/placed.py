"""Reads batches of logs that other nodes own: they tell where the batches stand and which pieces have them.

Objects never change. They are read in blocks, and the blocks that were asked for last are kept in memory, as are rows
of the database: so whoever follows the ends of logs costs one request for each object, however many shards and readers
there are. Who asks for what is on its way waits for that.

A piece may be replaced by another one after its owner has told of it. That is found out here, and asked anew by whoever
reads; what stands at a place never changes.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, NamedTuple

from halfmoon.cluster.engine.database import LogContents
from halfmoon.cluster.engine.objects import ObjectMissingError, ObjectStore
from halfmoon.cluster.engine.pieces import IN_DATABASE, Piece
from halfmoon.cluster.engine.trying import try_again
from halfmoon.core.crc import crc32c
from halfmoon.errors import HalfmoonError

BLOCK_BYTES: Final = 4 << 20
PARALLEL: Final = 16
"""Requests to the store at a time."""
IN_LOOP_BYTES: Final = 64 << 10
"""More than that is put together in a thread."""

Place = tuple[int, int]
"""(log position, length) of a batch."""


class PieceGoneError(HalfmoonError):
    """A piece is not there any more, or does not have the place: its owner is to be asked again."""


class _Key(NamedTuple):
    object: str
    """Empty: a row of the database."""
    number: int
    """Of the block; of a row, its shard."""
    start: int = 0
    """Of a row, …"""
    crc: int = 0


class _Kept:
    """A block, or a row."""

    __slots__ = ("checked", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.checked: set[int] = set()
        """Where in the object the pieces begin whose checksums were compared."""


class _Part(NamedTuple):
    """One batch."""

    piece: Piece
    at: int
    """Bytes behind the piece's first."""
    length: int


class PlacedReads:
    """Of one node. In its loop."""

    def __init__(self, database: LogContents, store: ObjectStore, limit_bytes: int) -> None:
        """`limit_bytes`: of what is kept."""
        self._database = database
        self._store = store
        self._limit_bytes = limit_bytes
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()
        """What was used last stands last."""
        self._kept_bytes = 0
        self._coming: dict[_Key, asyncio.Task[_Kept]] = {}
        self._parallel = asyncio.Semaphore(PARALLEL)
        self.gets, self.get_bytes, self.queries, self.row_bytes = 0, 0, 0, 0

    async def read(
        self, shard: int, pieces: Sequence[Piece], places: Sequence[Place], take: Callable[[int], memoryview]
    ) -> list[memoryview]:
        """The batches of a shard's log at these places, which these pieces have, in memory that `take` gives. Raises
        PieceGoneError; StoreUnavailableError, DatabaseUnavailableError after some tries; OSError for what is
        damaged."""
        parts = _parts(sorted(pieces), places)
        wanted: dict[_Key, None] = {}
        rows: dict[_Key, Piece] = {}
        for part in parts:
            for key in _keys(shard, part):
                wanted[key] = None
                if key.object == IN_DATABASE:
                    rows[key] = part.piece
        self._fetch_rows(shard, {key: piece for key, piece in rows.items() if not self._has(key)})
        kept = await self._get_all(wanted)
        memory = take(sum(part.length for part in parts))
        if len(memory) > IN_LOOP_BYTES:
            return await asyncio.to_thread(_put_together, shard, parts, kept, memory)
        return _put_together(shard, parts, kept, memory)

    def _has(self, key: _Key) -> bool:
        return key in self._kept or key in self._coming

    async def _get_all(self, keys: Iterable[_Key]) -> dict[_Key, _Kept]:
        """Rows are kept, or coming."""
        kept: dict[_Key, _Kept] = {}
        coming: dict[_Key, asyncio.Task[_Kept]] = {}
        for key in keys:  # all at one moment: what arrives may push out what is kept
            there = self._kept.get(key)
            if there is not None:
                self._kept.move_to_end(key)
                kept[key] = there
            elif key in self._coming:
                coming[key] = self._coming[key]
            else:
                assert key.object != IN_DATABASE
                coming[key] = self._begin(key, self._block(key))
        # All of them are waited for, also where one fails: no error is to be lost.
        found = await asyncio.gather(*map(asyncio.shield, coming.values()), return_exceptions=True)
        for key, one in zip(coming, found, strict=True):
            if isinstance(one, BaseException):
                raise one
            kept[key] = one
        return kept

    def _begin(self, key: _Key, work: Coroutine[Any, Any, _Kept]) -> asyncio.Task[_Kept]:
        task = self._coming[key] = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(lambda done: self._arrived(key, done))
        return task

    def _arrived(self, key: _Key, task: asyncio.Task[_Kept]) -> None:
        del self._coming[key]
        if task.cancelled() or task.exception() is not None:
            return
        kept = self._kept[key] = task.result()
        self._kept_bytes += len(kept.data)
        while self._kept_bytes > self._limit_bytes and len(self._kept) > 1:
            _, old = self._kept.popitem(last=False)
            self._kept_bytes -= len(old.data)

    async def _block(self, key: _Key) -> _Kept:
        begin = key.number * BLOCK_BYTES
        async with self._parallel:
            self.gets += 1
            try:
                data = await try_again(lambda: self._store.get(key.object, begin, begin + BLOCK_BYTES))
            except ObjectMissingError:
                raise PieceGoneError(f"object {key.object} is gone") from None
        self.get_bytes += len(data)
        return _Kept(data)

    def _fetch_rows(self, shard: int, rows: dict[_Key, Piece]) -> None:
        """By one question, from the first to the last of them."""
        if not rows:
            return
        pieces = sorted(rows.values())
        task = asyncio.get_running_loop().create_task(self._rows(shard, pieces[0].start, pieces[-1].end))
        for key, piece in rows.items():
            self._begin(key, self._row(task, shard, piece))

    async def _rows(self, shard: int, start: int, end: int) -> dict[Piece, bytes]:
        self.queries += 1
        found = dict(await try_again(lambda: self._database.frames(shard, start, end)))
        self.row_bytes += sum(map(len, found.values()))
        return found

    @staticmethod
    async def _row(rows: asyncio.Task[dict[Piece, bytes]], shard: int, piece: Piece) -> _Kept:
        data = (await asyncio.shield(rows)).get(piece)
        if data is None:
            raise PieceGoneError(f"shard {shard}: the row at {piece.start} is gone")
        if len(data) != piece.size or crc32c(data) != piece.crc:
            raise OSError(f"shard {shard}: the row at {piece.start} is damaged")
        return _Kept(data)


def _parts(pieces: Sequence[Piece], places: Iterable[Place]) -> list[_Part]:
    """Raises PieceGoneError."""
    starts = [piece.start for piece in pieces]
    parts = []
    for position, length in places:
        at = bisect_right(starts, position) - 1
        piece = pieces[at] if at >= 0 else None
        if piece is None or position + length > piece.end:
            raise PieceGoneError(f"nobody has the place {position}")
        parts.append(_Part(piece, position - piece.start, length))
    return parts


def _keys(shard: int, part: _Part) -> Iterable[_Key]:
    """What has it."""
    piece = part.piece
    if piece.key == IN_DATABASE:
        return (_Key(IN_DATABASE, shard, piece.start, piece.crc),)
    first = piece.at + part.at
    return (
        _Key(piece.key, number) for number in range(first // BLOCK_BYTES, (first + part.length - 1) // BLOCK_BYTES + 1)
    )


def _put_together(shard: int, parts: Sequence[_Part], kept: dict[_Key, _Kept], memory: memoryview) -> list[memoryview]:
    """Raises OSError."""
    found = []
    filled = 0
    for part in parts:
        piece = part.piece
        begin = filled
        base = 0 if piece.key == IN_DATABASE else piece.at
        low, high = base + part.at, base + part.at + part.length
        for key in _keys(shard, part):
            block = kept[key]
            first = 0 if piece.key == IN_DATABASE else key.number * BLOCK_BYTES
            if piece.key != IN_DATABASE:
                _check(shard, piece, block, first)
            data = memoryview(block.data)[max(0, low - first) : high - first]
            memory[filled : filled + len(data)] = data
            filled += len(data)
        if filled - begin != part.length:
            raise OSError(f"shard {shard}: the piece at {piece.start} is cut short in {piece.key or 'the database'}")
        found.append(memory[begin:filled])
    return found


def _check(shard: int, piece: Piece, block: _Kept, first: int) -> None:
    """Once, a piece that is in a block as a whole. Raises OSError."""
    low, high = piece.at - first, piece.at + piece.size - first
    if low < 0 or high > BLOCK_BYTES or piece.at in block.checked:
        return
    if crc32c(memoryview(block.data)[low:high]) != piece.crc:
        raise OSError(f"shard {shard}: the piece at {piece.start} is damaged in {piece.key}")
    block.checked.add(piece.at)
