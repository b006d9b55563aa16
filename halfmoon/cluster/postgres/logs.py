"""Logs and leases in PostgreSQL, as cluster/engine/database.LogDatabase says it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import asyncpg

from halfmoon.cluster.engine.database import (
    CONDEMNED_S,
    Commit,
    CondemnedError,
    Contents,
    DatabaseUnavailableError,
    Node,
    SideFile,
)
from halfmoon.cluster.engine.pieces import IN_DATABASE, Durability, Head, Piece
from halfmoon.cluster.postgres import statements
from halfmoon.cluster.postgres.connecting import CALL_S, LIMIT_S, Access, transaction, translated
from halfmoon.cluster.postgres.schema import NEWEST
from halfmoon.errors import LeaseLostError

log: Final = logging.getLogger("halfmoon.cluster")

LEASE_S: Final = 3.0
SESSION_S: Final = 1.0
"""A session that does not answer for so long is given up: the lease is to be renewed meanwhile."""

SENT_BYTES_S: Final = 1 << 20
"""A statement has a second more for so many bytes: one that ended too early would be sent again, for ever."""
LARGE_BYTES: Final = 8 << 20
"""A statement with more takes the server longer than it has by default."""
PIECES_S: Final = 1_000
"""An exchange has a second more for so many pieces."""


class PostgresLogs:
    def __init__(self, access: Access, pool: asyncpg.Pool) -> None:
        self._access = access
        self._pool = pool
        self._lock: asyncpg.Connection | None = None
        """The session that holds the lock of this incarnation, …"""
        self._before: asyncpg.Connection | None = None
        """… and one that did not answer, and is to be replaced."""
        self.on_session_ended: Callable[[], None] = lambda: None

    @classmethod
    async def open(cls, access: Access) -> PostgresLogs:
        return cls(access, await access.pool())

    async def _fetch(self, statement: str, *arguments: object, size: int = 0) -> list[Any]:
        """`size`: so many bytes are sent, which may take a while."""
        more_s = size / SENT_BYTES_S
        with translated():
            async with asyncio.timeout(LIMIT_S + more_s), self._pool.acquire(timeout=CALL_S) as connection:
                if size <= LARGE_BYTES:
                    return list(await connection.fetch(statement, *arguments, timeout=CALL_S + more_s))
                async with connection.transaction():
                    await connection.execute(_take_long(more_s))
                    return list(await connection.fetch(statement, *arguments, timeout=CALL_S + more_s))

    # -- logs ------------------------------------------------------------------------------------------------------

    async def heads(self) -> Sequence[Head]:
        return [_head(row) for row in await self._fetch(statements.HEADS)]

    async def certain_heads(self, shards: Sequence[int]) -> Sequence[Head]:
        return [_head(row) for row in await self._fetch(statements.CERTAIN_HEADS, list(shards))]

    async def all_certain_heads(self, shard: int) -> Sequence[Head]:
        return [_head(row) for row in await self._fetch(statements.ALL_CERTAIN_HEADS, shard)]

    async def commit_rows(self, commits: Sequence[Commit], frames: Sequence[Sequence[bytes]]) -> set[int]:
        rows = [
            (commit.shard, piece.start, piece.end, piece.crc, piece.segment, data)
            for commit, datas in zip(commits, frames, strict=True)
            for piece, data in zip(commit.pieces, datas, strict=True)
        ]
        size = sum(len(row[5]) for row in rows)
        found = await self._fetch(statements.COMMIT_ROWS, *_moves(commits), *_columns(rows), size=size)
        return {row[0] for row in found}

    async def commit_object(self, key: str, size: int, commits: Sequence[Commit]) -> set[int]:
        rows = [
            (commit.shard, piece.start, piece.end, piece.crc, piece.segment, piece.at)
            for commit in commits
            for piece in commit.pieces
        ]
        try:
            found = await self._fetch(statements.COMMIT_OBJECT, *_moves(commits), key, size, *_columns(rows))
        except asyncpg.UniqueViolationError as error:
            raise CondemnedError(f"object {key}: {error}") from error
        return {row[0] for row in found}

    async def contents(self, shard: int) -> Contents:
        async with transaction(self._pool, "repeatable_read") as connection:
            head = await connection.fetchrow(statements.HEAD, shard)
            if head is None:
                raise DatabaseUnavailableError(f"shard {shard} is not in the database")
            pieces = await connection.fetch(statements.PIECES, shard)
            files = await connection.fetch(statements.FILES, shard)
        return Contents(_head(head), [Piece(*row) for row in pieces], [SideFile(*row) for row in files])

    async def frames(self, shard: int, start: int, end: int) -> Sequence[tuple[Piece, bytes]]:
        rows = await self._fetch(statements.FRAMES, shard, start, end)
        return [(Piece(*row[:6]), row[6]) for row in rows]

    async def replace(
        self, shard: int, epoch: int, old: Sequence[Piece], new: Sequence[Piece], objects: Sequence[tuple[str, int]]
    ) -> bool:
        in_objects = [(piece.start, piece.end, piece.key) for piece in old if piece.key != IN_DATABASE]
        in_rows = [(piece.start, piece.end) for piece in old if piece.key == IN_DATABASE]
        keys = sorted({key for _, _, key in in_objects})
        row_bytes = sum(stop - start for start, stop in in_rows)
        # The server deletes as many pages as it wrote for them.
        more_s = row_bytes / SENT_BYTES_S + len(old) // PIECES_S
        limit_s = CALL_S + more_s
        try:
            async with transaction(self._pool, more_s=more_s) as connection:
                if more_s >= 1:
                    await connection.execute(_take_long(more_s))
                if await connection.fetchrow(statements.HOLD, shard, epoch) is None:
                    return False
                await connection.fetch(statements.LOCK_OBJECTS, keys, timeout=limit_s)
                removed = 0
                for statement, gone in ((statements.REMOVE_PIECES, in_objects), (statements.REMOVE_ROWS, in_rows)):
                    if gone:
                        removed += _count(await connection.execute(statement, shard, *_columns(gone), timeout=limit_s))
                if removed != len(old):
                    raise _NotAsAssumedError
                for key, size in objects:
                    await _add_object(connection, key, size)
                rows = [(shard, p.start, p.end, p.crc, p.segment, p.key, p.at) for p in new]
                await connection.executemany(statements.ADD_PIECE, rows)
                await connection.execute(statements.MARK_DEAD, keys, timeout=limit_s)
        except _NotAsAssumedError:
            return await self._are_there(shard, epoch, new)
        return True

    async def _are_there(self, shard: int, epoch: int, pieces: Sequence[Piece]) -> bool:
        """By a call whose end nobody was told."""
        wanted = [(piece.start, piece.end, piece.key) for piece in pieces]
        async with transaction(self._pool) as connection:
            if await connection.fetchrow(statements.HOLD, shard, epoch) is None:
                return False
            found = await connection.fetchval(statements.ARE_THERE, shard, *_columns(wanted))
        return bool(found == len(wanted))

    async def certain_pieces(self, shard: int, epoch: int) -> Sequence[Piece] | None:
        async with transaction(self._pool) as connection:
            if await connection.fetchrow(statements.HOLD, shard, epoch) is None:
                return None
            found = await connection.fetch(statements.PIECES, shard)
        return [Piece(*row) for row in found]

    async def drop(self, shard: int, epoch: int, before: int) -> bool:
        async with transaction(self._pool) as connection:
            if await connection.fetchrow(statements.HOLD, shard, epoch) is None:
                return False
            keys = [row[0] for row in await connection.fetch(statements.KEYS_BEFORE, shard, before)]
            await connection.fetch(statements.LOCK_OBJECTS, keys)
            await connection.execute(statements.DROP_PIECES, shard, before)
            await connection.execute(statements.DROP_ROWS, shard, before)
            await connection.execute(statements.MARK_DEAD, keys)
        return True

    async def put_files(self, shard: int, epoch: int, files: Sequence[SideFile]) -> bool:
        async with transaction(self._pool) as connection:
            if await connection.fetchrow(statements.HOLD, shard, epoch) is None:
                return False
            paths = [file.path for file in files]
            keys = {row[0] for row in await connection.fetch(statements.FILE_KEYS, shard, paths)}
            await connection.fetch(statements.LOCK_OBJECTS, sorted(keys))
            for file in files:
                await _add_object(connection, file.key, file.size)
                await connection.execute(statements.PUT_FILE, shard, file.path, file.key, file.size, file.crc)
            await connection.execute(statements.MARK_DEAD, sorted(keys - {file.key for file in files}))
        return True

    async def remove_files(self, shard: int, epoch: int, paths: Sequence[str]) -> bool:
        async with transaction(self._pool) as connection:
            if await connection.fetchrow(statements.HOLD, shard, epoch) is None:
                return False
            keys = [row[0] for row in await connection.fetch(statements.FILE_KEYS, shard, list(paths))]
            await connection.fetch(statements.LOCK_OBJECTS, keys)
            await connection.execute(statements.REMOVE_FILES, shard, list(paths))
            await connection.execute(statements.MARK_DEAD, keys)
        return True

    # -- objects that nobody needs ---------------------------------------------------------------------------------

    async def dead_objects(self, older_than_s: float) -> Sequence[str]:
        return [row[0] for row in await self._fetch(statements.DEAD_OBJECTS, older_than_s, CONDEMNED_S)]

    async def condemn(self, keys: Sequence[str]) -> None:
        await self._fetch(statements.CONDEMN, list(keys))

    async def known(self, keys: Sequence[str]) -> set[str]:
        return {row[0] for row in await self._fetch(statements.KNOWN, list(keys))}

    async def condemned_among(self, keys: Sequence[str]) -> set[str]:
        return {row[0] for row in await self._fetch(statements.CONDEMNED_AMONG, list(keys))}

    async def forget_objects(self, keys: Sequence[str]) -> None:
        await self._fetch(statements.FORGET_OBJECTS, list(keys))

    # -- leases ----------------------------------------------------------------------------------------------------

    async def lineage(self) -> str:
        (row,) = await self._fetch(statements.LINEAGE)
        return str(row[0])

    async def register(self, number: int, host: str, port: int, rack: str, doors: str = "") -> int:
        await self._fetch(statements.BURY)
        rows = await self._fetch(statements.REGISTER, number, host, port, rack, doors, LEASE_S, NEWEST)
        incarnation = int(rows[0][0])
        await self._hold_lock(incarnation)
        return incarnation

    async def _hold_lock(self, incarnation: int) -> asyncpg.Connection:
        """In a new session. The one before ends only now: at no time is there no lock, and others look at any time."""
        connection = await self._access.connect()
        try:
            with translated():
                await connection.fetchval(statements.SESSION_LOCK, incarnation)
        except BaseException:
            connection.terminate()
            raise
        before, self._lock, self._before = (self._before, self._lock), connection, None
        for each in before:
            if each is not None:
                each.terminate()
        connection.add_termination_listener(self._has_ended)
        return connection

    def _has_ended(self, connection: object) -> None:
        if connection in (self._lock, self._before):  # else it was replaced
            log.warning("event=session_ended")
            self.on_session_ended()

    async def renew(self, incarnation: int) -> Sequence[Head]:
        """Asked in the session that holds the lock. So it waits for no other call, and shows that there is a session:
        the server may have ended it, and nobody here have heard of that, where the network was away."""
        if self._lock is not None:
            try:
                return await _renewed(self._lock, incarnation, SESSION_S)
            except DatabaseUnavailableError as error:
                log.warning("event=session_lost error=%s", error)
                # It is asked no more, and goes on to hold the lock as far as the server knows.
                self._before, self._lock = self._lock, None
        return await _renewed(await self._hold_lock(incarnation), incarnation, CALL_S)

    async def nodes(self) -> Sequence[Node]:
        return [Node(*row) for row in await self._fetch(statements.NODES)]

    async def take(self, shard: int, epoch: int, incarnation: int) -> Head | None:
        return _one(await self._fetch(statements.TAKE, shard, epoch, incarnation))

    async def hand_over(self, shard: int, epoch: int, incarnation: int) -> Head | None:
        return _one(await self._fetch(statements.HAND_OVER, shard, epoch, incarnation))

    async def begun_anew(self, shard: int, epoch: int) -> bool:
        return bool(await self._fetch(statements.BEGUN_ANEW, shard, epoch))

    async def can_store(self, incarnation: int, stores: bool) -> None:
        await self._fetch(statements.CAN_STORE, incarnation, stores)

    async def leave(self, incarnation: int) -> None:
        await self._fetch(statements.LEAVE, incarnation)

    async def now_ms(self) -> int:
        (row,) = await self._fetch(statements.NOW_MS)
        return int(row[0])

    async def want(self, shard: int, number: int | None) -> bool:
        return bool(await self._fetch(statements.WANT, shard, number))

    async def drain(self, number: int, draining: bool) -> bool:
        return bool(await self._fetch(statements.DRAIN, number, draining))

    async def close(self) -> None:
        with translated():
            held, self._lock = self._lock, None
            try:
                if self._before is not None:
                    self._before.terminate()
                if held is not None:
                    await held.close()
            finally:
                await self._pool.close()


async def _renewed(session: asyncpg.Connection, incarnation: int, within_s: float) -> Sequence[Head]:
    """Raises LeaseLostError."""
    with translated():
        found = await session.fetch(statements.RENEW, incarnation, LEASE_S, timeout=within_s)
        owned = await session.fetch(statements.OWNED, incarnation, timeout=within_s)
    if not found:
        raise LeaseLostError(f"incarnation {incarnation} is not in the database any more")
    return [_head(row) for row in owned]


async def _add_object(connection: Any, key: str, size: int) -> None:
    """Raises CondemnedError."""
    await connection.execute(statements.ADD_OBJECT, key, size)
    if await connection.fetchrow(statements.IS_ALIVE, key) is None:
        raise CondemnedError(f"object {key} is dead")


def _take_long(more_s: float) -> str:
    return statements.TAKE_LONG.format(ms=int((CALL_S + more_s) * 1000))


class _NotAsAssumedError(Exception):
    """Undoes the transaction."""


def _head(row: Any) -> Head:
    shard, durability, *rest = row
    return Head(shard, Durability(durability), *rest)


def _one(rows: Sequence[Any]) -> Head | None:
    return _head(rows[0]) if rows else None


def _moves(commits: Iterable[Commit]) -> list[list[int]]:
    return _columns([(commit.shard, commit.epoch, commit.start, commit.end) for commit in commits])


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _count(status: str) -> int:
    """Of "DELETE 3"."""
    return int(status.rpartition(" ")[2])
