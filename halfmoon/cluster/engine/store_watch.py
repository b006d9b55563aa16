"""Whether a node reaches the object store: one that does not gives its shards to those that do.

Whatever is stored says it. Where nothing is to be stored, an empty object of a name of the node's own is: that it is
there already is an answer, too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from halfmoon.cluster.engine.objects import ObjectExistsError, ObjectStore, Stored, StoreUnavailableError

FAILING_S: Final = 15.0
"""A store that refuses for so long is not just slow."""
PROBE_S: Final = 5.0
"""After so long without an answer about anything stored, something is."""
BEGIN_S = 3.0
"""So long a start waits for the store."""


class WatchedStore:
    """See ObjectStore."""

    def __init__(self, store: ObjectStore, probe: str, now_s: Callable[[], float] = time.monotonic) -> None:
        """`probe`: a name that only this node uses."""
        self._store = store
        self._probe = probe
        self._now_s = now_s
        self._heard_s = now_s()
        self._failing_s: float | None = None
        """Since when each attempt to store something has failed, …"""
        self._reason = ""
        """… and why."""
        self._was_reached = True
        """Whether it can be that it only does not answer for a while."""

    @property
    def is_reached(self) -> bool:
        return self._failing_s is None or (self._was_reached and self._now_s() < self._failing_s + FAILING_S)

    def problems(self) -> list[str]:
        if self.is_reached or self._failing_s is None:
            return []
        return [f"nothing could be stored for {self._now_s() - self._failing_s:.0f} s: {self._reason}"]

    async def begin(self) -> None:
        """Called before this node takes shards: if it fails, the store is not reached, and not just for a while. So S3
        refuses a node whose clock is more than a quarter of an hour off (RequestTimeTooSkewed)."""
        self._was_reached = False
        begun_s = self._now_s()
        try:
            async with asyncio.timeout(BEGIN_S):
                await self._try()
        except TimeoutError:
            self._failing_s, self._reason = begun_s, f"no answer within {BEGIN_S:.0f} s"

    async def probe(self) -> None:
        """Called again and again."""
        if self._now_s() >= self._heard_s + PROBE_S:
            await self._try()

    async def _try(self) -> None:
        try:
            await self.put(self._probe, b"")
        except (ObjectExistsError, StoreUnavailableError):
            pass

    async def put(self, key: str, data: bytes) -> None:
        begun_s = self._now_s()
        try:
            await self._store.put(key, data)
        except ObjectExistsError:
            self._answered()
            raise
        except StoreUnavailableError as error:
            self._heard_s, self._reason = self._now_s(), str(error)
            if self._failing_s is None:
                self._failing_s = begun_s
            raise
        self._answered()

    def _answered(self) -> None:
        self._was_reached, self._failing_s, self._heard_s = True, None, self._now_s()

    async def get(self, key: str, start: int, end: int) -> bytes:
        return await self._store.get(key, start, end)

    async def size(self, key: str) -> int:
        return await self._store.size(key)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._store.delete(keys)

    def list(self, prefix: str, after: str = "") -> AsyncIterator[Sequence[Stored]]:
        return self._store.list(prefix, after)
