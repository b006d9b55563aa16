"""Keeps the caches of a node's shards to a limit: what came here longest ago goes first. It is in the store, and comes
back when it is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from halfmoon.cluster.engine.log import Cached


class CachedLog(Protocol):
    """log.ShardLog."""

    @property
    def cached_bytes(self) -> int: ...
    def cached(self, hot_bytes: int) -> list[Cached]: ...


class Cache:
    """Of one node."""

    def __init__(self, limit_bytes: int, hot_bytes: int) -> None:
        """`hot_bytes`: as of ShardLog.cached, of each log."""
        self._limit_bytes = limit_bytes
        self._hot_bytes = hot_bytes
        self.forgotten_bytes = 0

    def turn(self, logs: Sequence[CachedLog]) -> None:
        """In the loop."""
        over = sum(log.cached_bytes for log in logs) - self._limit_bytes
        if over <= 0:
            return
        found = [each for log in logs for each in log.cached(self._hot_bytes)]
        for each in sorted(found, key=lambda one: one.since_s):
            if over <= 0:
                return
            each.log.forget(each.segment)
            over -= each.size
            self.forgotten_bytes += each.size
