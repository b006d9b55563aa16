"""Brings frames from the database into objects, and many pieces together (merging.py says which).

The owner does that, from its cache. First the object is stored, then the pieces are exchanged in one transaction, which
the shard's epoch guards: a node that has lost the shard changes nothing, and its object is a leftover.

A call whose outcome is unknown is made again, until one answers, or until the database has answered something else of
this shard after a while: it may be too slow for this one, and others wait. Where the database refuses an exchange, its
list and that of here are compared, and the run is left alone for a while: it would be stored again, and refused again.
So is a run that cannot be read: it stays old, and so due, and the few rows of others would be moved with it one by one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from halfmoon.cluster.engine import footer, merging, naming
from halfmoon.cluster.engine.database import Commit, CondemnedError, DatabaseUnavailableError, LogContents
from halfmoon.cluster.engine.insisting import Pauses, insist, store_object
from halfmoon.cluster.engine.merging import Run
from halfmoon.cluster.engine.objects import MOST_BYTES, ObjectStore
from halfmoon.cluster.engine.piece_list import PieceList
from halfmoon.cluster.engine.pieces import BrokenLogError, Piece
from halfmoon.core.crc import crc32c

log: Final = logging.getLogger("halfmoon.cluster")

OBJECT_BYTES = MOST_BYTES
"""Of shards together, at most about."""
PATIENCE_S: Final = 30.0
"""After so long without an answer the database is asked whether it answers anything else."""
LEFT_OUT_S: Final = 60.0
"""So long nothing is done with a run that could not be read, or that the database has refused, or not
answered."""


class Owned(Protocol):
    """A shard that this node has."""

    @property
    def shard(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def pieces(self) -> PieceList: ...
    def active_segment(self) -> int:
        """Where the segment begins that is written to."""
        ...

    def bytes_of(self, start: int, end: int) -> bytes:
        """What its cache has there, of one segment. In a thread; raises OSError."""
        ...


class _Part(NamedTuple):
    owned: Owned
    run: Run


_Kind = Callable[[Sequence[Owned]], list[_Part]]


class Mover:
    """`turn` is called again and again, one at a time."""

    def __init__(
        self, database: LogContents, store: ObjectStore, node: int, make_key: Callable[[str], str], row_age_s: float
    ) -> None:
        """`make_key`: as of Backing. `row_age_s`: rows become an object after so long, however few they are."""
        self._database = database
        self._store = store
        self._node = node
        self._make_key = make_key
        self._row_age_s = row_age_s
        self._seen: dict[int, tuple[int, float]] = {}
        """Shard → its oldest row, and when that was seen first."""
        self._kinds: deque[_Kind] = deque((self._rows, self._small, self._full))
        """What is looked for, in turn: under load there are always rows."""
        self._last: dict[_Kind, int] = {}
        """The shard that such a thing was found in last: the next ones come first."""
        self._left_out: dict[tuple[int, int], dict[int, float]] = {}
        """(shard, epoch) → where such runs begin, and until when they are left alone."""
        self.moved_bytes = 0

    async def turn(self, shards: Sequence[Owned]) -> bool:
        """Do one thing of one kind, if anything is to be done; whether something was done."""
        self._forget_left_out()
        for _ in range(len(self._kinds)):
            choose = self._kinds[0]
            self._kinds.rotate(-1)
            last = self._last.get(choose, -1)
            parts = choose(sorted(shards, key=lambda owned: (owned.shard <= last, owned.shard)))
            if parts:
                self._last[choose] = parts[-1].owned.shard
                if await self._move(parts):
                    return True
        return False

    def _rows(self, shards: Sequence[Owned]) -> list[_Part]:
        """Of all shards, as soon as one has many or an old one."""
        now_s = asyncio.get_running_loop().time()
        due = False
        for owned in shards:
            rows = merging.waiting_rows(owned.pieces, self._left_out_of(owned))
            if rows.first is None:
                self._seen.pop(owned.shard, None)
                continue
            oldest, since_s = self._seen.get(owned.shard, (-1, 0.0))
            if oldest != rows.first:
                self._seen[owned.shard] = rows.first, now_s
            elif now_s - since_s >= self._row_age_s:
                due = True
            due = due or rows.are_many
        return self._within(shards, merging.row_runs) if due else []

    def _small(self, shards: Sequence[Owned]) -> list[_Part]:
        return self._within(shards, merging.small_runs)

    def _full(self, shards: Sequence[Owned]) -> list[_Part]:
        for owned in shards:
            run = merging.full_run(owned.pieces, owned.active_segment(), self._left_out_of(owned))
            if run is not None:
                return [_Part(owned, run)]
        return []

    def _within(
        self, shards: Sequence[Owned], runs: Callable[[PieceList, Collection[int]], Iterable[Run]]
    ) -> list[_Part]:
        parts: list[_Part] = []
        size = count = 0
        for owned in shards:
            for run in runs(owned.pieces, self._left_out_of(owned)):
                size += run.end - run.start
                count += len(run.old)
                if parts and (size > OBJECT_BYTES or count > merging.MOST_PIECES):
                    return parts
                parts.append(_Part(owned, run))
        return parts

    async def _move(self, parts: Sequence[_Part]) -> bool:
        """Whether some of them are in an object now."""
        read: list[tuple[_Part, bytes]] = []
        here = await asyncio.to_thread(lambda: [_read(part) for part in parts])
        for part, found in zip(parts, here, strict=True):
            if found is None:
                self._leave_out(part)
            else:
                read.append((part, found))
        if not read:
            return False
        key = self._make_key(naming.MERGED)
        commits = [Commit(owned.shard, owned.epoch, (_whole(run, data),)) for (owned, run), data in read]
        data, placed = await asyncio.to_thread(footer.build, self._node, key, commits, [[data] for _, data in read])
        await store_object(self._store, key, data)
        moved = False
        for (part, _), commit in zip(read, placed, strict=True):
            if await self._is_exchanged(part, commit.pieces, (key, len(data))):
                self.moved_bytes += part.run.end - part.run.start
                moved = True
        return moved

    async def _is_exchanged(self, part: _Part, new: Sequence[Piece], stored: tuple[str, int]) -> bool:
        """In the database, and in the list of here."""
        owned, run = part
        if await self._exchange(part, new, stored):
            try:
                owned.pieces.replace(run.old, new)
                return True
            except BrokenLogError as error:
                log.error("event=pieces_differ shard=%d error=%s", owned.shard, error)
        await self._compare(part)
        return False

    async def _exchange(self, part: _Part, new: Sequence[Piece], stored: tuple[str, int]) -> bool:
        """Whether the database has the new pieces, for certain; False: what it has is to be looked at."""
        owned, run = part
        pauses = Pauses()
        until_s = asyncio.get_running_loop().time() + PATIENCE_S
        while True:
            try:
                return await self._database.replace(owned.shard, owned.epoch, run.old, new, [stored])
            except DatabaseUnavailableError as error:
                await pauses.wait("exchange", error)
                if asyncio.get_running_loop().time() > until_s and await self._answers(owned):
                    log.warning("event=exchange_given_up shard=%d start=%d error=%s", owned.shard, run.start, error)
                    return False
            except CondemnedError:
                log.warning("event=object_condemned key=%s", stored[0])
                return False
            except Exception:
                log.exception("event=exchange_failed shard=%d", owned.shard)
                return False

    async def _answers(self, owned: Owned) -> bool:
        """The database does, by a commit with the shard's row locked. So no exchange goes on any more: each one holds
        that row to its end."""
        try:
            await self._database.certain_pieces(owned.shard, owned.epoch)
        except DatabaseUnavailableError:
            return False
        return True

    async def _compare(self, part: _Part) -> None:
        """An exchange was refused: the list becomes what the database has, as after a failover that has lost an
        exchange. If that has not changed anything, the run is left out."""
        owned, run = part
        found = await insist("pieces_read", lambda: self._database.certain_pieces(owned.shard, owned.epoch))
        if found:
            owned.pieces.drop(found[0].start)  # by the owner, who is just about to be told
            try:
                if owned.pieces.correct(found):
                    log.warning("event=pieces_corrected shard=%d", owned.shard)
            except BrokenLogError as error:
                log.error("event=pieces_differ shard=%d error=%s", owned.shard, error)
        if found is None:  # another node has the shard, or will have: nothing is wrong with the run
            self._leave_out(part)
        elif tuple(owned.pieces.between(run.start, run.end)) == run.old:
            log.warning("event=not_exchanged shard=%d start=%d again_s=%g", owned.shard, run.start, LEFT_OUT_S)
            self._leave_out(part)

    # -- what is left out ------------------------------------------------------------------------------------------

    def _leave_out(self, part: _Part) -> None:
        owned, run = part
        until_s = asyncio.get_running_loop().time() + LEFT_OUT_S
        self._left_out.setdefault((owned.shard, owned.epoch), {})[run.start] = until_s

    def _left_out_of(self, owned: Owned) -> Collection[int]:
        return self._left_out.get((owned.shard, owned.epoch), ())

    def _forget_left_out(self) -> None:
        now_s = asyncio.get_running_loop().time()
        for shard, starts in list(self._left_out.items()):
            left = {start: until_s for start, until_s in starts.items() if until_s > now_s}
            if left:
                self._left_out[shard] = left
            else:
                del self._left_out[shard]


def _read(part: _Part) -> bytes | None:
    """What the cache has of it; None where that is not what was committed, or is not there any more. In a thread. One
    shard that has nothing to be moved holds up no other."""
    owned, run = part
    try:
        data = owned.bytes_of(run.start, run.end)
    except OSError as error:
        log.warning("event=not_moved shard=%d error=%s", owned.shard, error)
        return None
    at = 0
    for piece in run.old:
        if crc32c(memoryview(data)[at : at + piece.size]) != piece.crc:
            log.error("event=not_moved shard=%d error=%s", owned.shard, f"the cache is damaged at {piece.start}")
            return None
        at += piece.size
    return data


def _whole(run: Run, data: bytes) -> Piece:
    return Piece(run.start, run.end, crc32c(data), run.segment)
