"""Calls to the store and to the database that are made until they succeed: nobody can go on before it is certain what
they have come to. Others are made some times (trying.py).

That holds whatever goes wrong, also where it is none of the errors that are expected: what has been written waits, and
a shard that gave it up could not be written any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from halfmoon.cluster.engine import footer
from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.engine.objects import ObjectExistsError, ObjectMissingError, ObjectStore, StoreUnavailableError

T = TypeVar("T")
log: Final = logging.getLogger("halfmoon.cluster")

FIRST_PAUSE_S: Final = 0.02
LAST_PAUSE_S: Final = 1.0
"""Between tries; each pause is twice as long as the one before."""


async def insist(what: str, call: Callable[[], Awaitable[T]]) -> T:
    """Ask the database until it answers. `what`: for the log."""
    pauses = Pauses()
    while True:
        try:
            return await call()
        except Exception as error:
            await pauses.wait(what, error)


async def store_object(store: ObjectStore, key: str, data: bytes) -> None:
    """Until it is there: what may be there under a name is there, if it has the footer that was sent, with which `data`
    ends. Raises OSError where another object has the name."""
    pauses = Pauses()
    while True:
        try:
            await store.put(key, data)
            return
        except ObjectExistsError as error:
            is_ours = await _is_ours(store, key, data)
            if is_ours:
                return
            if is_ours is not None:
                raise OSError(f"object {key} is there, and is another one") from None
            await pauses.wait("object_stored", error)  # S3 says the same of a conflict: the request is to be made again
        except Exception as error:
            await pauses.wait("object_stored", error)


async def _is_ours(store: ObjectStore, key: str, data: bytes) -> bool | None:
    """Whether what is there is what was sent, by an earlier try: it has the same length and the same footer. None:
    there is nothing."""
    pauses = Pauses()
    while True:
        try:
            if await store.size(key) != len(data):
                return False
            begin = len(data) - footer.TRAILER_BYTES
            return await store.get(key, begin, len(data)) == data[begin:]
        except ObjectMissingError:
            return None
        except Exception as error:
            await pauses.wait("object_read", error)


class Pauses:
    def __init__(self) -> None:
        self._next_s = FIRST_PAUSE_S

    async def wait(self, what: str, error: Exception) -> None:
        """`what` has failed, or its outcome is unknown."""
        if isinstance(error, (DatabaseUnavailableError, StoreUnavailableError, ObjectExistsError)):
            log.info("event=tried_again what=%s again_s=%g error=%s", what, self._next_s, error)
        else:
            log.error("event=tried_again what=%s again_s=%g error=unexpected", what, self._next_s, exc_info=error)
        await asyncio.sleep(self._next_s)
        self._next_s = min(LAST_PAUSE_S, 2 * self._next_s)
