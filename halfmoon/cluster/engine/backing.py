"""What is behind a shard's cache: its pieces and its files in the object store and the database, for threads that wait.

The loop never waits for either. Whoever needs bytes that are not here waits in a thread of its own.
"""

from __future__ import annotations

import asyncio
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, Final, TypeVar

from halfmoon.cluster.engine.committing import Committer, Source
from halfmoon.cluster.engine.database import Contents, DatabaseUnavailableError, LogContents, SideFile
from halfmoon.cluster.engine.objects import ObjectMissingError, ObjectStore, StoreUnavailableError
from halfmoon.cluster.engine.piece_list import PieceList
from halfmoon.cluster.engine.pieces import IN_DATABASE, Head, Piece, check_whole
from halfmoon.cluster.engine.trying import put_once, try_again
from halfmoon.core.crc import crc32c
from halfmoon.errors import LeaseLostError

T = TypeVar("T")

PARALLEL: Final = 16
"""Requests to the store, or to the database, for one read."""
ROWS_BYTES: Final = 4 << 20
"""Of rows that one of them asks for: there may be one for each message."""
SAID_S: Final = 0.5
"""After an exchange of pieces it is known here within this time, where the loop is not held up."""


class Backing:
    """Of one shard that this node owns, in one epoch."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        database: LogContents,
        store: ObjectStore,
        committer: Committer,
        contents: Contents,
        make_key: Callable[[str], str],
    ) -> None:
        """`contents`: as of a moment after the shard was taken. `make_key`: an unused name for an object, of a word
        that says what it is. Raises BrokenLogError."""
        check_whole(contents.head, contents.pieces)
        self._loop = loop
        self._loop_thread: int | None = None
        loop.call_soon_threadsafe(self._note_thread)
        self._database = database
        self._store = store
        self._committer = committer
        self._make_key = make_key
        self.head: Head = contents.head
        self.pieces = PieceList(contents.pieces)
        self.files: dict[str, SideFile] = {file.path: file for file in contents.files}
        """By path; what is kept beside the log."""
        self._frozen: OSError | None = None
        self._abandoned: OSError | None = None
        self._waiting: set[Future[Any]] = set()
        """Calls of threads."""
        self._committing: Source | None = None
        """It has something to commit, and has not been told its end."""
        self.is_closing = False

    def _note_thread(self) -> None:
        self._loop_thread = threading.get_ident()

    @property
    def shard(self) -> int:
        return self.head.shard

    @property
    def epoch(self) -> int:
        return self.head.epoch

    def write(self, call: Callable[[], Awaitable[T]]) -> T:
        """As `wait`, for a call that changes something. Raises what the shard was frozen with, too."""
        if self._frozen is not None:
            raise self._frozen
        return self.wait(call)

    def wait(self, call: Callable[[], Awaitable[T]]) -> T:
        """In a thread: what the call comes to, which is made in the loop. Raises what it raises; OSError for what is
        unavailable, and what it was abandoned with."""
        assert threading.get_ident() != self._loop_thread, "the loop would wait for itself"

        async def run() -> T:
            return await call()

        if self._abandoned is not None:
            raise self._abandoned
        done: Future[T] = asyncio.run_coroutine_threadsafe(run(), self._loop)
        self._waiting.add(done)
        if self._abandoned is not None:  # just before, and this was not seen
            done.cancel()
        try:
            return done.result()
        except CancelledError:
            raise OSError(f"shard {self.shard} is abandoned") from None
        except (DatabaseUnavailableError, StoreUnavailableError, ObjectMissingError) as error:
            raise OSError(str(error)) from error
        finally:
            self._waiting.discard(done)

    def freeze(self, error: OSError) -> None:
        """In the loop: nothing is written for this shard any more, and what there is can be read. Who waits for a
        commit is told this error, and who writes later."""
        if self._frozen is None:
            self._frozen = error
            if self._committing is not None:
                self._committing.failed(error)

    def abandon(self, error: OSError) -> None:
        """In the loop: nothing more is done for this shard. Who waits is told this error, and who comes later: of a
        commit that is on its way nobody here will know the end."""
        if self._abandoned is not None:
            return
        self._abandoned = error
        for each in list(self._waiting):
            each.cancel()
        self.freeze(error)

    @property
    def is_frozen(self) -> bool:
        return self._frozen is not None

    # -- committing; in the loop -----------------------------------------------------------------------------------

    def wants(self, source: Source) -> None:
        if self._frozen is not None:
            self._loop.call_soon(source.failed, self._frozen)
        else:
            self._committing = source
            self._committer.wants(source)
            if self.is_closing:
                self._committer.hurry()

    def hurry(self) -> None:
        """Do not wait for others to commit with."""
        if self._committing is not None:
            self._committer.hurry()

    def closing(self) -> None:
        """It is about to be closed: neither what waits now waits for others, nor what is written until it is."""
        self.is_closing = True
        self.hurry()

    def ended(self) -> None:
        """The commit's end was told."""
        self._committing = None

    def written(self, size: int) -> None:
        self._committer.written(size)

    def call_in_loop(self, what: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(what)

    # -- reading; in a thread --------------------------------------------------------------------------------------

    def read(self, start: int, end: int) -> list[tuple[int, bytes]]:
        """(position, bytes) of all frames in [start, end), in order. Raises OSError."""
        return self.wait(lambda: self._read(start, end))

    async def _read(self, start: int, end: int) -> list[tuple[int, bytes]]:
        try:
            return await self._read_from(self.pieces.between(start, end), start, end)
        except _PieceGoneError as gone:
            return await self._read_from(await self._seen(gone, start, end), start, end)

    async def _seen(self, gone: _PieceGoneError, start: int, end: int) -> Sequence[Piece]:
        """What the database shows instead. The exchange by which a piece went may not be certain, and is not relied on;
        the frames are the same, whatever comes of it. Raises OSError."""
        head, pieces, _ = await try_again(lambda: self._database.contents(self.shard))
        low = max(0, bisect_right(pieces, start, key=_start) - 1)
        found = pieces[low : bisect_left(pieces, end, key=_start)]
        if head.epoch != self.epoch or gone.piece in found:
            raise gone
        return found

    async def _read_from(self, pieces: Sequence[Piece], start: int, end: int) -> list[tuple[int, bytes]]:
        parts = asyncio.Semaphore(PARALLEL)

        async def some(together: Sequence[Piece]) -> list[tuple[int, bytes]]:
            found = []
            async with parts:
                rows = await self._rows(together) if len(together) > 1 else None
                for piece in together:
                    low, high = max(start, piece.start) - piece.start, min(end, piece.start + piece.size) - piece.start
                    found.append((piece.start + low, await self._part(piece, low, max(low, high), rows)))
            return found

        found = await asyncio.gather(*(some(together) for together in _asked_together(pieces)))
        return [each for part in found for each in part]

    async def _rows(self, pieces: Sequence[Piece]) -> Mapping[Piece, bytes]:
        start, end = pieces[0].start, pieces[-1].end
        return dict(await try_again(lambda: self._database.frames(self.shard, start, end)))

    async def _part(self, piece: Piece, low: int, high: int, rows: Mapping[Piece, bytes] | None = None) -> bytes:
        """Bytes [low, high) of its frames. `rows`: those that have just been read, if any have."""
        if piece.key != IN_DATABASE:
            try:
                data = await try_again(lambda: self._store.get(piece.key, piece.at + low, piece.at + high))
            except ObjectMissingError:
                return await self._part_of_successors(piece, low, high)
        else:
            row = (await self._rows([piece]) if rows is None else rows).get(piece._replace(at=0))
            if row is None:
                return await self._part_of_successors(piece, low, high)
            data = row[low:high]
        whole = low == 0 and high == piece.size
        if len(data) != high - low or (whole and crc32c(data) != piece.crc):
            raise OSError(f"shard {self.shard}: the piece at {piece.start} is damaged in {piece.key or 'the database'}")
        return data

    async def _part_of_successors(self, piece: Piece, low: int, high: int) -> bytes:
        """The piece was replaced by others meanwhile."""
        now = self.pieces.between(piece.start + low, piece.start + high)
        if piece in now:
            await asyncio.sleep(SAID_S)
            now = self.pieces.between(piece.start + low, piece.start + high)
        if piece in now:
            raise _PieceGoneError(self.shard, piece)
        found = b""
        for one in now:
            begin, end = max(piece.start + low, one.start), min(piece.start + high, one.start + one.size)
            found += await self._part(one, begin - one.start, end - one.start)
        return found

    # -- what is beside the log; in a thread -----------------------------------------------------------------------

    def load_files(self, paths: Sequence[str]) -> Sequence[bytes]:
        """The files' bytes, fetched at the same time. Raises OSError."""

        async def load() -> Sequence[bytes]:
            return await asyncio.gather(*(self._load_file(self.files[path]) for path in paths))

        return self.wait(load)

    def part_of(self, file: SideFile, low: int, high: int) -> bytes:
        """Bytes [low, high) of it. Raises OSError."""
        data = self.wait(lambda: try_again(lambda: self._store.get(file.key, low, high)))
        if len(data) != high - low:
            raise OSError(f"shard {self.shard}: {file.path} is cut off in object {file.key}")
        return data

    async def _load_file(self, file: SideFile) -> bytes:
        data = await try_again(lambda: self._store.get(file.key, 0, file.size))
        if len(data) != file.size or crc32c(data) != file.crc:
            raise OSError(f"shard {self.shard}: {file.path} is damaged in object {file.key}")
        return data

    def put_files(self, data: Mapping[str, bytes]) -> None:
        """Keep these, by path, in the place of what is there under their names; all or none. Raises OSError;
        LeaseLostError."""
        files = [SideFile(path, self._make_key(path), len(one), crc32c(one)) for path, one in data.items()]

        async def put(file: SideFile) -> None:
            await put_once(self._store, file.key, data[file.path])

        async def put_all() -> bool:
            await asyncio.gather(*map(put, files))
            # That they are seen after a call that failed says nothing: the standby may lack them. Noting them again is
            # a commit behind that one, and changes nothing more.
            return await try_again(lambda: self._database.put_files(self.shard, self.epoch, files))

        if not self.write(put_all):
            raise LeaseLostError(f"shard {self.shard} has another epoch than {self.epoch}")
        self.files.update({file.path: file for file in files})

    def remove_files(self, paths: Sequence[str]) -> None:
        """Raises OSError; LeaseLostError."""
        if not self.write(lambda: try_again(lambda: self._database.remove_files(self.shard, self.epoch, paths))):
            raise LeaseLostError(f"shard {self.shard} has another epoch than {self.epoch}")
        for path in paths:
            self.files.pop(path, None)

    def drop(self, before: int) -> None:
        """Pieces that end at or before this position are not needed any more. Raises OSError; LeaseLostError."""
        if not self.write(lambda: try_again(lambda: self._database.drop(self.shard, self.epoch, before))):
            raise LeaseLostError(f"shard {self.shard} has another epoch than {self.epoch}")
        self.call_in_loop(lambda: self.pieces.drop(before))


class _PieceGoneError(OSError):
    """And there is no other one in its place here."""

    def __init__(self, shard: int, piece: Piece) -> None:
        super().__init__(f"shard {shard}: the piece at {piece.start} is gone from {piece.key or 'the database'}")
        self.piece = piece


def _start(piece: Piece) -> int:
    return piece.start


def _asked_together(pieces: Sequence[Piece]) -> Iterator[Sequence[Piece]]:
    """Rows that follow each other are asked for at once; what is in objects piece by piece."""
    found: list[Piece] = []
    size = 0
    for piece in pieces:
        if found and (piece.key != IN_DATABASE or found[-1].key != IN_DATABASE or size + piece.size > ROWS_BYTES):
            yield found
            found, size = [], 0
        found.append(piece)
        size += piece.size
    if found:
        yield found
