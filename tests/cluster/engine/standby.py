"""A database with a synchronous standby that may be away, and may take over."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from typing import Any, TypeVar

from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.engine.pieces import Durability, Head, Piece
from tests.cluster.engine.doubles import MemoryDatabase

T = TypeVar("T")


class WithStandby(MemoryDatabase):
    """Its standby does not answer while it is `stuck`: who commits is not answered, and stops to wait; then all see the
    commit at the primary. What was committed before a commit that is answered is at the standby, too."""

    stuck = False
    waits_s = 3.0
    """So long whoever commits waits for the standby."""

    def __init__(self, shards: Sequence[Durability]) -> None:
        super().__init__(shards)
        self.given_up = 0
        """So many commits were not answered."""
        self._certain = self._copy()

    def _copy(self) -> Any:
        return copy.deepcopy((self.shards, self.objects))

    def fail_over(self) -> None:
        """The standby takes over, without what it lacks."""
        self.shards, self.objects = copy.deepcopy(self._certain)
        self.stuck = False

    async def _replicated(self, found: T) -> T:
        if self.stuck:
            await asyncio.sleep(self.waits_s)
            self.given_up += 1
            raise DatabaseUnavailableError("TimeoutError")
        self._certain = self._copy()
        return found

    async def commit_rows(self, *given: Any) -> set[int]:
        return await self._replicated(await super().commit_rows(*given))

    async def commit_object(self, *given: Any) -> set[int]:
        return await self._replicated(await super().commit_object(*given))

    async def certain_heads(self, shards: Sequence[int]) -> Sequence[Head]:
        return await self._replicated(await super().certain_heads(shards))

    async def all_certain_heads(self, shard: int) -> Sequence[Head]:
        return await self._replicated(await super().all_certain_heads(shard))

    async def replace(self, *given: Any) -> bool:
        return await self._replicated(await super().replace(*given))

    async def certain_pieces(self, *given: Any) -> Sequence[Piece] | None:
        return await self._replicated(await super().certain_pieces(*given))

    async def drop(self, *given: Any) -> bool:
        return await self._replicated(await super().drop(*given))

    async def put_files(self, *given: Any) -> bool:
        return await self._replicated(await super().put_files(*given))

    async def remove_files(self, *given: Any) -> bool:
        return await self._replicated(await super().remove_files(*given))

    async def dead_objects(self, older_than_s: float) -> Sequence[str]:
        found = await super().dead_objects(older_than_s)
        return await self._replicated(found) if found else found

    async def condemn(self, keys: Sequence[str]) -> None:
        is_new = not set(keys) <= set(self.objects)
        await super().condemn(keys)
        if is_new:
            await self._replicated(None)

    async def condemned_among(self, keys: Sequence[str]) -> set[str]:
        found = await super().condemned_among(keys)
        return await self._replicated(found) if found else found

    async def forget_objects(self, keys: Sequence[str]) -> None:
        await super().forget_objects(keys)
        await self._replicated(None)

    async def take(self, *given: Any) -> Head | None:
        return await self._replicated(await super().take(*given))
