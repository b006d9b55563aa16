"""Connections to the database, and what an error of one means.

A node has few: one that holds its lock and renews its lease, two for the catalog, and a pool for the rest. A server
that does not answer is given up after `CALL_S`, in which a lease is not over.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg

from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.postgres.hosts import Hosts

CALL_S: Final = 3.0
"""For a statement, and for a connection to be made."""
HOST_S: Final = 1.0
"""Of that, each of several hosts has its part, but no less than this."""
LIMIT_S: Final = 10.0
"""For all that a call takes, with the wait for a connection. The driver has time-outs of its own; a call that hung all
the same would hold up its shard for ever."""
POOL: Final = 4

_SERVER_SETTINGS: Final = {
    "application_name": "halfmoon",
    "statement_timeout": str(int(CALL_S * 1000)),
    "lock_timeout": str(int(CALL_S * 1000)),
    "idle_in_transaction_session_timeout": "2000",
    # A connection whose peer is gone must not hold a lock of an incarnation for hours.
    "tcp_keepalives_idle": "1",
    "tcp_keepalives_interval": "1",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "3000",
}

_PASSING: Final = ("08", "25", "28", "3D", "40", "53", "55", "57", "58", "XX")
"""Classes of SQLSTATE that say nothing about the statement itself: connections, a server that became read-only, logins
(a password is being changed, a standby does not know the clients yet), no such database, deadlocks, no resources,
locks, a shutdown, its system, internal errors (and what poolers say of themselves)."""
_NO_RIGHT: Final = "42501"
"""Nor does that a right is missing: an administrator has taken it away, and may give it back. The server says which."""


class Access:
    """How to connect. `dsn` as of libpq: `postgresql://user@host1,host2/name`; more hosts are a primary and those that
    may become it."""

    def __init__(self, dsn: str, password: str | Callable[[], str] | None = None, ssl: Any = None) -> None:
        """`password`: a function is asked at each connect; it raises OSError."""
        self._dsn = dsn
        self._hosts = Hosts(dsn)
        self._more: dict[str, Any] = {"timeout": CALL_S, "command_timeout": CALL_S, "server_settings": _SERVER_SETTINGS}
        if password is not None:
            self._more["password"] = password
        if ssl is not None:
            self._more["ssl"] = ssl

    async def connect(self, command_s: float = CALL_S) -> asyncpg.Connection:
        """`command_s`: for a statement, as the driver limits it. Raises DatabaseUnavailableError."""
        return await self._first_primary(self._dsn, **{**self._more, "command_timeout": command_s})

    async def _first_primary(self, _dsn: str, **more: Any) -> asyncpg.Connection:
        """Raises DatabaseUnavailableError, which says it of each host. Whoever is cancelled while one of them is silent
        begins with another one the next time."""
        hosts = self._hosts.order
        more["timeout"] = CALL_S if len(hosts) == 1 else max(HOST_S, CALL_S / len(hosts))
        said: list[str] = []
        for host in hosts:
            try:
                with translated():
                    found = await asyncpg.connect(host.dsn, target_session_attrs="primary", **more)
            except DatabaseUnavailableError as error:
                self._hosts.is_silent(host)
                said.append(f"{host.name}: {error}" if host.name else str(error))
                if len(said) == len(hosts):
                    raise DatabaseUnavailableError("; ".join(said)) from error.__cause__
            except asyncio.CancelledError:
                self._hosts.is_silent(host)
                raise
            else:
                self._hosts.answered(host)
                return found
        raise AssertionError("there is a host")

    async def pool(self) -> asyncpg.Pool:
        """Connects when it is used."""
        more = {"connect": self._first_primary, **self._more}
        return await asyncpg.create_pool(self._dsn, min_size=0, max_size=POOL, reset=_leave, **more)


async def _leave(_connection: object) -> None:
    """Nobody changes anything about a pool's session, so there is nothing to bring back: by default the driver would
    ask the server once more after each call."""


class translated:  # noqa: N801, used like contextlib.suppress
    """What is wrong with the database, or with the way to it, is a DatabaseUnavailableError; a wrong statement is
    not. A task that was cancelled ends: the driver undoes what it was at, and what goes wrong with that takes the
    place of the cancellation."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        task = asyncio.current_task()
        if isinstance(error, Exception) and task is not None and task.cancelling():
            raise asyncio.CancelledError from error
        if isinstance(error, asyncpg.PostgresError):
            state = error.sqlstate or ""
            if state[:2] in _PASSING or state == _NO_RIGHT:
                raise DatabaseUnavailableError(_said(error)) from error
        elif isinstance(error, (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, asyncio.TimeoutError)):
            raise DatabaseUnavailableError(_said(error)) from error


def _said(error: BaseException) -> str:
    said = str(error) or ("no answer in time" if isinstance(error, TimeoutError) else "")
    return f"{type(error).__name__}: {said}".rstrip(": ")


@asynccontextmanager
async def connected(access: Access, command_s: float = CALL_S) -> AsyncIterator[Any]:
    """A connection of one's own; `command_s` as of Access. Raises DatabaseUnavailableError."""
    connection = await access.connect(command_s)
    try:
        with translated():
            yield connection
    except BaseException:
        connection.terminate()  # it may not answer, and an error of its end would take the place of this one
        raise
    with contextlib.suppress(DatabaseUnavailableError), translated():
        await connection.close()  # what was to be done is done


@asynccontextmanager
async def transaction(pool: asyncpg.Pool, isolation: str = "read_committed", more_s: float = 0.0) -> AsyncIterator[Any]:
    """A connection in a transaction, which has so much more time than usually. Raises DatabaseUnavailableError."""
    with translated():
        async with (
            asyncio.timeout(LIMIT_S + more_s),
            pool.acquire(timeout=CALL_S) as connection,
            connection.transaction(isolation=isolation),
        ):
            yield connection
